"""Machines as contracts: Hypothesis in a thread of its own, the store in the test's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dendrux.testing.bench import Bench
from dendrux.testing.execution import Execution, Failed
from dendrux.testing.store_kit.contract import Situation
from dendrux_model.branches import branch
from dendrux_model.machines.machine import Session, build, search
from dendrux_model.machines.profiles import PROFILES
from dendrux_model.machines.reduce import reduce
from dendrux_model.possible import Worlds
from dendrux_model.programs import Do, Fault, Look, Program, Step
from dendrux_model.world import World

STEP_S = 120.0
"""A step that has not ended by then hangs."""

Branches = set[tuple[str, str]]


class LoopSession:
    """A session whose steps run in the test's event loop while Hypothesis waits in its thread."""

    def __init__(self, execution: Execution, loop: asyncio.AbstractEventLoop, branches: Branches) -> None:
        self.execution = execution
        self.loop = loop
        self.branches = branches
        self.broken = False

    @property
    def worlds(self) -> Worlds:
        return self.execution.worlds

    def step(self, step: Step) -> None:
        before = self.worlds.possible[0].world
        try:
            self.run(self.execution.step(step))
        except BaseException:
            self.broken = True
            raise
        if isinstance(step, (Do, Fault)):
            do = step if isinstance(step, Do) else step.do
            after = self.worlds.possible[0].world
            still = after.runs == before.runs and after.blobs == before.blobs
            after = before if still else after  # the clock alone is no change
            answer = self.execution.lines[-1].observed
            self.branches.add((type(do.operation).__name__, branch(before, do.operation, answer, after)))

    def finish(self) -> None:
        if not self.broken:
            self.run(self.execution.step(Look()))

    def run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(STEP_S)


async def explore(
    situation: Situation,
    *,
    profile: str,
    examples: int,
    faults: tuple[tuple[str, str], ...] = (),
    reopens: bool = False,
    ticks: bool = False,
    starts: tuple[str, ...] = (),
) -> None:
    """Run one machine on one bench; a failure is reduced to a program that cannot be made smaller, and raised."""
    loop = asyncio.get_running_loop()
    branches: Branches = set()
    bench = situation.bench
    await bench.instance()

    def begin() -> Session:
        return LoopSession(execution(situation, bench), loop, branches)

    machine = build(begin, names=PROFILES[profile], faults=faults, reopens=reopens, ticks=ticks, starts=starts)
    budget = situation.settings.examples or examples
    if budget < examples:
        situation.note("reduced", budget)
    try:
        await asyncio.to_thread(search, machine, examples=budget, seed=situation.settings.seed)
    except Failed as failed:
        raise await smallest(situation, failed) from None
    finally:
        situation.note("branches", branches)


def execution(situation: Situation, bench: Bench) -> Execution:
    """A program of its own namespace on a shared bench."""
    return Execution(bench, World(new_format=situation.format))


async def smallest(situation: Situation, failed: Failed) -> Failed:
    """The failure of the smallest program that still fails."""
    loop = asyncio.get_running_loop()

    def fails(program: Program) -> bool:
        return asyncio.run_coroutine_threadsafe(outcome(situation, program), loop).result(STEP_S) is not None

    program = await asyncio.to_thread(reduce, failed.program, fails)
    return await outcome(situation, program) or failed


async def outcome(situation: Situation, program: Program) -> Failed | None:
    """What becomes of a program on the bench: its failure, or None."""
    try:
        await execution(situation, situation.bench).run(program)
    except Failed as failed:
        return failed
    return None


def machine_check(
    profile: str,
    *,
    examples: int,
    faults: tuple[tuple[str, str], ...] = (),
    reopens: bool = False,
    ticks: bool = False,
    starts: tuple[str, ...] = (),
) -> Callable[[Situation], Any]:
    """A contract's check that runs a machine."""

    async def check(situation: Situation) -> None:
        await explore(
            situation,
            profile=profile,
            examples=examples,
            faults=faults,
            reopens=reopens,
            ticks=ticks,
            starts=starts,
        )

    return check
