"""A statement-level gate: one call waits between two of its statements while others run.

A parked call holds whatever its transaction holds. A call that runs meanwhile is blocked when it met a lock, when the
server says that it waits for one, or, where no server can be asked, when it has sent nothing for `STILL_S`; then the
parked call goes on. Taking a slow call for a blocked one is harmless: the two overlap all the same. Nothing here
decides what is right: the answers go to the linearizability check.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from sqlalchemy.util import await_only

from dendrux.lab.seam import Seam, engine_of, watching
from dendrux.lab.sessions import session_of
from dendrux.lab.waits import Waits, waits_of
from dendrux_model.linearize import Call
from dendrux_model.outcomes import Outcome
from dendrux_model.programs import Do

STILL_S = 0.01
"""A call that sends no statement for this long counts as blocked by the parked one, where no server can be asked."""
POLL_S = 0.002
"""How often a server is asked about a call that sends no statement."""
DOUBT_S = 0.25
"""A call that sends nothing for this long waits for something else, where the server does not call it blocked. So it is
where a lock is refused at once: on a busy machine a call may stand still for a while without being blocked.
"""
HUNG_AFTER_S = 60.0
"""Calls that have not ended by then, with nobody parked, hang."""


class Turn(NamedTuple):
    """One thing that one of the calls did, in the order in which it happened."""

    call: int
    """The number of the call, counted from 0 in the order of the branches."""
    what: Literal["statement", "parked", "goes on", "met a lock", "waits", "ended"]
    place: int = 0
    """Of a statement, or of the one it is parked before: counted from 1, COMMIT included."""
    text: str = ""
    """The statement, or COMMIT."""


class Hung(AssertionError):
    """Calls that block each other for ever, with nobody parked."""

    def __init__(self, message: str, turns: Sequence[Turn] = ()) -> None:
        super().__init__(message)
        self.turns = tuple(turns)


class Branch:
    """One of the calls that run together."""

    current: ContextVar[Branch | None] = ContextVar("dendrux_branch", default=None)
    """The branch of the running task; a store's own tasks inherit it."""

    def __init__(self, do: Do, store: Any, number: int, turns: list[Turn]) -> None:
        self.do = do
        self.store = store
        self.number = number
        self.turns = turns
        """What all branches do, in one list."""
        self.passed = 0
        self.commits: list[int] = []
        """The places of its COMMITs, counted like statements."""
        self.parked = asyncio.Event()
        self.may_go = asyncio.Event()
        self.met_a_lock = asyncio.Event()
        self.session: int | None = None
        """The server's number for the connection of its last statement."""
        self.invoked = 0
        self.returned = 0

    def reach(self, statement: str) -> None:
        """A statement, or COMMIT, is about to be sent: park here if this is the place."""
        if self.passed == self.do.yield_at and not self.parked.is_set():
            self.note("parked", self.passed + 1, statement)
            self.parked.set()
            await_only(self.may_go.wait())
        self.passed += 1
        self.note("statement", self.passed, statement)

    def note(self, what: Any, place: int = 0, text: str = "") -> None:
        """Write down what this call does."""
        self.turns.append(Turn(self.number, what, place, text))


class Gate:
    """Watches the engines of all branches; the running task says whose statement it is."""

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None:
        branch = Branch.current.get()
        if branch is not None:
            branch.session = session_of(connection)
            branch.reach(statement)

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        branch = Branch.current.get()
        if branch is not None:
            branch.commits.append(branch.passed)
            branch.reach("COMMIT")

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def on_error(self, seam: Seam, error: BaseException) -> None:
        branch = Branch.current.get()
        if branch is not None and is_lock(branch.store, error):
            branch.note("met a lock")
            branch.met_a_lock.set()


def is_lock(store: Any, error: BaseException) -> bool:
    """Whether the store's dialect says that this error means a lock held by somebody else."""
    classify = getattr(store, "classify_db_error", None)
    return classify is not None and classify(error).kind in ("lock_timeout", "deadlock_or_serialization")


class Parked(NamedTuple):
    """What became of calls that ran together."""

    history: list[Call]
    reached: bool
    """Whether the first call got as far as the statement it was to be parked at."""
    following: int
    """The next place of the first call at which anything can come out differently.

    When the others met a lock with their first statement, they meet it wherever the first call waits until it has
    committed: the places in between are one place.
    """
    turns: tuple[Turn, ...] = ()
    """Who did what, in order."""


async def park(driver: Any, branches: Sequence[Do], stores: Sequence[Any]) -> Parked:
    """Run the calls together, the first one parked before its statement number `yield_at`."""
    turns: list[Turn] = []
    lanes = [Branch(do, store, at, turns) for at, (do, store) in enumerate(zip(branches, stores, strict=True))]
    first, others = lanes[0], lanes[1:]
    time = 0

    async def run(lane: Branch) -> Outcome:
        nonlocal time
        Branch.current.set(lane)
        lane.invoked = time = time + 1
        outcome: Outcome = await driver.call(lane.store, lane.do.operation)
        lane.returned = time = time + 1
        lane.note("ended")
        return outcome

    gate = Gate()
    tasks: list[asyncio.Task[Outcome]] = []
    with ExitStack() as watched:
        for engine_store in {id(getattr(store, "_engine", store)): store for store in stores}.values():
            watched.enter_context(watching(engine_store, gate))
        try:
            tasks.append(asyncio.ensure_future(run(first)))
            await either(tasks[0], first.parked)
            for lane in others:
                tasks.append(asyncio.ensure_future(run(lane)))
                if first.parked.is_set():
                    await until_blocked(lane, tasks[-1], waits_of(lane.store))
                    if not tasks[-1].done():
                        lane.note("waits")
            held_up = [lane.passed <= 1 and not task.done() for lane, task in zip(others, tasks[1:], strict=True)]
            locked_out = first.parked.is_set() and all(held_up)
            if first.parked.is_set():
                first.note("goes on")
            first.may_go.set()
            _, hung = await asyncio.wait(tasks, timeout=HUNG_AFTER_S)
            if hung:
                raise Hung(f"{len(hung)} of {len(lanes)} calls did not end within {HUNG_AFTER_S:.0f} s", turns)
        finally:
            first.may_go.set()
            for task in tasks:
                if not task.done():
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    history = [
        Call(lane.do.operation, task.result(), lane.invoked, lane.returned)
        for lane, task in zip(lanes, tasks, strict=True)
    ]
    place = first.do.yield_at or 0
    settled = next((at for at in first.commits if at >= place), sys.maxsize - 1) if locked_out else place
    return Parked(history, first.parked.is_set(), settled + 1, tuple(turns))


async def until_blocked(lane: Branch, task: asyncio.Task[Any], waits: Waits | None) -> None:
    """Wait until the call has ended, met a lock, waits for one in its server's eyes, or stands still."""
    loop = asyncio.get_running_loop()
    told = waits is not None or getattr(getattr(engine_of(lane.store), "dialect", None), "refuses_locks", False)
    patience, pause = DOUBT_S if told else 0.0, STILL_S if waits is None else POLL_S
    passed, since = -1, loop.time()
    while not task.done() and not lane.met_a_lock.is_set():
        if waits is not None and lane.passed == passed and await waits.blocked(lane.session):
            return
        if lane.passed != passed:
            passed, since = lane.passed, loop.time()
        elif loop.time() - since >= patience:
            return
        await either(task, lane.met_a_lock, pause)


async def either(task: asyncio.Task[Any], event: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until the task has ended or the event is set, or for the timeout."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
