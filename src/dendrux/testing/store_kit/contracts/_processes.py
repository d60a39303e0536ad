"""Two calls at once from two processes: what is atomic inside one process only is not atomic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dendrux.lab.gate import Hung
from dendrux.testing.execution import Execution, Inconclusive, Line
from dendrux.testing.peers import NoPeer, Pair, pair
from dendrux.testing.store_kit.contract import NotKept, Situation, contract
from dendrux.testing.store_kit.contracts._states import WAITING, born, ended, paused
from dendrux_model.linearize import Call, linearize
from dendrux_model.operations import AddNote, ClaimPausedRun, CreateRun, Operation, SaveRunEvent
from dendrux_model.possible import Cut
from dendrux_model.programs import Do, Look, Program, Together
from dendrux_model.world import World

ROUNDS: Final = 12
LATE_S: Final = (0.0, 0.0005, 0.001, -0.0005, 0.002)
"""By how much the call here is later than the call there, in turn."""
BUSY: Final = Cut(at_commit=False)
"""The lock of the other process is in the way of each call, so a store may say that it is busy."""


@dataclass(frozen=True)
class BetweenProcesses:
    """A check that runs rounds of one race, each on a run of its own."""

    before: Callable[[str], Program]
    calls: Callable[[str], tuple[Operation, Operation]]

    async def __call__(self, situation: Situation) -> None:
        store = await situation.bench.instance()
        try:
            both = await pair(store)
        except NoPeer as lacking:
            raise NotKept(f"this store cannot be made in a second process: {lacking}") from None
        try:
            await self.rounds(situation, both)
        except NoPeer as gone:
            raise Hung(str(gone)) from None
        finally:
            await both.close()

    async def rounds(self, situation: Situation, both: Pair) -> None:
        """Every round, then a look at everything."""
        execution = Execution(situation.bench, World(new_format=situation.format))
        for number in range(ROUNDS):
            run = f"r{number}"
            await execution.run(self.before(run), look=False)
            here, there = self.calls(run)
            answers = await both.race(execution.driver.namespace, here, there, LATE_S[number % len(LATE_S)])
            execution.done.append(Together((Do(here, 0), Do(there, 1))))
            for operation, answer in zip((here, there), answers, strict=True):
                allowed = execution.worlds.allowed(operation)
                execution.lines.append(Line(str(operation), allowed, answer, step=len(execution.done)))
            history = [Call(one, answer, 1, 2, BUSY) for one, answer in zip((here, there), answers, strict=True)]
            verdict = linearize(execution.worlds.possible, history, execution.worlds.instant)
            if verdict.result == "unknown":
                raise Inconclusive(tuple(execution.done), len(execution.done))
            if verdict.result == "violation":
                said = "; ".join(f"{call.operation.method} {call.observed}" for call in history)
                raise execution.beside(f"no order of the calls of two processes explains their answers: {said}")
            execution.worlds.tick()
            execution.worlds.tick()
            execution.worlds.replace(verdict.worlds)
        await execution.step(Look())


def between_processes(
    method: str, promise: str, before: Callable[[str], Program], calls: Callable[[str], tuple[Operation, Operation]]
) -> None:
    """Add the contract of one operation."""
    contract(
        f"concurrency.{method}.two_processes",
        promise,
        group="concurrency",
        needs={"second_instance", "sql", "processes"},
        check=BetweenProcesses(before, calls),
        cause="What decides the write is held by a lock of one process: let the database decide, in one statement.",
    )


def claim(run: str) -> ClaimPausedRun:
    """A claim of the run."""
    return ClaimPausedRun(run_id=run, expected_status=WAITING)


def end(run: str, status: str) -> Operation:
    """An end of the run."""
    return ended(run, status=status, event_id=f"{run}-{status}").operation


def note(run: str, number: int) -> AddNote:
    """A note for the only place of the inbox."""
    return AddNote(run_id=run, note_id=f"{run}-{number}", text="look here", max_pending=1)


def keyed(run: str, number: int) -> CreateRun:
    """A run under the key that both use."""
    return CreateRun(run_id=f"{run}-{number}", agent_name="agent", idempotency_key=run)


def event(run: str, number: int) -> SaveRunEvent:
    """An event of the run."""
    return SaveRunEvent(run_id=run, event_type="seen", event_id=f"{run}-{number}")


between_processes(
    "claim_paused_run",
    "Of two processes that claim a run at once, one gets it.",
    lambda run: (born(run), paused(run)),
    lambda run: (claim(run), claim(run)),
)
between_processes(
    "finalize_with_event",
    "Of two processes that end a run at once, one ends it.",
    lambda run: (born(run),),
    lambda run: (end(run, "success"), end(run, "cancelled")),
)
between_processes(
    "add_note",
    "Of two processes that write a note for the last place at once, one finds the inbox full.",
    lambda run: (born(run),),
    lambda run: (note(run, 1), note(run, 2)),
)
between_processes(
    "create_run",
    "Of two processes that create a run under one key at once, one finds the run of the other.",
    lambda run: (),
    lambda run: (keyed(run, 1), keyed(run, 2)),
)
between_processes(
    "save_run_event",
    "Events that two processes write at once get two places that follow each other.",
    lambda run: (born(run),),
    lambda run: (event(run, 1), event(run, 2)),
)
