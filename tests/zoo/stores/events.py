"""Broken logs: indexes, identities and pages of events."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

from dendrux.errors import RunAlreadyTerminalError, StaleClaimError, WriteConflictError
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import tampered


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


class RefusalsLeaveGaps(BrokenStore):
    breaks = "a refused event leaves its index behind: the next one counts on from there"
    killed_by = "fenced_writes.save_run_event.refuses_old_epoch"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        try:
            return await super().save_run_event(run_id, **given)
        except StaleClaimError:
            await self.run_sql(
                "UPDATE run_events SET sequence_index = sequence_index + 1 WHERE agent_run_id = :run "
                "AND sequence_index = (SELECT max(sequence_index) FROM run_events WHERE agent_run_id = :run)",
                run=run_id,
            )
            raise


class OneLogForAll(BrokenStore):
    breaks = "the indexes of all runs are counted together"
    killed_by = "basic.save_run_event.each_run_has_its_own_log"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        index = await super().save_run_event(run_id, **given)
        row = await self.run_sql("SELECT count(*) - 1 FROM run_events")
        return max(index, row[0])


class IdentityIgnored(BrokenStore):
    breaks = "every save_run_event is a new event, whatever its id"
    killed_by = "retry_ids.save_run_event.stored_once"

    async def save_run_event(self, run_id: str, *, event_id: str | None = None, **given: Any) -> int:
        return await super().save_run_event(run_id, **given)


class OrderIsContent(BrokenStore):
    breaks = "an event whose data has its members in another order is another event"
    killed_by = "retry_ids.save_run_event.order_of_members_is_no_content"

    async def save_run_event(self, run_id: str, *, data: Any = None, event_id: str | None = None, **given: Any) -> int:
        known = [row for row in await self.get_run_events(run_id) if row.id == event_id]
        if known and str(known[0].data) != str(data):
            raise WriteConflictError(operation="save_run_event", run_id=run_id)
        return await super().save_run_event(run_id, data=data, event_id=event_id, **given)


class EpochIsContent(BrokenStore):
    breaks = "a repeat under a later epoch is refused as stale"
    killed_by = "retry_ids.save_run_event.repeats_under_a_later_epoch"

    async def save_run_event(self, run_id: str, *, claim_epoch: int | None = None, **given: Any) -> int:
        run = await self.get_run(run_id)
        if claim_epoch is not None and run is not None and run.claim_epoch != claim_epoch:
            raise StaleClaimError(operation="save_run_event", run_id=run_id)
        return await super().save_run_event(run_id, claim_epoch=claim_epoch, **given)


class EndForgetsIdentities(BrokenStore):
    breaks = "a repeat after the end is refused like a new event"
    killed_by = "retry_ids.save_run_event.repeats_after_the_end"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        run = await self.get_run(run_id)
        if run is not None and run.format == 2 and run.status in ("success", "error", "cancelled"):
            raise RunAlreadyTerminalError(run_id, run.status)
        return await super().save_run_event(run_id, **given)


class IdsOfEachRun(BrokenStore):
    breaks = "an event id that another run holds is given another name and stored"
    killed_by = "retry_ids.save_run_event.other_run_conflicts"

    async def save_run_event(self, run_id: str, *, event_id: str | None = None, **given: Any) -> int:
        try:
            return await super().save_run_event(run_id, event_id=event_id, **given)
        except WriteConflictError:
            if any(row.id == event_id for row in await self.get_run_events(run_id)):
                raise
            return await super().save_run_event(run_id, event_id=f"{event_id}-"[-64:], **given)


class UnsettledEvents(BrokenStore):
    breaks = "an event whose acknowledgement was lost is not settled by its identity"
    killed_by = "crash_recovery.save_run_event.after_commit_error"

    save_run_event = tampered("save_run_event", lost="unknown")


class EverySaveIsReserved(BrokenStore):
    breaks = "the types that operations of their own write are taken from everybody"
    killed_by = "basic.save_run_event.reserved_types"

    async def save_run_event(self, run_id: str, *, event_type: str, **given: Any) -> int:
        try:
            return await super().save_run_event(run_id, event_type=event_type, **given)
        except ValueError:
            return await super().save_run_event(run_id, event_type=f"{event_type}d", **given)


class ComposedNames(BrokenStore):
    breaks = "names of events are stored in composed form"
    killed_by = "basic.save_run_event.names_are_equal_as_written"

    async def save_run_event(self, run_id: str, *, event_type: str, **given: Any) -> int:
        return await super().save_run_event(run_id, event_type=unicodedata.normalize("NFC", event_type), **given)


class OldIndexRefused(BrokenStore):
    breaks = "save_run_event refuses sequence_index="
    killed_by = "basic.save_run_event.old_index_is_ignored"

    async def save_run_event(self, run_id: str, *, sequence_index: int | None = None, **given: Any) -> int:
        if sequence_index is not None:
            raise ValueError("sequence_index is gone")
        return await super().save_run_event(run_id, **given)


# -- reads ------------------------------------------------------------------------------------------------------------


class SomebodysEvents(BrokenStore):
    breaks = "events name another run"
    killed_by = "basic.get_run_events.rows_are_whole"

    async def get_run_events(self, run_id: str, **given: Any) -> Any:
        return [replace(row, run_id="nobody") for row in await super().get_run_events(run_id, **given)]


class AfterIncludes(BrokenStore):
    breaks = "a page of events begins with the one it should begin after"
    killed_by = "basic.get_run_events.pages_by_index"

    async def get_run_events(self, run_id: str, *, after_sequence_index: int | None = None, **given: Any) -> Any:
        after = after_sequence_index if not after_sequence_index else after_sequence_index - 1
        return await super().get_run_events(run_id, after_sequence_index=after, **given)


class OneLimitForAll(BrokenStore):
    breaks = "get_events_for_runs bounds all runs together"
    killed_by = "basic.get_events_for_runs.above_each_head"

    async def get_events_for_runs(self, heads: Any, *, limit_per_run: int) -> Any:
        found = await super().get_events_for_runs(heads, limit_per_run=limit_per_run)
        left = limit_per_run
        for run_id, rows in found.items():
            found[run_id] = rows[:left]
            left -= len(found[run_id])
        return found


class WholeSeconds(BrokenStore):
    breaks = "a bound in time is compared in whole seconds"
    killed_by = "basic.get_run_events.before_a_time"

    async def get_run_events(self, run_id: str, *, before: Any = None, **given: Any) -> Any:
        coarse = before and before.replace(microsecond=0)
        return await super().get_run_events(run_id, before=coarse, **given)


class TypesReplaceTime(BrokenStore):
    breaks = "event_types make get_run_events forget the bound in time"
    killed_by = "basic.get_run_events.before_a_time_and_more"

    async def get_run_events(self, run_id: str, **given: Any) -> Any:
        if given.get("event_types") is not None:
            given.pop("before", None)
        return await super().get_run_events(run_id, **given)


# -- sizes -----------------------------------------------------------------------------------------------------------


class HundredHeads(BrokenStore):
    breaks = "get_events_for_runs reads the logs of the first hundred runs it is given"
    killed_by = "basic.get_events_for_runs.more_than_a_hundred"

    async def get_events_for_runs(self, heads: Any, **given: Any) -> Any:
        some = dict(list(heads.items())[:100]) if isinstance(heads, dict) and len(heads) <= 200 else heads
        return await super().get_events_for_runs(some, **given)


class ShortLogsTogether(BrokenStore):
    breaks = "get_events_for_runs gives at most fifty events of each run"
    killed_by = "basic.get_run_events.more_than_a_hundred"

    async def get_events_for_runs(self, heads: Any, *, limit_per_run: Any = 100) -> Any:
        capped = 50 if type(limit_per_run) is int and 50 < limit_per_run <= 100 else limit_per_run
        return await super().get_events_for_runs(heads, limit_per_run=capped)


class TenTypes(BrokenStore):
    breaks = "of the types of events that a read asks for, ten count"
    killed_by = "basic.get_run_events.long_lists_of_types"

    async def get_run_events(self, run_id: str, *, event_types: Any = None, **given: Any) -> Any:
        some = event_types[:10] if isinstance(event_types, (list, tuple)) else event_types
        return await super().get_run_events(run_id, event_types=some, **given)
