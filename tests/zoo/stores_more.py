"""More broken stores: what a store can get wrong beside the writes that one process can see.

`killed_by` names the contract that must go red, as in `stores`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from dendrux.errors import IdempotencyConflictError, RunAlreadyTerminalError, WriteConflictError
from zoo.stores import BrokenStore

# -- processes --------------------------------------------------------------------------------------------------------


class OneProcessClaims(BrokenStore):
    breaks = "claims are read and then written, under a lock that one process has"
    killed_by = "concurrency.claim_paused_run.two_processes"

    locks: ClassVar[dict[Any, asyncio.Lock]] = {}

    async def claim_paused_run(self, run_id: str, *, expected_status: str, **given: Any) -> int | None:
        lock = self.locks.setdefault((str(self._engine.url), id(asyncio.get_running_loop())), asyncio.Lock())
        async with lock:
            run = await self.get_run(run_id, **given)
            if run is None or run.status != expected_status or run.cancel_requested:
                return await super().claim_paused_run(run_id, expected_status=expected_status, **given)
            await self.run_sql(
                "UPDATE agent_runs SET status = 'running', claim_epoch = :epoch, claimed_epoch = :epoch WHERE id = :run",
                epoch=run.claim_epoch + 1,
                run=run_id,
            )
            return run.claim_epoch + 1


# -- tenants ----------------------------------------------------------------------------------------------------------


class EpochOpensWalls(BrokenStore):
    breaks = "add_note with an epoch does not look at the tenant"
    killed_by = "basic.add_note.walls_beside_other_parameters"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        if given.get("claim_epoch") is not None:
            given.pop("tenant_id", None)
        return await super().add_note(run_id, **given)


class ValidationOpensWalls(BrokenStore):
    breaks = "submit_and_claim with a validation does not look at the tenant"
    killed_by = "basic.submit_and_claim.walls_beside_other_parameters"

    async def submit_and_claim(self, run_id: str, **given: Any) -> Any:
        if given.get("validate") is not None:
            given.pop("tenant_id", None)
        return await super().submit_and_claim(run_id, **given)


class CursorOpensWalls(BrokenStore):
    breaks = "get_notes with a cursor does not look at the tenant"
    killed_by = "basic.get_notes.walls_beside_other_parameters"

    async def get_notes(self, run_id: str, **given: Any) -> Any:
        if given.get("after") is not None:
            given.pop("tenant_id", None)
        return await super().get_notes(run_id, **given)


class ListsEveryTenant(BrokenStore):
    breaks = "a list without an agent's name does not look at the tenant"
    killed_by = "basic.list_runs.walls_beside_other_filters"

    async def list_runs(self, **given: Any) -> Any:
        if given.get("agent_name") is None:
            given.pop("tenant_id", None)
        return await super().list_runs(**given)


# -- reads ------------------------------------------------------------------------------------------------------------


class ThinLists(BrokenStore):
    breaks = "list_runs shows runs without their metadata"
    killed_by = "basic.list_runs.records_are_whole"

    async def list_runs(self, **given: Any) -> Any:
        return [replace(run, meta=None) for run in await super().list_runs(**given)]


class SomebodysEvents(BrokenStore):
    breaks = "events name another run"
    killed_by = "basic.get_run_events.rows_are_whole"

    async def get_run_events(self, run_id: str, **given: Any) -> Any:
        return [replace(row, run_id="nobody") for row in await super().get_run_events(run_id, **given)]


class OldIndexRefused(BrokenStore):
    breaks = "save_run_event refuses sequence_index="
    killed_by = "basic.save_run_event.old_index_is_ignored"

    async def save_run_event(self, run_id: str, *, sequence_index: int | None = None, **given: Any) -> int:
        if sequence_index is not None:
            raise ValueError("sequence_index is gone")
        return await super().save_run_event(run_id, **given)


class TimeReplacesStatus(BrokenStore):
    breaks = "started_after makes list_runs and count_runs forget the status"
    killed_by = "basic.list_runs.filters_in_pairs"

    async def list_runs(self, **given: Any) -> Any:
        if given.get("started_after") is not None:
            given.pop("status", None)
        return await super().list_runs(**given)


class TypesReplaceTime(BrokenStore):
    breaks = "event_types make get_run_events forget the bound in time"
    killed_by = "basic.get_run_events.before_a_time_and_more"

    async def get_run_events(self, run_id: str, **given: Any) -> Any:
        if given.get("event_types") is not None:
            given.pop("before", None)
        return await super().get_run_events(run_id, **given)


class ShortPages(BrokenStore):
    breaks = "no page of get_traces has more than a hundred rows"
    killed_by = "basic.get_traces.more_than_a_hundred"

    async def get_traces(self, run_id: str, *, limit: int = 1000, **given: Any) -> Any:
        return await super().get_traces(run_id, limit=min(limit, 100) if 0 < limit <= 1000 else limit, **given)


class ShortStatuses(BrokenStore):
    breaks = "get_run_statuses looks at the first hundred ids"
    killed_by = "basic.list_runs.more_than_a_hundred"

    async def get_run_statuses(self, run_ids: Any) -> Any:
        return await super().get_run_statuses(run_ids[:100] if 100 < len(run_ids) <= 200 else run_ids)


class OtherDefaultCap(BrokenStore):
    breaks = "ten notes wait when nothing is said of max_pending"
    killed_by = "basic.add_note.default_cap"

    async def add_note(self, run_id: str, *, max_pending: int = 10, **given: Any) -> Any:
        return await super().add_note(run_id, max_pending=max_pending, **given)


class ShortDeliveries(BrokenStore):
    breaks = "a delivery stamps the first hundred ids it names"
    killed_by = "basic.add_note.default_cap"

    async def mark_notes_delivered(self, run_id: str, note_ids: Any, **given: Any) -> int:
        return await super().mark_notes_delivered(run_id, note_ids[:100], **given)


class LocalTimes(BrokenStore):
    breaks = "local times are read as UTC, in bounds as in answers"
    killed_by = "basic.get_run.times_are_true"

    async def get_run(self, run_id: str, **given: Any) -> Any:
        run = await super().get_run(run_id, **given)
        return run and replace(run, created_at=run.created_at + timedelta(hours=5, minutes=30))


class LeaseGoesBack(BrokenStore):
    breaks = "touch_progress writes the time it has, whatever is stored"
    killed_by = "fenced_writes.touch_progress.lease_never_goes_back"

    async def touch_progress(self, run_id: str, **given: Any) -> bool:
        await self.run_sql("UPDATE agent_runs SET last_progress_at = created_at WHERE id = :run", run=run_id)
        return await super().touch_progress(run_id, **given)


class CachedConversations(BrokenStore):
    breaks = "get_traces is answered from a cache that only own writes clear"
    killed_by = "concurrency.get_run.sees_other_instances"

    async def get_traces(self, run_id: str, **given: Any) -> Any:
        cache = self.__dict__.setdefault("_cache", {})
        key = run_id, repr(given)
        if key not in cache:
            cache[key] = await super().get_traces(run_id, **given)
        return cache[key]

    async def save_trace(self, run_id: str, **given: Any) -> None:
        self.__dict__.pop("_cache", None)
        await super().save_trace(run_id, **given)


# -- errors -----------------------------------------------------------------------------------------------------------


class ChainsTheDriver(BrokenStore):
    breaks = "a conflict of add_note has the driver's error, with its parameters, for a cause"
    killed_by = "basic.add_note.errors_tell_nothing"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().add_note(run_id, **given)
        except WriteConflictError as conflict:
            raise conflict from ValueError(f"[parameters: {given}]")


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


class NamesTheNewRun(BrokenStore):
    breaks = "a key conflict names the run that could not be created"
    killed_by = "basic.create_run.key_conflict_names_the_run"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except IdempotencyConflictError as conflict:
            raise IdempotencyConflictError(run_id, conflict.idempotency_key) from None


class ValidatesNothing(BrokenStore):
    breaks = "validate is called with an empty document"
    killed_by = "basic.submit_and_claim.validate_sees_the_document"

    async def submit_and_claim(self, run_id: str, *, validate: Any = None, **given: Any) -> Any:
        blind = validate and (lambda document: validate({}))
        return await super().submit_and_claim(run_id, validate=blind, **given)


class SwallowsCancellation(BrokenStore):
    breaks = "a cancelled get_run answers that there is no run"
    killed_by = "basic.save_run_event.cancelled_calls"
    threaded = True

    async def get_run(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().get_run(run_id, **given)
        except asyncio.CancelledError:
            return None
