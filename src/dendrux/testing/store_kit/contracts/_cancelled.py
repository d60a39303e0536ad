"""Reads whose caller is cancelled: the cancellation goes on to the caller, and the read leaves nothing behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.checking import idle_injector
from dendrux.testing.store_kit.contract import Situation, contract, needs_of
from dendrux.testing.store_kit.contracts._crashes import STATEMENT
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux_model.outcomes import INVALID
from dendrux_model.programs import Do, Fault
from dendrux_model.world import World

CAUSE: Final = (
    "The cancellation is caught and the read answered as if nothing were there, or its connection is not given back: "
    "let it out, after the connection is in the pool again."
)


@dataclass(frozen=True)
class CancelledRead:
    """A check: the read is cancelled before each of its statements, and is answered as before when it is repeated."""

    sample: Sample

    async def __call__(self, situation: Situation) -> None:
        call = Do(self.sample.operation)
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run((*self.sample.before, call), look=False)
        sent = [statement for statement in execution.lines[-1].sql if statement != "COMMIT"]
        if execution.lines[-1].observed == INVALID:
            return  # runs of this format have no such read
        for place in range(len(sent)):
            await execution.step(Fault(call, STATEMENT, "cancel", place))
        await execution.step(call)
        idle = idle_injector(execution)
        if idle is not None:
            raise idle


def cancelled(sample: Sample) -> None:
    """The contract of one read."""
    contract(
        f"crash_recovery.{sample.method}.cancelled",
        f"{sample.method} whose caller is cancelled at any of its statements lets the cancellation out.",
        group="crash_recovery",
        capability=sample.capability,
        needs=needs_of(sample.before) | sample.needs | {"fault_injector", "sql"},
        check=CancelledRead(sample),
        cause=CAUSE,
    )


for reading in samples():
    if reading.operation.lost_ack == "read":
        cancelled(reading)
