"""Broken stores. Each is the built-in SQLite store with one promise removed, in as few lines as that takes.

`killed_by` names the contract that must go red. A store that survives its contract is a hole in the kit.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from typing import Any, ClassVar

from sqlalchemy import text

from dendrux.errors import StaleClaimError, StoreBusyError, StoreOutcomeUnknown, WriteConflictError
from dendrux.store import SQLiteStateStore

ZOO: dict[str, type[BrokenStore]] = {}


class BrokenStore(SQLiteStateStore):
    """A store of the zoo. Its overrides keep the signatures they replace: capability validation is not what fails."""

    format: ClassVar[int] = 2
    breaks: ClassVar[str]
    killed_by: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        ZOO[cls.__name__] = cls
        for name, method in vars(cls).items():
            if inspect.iscoroutinefunction(method) and hasattr(SQLiteStateStore, name):
                method.__signature__ = inspect.signature(getattr(SQLiteStateStore, name))  # type: ignore[attr-defined]

    async def run_sql(self, statement: str, **values: Any) -> Any:
        """One statement in a transaction of its own, past everything the base does."""
        async with self._engine.begin() as connection:
            result = await connection.execute(text(statement), values)
            return result.first() if result.returns_rows else result.rowcount


# -- fences -----------------------------------------------------------------------------------------------------------


class TraceWithoutFence(BrokenStore):
    breaks = "save_trace does not look at the epoch"
    killed_by = "fenced_writes.save_trace"

    async def save_trace(self, *args: Any, claim_epoch: int | None = None, **given: Any) -> None:
        await super().save_trace(*args, **given)


class RefusesOwners(BrokenStore):
    breaks = "touch_progress tells a rightful owner that it is stale"
    killed_by = "fenced_writes.touch_progress"

    async def touch_progress(self, run_id: str, *, claim_epoch: int | None = None) -> bool:
        if claim_epoch is not None:
            raise StaleClaimError
        return await super().touch_progress(run_id)


class RefusalRenewsLease(BrokenStore):
    breaks = "a refused update_run_meta renews the lease all the same"
    killed_by = "fenced_writes.update_run_meta"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        try:
            await super().update_run_meta(run_id, patch, **given)
        except StaleClaimError:
            await self.run_sql(
                "UPDATE agent_runs SET last_progress_at = '2040-01-01 00:00:00.000000' WHERE id = :run", run=run_id
            )
            raise


# -- identities -------------------------------------------------------------------------------------------------------


class IdentityIgnored(BrokenStore):
    breaks = "every save_run_event is a new event, whatever its id"
    killed_by = "retry_ids.save_run_event"

    async def save_run_event(self, run_id: str, *, event_id: str | None = None, **given: Any) -> int:
        return await super().save_run_event(run_id, **given)


class IdentityWithoutContent(BrokenStore):
    breaks = "save_llm_interaction takes any content under a known id for a repeat"
    killed_by = "retry_ids.save_llm_interaction"

    async def save_llm_interaction(self, run_id: str, **given: Any) -> None:
        try:
            await super().save_llm_interaction(run_id, **given)
        except WriteConflictError:
            return


class RepeatRefused(BrokenStore):
    breaks = "an honest repeat of add_note is a conflict"
    killed_by = "retry_ids.add_note"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        outcome = await super().add_note(run_id, **given)
        if outcome == "duplicate":
            raise WriteConflictError
        return outcome


# -- claims -----------------------------------------------------------------------------------------------------------


class ClaimWithoutSwap(BrokenStore):
    breaks = "a claim reads the status, then takes the run without looking again"
    killed_by = "concurrency.pair_matrix.claim_paused_run"

    async def claim_paused_run(self, run_id: str, *, expected_status: str, **given: Any) -> int | None:
        run = await self.get_run(run_id, **given)
        if run is None or run.status != expected_status or run.cancel_requested:
            return await super().claim_paused_run(run_id, expected_status=expected_status, **given)
        await self.run_sql(
            "UPDATE agent_runs SET status = 'running', claim_epoch = :epoch, claimed_epoch = :epoch WHERE id = :run",
            epoch=run.claim_epoch + 1,
            run=run_id,
        )
        return run.claim_epoch + 1


class EpochRaisedTwice(BrokenStore):
    breaks = "a claim raises the epoch by two"
    killed_by = "basic.claim_paused_run"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        epoch = await super().claim_paused_run(run_id, **given)
        if epoch is None:
            return None
        await self.run_sql(
            "UPDATE agent_runs SET claim_epoch = claim_epoch + 1, claimed_epoch = claim_epoch + 1 WHERE id = :run",
            run=run_id,
        )
        return epoch + 1


class BlindRetry(BrokenStore):
    breaks = "a claim whose acknowledgement was lost is tried again"
    killed_by = "crash_recovery.claim_paused_run"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        try:
            return await super().claim_paused_run(run_id, **given)
        except StoreOutcomeUnknown:
            return await super().claim_paused_run(run_id, **given)


class ReadsBackClaims(BrokenStore):
    breaks = "a claim whose acknowledgement was lost is answered with the epoch that a read shows"
    killed_by = "crash_recovery.claim_paused_run"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        try:
            return await super().claim_paused_run(run_id, **given)
        except StoreOutcomeUnknown:
            run = await self.get_run(run_id)
            return run.claim_epoch if run is not None and run.status == "running" else None


class ClaimsTheCancelled(BrokenStore):
    breaks = "a claim does not look at cancel_requested"
    killed_by = "basic.claim_paused_run"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is None or not run.cancel_requested:
            return await super().claim_paused_run(run_id, **given)
        await self.run_sql("UPDATE agent_runs SET cancel_requested = 0 WHERE id = :run", run=run_id)
        epoch = await super().claim_paused_run(run_id, **given)
        await self.run_sql("UPDATE agent_runs SET cancel_requested = 1 WHERE id = :run", run=run_id)
        return epoch


# -- tenants ----------------------------------------------------------------------------------------------------------


class FoldedTenants(BrokenStore):
    breaks = "claims compare tenants without regard to case"
    killed_by = "basic.claim_paused_run"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        wanted = given.get("tenant_id")
        own = None if run is None else run.tenant_id
        if isinstance(wanted, str) and own is not None and wanted.casefold() == own.casefold():
            given["tenant_id"] = own
        return await super().claim_paused_run(run_id, **given)


class PaddedTenants(BrokenStore):
    breaks = "lists compare tenants without regard to trailing spaces"
    killed_by = "basic.list_runs"

    async def list_runs(self, **given: Any) -> Any:
        wanted = given.pop("tenant_id", None)
        if not isinstance(wanted, str):
            return await super().list_runs(**given, **({} if wanted is None else {"tenant_id": wanted}))
        return [run for run in await super().list_runs(**given) if (run.tenant_id or "").rstrip() == wanted.rstrip()]


# -- ends and pauses --------------------------------------------------------------------------------------------------


class OverwritesTheEnd(BrokenStore):
    breaks = "a late finalize overwrites the status of a run that has ended"
    killed_by = "basic.finalize_with_event"

    async def finalize_with_event(self, run_id: str, *, status: str, **given: Any) -> int | None:
        index = await super().finalize_with_event(run_id, status=status, **given)
        if index is None and given.get("claim_epoch") is None:
            await self.run_sql("UPDATE agent_runs SET status = :status WHERE id = :run", status=status, run=run_id)
        return index


class EventInItsOwnTransaction(BrokenStore):
    format = 1  # a pause without an event exists there only
    breaks = "a pause commits, then its event is written in a second transaction"
    killed_by = "crash_recovery.pause_with_event"

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


class KeepsFlags(BrokenStore):
    breaks = "cancel_requested outlives the run"
    killed_by = "basic.finalize_with_event"

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        before = await self.get_run(run_id)
        index = await super().finalize_with_event(run_id, **given)
        if index is not None and before is not None and before.cancel_requested:
            await self.run_sql("UPDATE agent_runs SET cancel_requested = 1 WHERE id = :run", run=run_id)
        return index


# -- races ------------------------------------------------------------------------------------------------------------


class UnlockedSequence(BrokenStore):
    breaks = "an event's index is MAX + 1, read before the write takes any lock, and nothing is unique"
    killed_by = "concurrency.pair_matrix.save_run_event"

    loosen = (
        "CREATE TABLE loose_events AS SELECT * FROM run_events",
        "DROP TABLE run_events",
        "ALTER TABLE loose_events RENAME TO run_events",
        "CREATE UNIQUE INDEX loose_events_id ON run_events (id)",
    )

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        if await self.run_sql("SELECT 1 FROM sqlite_master WHERE name = 'loose_events_id'") is None:
            for statement in self.loosen:
                await self.run_sql(statement)
        row = await self.run_sql(
            "SELECT coalesce(max(sequence_index), -1) + 1 FROM run_events WHERE agent_run_id = :run", run=run_id
        )
        taken = await super().save_run_event(run_id, **given)
        if taken < row[0]:
            return taken  # a repeat
        await self.run_sql(
            "UPDATE run_events SET sequence_index = :index WHERE agent_run_id = :run AND sequence_index = :taken",
            index=row[0],
            run=run_id,
            taken=taken,
        )
        return int(row[0])


class LostMetaUpdates(BrokenStore):
    breaks = "update_run_meta writes back a whole document that it read before it took the row"
    killed_by = "concurrency.pair_matrix.update_run_meta"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        run = await self.get_run(run_id)
        await super().update_run_meta(run_id, patch, **given)
        if run is not None and patch:
            whole = json.dumps({**(run.meta or {}), **patch}, separators=(",", ":"), ensure_ascii=False)
            await self.run_sql("UPDATE agent_runs SET meta = :meta WHERE id = :run", meta=whole, run=run_id)


class UncountedNotes(BrokenStore):
    breaks = "the cap of pending notes is compared with a count read in a transaction of its own"
    killed_by = "concurrency.add_note"

    async def add_note(self, run_id: str, *, max_pending: int = 100, **given: Any) -> Any:
        row = await self.run_sql(
            "SELECT count(*) FROM run_inbox WHERE run_id = :run AND delivered_at IS NULL", run=run_id
        )
        room = 1000 if row[0] < max_pending else max_pending
        return await super().add_note(run_id, max_pending=room, **given)


class BusyForEver(BrokenStore):
    breaks = "request_cancel is always busy"
    killed_by = "basic.request_cancel"

    async def request_cancel(self, run_id: str) -> bool:
        raise StoreBusyError


from zoo import stores_more  # noqa: E402, F401  # more of the same
