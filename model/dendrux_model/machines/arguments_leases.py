"""Arguments of marks, reclaims and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from dendrux_model import operations as ops
from dendrux_model.world import Run

T = TypeVar("T")

LEASE_S: Final = 600
"""The age from which sweeps take a run for one without an owner; machines let time pass by more and by less."""
AGES: Final = (LEASE_S, 10 * LEASE_S)


class LeaseArguments:
    """The part of `Arguments` about leases."""

    def pick(self, options: Sequence[T]) -> T:
        raise NotImplementedError

    def run(self) -> str:
        raise NotImplementedError

    def record(self, run_id: str) -> Run | None:
        raise NotImplementedError

    def epoch(self, run_id: str, *, required: bool = False) -> Any:
        raise NotImplementedError

    def mark_lease_expired(self) -> ops.Operation:
        return ops.MarkLeaseExpired(
            cutoff_s=self.pick(AGES), limit=self.pick([100, 1]), finalise_unrecoverable=self.pick([False, True])
        )

    def get_lease_expired(self) -> ops.Operation:
        return ops.GetLeaseExpired(limit=self.pick([100, 1]))

    def reclaim_run(self) -> ops.Operation:
        run = self.run()
        return ops.ReclaimRun(run_id=run, expected_epoch=self.epoch(run, required=True))

    def sweep_stale_runs(self) -> ops.Operation:
        return ops.SweepStaleRuns(older_than_s=self.pick(AGES), limit=self.pick([100, 1]))

    def sweep_abandoned_runs(self) -> ops.Operation:
        return ops.SweepAbandonedRuns(older_than_s=self.pick(AGES), limit=self.pick([100, 1]))
