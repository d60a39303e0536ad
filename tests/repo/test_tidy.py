"""The repository keeps its house rules, and the rules bite."""

from __future__ import annotations

from pathlib import Path

import pytest

from repo import tidy


def test_the_repository_is_tidy() -> None:
    rules = tidy.Rules.load()
    sources = dict(tidy.texts())
    found = [line for path, text in sources.items() for line in tidy.check(path, text, rules)]
    found += tidy.unused(sources, rules)
    assert not found, "\n" + "\n".join(found)


def test_every_folder_is_looked_at() -> None:
    seen = {path.split("/")[0] for path, _ in tidy.texts()}
    assert seen >= {"src", "model", "tests", "docs", "examples", "migrations", "Makefile", "pyproject.toml"}


LONG_FUNCTION = "class Store:\n    async def claim(self):\n" + "        pass\n" * 70

BAD = {
    "src/dendrux/store/ops/claims.py": [
        ("if tx.dialect.name == 'SQLite':\n    pass\n", 1, "an operation names SQLite"),
        (LONG_FUNCTION, 2, "Store.claim has 71 lines, at most 70"),
    ],
    "src/dendrux/long.py": [("pass\n" * 501, 501, "501 lines, at most 500")],
    "docs/index.md": [
        ("first\nsee /" + "home/me/notes.md\n", 2, "absolute path"),
        ("pip install --index-url https://pypi" + ".org/simple\n", 1, "package registry"),
    ],
    "tests/unit/test_x.py": [("# TO" + "DO: later\n", 1, "without an issue")],
}


@pytest.mark.parametrize(
    ("path", "text", "line", "message"), [(path, *case) for path, cases in BAD.items() for case in cases]
)
def test_a_bad_snippet_is_found(path: str, text: str, line: int, message: str) -> None:
    (found,) = tidy.check(path, text, tidy.Rules())
    assert found.startswith(f"{path}:{line}: error: ")
    assert message in found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/dendrux/store/dialects/other.py", "name = 'sqlite'\n"),
        ("src/dendrux/store/ops/claims.py", LONG_FUNCTION.replace("        pass\n", "", 1)),
        (".ci/run", "#!/" + "usr/bin/env bash\n"),
        ("docs/index.md", "https://example.org/home/page and ./srv/x and TO" + "DO(#12)\n"),
    ],
)
def test_what_is_allowed_is_not_found(path: str, text: str) -> None:
    assert tidy.check(path, text, tidy.Rules()) == []


def test_exceptions_raise_a_bound_and_must_be_needed() -> None:
    path = "src/dendrux/store/ops/claims.py"
    rules = tidy.Rules(long_functions={f"{path}::Store.claim": 80}, long_files={"gone.py": 600})
    assert tidy.check(path, LONG_FUNCTION, rules) == []
    assert [line.split("lists ")[1].split(",")[0] for line in tidy.unused({path: LONG_FUNCTION}, rules)] == ["gone.py"]
    (stale,) = tidy.unused({path: "x = 1\n", "gone.py": "\n" * 501}, rules)
    assert f"{path}::Store.claim" in stale


def test_an_exception_without_a_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.dendrux.tidy]\nfile-lines = 500\nfunction-lines = 70\n"
        "[tool.dendrux.tidy.long-files]\n'a.py' = { lines = 600 }\n"
    )
    with pytest.raises(ValueError, match="has no reason"):
        tidy.Rules.load(tmp_path)
