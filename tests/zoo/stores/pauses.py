"""Broken pauses and requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.errors import StoreBusyError
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import tampered, without_assignment, without_guard


class EventInItsOwnTransaction(BrokenStore):
    format = 1  # a pause without an event exists there only
    breaks = "a pause commits, then its event is written in a second transaction"
    killed_by = "crash_recovery.pause_with_event.after_commit_error"

    def __init__(self, engine: Any, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.capabilities = replace(self.capabilities, checkpointing=False, atomic_completion=False, recovery=False)

    async def pause_with_event(
        self, run_id: str, *, event_data: Any = None, event_id: str | None = None, **given: Any
    ) -> int | None:
        if not await self.try_pause_run(run_id, **given):
            return None
        run = await self.get_run(run_id)
        return await self.save_run_event(
            run_id,
            event_type="run.paused",
            data=event_data,
            event_id=event_id,
            iteration_index=run.iteration_count if run else 0,
        )


class PausesTheCancelled(BrokenStore):
    breaks = "a pause does not look at cancel_requested"
    killed_by = "basic.pause_with_event.not_when_asked_to_cancel"

    pause_with_event = tampered("pause_with_event", without_guard("cancel_requested"))


class PauseKeepsTheRequest(BrokenStore):
    breaks = "a request to pause outlives the pause"
    killed_by = "basic.pause_with_event.clears_the_request"

    pause_with_event = tampered("pause_with_event", without_assignment("pause_requested", "pause_reason"))


class PauseTakesAnyEpoch(BrokenStore):
    breaks = "a pause does not compare the epoch"
    killed_by = "fenced_writes.pause_with_event.refuses_old_epoch"

    pause_with_event = tampered("pause_with_event", without_guard("claim_epoch"))


class NoteMovesTheWait(BrokenStore):
    breaks = "a note begins the time anew that a paused run waits"
    killed_by = "basic.sweep_abandoned_runs.waits_from_the_pause_on"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        outcome = await super().add_note(run_id, **given)
        await self.run_sql("UPDATE agent_runs SET paused_at = '2040-01-01 00:00:00' WHERE id = :run", run=run_id)
        return outcome


class PausesTwice(BrokenStore):
    breaks = "of two pauses at once, the second replaces the first"
    killed_by = "concurrency.pause_with_event.one_pause"

    paused = tampered("pause_with_event", without_guard("status")).method

    async def pause_with_event(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is None or run.status != "running":
            return await super().pause_with_event(run_id, **given)
        return await self.paused(run_id, **given)


# -- requests ---------------------------------------------------------------------------------------------------------


class BusyForEver(BrokenStore):
    breaks = "request_cancel is always busy"
    killed_by = "basic.request_cancel.running_run"

    async def request_cancel(self, run_id: str) -> bool:
        raise StoreBusyError


class CancelsTheEnded(BrokenStore):
    breaks = "a run that has ended can still be asked to cancel"
    killed_by = "basic.request_cancel.ended_run"

    request_cancel = tampered("request_cancel", without_guard("status"))


class ReasonForgotten(BrokenStore):
    breaks = "a request to pause without a reason drops the reason of the one before"
    killed_by = "basic.request_pause.reason_lies_over_meta"

    async def request_pause(self, run_id: str, *, reason: str | None = None) -> bool:
        if reason is None:
            await self.run_sql("UPDATE agent_runs SET pause_reason = NULL WHERE id = :run", run=run_id)
        return await super().request_pause(run_id, reason=reason)


class NotesDoNotWait(BrokenStore):
    breaks = "get_run_control does not say that notes wait"
    killed_by = "basic.get_run_control.pending_notes"

    async def get_run_control(self, run_id: str) -> Any:
        return replace(await super().get_run_control(run_id), has_pending_notes=False)
