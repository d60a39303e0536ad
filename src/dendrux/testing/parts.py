"""Runs the tests of one session in several processes, so that a certification uses every core.

The processes are forks of a session that has collected: each takes the next test that nobody has taken, and hands its
reports to the first process, which shows them and judges as if it had run everything itself.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from dendrux.testing.store_kit.collect import CONTRACT, KIT
from dendrux.testing.store_kit.obligations import Declaration
from dendrux.testing.store_kit.verdict import Result

FORKS: Final = sys.platform == "linux"
"""Where a process may be forked that has loaded a database's driver."""
JOBS_MAX: Final = 8

Begin = Callable[[int], AbstractContextManager[Any]]
"""Makes what the process of a number needs for itself, a folder or a database, for as long as it runs."""


class Ran(NamedTuple):
    """What a process tells of one test."""

    number: int
    reports: list[dict[str, Any]]
    declaration: Declaration | None
    result: Result | None


@dataclass
class Part:
    """A process, as the first one sees it."""

    process: Any
    answers: Connection
    busy: int | None = None
    """The test it is at."""


class Parts:
    """A pytest plugin that takes the place of the loop over the tests."""

    def __init__(self, jobs: int, begin: Begin) -> None:
        self.jobs = jobs
        self.begin = begin

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run every test in some process; one process needs none of this."""
        if self.jobs == 1 or session.testsfailed or session.config.option.collectonly:
            return None
        gc.freeze()  # what is loaded by now stays; no process looks through it again
        forking: Any = multiprocessing.get_context("fork")
        taken = forking.Value("i", 0)
        parts = [self.start(forking, session, taken, number) for number in range(self.jobs)]
        try:
            for part, message in messages(parts):
                hear(session, part, message)
        finally:
            for part in parts:
                part.process.terminate()
                part.process.join()
        return True

    def start(self, forking: Any, session: pytest.Session, taken: Any, number: int) -> Part:
        """Fork a process that runs tests until none is left."""
        mine, theirs = forking.Pipe(duplex=False)

        def work() -> None:
            mine.close()
            with self.begin(number):
                run_some(session, taken, theirs)

        process = forking.Process(target=work, name=f"dendrux part {number}")
        process.start()
        theirs.close()
        return Part(process, mine)


def run_some(session: pytest.Session, taken: Any, first: Connection) -> None:
    """Run tests, each the next one that no process has taken.

    A test is taken only when it is run, so a process that dies loses no other. Until all are taken, fixtures that
    outlive a test are kept, as for any neighbour of it.
    """
    kit, hook = session.config.stash[KIT], session.config.hook

    def take() -> int | None:
        with taken.get_lock():
            number = int(taken.value)
            taken.value += 1
        return number if number < len(session.items) else None

    while (number := take()) is not None:
        first.send(number)
        item = session.items[number]
        neighbour = session.items[number - 1] if len(session.items) > 1 else None
        reports = runtestprotocol(item, log=False, nextitem=neighbour)
        shown = [hook.pytest_report_to_serializable(config=session.config, report=report) for report in reports]
        candidate = kit.candidate(item)
        result = candidate.results.get(item.stash[CONTRACT].id)
        first.send(Ran(number, shown, candidate.declaration, result))
    session._setupstate.teardown_exact(None)  # what outlives a test, at the end of all


def messages(parts: list[Part]) -> Iterator[tuple[Part, Any]]:
    """What the processes tell, as it comes; None when one has ended."""
    listening = {part.answers: part for part in parts}
    while listening:
        for answers in wait(list(listening)):
            part = listening[answers]  # type: ignore[index]  # of the connections that were given
            try:
                message = part.answers.recv()
            except EOFError:
                del listening[part.answers]
                message = None
            yield part, message


def hear(session: pytest.Session, part: Part, message: Any) -> None:
    """Let pytest and the kit know, as if the test had run here."""
    if isinstance(message, int):
        part.busy = message
        return
    if message is None and part.busy is None:
        return
    number = part.busy if message is None else message.number
    part.busy = None
    assert number is not None
    item, kit, hook = session.items[number], session.config.stash[KIT], session.config.hook
    ran = message or lost(session, item, number)
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    candidate = kit.candidate(item)
    candidate.declaration = candidate.declaration or ran.declaration
    if ran.result is not None:
        candidate.record(item.stash[CONTRACT], ran.result)
    for shown in ran.reports:
        report = hook.pytest_report_from_serializable(config=session.config, data=shown)
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def lost(session: pytest.Session, item: pytest.Item, number: int) -> Ran:
    """What to tell of a test whose process ended in the middle of it."""
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr="the process that ran this contract ended in the middle of it",
        when="call",
    )
    shown = session.config.hook.pytest_report_to_serializable(config=session.config, report=report)
    return Ran(number, [shown], None, Result(outcome="failed"))
