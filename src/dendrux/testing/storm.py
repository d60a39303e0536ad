"""A storm: several processes call every operation on a few runs at once, and the model has to explain all of it.

What they call is drawn, when they overlap is left to the machine. The storm is cut into rounds that the checker can
take: in a round each process makes a few calls, one after the other; between rounds nobody calls. CLOCK_MONOTONIC,
which the processes of a host share, says which calls were over when another began. After each round the view must be
that of one of the worlds that explain the round.

Nothing stands in anybody's way but the other processes, so no call may answer that the store is busy or unavailable.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations
from random import Random
from typing import Final, Self

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from dendrux.db.models import Base
from dendrux.db.session import get_engine
from dendrux.store import SQLStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.execution import Execution, Failed, Inconclusive, Line
from dendrux.testing.peers import Helper
from dendrux.testing.scratch import empty
from dendrux.testing.store_kit.sql import SqlClock
from dendrux_model.branches import branch
from dendrux_model.linearize import Call, linearize
from dendrux_model.machines.arguments import Arguments
from dendrux_model.machines.arguments_leases import LEASE_S
from dendrux_model.machines.callers import own
from dendrux_model.machines.deviations import TRIED_MAX, deviating
from dendrux_model.machines.machine import applies, enabled, first
from dendrux_model.machines.starts import STARTS
from dendrux_model.operations import OPERATIONS, CreateRun, ListRuns, Operation
from dendrux_model.outcomes import Outcome
from dendrux_model.programs import Do, Look, Step, Tick, Together, to_json
from dendrux_model.settled import settle
from dendrux_model.views import view
from dendrux_model.world import World

ROUNDS: Final = 12
"""Rounds on the same runs. Then everything is deleted and other runs begin."""
BUDGET: Final = 200_000
"""Steps of the model that the search for an explanation of one round may take."""
PLACES_MAX: Final = 16
"""Statements of a call at which it is parked to see a finding again."""
NARROW_S: Final = 20.0
"""For how long a pair of calls is looked for that shows a finding again."""
RUNS_MAX: Final = 5
"""With more runs than this, no rush begins any."""
LEAD_S: Final = 0.003
"""How long before a round begins its calls are sent to the processes."""
SPREAD_S: Final = 0.002
"""By how much one process may begin later than another."""


@dataclass
class Weather:
    """What a storm did."""

    rounds: int = 0
    calls: int = 0
    overlaps: int = 0
    """Pairs of calls of two processes that overlapped."""
    branches: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each (operation, branch) was drawn, as the model took it alone."""

    def __str__(self) -> str:
        operations = len({method for method, _ in self.branches})
        return (
            f"{self.rounds} rounds, {self.calls} calls, {self.overlaps} overlapping pairs, "
            f"{operations} operations by {len(self.branches)} branches"
        )


