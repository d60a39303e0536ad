"""Invariants of leases beside those that the table of the contract starts with."""

from __future__ import annotations

from typing import Any

from dendrux.vocabulary import UNSCOPED
from dendrux_model.invariants import of_answer, of_change
from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome, Returned
from dendrux_model.world import Run, World


@of_change
def lease_mark_only_running__renewed(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """A write of the owner that applies leaves no mark: whoever writes is alive."""
    epoch = getattr(operation, "claim_epoch", None)
    return epoch is None or getattr(operation, "run_id", None) != new.id or new.lease_expired_at is None


@of_change
def epoch_moves_by_one__marked(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """A running run gets another owner only after it was marked, and the count of reclaims tells each of them."""
    taken_over = new.claim_epoch != old.claim_epoch and type(operation).__name__ == "ReclaimRun"
    return new.reclaim_count == old.reclaim_count + taken_over and (not taken_over or old.lease_expired_at is not None)


@of_answer("GetLeaseExpired")
def tenant_wall__leases(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Of another tenant's runs nobody hears that their lease ran out."""
    scope = operation.tenant_id
    return scope is UNSCOPED or {run.id for run in after.runs if run.tenant_id == scope}.issuperset(outcome.value)
