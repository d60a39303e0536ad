"""The kill matrix does not pass over a survivor, nor over a store that other contracts kill than the one it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo import matrix, whole
from zoo.red import KillMatrix
from zoo.stores import ZOO
from zoo.whole import Measured

NAME = "NullDeletes"
NAMED = ZOO[NAME].killed_by
OTHER = "basic.create_run.longest_names_fit"


def measured(*killed_by: str) -> Measured:
    """A certification in which these went red."""
    first = killed_by[0] if killed_by else None
    return Measured(store=NAME, killed_by=killed_by, first_red=first, first_red_s=1.5 if first else None, whole_s=60.0)


@pytest.mark.parametrize(
    ("killed_by", "wrong"),
    [
        ((OTHER, NAMED), ""),
        ((), f"{NAME} survives"),
        ((OTHER,), f"{NAME} is not killed by {NAMED}"),
    ],
)
def test_a_run_of_the_program_fails_with_it(
    killed_by: tuple[str, ...],
    wrong: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "zoo.md")
    monkeypatch.setattr(whole, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(matrix, "certified", lambda name, folder: measured(*killed_by))
    assert matrix.main(["--whole", NAME]) == (1 if wrong else 0)
    assert wrong in capsys.readouterr().out
    assert whole.kept() == [measured(*killed_by)]
    assert f"| {NAME} | {len(killed_by)} |" in (tmp_path / "zoo.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("red", "line", "count"),
    [
        (NAMED, f"{NAME}: {NAMED} (the first after 0.2 s)", "1 of 1"),
        ("", f"{NAME} SURVIVES; it names {NAMED}", "0 of 1"),
        (OTHER, f"{NAME} is killed, but not by {NAMED}: {OTHER}", "0 of 1"),
    ],
)
def test_a_run_of_the_suite_prints_it(red: str, line: str, count: str) -> None:
    printed = KillMatrix()
    printed.rows.append({"store": NAME, "named": NAMED, "red": red, "first_red_s": 0.2})
    assert list(printed.lines(verbose=True)) == [line, f"basic: {count} killed by the contract that they name"]
    assert (line in printed.lines(verbose=False)) == (red != NAMED)
