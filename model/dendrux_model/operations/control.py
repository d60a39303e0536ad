"""What somebody else may ask of a run: that it stop, or pause."""

from __future__ import annotations

from dataclasses import dataclass

from dendrux.vocabulary import RUNNING
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import FALSE, NOT_FOUND, TRUE, Returned
from dendrux_model.world import World, find, put


@dataclass(frozen=True, kw_only=True)
class RequestCancel(Operation, lost_ack="natural"):
    """Ask an open run to end as cancelled. True also when somebody asked before."""

    run_id: str

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if not rules.is_open(run):
            return world, FALSE
        if run.cancel_requested:
            return world, TRUE
        return put(world, run._replace(cancel_requested=True, updated_at=world.now)), TRUE


@dataclass(frozen=True, kw_only=True)
class RequestPause(Operation, lost_ack="natural"):
    """Ask a running run to pause. True also when somebody asked before; a later reason replaces an earlier one."""

    run_id: str
    reason: str | None = None

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if run.status != RUNNING:
            return world, FALSE
        reason = run.pause_reason if self.reason is None else self.reason
        if run.pause_requested and reason == run.pause_reason:
            return world, TRUE
        return put(world, run._replace(pause_requested=True, pause_reason=reason, updated_at=world.now)), TRUE


@dataclass(frozen=True, kw_only=True)
class GetRunControl(Operation, lost_ack="read"):
    """Read what an owner asks between two steps; all False for a missing run."""

    run_id: str

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        pending = run is not None and any(note.delivered_iteration is None for note in run.notes)
        return world, Returned(
            {
                "cancel_requested": run is not None and run.cancel_requested,
                "pause_requested": run is not None and run.pause_requested,
                "has_pending_notes": pending,
            }
        )
