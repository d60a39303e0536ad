"""Runs a program step by step on a store and asks the oracle about every answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from dendrux.lab.gate import Hung, Turn, park
from dendrux.lab.seam import Errors, engine_of, statements_of, watching
from dendrux.testing.bench import Bench, Missing, settled
from dendrux.testing.driver import Driver
from dendrux.testing.hygiene import KEPT, Hygiene
from dendrux_model.linearize import linearize
from dendrux_model.outcomes import INVALID, Broken, Cancelled, Outcome, Refused, Returned
from dendrux_model.possible import Cut, Violation, Worlds, difference, same
from dendrux_model.programs import Do, Fault, Look, Program, Reopen, Step, Tick, Together, calls
from dendrux_model.views import view
from dendrux_model.world import World


@dataclass
class Line:
    """One call of a program, for reports: what was called, what the model allowed, what the store answered."""

    call: str
    allowed: tuple[Outcome, ...]
    observed: Outcome
    sql: tuple[str, ...] = ()
    step: int = 0
    """The number of the step that the call belongs to, counted from 1."""


@dataclass
class Failed(Exception):  # a finding, not an error of ours
    """A program that the store failed, with everything a report needs."""

    program: Program
    step: int
    lines: list[Line]
    why: str
    difference: str | None = None
    sql: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    """Who did what in the last race of the program, in order."""
    replayable: bool = True
    """Whether a replay of the program shows the finding; what a check tried beside its program is not part of it."""

    def __str__(self) -> str:
        return self.why


@dataclass
class Inconclusive(Exception):
    """A search for an explanation ran out of budget. Never a pass."""

    program: Program
    step: int


@dataclass
class Execution:
    """One program on one bench. `done` grows as steps are executed; Failed carries it."""

    bench: Bench
    world: World = field(default_factory=World)
    driver: Driver = field(default_factory=Driver)
    whole: bool = True
    """Whether a look makes every read. Else, of those that nothing in the program can have changed, one for each run:
    which one is the lot of the program, and over the thousands of a certification each is made after every operation.
    """
    done: list[Step] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    fired: int = 0
    """Cuts that really happened."""
    parked: bool = False
    """Whether the first call of the last `Together` reached the statement it was to be parked at."""
    following: int = 0
    """The next place of that call at which anything can come out differently."""
    turns: tuple[Turn, ...] = ()
    """Who did what in the last `Together`."""

    def __post_init__(self) -> None:
        self.worlds = Worlds(self.world)
        self.driver.clock = self.bench.clock

    async def run(self, program: Program, *, look: bool = True) -> None:
        """Every step of a program, then the view. Raises Failed or Inconclusive, or Missing for a fixture."""
        for step in program:
            await self.step(step)
        if look and not (program and isinstance(program[-1], Look)):
            await self.step(Look())

    async def step(self, step: Step) -> None:
        """One step."""
        self.done.append(step)
        match step:
            case Do():
                await self.do(step)
            case Fault():
                await self.fault(step)
            case Together():
                await self.together(step)
            case Tick():
                self.driver.aged += await self.bench.advance(step.seconds)
                self.worlds.pass_time(step.seconds)
            case Reopen():
                await self.bench.restart(step.instance)
            case Look():
                worlds = (possible.world for possible in self.worlds.possible)
                for read in view(worlds) if self.whole else view(worlds, *self.lot()):
                    await self.do(Do(read))

    def lot(self) -> tuple[set[str], int]:
        """What the program has called so far, and which of the reads that none of it can have changed is made."""
        return {call.operation.method for call in calls(self.done)}, crc32(repr(self.done).encode())

    # -- calls --------------------------------------------------------------------------------------------------------

    async def do(self, do: Do, cut: Cut | None = None) -> None:
        """One call, alone."""
        store = await self.bench.instance(do.instance)
        left = Hygiene(store)
        with statements_of(store) as sql:
            outcome = await self.driver.call(store, do.operation)
        self.judge(do, outcome, cut, tuple(sql))
        if isinstance(outcome, Refused) and left.kept() and await left.left() is not None:
            raise self.failed(KEPT, sql=tuple(sql))

    def judge(self, do: Do, outcome: Outcome, cut: Cut | None, sql: tuple[str, ...]) -> None:
        """Ask the oracle, and the contract where it says what it is about."""
        allowed = self.worlds.allowed(do.operation)
        self.lines.append(Line(str(do.operation), allowed, outcome, sql, len(self.done)))
        if do.expect is not None and not any(meets(one, do.expect) for one in allowed):
            raise self.failed(f"the contract expects {do.expect} and the model does not: {said(allowed)}")
        try:
            self.worlds.saw(do.operation, outcome, cut=cut)
        except Violation as violation:
            why = f"{do.operation.method}: {violation.why}"
            if isinstance(outcome, Broken) or outcome == INVALID:
                why += f"; it raised {self.driver.raised}"
            raise self.failed(why, closest(allowed, outcome), sql) from None

    async def fault(self, step: Fault) -> None:
        """One call whose transaction is cut."""
        injector = self.bench.injector
        if injector is None:
            raise Missing("dendrux_fault_injector")
        store = await self.bench.instance(step.do.instance)
        try:
            seen, left = Errors(), Hygiene(store)
            with statements_of(store) as sql, watching(store, seen), watching(store, left):
                outcome = await self.cut_call(injector, store, step)
            fired = int(await settled(injector.fired(store)))
        finally:
            await settled(injector.disarm(store))
        self.fired += fired
        cancelled = step.kind == "cancel"
        if fired and engine_of(store) is not None and not cancelled and not seen.count:
            raise self.failed("the fault injector reports a cut, and no statement of the store failed")
        cut = Cut(at_commit=step.point != "statement", cancelled=cancelled) if fired else None
        self.judge(step.do, outcome, cut, tuple(sql))
        if fired and (dirt := await left.left()) is not None:
            raise self.failed(dirt, sql=tuple(sql))

    async def cut_call(self, injector: Any, store: Any, step: Fault) -> Outcome:
        """Arm the injector and make the call, in a task of its own: a cancellation hits that task and not this one."""

        async def armed() -> Outcome:
            await settled(injector.arm(store, step.point, kind=step.kind, after=step.after))
            return await self.driver.call(store, step.do.operation)

        if step.kind != "cancel":
            return await armed()
        task = asyncio.ensure_future(armed())
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()  # nothing once it has ended
        return Cancelled() if task.cancelled() else task.result()

    async def together(self, step: Together) -> None:
        """Calls at once, the first parked at a statement; then any order that explains them."""
        stores = [await self.bench.instance(do.instance) for do in step.branches]
        try:
            history, self.parked, self.following, self.turns = await park(self.driver, step.branches, stores)
        except Hung as hung:
            self.turns = hung.turns
            raise self.failed(str(hung)) from None
        for do, call in zip(step.branches, history, strict=True):
            allowed = self.worlds.allowed(do.operation)
            self.lines.append(Line(str(do.operation), allowed, call.observed, step=len(self.done)))
        verdict = linearize(self.worlds.possible, history, self.worlds.instant + 1)
        if verdict.result == "unknown":
            raise Inconclusive(tuple(self.done), len(self.done))
        if verdict.result == "violation":
            answers = "; ".join(f"{call.operation.method} {call.observed}" for call in history)
            raise self.failed(f"no order of the calls explains their answers: {answers}")
        self.worlds.instant += verdict.instants
        self.worlds.replace(verdict.worlds)

    def failed(self, why: str, found: str | None = None, sql: tuple[str, ...] = ()) -> Failed:
        """The finding at the step that was executed last."""
        return Failed(tuple(self.done), len(self.done), list(self.lines), why, found, sql, self.turns)

    def beside(self, why: str) -> Failed:
        """A finding of something that was tried beside the program."""
        return replace(self.failed(why), replayable=False)


def meets(outcome: Outcome, expected: Outcome) -> bool:
    """Whether an outcome is what a contract says: for an object, the members it names."""
    if isinstance(outcome, Returned) and isinstance(expected, Returned):
        if isinstance(expected.value, dict) and isinstance(outcome.value, dict):
            return all(key in outcome.value and outcome.value[key] == value for key, value in expected.value.items())
        return same(expected.value, outcome.value, {}, "")
    return type(outcome) is type(expected) and outcome == expected


def said(outcomes: tuple[Outcome, ...]) -> str:
    """Outcomes as a report names them."""
    return " or ".join(str(outcome) for outcome in outcomes)


def closest(allowed: tuple[Outcome, ...], observed: Outcome) -> str | None:
    """The first differing field against the only value the model allows, when both are values."""
    values = [outcome.value for outcome in allowed if isinstance(outcome, Returned)]
    if len(values) == 1 and isinstance(observed, Returned):
        return difference(values[0], observed.value)
    return None
