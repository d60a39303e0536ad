"""A pytest plugin that prints the kill matrix of a run: what went red on which store of the zoo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

STORE: Final = "store"
NAMED: Final = "named"
RED: Final = "red"
AFTER_S: Final = "first_red_s"
"""The properties of a test of the zoo. They reach a JUnit report, and the session that reports for its workers."""


def record(keep: Callable[[str, object], None], *, store: str, named: str, red: str, after_s: float | None) -> None:
    """Keep what went red: the ids of contracts, separated by spaces; empty when the store survived."""
    for name, value in ((STORE, store), (NAMED, named), (RED, red), (AFTER_S, after_s)):
        keep(name, value)


class KillMatrix:
    """Collects the properties of the tests that ran, wherever they did."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test ended; one of the zoo says what went red."""
        properties = dict(report.user_properties)
        if report.when == "call" and RED in properties:
            self.rows.append(properties)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the matrix: a line for each group and for each store that was not killed as it says, with -v for each."""
        if not self.rows:
            return
        terminalreporter.write_sep("=", "the zoo: stores, and what went red on them")
        for text in self.lines(verbose=terminalreporter.config.get_verbosity() > 0):
            terminalreporter.write_line(text)

    def lines(self, *, verbose: bool) -> Iterator[str]:
        """The lines of the matrix."""
        groups: dict[str, list[bool]] = {}
        for row in self.rows:
            reds = row[RED].split()
            killed = row[NAMED] in reds
            groups.setdefault(row[NAMED].partition(".")[0], []).append(killed)
            if not reds:
                yield f"{row[STORE]} SURVIVES; it names {row[NAMED]}"
            elif not killed:
                yield f"{row[STORE]} is killed, but not by {row[NAMED]}: {' '.join(reds)}"
            elif verbose or len(reds) > 1:
                yield f"{row[STORE]}: {' '.join(reds)} (the first after {row[AFTER_S]} s)"
        for group, killed_ones in groups.items():
            yield f"{group}: {sum(killed_ones)} of {len(killed_ones)} killed by the contract that they name"
