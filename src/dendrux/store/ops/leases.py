"""The lease of a running run: its owner is alive as long as it writes."""

from __future__ import annotations

from dendrux.db.models import agent_runs
from dendrux.store.tx import Outcome, Tx
from dendrux.vocabulary import RUNNING

runs = agent_runs.c


async def touch_progress(tx: Tx, run_id: str, *, claim_epoch: int | None = None) -> Outcome[bool]:
    """Renew the lease of a running run. On format 2 only its owner can: an unfenced call answers False.

    Ensures: the clock never goes back, `updated_at` does not move.
    Refuses: RunNotFoundError, StaleClaimError.
    """
    await tx.begin(run_id)
    if claim_epoch is not None:
        if await tx.fence(run_id, claim_epoch) is not None:
            return True
        run = await tx.hold(run_id)
        tx.stale(run, claim_epoch, running=True)
        raise tx.again()
    guard = [runs.status == RUNNING, runs.storage_format == 1]
    if await tx.swap(run_id, guard, list(tx.renewal().items())) is not None:
        return True
    run = await tx.hold(run_id)
    return tx.lost(run, holds=run.status == RUNNING and run.format == 1, answer=False)
