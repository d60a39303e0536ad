"""Stores that are broken in states which no contract of one operation begins in: machines come there."""

from __future__ import annotations

import json
from typing import Any

from dendrux.store.tx import Tx
from zoo.stores.base import BrokenStore
from zoo.stores.finish import EndsTwice
from zoo.stores.tampering import tampered


def past_the_known(tx: Tx) -> None:
    """Swaps pass over the runs that the store's instance knows."""
    swap = tx.swap
    known: set[str] = tx.store.known  # type: ignore[attr-defined]

    async def strict(run_id: str, *terms: Any, **given: Any) -> Any:
        return None if run_id in known else await swap(run_id, *terms, **given)

    tx.swap = strict  # type: ignore[method-assign]


class SweepsLookOnce(BrokenStore):
    breaks = "an instance whose sweep once found a run alive does not look at it again until it is restarted"
    killed_by = "recovery.stateful.leases"

    seldom = tampered("sweep_stale_runs", past_the_known).method

    def __init__(self, engine: Any, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.known: set[str] = set()

    async def sweep_stale_runs(self, **given: Any) -> Any:
        page = await self.seldom(**given)
        if page.next_after is None:
            row = await self.run_sql("SELECT json_group_array(id) FROM agent_runs WHERE status = 'running'")
            self.known |= set(json.loads(row[0])) - {run.run_id for run in page.failed}
        return page


class ClaimedRunsEndTwice(EndsTwice):
    breaks = "of two ends of a run that was claimed before, both win"
    killed_by = "concurrency.stateful.concurrent_evidence"

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is None or run.claim_epoch == 1:
            return await BrokenStore.finalize_with_event(self, run_id, **given)
        return await super().finalize_with_event(run_id, **given)


class CancelledEndUnsettled(BrokenStore):
    breaks = "an end whose acknowledgement was lost is not settled where the run was asked to cancel"
    killed_by = "crash_recovery.stateful.faults_pauses"

    unsettled = tampered("finalize_with_event", lost="unknown").method

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is not None and run.cancel_requested:
            return await self.unsettled(run_id, **given)
        return await super().finalize_with_event(run_id, **given)


class PausedEndUnsettled(BrokenStore):
    breaks = "an end whose acknowledgement was lost is not settled where the run was paused"
    killed_by = "crash_recovery.stateful.faults_checkpoints"

    unsettled = tampered("finalize_with_event", lost="unknown").method

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is not None and run.status != "running":
            return await self.unsettled(run_id, **given)
        return await super().finalize_with_event(run_id, **given)
