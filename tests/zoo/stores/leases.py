"""Broken leases: marks, sweeps and reclaims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.db.models import agent_runs
from dendrux.errors import PersistenceError, StaleClaimError, StoreOutcomeUnknown
from dendrux.store.paging import decoded, encoded
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import any_epoch, tampered, with_assignment, without_assignment, without_guard

runs = agent_runs.c


# -- touches ----------------------------------------------------------------------------------------------------------


class LeaseGoesBack(BrokenStore):
    breaks = "touch_progress writes the time it has, whatever is stored"
    killed_by = "fenced_writes.touch_progress.lease_never_goes_back"

    async def touch_progress(self, run_id: str, **given: Any) -> bool:
        await self.run_sql("UPDATE agent_runs SET last_progress_at = created_at WHERE id = :run", run=run_id)
        return await super().touch_progress(run_id, **given)


class RefusesOwners(BrokenStore):
    breaks = "touch_progress tells a rightful owner that it is stale"
    killed_by = "fenced_writes.touch_progress.accepts_owner"

    async def touch_progress(self, run_id: str, *, claim_epoch: int | None = None) -> bool:
        if claim_epoch is not None:
            raise StaleClaimError
        return await super().touch_progress(run_id)


class TouchWithoutFence(BrokenStore):
    breaks = "touch_progress takes whoever comes with an epoch for the owner"
    killed_by = "fenced_writes.touch_progress.refuses_old_epoch"

    touch_progress = tampered("touch_progress", any_epoch)


class TouchLeavesACall(BrokenStore):
    breaks = "touch_progress leaves a tool call that nobody made"
    killed_by = "basic.touch_progress.without_an_epoch"

    async def touch_progress(self, run_id: str, **given: Any) -> bool:
        renewed = await super().touch_progress(run_id, **given)
        await self.save_tool_call(run_id, tool_call_id="stray", tool_name="stray")
        return renewed


# -- reclaims ---------------------------------------------------------------------------------------------------------


class ReclaimKeepsTheEpoch(BrokenStore):
    breaks = "a reclaim does not raise the epoch, so the former owner goes on writing"
    killed_by = "recovery.reclaim_run.former_owner_is_fenced"

    reclaim_run = tampered("reclaim_run", without_assignment("claim_epoch"))


class ReclaimTakesUnmarked(BrokenStore):
    breaks = "a reclaim does not ask for the mark"
    killed_by = "recovery.reclaim_run.only_marked_runs_under_the_expected_epoch"

    reclaim_run = tampered("reclaim_run", without_guard("lease_expired_at"))


class ReclaimWithoutLease(BrokenStore):
    breaks = "a reclaim leaves the clock of the former owner"
    killed_by = "recovery.reclaim_run.new_owner_has_a_fresh_lease"

    reclaim_run = tampered("reclaim_run", without_assignment("last_progress_at"))


class ReclaimIsAClaim(BrokenStore):
    breaks = "whoever reclaimed a run may hand it back like a claim"
    killed_by = "recovery.reclaim_run.cannot_be_handed_back"

    reclaim_run = tampered("reclaim_run", with_assignment(runs.claimed_epoch, runs.claim_epoch + 1))


class ReclaimDropsSubmission(BrokenStore):
    breaks = "a reclaim drops the submission that the former owner did not consume"
    killed_by = "recovery.reclaim_run.submission_goes_to_the_new_owner"

    reclaim_run = tampered("reclaim_run", with_assignment(runs.submission_data, None))


class ReclaimReadsFirst(BrokenStore):
    breaks = "a reclaim compares the epoch that an earlier transaction read"
    killed_by = "recovery.reclaim_run.one_winner"

    taken = tampered("reclaim_run", without_guard("claim_epoch", "lease_expired_at")).method

    async def reclaim_run(self, run_id: str, *, expected_epoch: int) -> int | None:
        row = await self.run_sql(
            "SELECT lease_expired_at, claim_epoch FROM agent_runs WHERE id = :run AND status = 'running'", run=run_id
        )
        if row is None or row[0] is None or row[1] != expected_epoch:
            return await super().reclaim_run(run_id, expected_epoch=expected_epoch)
        return await self.taken(run_id, expected_epoch=expected_epoch)


class ReclaimLooksItUp(BrokenStore):
    breaks = "a reclaim whose acknowledgement was lost takes the next epoch, if it is there, for its own"
    killed_by = "crash_recovery.reclaim_run.nobody_gets_the_epoch_again_after_commit"

    async def reclaim_run(self, run_id: str, *, expected_epoch: int) -> int | None:
        try:
            return await super().reclaim_run(run_id, expected_epoch=expected_epoch)
        except StoreOutcomeUnknown:
            run = await self.get_run(run_id)
            return run.claim_epoch if run is not None and run.claim_epoch == expected_epoch + 1 else None


# -- marks ------------------------------------------------------------------------------------------------------------


class MarksAgain(BrokenStore):
    breaks = "a sweep does not know the marks of the sweep before"
    killed_by = "recovery.mark_lease_expired.silent_owner_is_marked_once"

    async def mark_lease_expired(self, **given: Any) -> Any:
        await self.run_sql("UPDATE agent_runs SET lease_expired_at = NULL WHERE status = 'running'")
        return await super().mark_lease_expired(**given)


class MarksWhatItSaw(BrokenStore):
    breaks = "a sweep marks what its page showed, without looking at the clock again"
    killed_by = "recovery.mark_lease_expired.sweeper_or_heartbeat"

    mark_lease_expired = tampered("mark_lease_expired", without_guard("last_progress_at"))


class MarksEveryLoop(BrokenStore):
    breaks = "runs with any loop of their own are marked"
    killed_by = "recovery.mark_lease_expired.only_runs_that_somebody_can_go_on_with"

    def json_contains(self, col: Any, path: Any, value: Any) -> Any:
        exact = super().json_contains(col, path, value)
        return exact if tuple(path) != ("dendrux.loop",) else self.json_get(col, path, "json").is_not(None)


class MetaKeepsTheMark(BrokenStore):
    breaks = "an owner's update_run_meta does not clear the mark"
    killed_by = "recovery.mark_lease_expired.every_way_to_write_clears_the_mark"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        row = await self.run_sql("SELECT lease_expired_at FROM agent_runs WHERE id = :run", run=run_id)
        await super().update_run_meta(run_id, patch, **given)
        await self.run_sql("UPDATE agent_runs SET lease_expired_at = :at WHERE id = :run", at=row[0], run=run_id)


class StrangersKeepRunsAlive(BrokenStore):
    breaks = "a request to cancel clears the mark, as if the owner had written"
    killed_by = "recovery.mark_lease_expired.strangers_do_not_clear_the_mark"

    request_cancel = tampered("request_cancel", with_assignment(runs.lease_expired_at, None))


class EventKeepsTheMark(BrokenStore):
    breaks = "an owner's event does not clear the mark, so the run is taken from an owner that is alive"
    killed_by = "recovery.mark_lease_expired.slow_owner_keeps_the_run"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        row = await self.run_sql("SELECT lease_expired_at FROM agent_runs WHERE id = :run", run=run_id)
        index = await super().save_run_event(run_id, **given)
        if row is not None and given.get("claim_epoch") is not None:
            await self.run_sql("UPDATE agent_runs SET lease_expired_at = :at WHERE id = :run", at=row[0], run=run_id)
        return index


class CursorSkipsOne(BrokenStore):
    breaks = "a page of expired leases goes on after the run behind its last one"
    killed_by = "recovery.get_lease_expired.whose_lease_ran_out"

    async def get_lease_expired(self, *, after: str | None = None, **given: Any) -> Any:
        page = await super().get_lease_expired(after=after, **given)
        return page[1:] if after is not None else page


# -- sweeps -----------------------------------------------------------------------------------------------------------


class CursorWithoutClock(BrokenStore):
    breaks = "the cursor of a sweep names a time that its last run does not have"
    killed_by = "basic.sweep_stale_runs.page_by_page"

    async def sweep_stale_runs(self, **given: Any) -> Any:
        page = await super().sweep_stale_runs(**given)
        if page.next_after is None:
            return page
        segment, micros, last = decoded("after", page.next_after, int, int, str)
        return replace(page, next_after=encoded(segment, micros + 10**12, last))


class SwallowedSweepError(BrokenStore):
    breaks = "a sweep of stale runs says nothing of the run it failed at"
    killed_by = "crash_recovery.sweep_stale_runs.before_commit_error"

    async def sweep_stale_runs(self, **given: Any) -> Any:
        return replace(await super().sweep_stale_runs(**given), failed=())


class SweepEndsAtTheFirstError(BrokenStore):
    breaks = "one run that fails ends the whole sweep of stale runs"
    killed_by = "crash_recovery.sweep_stale_runs.next_sweep_finishes_before_commit"

    async def sweep_stale_runs(self, **given: Any) -> Any:
        page = await super().sweep_stale_runs(**given)
        if page.failed:
            raise PersistenceError(operation="sweep_stale_runs")
        return page


class SweepsWhatItSaw(BrokenStore):
    breaks = "a sweep ends what its page showed, without looking at the clock again"
    killed_by = "concurrency.sweep_stale_runs.sweep_or_write"

    sweep_stale_runs = tampered("sweep_stale_runs", without_guard("last_progress_at"))


class SweepsAsStale(BrokenStore):
    breaks = "a run that never started is swept as one that fell silent"
    killed_by = "basic.sweep_stale_runs.never_started"

    sweep_stale_runs = tampered("sweep_stale_runs", with_assignment(runs.failure_reason, "stale_running"))


class SweepForgetsCancellation(BrokenStore):
    breaks = "a stale run that was asked to cancel ends as an error"
    killed_by = "basic.sweep_stale_runs.ends_as_cancelled_when_asked"

    sweep_stale_runs = tampered("sweep_stale_runs", with_assignment(runs.status, "error"))


class SweepKeepsTheDocument(BrokenStore):
    breaks = "an abandoned run that was swept keeps its pause document"
    killed_by = "basic.sweep_abandoned_runs.forgotten_run_ends"

    sweep_abandoned_runs = tampered("sweep_abandoned_runs", without_assignment("pause_data"))


class SweepKeepsTheMark(BrokenStore):
    breaks = "a swept run is still listed for whoever wants to take it over"
    killed_by = "recovery.sweep_stale_runs.marked_runs_end_too"

    sweep_stale_runs = tampered("sweep_stale_runs", without_assignment("lease_expired_at"))


class ShortLeasePages(BrokenStore):
    breaks = "a page of leases has at most fifty, so a full one looks like the last"
    killed_by = "recovery.get_lease_expired.more_than_a_hundred"

    async def get_lease_expired(self, *, limit: int = 100, **given: Any) -> Any:
        return await super().get_lease_expired(limit=min(limit, 50) if 0 < limit <= 1000 else limit, **given)
