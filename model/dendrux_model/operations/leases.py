"""The lease of a running run: its owner is alive as long as it writes."""

from __future__ import annotations

from dataclasses import dataclass

from dendrux.vocabulary import RUNNING
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import FALSE, NOT_FOUND, TRUE
from dendrux_model.world import World, find, put


@dataclass(frozen=True, kw_only=True)
class TouchProgress(Operation, lost_ack="natural"):
    """Renew the lease. On format 2 only the owner can: an unfenced call changes nothing."""

    run_id: str
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        refusal = rules.refused(run, self.claim_epoch)
        if refusal is not None:
            return world, refusal
        if run.status != RUNNING or (run.format == 2 and self.claim_epoch is None):
            return world, FALSE
        return put(world, run._replace(progress_at=world.now)), TRUE