class Storm:
    """A storm on one database, which holds nothing else. Use it as an async context manager.

    Args:
        store_class: importable by its name in another process, and made of an engine alone.
        url: the database, whose rows are deleted again and again.
        names: classes of the operations that are drawn.
        calls: how many calls each process makes in a round.
    """

    def __init__(
        self,
        store_class: type[SQLStateStore],
        url: URL,
        seed: int,
        *,
        processes: int = 3,
        calls: int = 2,
        names: Sequence[str] = tuple(OPERATIONS),
    ) -> None:
        self.store_class = store_class
        self.url = url
        self.random = Random(seed)  # noqa: S311  # nothing secret
        self.processes = processes
        self.calls = calls
        self.names = tuple(names)
        self.weather = Weather()

    async def __aenter__(self) -> Self:
        self.engine = get_engine(self.url)
        self.helpers = [Helper() for _ in range(self.processes)]
        try:
            async with self.engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            named = (self.store_class.__module__, self.store_class.__qualname__, self.url)
            await asyncio.gather(*(helper.ask("open", *named) for helper in self.helpers))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        for helper in self.helpers:
            helper.end()
        await self.engine.dispose()

    async def rage(self, seconds: float) -> Weather:
        """Storm for this long. Raises Failed, whose program `dendrux replay` runs, or Inconclusive."""
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                execution = await self.begun()
                await execution.run(STARTS[self.random.choice(sorted(STARTS))])
                for _ in range(ROUNDS):
                    if time.monotonic() >= until:
                        break
                    await self.round(execution)
        except Failed as failed:
            found = failed
        else:
            return self.weather
        # Outside of the handler: inside, the finding would be the context of every error that the store raises now.
        raise await self.narrowed(found) from None

    async def begun(self) -> Execution:
        """A program that begins with nothing, on two instances in this process."""
        await clear(self.engine)
        bench = Bench(
            lambda: self.store_class(self.engine),
            second=lambda _: self.store_class(self.engine),
            clock=SqlClock(lambda: self.engine),
        )
        return Execution(bench, World(new_format=2))

    async def round(self, execution: Execution) -> None:
        """Calls at once from every process, the explanation, and the view."""
        if self.random.random() < 0.2:
            await execution.step(Tick(self.random.choice((LEASE_S, LEASE_S // 2, 10 * LEASE_S))))
        world = execution.worlds.possible[0].world._replace(now=execution.worlds.instant)
        drawn = self.draw(world)
        history = await self.together(execution, drawn)
        self.weather.rounds += 1
        self.weather.calls += len(history)
        self.weather.overlaps += sum(overlap(one, other) for one in history for other in history) // 2
        for call in history:
            after, outcome = call.operation.step(world)
            self.weather.branches[call.operation.method, branch(world, call.operation, outcome, after)] += 1
        since = execution.worlds.instant
        self.explain(execution, drawn, history)
        settle(execution.worlds, since, await self.look(execution))

    async def together(self, execution: Execution, drawn: Sequence[Sequence[Operation]]) -> list[Call]:
        """What each process was answered, in the order in which the calls began."""
        at = time.time() + LEAD_S
        asked = [
            helper.ask(
                "several",
                execution.driver.namespace,
                execution.driver.aged,
                operations,
                at + self.random.uniform(0, SPREAD_S),
            )
            for helper, operations in zip(self.helpers, drawn, strict=True)
        ]
        found = await asyncio.gather(*asked)
        history = [
            Call(operation, *answer)
            for operations, answers in zip(drawn, found, strict=True)
            for operation, answer in zip(operations, answers, strict=True)
        ]
        return sorted(history, key=lambda call: call.invoked)

    def explain(self, execution: Execution, drawn: Sequence[Sequence[Operation]], history: Sequence[Call]) -> None:
        """Go on from the worlds that explain a round; raise when there are none."""
        worlds = execution.worlds
        for turn in zip(*drawn, strict=True):
            execution.done.append(Together(tuple(Do(operation, number) for number, operation in enumerate(turn))))
        for call in history:
            allowed = worlds.allowed(call.operation)
            execution.lines.append(Line(str(call.operation), allowed, call.observed, step=len(execution.done)))
        verdict = linearize(worlds.possible, history, worlds.instant + 1, BUDGET)
        if verdict.result == "unknown":
            raise Inconclusive(tuple(execution.done), len(execution.done))
        if verdict.result == "violation":
            begin = history[0].invoked
            said = "; ".join(
                f"{call.operation.method} {call.observed} "
                f"({(call.invoked - begin) / 1e6:.1f} to {(call.returned - begin) / 1e6:.1f} ms)"
                for call in history
            )
            raise execution.failed(
                f"no order of the calls of {self.processes} processes explains their answers: {said}"
            )
        worlds.instant += verdict.instants
        worlds.replace(verdict.worlds)

    async def look(self, execution: Execution) -> list[tuple[Operation, Outcome]]:
        """Read everything that can be seen, and the order of the runs, and compare it."""
        execution.done.append(Look())
        worlds = [possible.world for possible in execution.worlds.possible]
        agents = {run.agent_name for world in worlds for run in world.runs}
        seen = []
        store = await execution.bench.instance()
        for read in (*view(worlds), *(ListRuns(agent_name=agent) for agent in sorted(agents))):
            outcome = await execution.driver.call(store, read)
            execution.judge(Do(read), outcome, None, ())
            seen.append((read, outcome))
        return seen

    # -- what was found -----------------------------------------------------------------------------------------------

    async def narrowed(self, failed: Failed) -> Failed:
        """The finding as two calls of its last round, one of them parked at a statement, so that it comes every time.

        When no such pair fails the store, what the storm found: a replay runs its calls at once and may see it or not.
        """
        steps = [step for step in failed.program if not isinstance(step, Look)]
        before: list[Step] = []
        for step in steps[: -self.calls]:
            before += [Do(do.operation) for do in step.branches] if isinstance(step, Together) else [step]
        last = [do.operation for step in steps[-self.calls :] if isinstance(step, Together) for do in step.branches]
        until = time.monotonic() + NARROW_S
        for one, other in permutations(last, 2):
            for place in range(PLACES_MAX):
                if time.monotonic() >= until:
                    return failed
                execution = await self.begun()
                together = Together((Do(one, 0, yield_at=place), Do(other, 1)))
                try:
                    await execution.run((*before, together))
                except Failed as found:
                    return found
                finally:
                    await execution.bench.close()
                if not execution.parked:
                    break
        return failed

    # -- what is called -----------------------------------------------------------------------------------------------

    def draw(self, world: World) -> list[list[Operation]]:
        """The calls of each process: something different, the same call at once, or all a rush for one thing."""
        drawn = [[self.choose(world) for _ in range(self.calls)] for _ in range(self.processes)]
        kind = self.random.random()
        if kind < 0.2:  # as a retry that overtakes its first attempt
            for calls in drawn[1:]:
                calls[0] = drawn[0][0]
        elif kind < 0.6:
            wanted = drawn[0][0]
            numbers = iter(range(self.processes * self.calls))
            drawn = [[self.rushed(world, wanted, next(numbers)) for _ in calls] for calls in drawn]
        return drawn

    def rushed(self, world: World, wanted: Operation, number: int) -> Operation:
        """What one of many callers calls who all want this: under ids of its own. Runs are not begun without end."""
        mine = own(world, wanted, number)
        if not isinstance(mine, CreateRun):
            return mine
        if len(world.runs) > RUNS_MAX:
            return wanted
        return replace(mine, idempotency_key=self.random.choice((None, mine.idempotency_key)))

    def choose(self, world: World) -> Operation:
        """Something the model enables, or any branch of anything."""
        if self.random.random() < 0.35:
            ways: dict[str, Operation] = {}
            for operation in islice(deviating(world, self.random.choice(self.names), self.random), TRIED_MAX):
                after, outcome = operation.step(world)
                ways[branch(world, operation, outcome, after)] = operation
            return self.random.choice(list(ways.values()))
        name = self.random.choice(enabled(world, self.names) or self.names)
        made = Arguments(world, self.random.choice).make(name)
        if OPERATIONS[name].lost_ack == "read" or applies(world, made):
            return made
        return Arguments(world, first).make(name)


def overlap(one: Call, other: Call) -> bool:
    """Whether two calls were open at the same time."""
    return one is not other and one.invoked <= other.returned and other.invoked <= one.returned


async def clear(engine: AsyncEngine) -> None:
    """Delete every run and blob. Rows of a run go with it."""
    async with engine.begin() as connection:
        await empty(connection)


def told(failed: Failed) -> str:
    """A finding with its program, as `dendrux replay` reads it."""
    return f"{failed.why}\n{to_json(failed.program)}"
