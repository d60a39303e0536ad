"""Small worlds of leases: owners that stop writing, others that take over, and sweeps."""

from __future__ import annotations

from typing import Any

from dendrux.vocabulary import META_LOOP, RECOVERABLE_LOOP, RUN_STARTED
from dendrux_model.operations import (
    ClaimPausedRun,
    GetLeaseExpired,
    MarkLeaseExpired,
    ReclaimRun,
    ReleaseRunClaim,
    RequestCancel,
    SaveRunEvent,
    SweepAbandonedRuns,
    SweepStaleRuns,
    UpdateRunMeta,
)
from dendrux_model.passing import Pass
from dendrux_model.world import SECOND, World
from dendrux_model.worlds import ANY_OPEN, APPROVAL, MISSING, R1, R2, end, pause, run, small_world

LEASE_S = 60


def within(world: World) -> bool:
    """Time passes twice, and a run has three owners at most."""
    return world.now <= 2 * LEASE_S * SECOND + 1 and all(run.claim_epoch <= 3 for run in world.runs)


@small_world
def leases(storage_format: int) -> dict[str, Any]:
    """A run that can be taken over and one that cannot, their slow owners, sweepers, and whoever takes over."""
    return {
        "setup": (
            run(R1, meta={META_LOOP: RECOVERABLE_LOOP}, tenant_id="t"),
            run(R2),
            SaveRunEvent(run_id=R2, event_type=RUN_STARTED, event_id="e2"),
        ),
        "alphabet": (
            Pass(seconds=LEASE_S),
            MarkLeaseExpired(cutoff_s=LEASE_S),
            MarkLeaseExpired(cutoff_s=2 * LEASE_S, finalise_unrecoverable=True),
            *(GetLeaseExpired(tenant_id=scope) for scope in ("t", "T")),
            ReclaimRun(run_id=R1, expected_epoch=1),
            ReclaimRun(run_id=R1, expected_epoch=2),
            ReclaimRun(run_id=MISSING, expected_epoch=1),
            SweepStaleRuns(older_than_s=LEASE_S),
            SweepAbandonedRuns(older_than_s=LEASE_S),
            SaveRunEvent(run_id=R1, event_type="x", event_id="e1", claim_epoch=1),
            UpdateRunMeta(run_id=R1, patch={META_LOOP: None}),
            pause(R1, "p1", 1),
            pause(R1, "p2", None),
            ClaimPausedRun(run_id=R1, expected_status=APPROVAL),
            ReleaseRunClaim(run_id=R1, claim_epoch=3),
            RequestCancel(run_id=R1),
            end(R1, "f1", None, allowed=ANY_OPEN),
        ),
        "within": within,
        "sometimes": ("former_owner_still_writes", "slow_owner_keeps_the_run") if storage_format == 2 else (),
    }
