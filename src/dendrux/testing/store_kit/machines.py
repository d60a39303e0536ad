"""Machines as contracts: Hypothesis in a thread of its own, the store in the test's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dendrux.testing.bench import Bench
from dendrux.testing.execution import Execution, Failed
from dendrux.testing.store_kit.contract import Situation
from dendrux_model.branches import way
from dendrux_model.machines.machine import Session, build, search
from dendrux_model.machines.profiles import PROFILES
from dendrux_model.machines.reduce import reduce
from dendrux_model.possible import Worlds
from dendrux_model.programs import Do, Fault, Look, Program, Step
from dendrux_model.world import World

STEP_S = 120.0
"""A step that has not ended by then hangs."""

DEFAULT_SEED = 1
"""What machines draw from where nobody says otherwise, so that two runs are one."""

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

    @property
    def may_restart(self) -> bool:
        return self.execution.bench.room() > 0

    def step(self, step: Step) -> None:
        before = self.worlds.possible[0].world
        try:
            self.run(self.execution.step(step))
        except BaseException:
            self.broken = True
            raise
        if isinstance(step, (Do, Fault)):
            do = step if isinstance(step, Do) else step.do
            answer = self.execution.lines[-1].observed
            self.branches.add(way(before, do.operation, answer, self.worlds.possible[0].world))

    def finish(self) -> None:
        if not self.broken:
            self.run(self.execution.step(Look()))

    def run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(STEP_S)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A contract's check that runs one machine on one bench.

    A failure is reduced to a program that cannot be made smaller, and raised.
    """

    profile: str
    examples: int
    """Examples of a default run."""
    faults: tuple[tuple[str, str], ...] = ()
    reopens: bool = False
    ticks: bool = False
    instances: int = 1
    """Live instances; with more than one, every second step is a block of calls at once."""
    starts: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The classes of the operations it calls."""
        return PROFILES[self.profile]

    async def __call__(self, situation: Situation) -> None:
        loop = asyncio.get_running_loop()
        branches: Branches = set()
        bench = situation.bench
        await bench.instance()

        def begin() -> Session:
            return LoopSession(execution(situation, bench), loop, branches)

        budget = situation.settings.examples or self.examples
        if budget < self.examples:
            situation.note("reduced", budget)
        found = await asyncio.to_thread(self.failure, begin, budget, situation.settings.seed)
        situation.note("branches", branches)
        situation.note("examples", budget)
        situation.note("seed", DEFAULT_SEED if situation.settings.seed is None else situation.settings.seed)
        if found is not None:
            raise await smallest(situation, found)

    def failure(self, begin: Callable[[], Session], examples: int, seed: int | None) -> Failed | None:
        """What the search fails with. It is returned: what a store raises later must not seem to come from it."""
        try:
            self.search(begin, examples, seed)
        except Failed as failed:
            return failed
        return None

    def search(self, begin: Callable[[], Session], examples: int, seed: int | None) -> None:
        """Run the machine on sessions that `begin` starts, whatever they execute their steps on."""
        machine = build(
            begin,
            names=self.names,
            faults=self.faults,
            reopens=self.reopens,
            ticks=self.ticks,
            instances=self.instances,
            starts=self.starts,
        )
        search(machine, examples=examples, seed=DEFAULT_SEED if seed is None else seed)


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
