"""Writes the two sample files of a published page, character for character, into a folder.

    python samples.py PAGES_FOLDER TARGET_FOLDER

The page is the one that says "Save it as my_store.py". A sample begins at its first import and ends at the sentence
that follows it on the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

SAMPLES = (
    ("my_store.py", "Save it as my_store.py", "import json\n", "Every hook not shown keeps"),
    ("conftest.py", "Here is the conftest.py", "import pytest\n", "SqlClock and SqlFaultInjector work on any"),
)
"""(file, words that announce it, its first line, words that follow it)"""


def extract(page: str, announced: str, first_line: str, followed: str) -> str:
    """The code between the announcement and the following sentence."""
    for words in (announced, first_line, followed):
        if words not in page:
            raise SystemExit(f"the page no longer contains {words!r}: adapt .ci/samples.py to it")
    start = page.index("\n" + first_line, page.index(announced)) + 1
    return page[start : page.index("\n" + followed, start)].rstrip() + "\n"


def main(pages: Path, target: Path) -> None:
    """Write both samples."""
    announcement = SAMPLES[0][1]
    found = [text for path in sorted(pages.glob("*.txt")) if announcement in (text := path.read_text(encoding="utf-8"))]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} pages say {announcement!r}; expected one")
    for name, *words in SAMPLES:
        code = extract(found[0], *words)
        compile(code, name, "exec")
        (target / name).write_text(code, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
