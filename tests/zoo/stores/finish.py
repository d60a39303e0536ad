"""Broken ends: a terminal status that is not final, or not whole."""

from __future__ import annotations

from typing import Any

from dendrux.db.models import agent_runs
from dendrux.errors import RunAlreadyTerminalError, StoreOutcomeUnknown, StoreUnavailableError
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import commits_before, tampered, with_assignment, without_assignment, without_guard

runs = agent_runs.c


class OverwritesTheEnd(BrokenStore):
    breaks = "a late finalize overwrites the status of a run that has ended"
    killed_by = "basic.finalize_with_event.only_the_allowed_statuses"

    async def finalize_with_event(self, run_id: str, *, status: str, **given: Any) -> int | None:
        index = await super().finalize_with_event(run_id, status=status, **given)
        if index is None and given.get("claim_epoch") is None:
            await self.run_sql("UPDATE agent_runs SET status = :status WHERE id = :run", status=status, run=run_id)
        return index


class EndsTwice(BrokenStore):
    breaks = "of two ends at once, both win: the status is compared in an earlier transaction"
    killed_by = "concurrency.finalize_with_event.one_end"

    ended = tampered("finalize_with_event", without_guard("status")).method

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is None or run.status not in given["allowed_current_statuses"]:
            return await super().finalize_with_event(run_id, **given)
        return await self.ended(run_id, **given)


class EndBeforeItsEvent(BrokenStore):
    breaks = "the end of a run is committed before its event"
    killed_by = "atomic_completion.finalize_with_event.cut_before_statement_3"

    finalize_with_event = tampered("finalize_with_event", commits_before("added"))


class EndBeforeItsMessage(BrokenStore):
    breaks = "the end of a run and its event are committed before its last message"
    killed_by = "atomic_completion.finalize_with_event.cut_after_commit"

    finalize_with_event = tampered("finalize_with_event", commits_before("added", turn=2))


class LostEndTalks(BrokenStore):
    breaks = "an end that came too late leaves its last message all the same"
    killed_by = "atomic_completion.finalize_with_event.lost_end_leaves_no_message"

    async def finalize_with_event(self, run_id: str, *, trace: Any = None, **given: Any) -> int | None:
        if trace is None:
            return await super().finalize_with_event(run_id, **given)
        run = await self.get_run(run_id)
        if run is not None and run.status == "running" and given["allowed_current_statuses"] != ("running",):
            await self.save_trace(run_id, trace.role, trace.content, order_index=trace.order_index, trace_kind="final")
        return await super().finalize_with_event(run_id, trace=trace, **given)


class KeepsFlags(BrokenStore):
    breaks = "cancel_requested outlives the run"
    killed_by = "basic.request_cancel.goes_with_the_end"

    finalize_with_event = tampered("finalize_with_event", without_assignment("cancel_requested"))


class KeepsTheDocument(BrokenStore):
    breaks = "the pause document outlives the run"
    killed_by = "basic.finalize_with_event.takes_the_document_along"

    finalize_with_event = tampered("finalize_with_event", without_assignment("pause_data"))


class EndForgetsTotals(BrokenStore):
    breaks = "an end without totals sets them to nothing"
    killed_by = "basic.finalize_with_event.keeps_what_is_not_given"

    finalize_with_event = tampered("finalize_with_event", with_assignment(runs.total_input_tokens, 0))


class GuardBeforeIdentity(BrokenStore):
    breaks = "a repeat of the end that won is told that it lost"
    killed_by = "basic.finalize_with_event.identity_comes_before_the_guard"

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is not None and run.status not in given["allowed_current_statuses"]:
            given["event_id"] = None
        return await super().finalize_with_event(run_id, **given)


class AppliedAndReportedFailed(BrokenStore):
    breaks = "an end whose outcome is unknown is reported as one that did not happen"
    killed_by = "crash_recovery.finalize_with_event.after_commit_error"

    unsettled = tampered("finalize_with_event", lost="unknown").method

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        try:
            return await self.unsettled(run_id, **given)
        except StoreOutcomeUnknown:
            raise StoreUnavailableError(operation="finalize_with_event", run_id=run_id) from None


class NamesAnotherEnd(BrokenStore):
    breaks = "a late event or pause is told that the run has ended with an error, whatever it ended with"
    killed_by = "basic.save_run_event.ended_run_is_named"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        try:
            return await super().save_run_event(run_id, **given)
        except RunAlreadyTerminalError:
            raise RunAlreadyTerminalError(run_id, "error") from None

    async def pause_run(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().pause_run(run_id, **given)
        except RunAlreadyTerminalError:
            raise RunAlreadyTerminalError(run_id, "error") from None
