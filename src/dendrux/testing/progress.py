"""Shows how far a certification is: one line for each group, instead of pytest's dots."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from dendrux.testing.store_kit.collect import CONTRACT, KIT
from dendrux.testing.store_kit.report import GROUP_WIDTH

HEARTBEAT_S: Final = 5.0
"""At least this often something is printed where lines cannot be rewritten."""


class Progress:
    """A pytest plugin. Programs of failing contracts are kept in `folder`, where the command was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.groups: dict[str, str] = {}
        self.totals: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.open: list[str] = []
        """Groups whose line is not printed for good, in the order of the summary."""
        self.current = self.printed = ""
        self.printed_at = self.started_at = time.monotonic()
        self.out: Any = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Where to print, and where to keep what is found."""
        self.out = session.config.get_terminal_writer()
        kit = session.config.stash[KIT]
        kit.keep_in, kit.alone = self.folder, False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """How much there is to do."""
        for item in session.items:
            group = item.stash[CONTRACT].group
            self.groups[item.nodeid] = group
            self.totals[group] += 1
        self.open = list(self.totals)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Count as pytest does, and print no dots."""
        if report.when == "call" or not report.passed:
            return ("error" if report.failed and report.when != "call" else report.outcome), "", ""
        return "", "", ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A contract begins; or has ended in another process, which tells of it now."""
        self.current = self.groups[nodeid]
        if self.rewrites:
            self.show(self.current, nodeid.partition("::")[2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A contract failed: said at once."""
        if report.failed:
            self.failed[self.current] += 1
            self.show(self.current, end="\n")
            self.out.line(f"    failed: {report.nodeid.partition('::')[2]}")

    def pytest_runtest_logfinish(self) -> None:
        """One more of its group. The line of a whole group stays, once those before it are whole."""
        self.done[self.current] += 1
        while self.open and self.done[self.open[0]] == self.totals[self.open[0]]:
            self.show(self.open.pop(0), end="\n")
        if not self.rewrites and time.monotonic() - self.printed_at > HEARTBEAT_S:
            self.show(self.current, end="\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Begin to count the time."""
        self.started_at = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the last line."""
        if self.open and self.current:
            self.show(self.current, end="\n")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self) -> None:
        """Say how long it took, after the summary."""
        self.out.line(f"{sum(self.done.values())} contracts in {time.monotonic() - self.started_at:.0f} s")

    @property
    def rewrites(self) -> bool:
        """Whether the line that is being shown can be written again."""
        return bool(self.out.hasmarkup)

    def show(self, group: str, doing: str = "", end: str = "") -> None:
        """Print the state of a group."""
        failed = f", {self.failed[group]} failed" if self.failed[group] else ""
        text = f"  {group:<{GROUP_WIDTH}}{self.done[group]}/{self.totals[group]}{failed}"
        if self.rewrites:
            room = max(self.out.fullwidth - len(text) - 2, 0)
            text = f"\r{text}  {doing[:room]}\x1b[K"
        elif text == self.printed:
            return
        self.out.write(text + end, flush=True)
        self.printed = text
        self.printed_at = time.monotonic()
