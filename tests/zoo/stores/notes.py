"""Broken inboxes: the cap, the order and the stamps of notes."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from dendrux.errors import WriteConflictError
from dendrux.store.tx import Tx
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import tampered


class RepeatRefused(BrokenStore):
    breaks = "an honest repeat of add_note is a conflict"
    killed_by = "retry_ids.add_note.stored_once"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        outcome = await super().add_note(run_id, **given)
        if outcome == "duplicate":
            raise WriteConflictError
        return outcome


def without_doubt(tx: Tx) -> None:
    """The transaction does not know that an earlier one of the same call may have been committed."""
    tx.in_doubt = False


class OwnNoteIsADuplicate(BrokenStore):
    breaks = "a note whose acknowledgement was lost is called a duplicate of itself"
    killed_by = "crash_recovery.add_note.after_commit_error"

    add_note = tampered("add_note", without_doubt)


class UncountedNotes(BrokenStore):
    breaks = "the cap of pending notes is compared with a count read in a transaction of its own"
    killed_by = "concurrency.add_note.cap_holds"

    async def add_note(self, run_id: str, *, max_pending: int = 100, **given: Any) -> Any:
        row = await self.run_sql(
            "SELECT count(*) FROM run_inbox WHERE run_id = :run AND delivered_at IS NULL", run=run_id
        )
        room = 1000 if row[0] < max_pending else max_pending
        return await super().add_note(run_id, max_pending=room, **given)


class OneProcessCounts(BrokenStore):
    breaks = "notes are counted and then added, under a lock that one process has"
    killed_by = "concurrency.add_note.two_processes"

    locks: ClassVar[dict[Any, asyncio.Lock]] = {}

    async def add_note(self, run_id: str, *, max_pending: int = 100, **given: Any) -> Any:
        lock = self.locks.setdefault((str(self._engine.url), id(asyncio.get_running_loop())), asyncio.Lock())
        async with lock:
            row = await self.run_sql(
                "SELECT count(*) FROM run_inbox WHERE run_id = :run AND delivered_at IS NULL", run=run_id
            )
            room = 1000 if row[0] < max_pending else max_pending
            return await super().add_note(run_id, max_pending=room, **given)


class DeliveredNotesCount(BrokenStore):
    breaks = "notes that were delivered still fill the inbox"
    killed_by = "basic.add_note.cap_on_waiting_notes"

    async def add_note(self, run_id: str, *, max_pending: int = 100, **given: Any) -> Any:
        row = await self.run_sql(
            "SELECT count(*) FROM run_inbox WHERE run_id = :run AND delivered_at IS NOT NULL", run=run_id
        )
        return await super().add_note(run_id, max_pending=max(max_pending - row[0], 1), **given)


class OneCapForAll(BrokenStore):
    breaks = "the waiting notes of all runs are counted together"
    killed_by = "basic.add_note.cap_of_each_run"

    async def add_note(self, run_id: str, *, max_pending: int = 100, **given: Any) -> Any:
        row = await self.run_sql("SELECT count(*) FROM run_inbox WHERE run_id <> :run", run=run_id)
        if row[0] >= max_pending:
            return "full"
        return await super().add_note(run_id, max_pending=max_pending, **given)


class OtherDefaultCap(BrokenStore):
    breaks = "ten notes wait when nothing is said of max_pending"
    killed_by = "basic.add_note.default_cap"

    async def add_note(self, run_id: str, *, max_pending: int = 10, **given: Any) -> Any:
        return await super().add_note(run_id, max_pending=max_pending, **given)


class NotesByName(BrokenStore):
    breaks = "notes are read by their ids, not in the order they came"
    killed_by = "basic.add_note.read_in_the_order_they_came"

    async def get_notes(self, run_id: str, **given: Any) -> Any:
        return sorted(await super().get_notes(run_id, **given), key=lambda note: str(note.id))


class TrimmedNotes(BrokenStore):
    breaks = "a note loses the spaces at its end"
    killed_by = "basic.add_note.text_comes_back_exactly"

    async def add_note(self, run_id: str, *, text: str, **given: Any) -> Any:
        return await super().add_note(run_id, text=text.rstrip() or text, **given)


class StampedAgain(BrokenStore):
    breaks = "delivering a note again counts it again"
    killed_by = "basic.mark_notes_delivered.first_stamp_stays"

    async def mark_notes_delivered(self, run_id: str, note_ids: Any, **given: Any) -> int:
        await super().mark_notes_delivered(run_id, note_ids, **given)
        notes = await self.get_notes(run_id)
        return len([note for note in notes if note.id in note_ids])


class StampedTwice(BrokenStore):
    breaks = "a delivery whose acknowledgement was lost is made again, and answers that it stamped nothing"
    killed_by = "crash_recovery.mark_notes_delivered.after_commit_error"

    mark_notes_delivered = tampered("mark_notes_delivered", lost="identity")


class NothingRenewsTheLease(BrokenStore):
    breaks = "a delivery that marks nothing renews the lease"
    killed_by = "fenced_writes.mark_notes_delivered.nothing_to_mark_renews_no_lease"

    async def mark_notes_delivered(self, run_id: str, note_ids: Any, **given: Any) -> int:
        marked = await super().mark_notes_delivered(run_id, note_ids, **given)
        if not marked and given.get("claim_epoch") is not None:
            await self.touch_progress(run_id, claim_epoch=given["claim_epoch"])
        return marked


class EpochOpensWalls(BrokenStore):
    breaks = "add_note with an epoch does not look at the tenant"
    killed_by = "basic.add_note.walls_beside_other_parameters"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        if given.get("claim_epoch") is not None:
            given.pop("tenant_id", None)
        return await super().add_note(run_id, **given)


class CursorOpensWalls(BrokenStore):
    breaks = "get_notes with a cursor does not look at the tenant"
    killed_by = "basic.get_notes.walls_beside_other_parameters"

    async def get_notes(self, run_id: str, **given: Any) -> Any:
        if given.get("after") is not None:
            given.pop("tenant_id", None)
        return await super().get_notes(run_id, **given)


class ChainsTheDriver(BrokenStore):
    breaks = "a conflict of add_note has the driver's error, with its parameters, for a cause"
    killed_by = "basic.add_note.errors_tell_nothing"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().add_note(run_id, **given)
        except WriteConflictError as conflict:
            raise conflict from ValueError(f"[parameters: {given}]")


# -- sizes -----------------------------------------------------------------------------------------------------------


class RoomForOneMore(BrokenStore):
    breaks = "an inbox with a cap above a hundred takes one note more"
    killed_by = "basic.add_note.caps_above_a_hundred"

    async def add_note(self, run_id: str, *, max_pending: int = 100, **given: Any) -> Any:
        more = type(max_pending) is int and 100 < max_pending < 1000
        return await super().add_note(run_id, max_pending=max_pending + more, **given)


class TwoHundredDelivered(BrokenStore):
    breaks = "a delivery stamps the first two hundred ids it is given"
    killed_by = "basic.get_notes.more_than_a_hundred"

    async def mark_notes_delivered(self, run_id: str, note_ids: Any, **given: Any) -> Any:
        some = note_ids[:200] if isinstance(note_ids, (list, tuple)) else note_ids
        return await super().mark_notes_delivered(run_id, some, **given)
