"""The inbox of a run: notes from outside that the owner delivers between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dendrux.vocabulary import UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import CONFLICT, NOT_FOUND, Returned
from dendrux_model.values import At, json_text
from dendrux_model.world import Note, World, find, put


def pending(notes: tuple[Note, ...]) -> int:
    """How many notes the owner has not delivered."""
    return sum(note.delivered_iteration is None for note in notes)


@dataclass(frozen=True, kw_only=True)
class AddNote(Operation, lost_ack="identity", identity="note_id"):
    """Put a note into the inbox of an open run, as long as fewer than `max_pending` wait there."""

    run_id: str
    note_id: str
    text: str
    metadata: Any = None
    max_pending: int = 100
    tenant_id: TenantScope = UNSCOPED
    claim_epoch: int | None = None

    not_persisted = frozenset({"max_pending", "tenant_id"})

    @property
    def by_time(self) -> tuple[str | None, frozenset[str | None]]:
        return "notes", frozenset([self.note_id])

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None or not rules.in_scope(run, self.tenant_id):
            return world, NOT_FOUND
        held = rules.holder(world, "notes", self.note_id)
        if held is not None:
            same = held[0] is run and held[2].content == self.content
            return world, Returned("duplicate") if same else CONFLICT
        refusal = rules.refused(run, self.claim_epoch)
        if refusal is not None:
            return world, refusal
        if rules.ended(run):
            return world, Returned("closed")
        if pending(run.notes) >= self.max_pending:
            return world, Returned("full")
        note = Note(self.note_id, self.content, self.text, json_text(self.metadata), None, None)
        after = run._replace(
            notes=(*run.notes, note),
            progress_at=rules.renewed(run, self.claim_epoch, world.now),
            lease_expired_at=rules.mark(run, self.claim_epoch),
        )
        return put(world, after), Returned("added")


@dataclass(frozen=True, kw_only=True)
class MarkNotesDelivered(Operation, lost_ack="unknown"):
    """Stamp notes as delivered in this iteration. Answers how many it stamped now; the first stamp stays."""

    run_id: str
    note_ids: Sequence[str]
    iteration: int
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        refusal = rules.refused(run, self.claim_epoch)
        if refusal is not None:
            return world, refusal
        notes = tuple(
            note._replace(delivered_iteration=self.iteration, delivered_at=world.now)
            if note.id in self.note_ids and note.delivered_iteration is None
            else note
            for note in run.notes
        )
        stamped = pending(run.notes) - pending(notes)
        if stamped == 0:
            return world, Returned(0)
        after = run._replace(
            notes=notes,
            progress_at=rules.renewed(run, self.claim_epoch, world.now),
            lease_expired_at=rules.mark(run, self.claim_epoch),
        )
        return put(world, after), Returned(stamped)


@dataclass(frozen=True, kw_only=True)
class GetNotes(Operation, lost_ack="read"):
    """Read the inbox in the order the notes came. A scope that the run is not in is refused."""

    run_id: str
    undelivered_only: bool = False
    limit: int = 1000
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None or not rules.in_scope(run, self.tenant_id):
            return world, Returned([]) if self.tenant_id is UNSCOPED else NOT_FOUND
        found = [
            {
                "id": note.id,
                "text": note.text,
                "metadata": note.metadata,
                "delivered_iteration": note.delivered_iteration,
                "delivered_at": None if note.delivered_at is None else At(note.delivered_at),
            }
            for note in run.notes
            if not self.undelivered_only or note.delivered_iteration is None
        ]
        return world, Returned(found[: self.limit])
