"""Time in an exploration: a step that moves the clock and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dendrux_model.operations.base import LostAck, Operation, Step
from dendrux_model.outcomes import NONE
from dendrux_model.world import SECOND, World


@dataclass(frozen=True, kw_only=True)
class Pass(Operation):
    """Time passes. No method of a store: programs have `Tick` for it."""

    seconds: int

    lost_ack: ClassVar[LostAck] = "read"
    method: ClassVar[str] = "time_passes"

    def step(self, world: World) -> Step:
        return world._replace(now=world.now + self.seconds * SECOND), NONE
