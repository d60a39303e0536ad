"""Compares the summary of a certification with the one that a published page shows.

    python counts.py PAGES_FOLDER LOG

Every group of the page's summary must be in the log's, with at least as many contracts passed and none failed. The page
is the only one that shows a summary; its numbers are read when this runs, and more contracts are fine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

TITLE = re.compile(r"^=+ dendrux store kit: certification summary =+$", re.MULTILINE)
GROUP = re.compile(r"^  ([a-z_]+) +(\d+ (?:passed|failed|skipped).*)$")
VERDICT = re.compile(r"^ *(NOT )?CERTIFIED")


def groups(text: str, where: str) -> dict[str, dict[str, int]]:
    """The counts of each group of the one summary in a text: {group: {outcome: number}}."""
    begins = list(TITLE.finditer(text))
    if len(begins) != 1:
        raise SystemExit(f"{where} has {len(begins)} summaries; expected one")
    found: dict[str, dict[str, int]] = {}
    for line in text[begins[0].end() :].splitlines():
        if VERDICT.match(line):
            break
        if counted := GROUP.match(line):
            found[counted[1]] = {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", counted[2])}
    if not found:
        raise SystemExit(f"the summary in {where} has no groups")
    return found


def published(pages: Path) -> dict[str, dict[str, int]]:
    """The groups of the summary that a page shows."""
    found = [text for path in sorted(pages.glob("*.txt")) if TITLE.search(text := path.read_text(encoding="utf-8"))]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} pages show a summary; expected one")
    return groups(found[0], "the page")


def fewer(least: dict[str, dict[str, int]], counted: dict[str, dict[str, int]]) -> Iterator[str]:
    """What a summary lacks of another one."""
    for group, counts in least.items():
        asked = counts.get("passed", 0)
        if group not in counted:
            yield f"{group}: missing; the page has {asked} passed"
        elif (passed := counted[group].get("passed", 0)) < asked:
            yield f"{group}: {passed} passed; the page has {asked}"
    for group, counts in counted.items():
        if counts.get("failed", 0):
            yield f"{group}: {counts['failed']} failed"


def main(pages: Path, log: Path) -> None:
    """Say what is missing and exit with 1, or say what was compared."""
    least, counted = published(pages), groups(log.read_text(encoding="utf-8"), "the log")
    lacking = list(fewer(least, counted))
    if lacking:
        raise SystemExit("\n".join(["fewer contracts passed than the published summary shows:", *lacking]))
    print(f"{len(least)} groups, each with at least as many contracts passed as the published summary shows")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
