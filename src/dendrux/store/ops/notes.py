"""The inbox of a run: notes from outside that the owner delivers between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, literal, or_, select, update

from dendrux.db.models import agent_runs, run_inbox
from dendrux.errors import RunNotFoundError
from dendrux.runtime.values import NoteRecord
from dendrux.store import records
from dendrux.store.digest import content_digest
from dendrux.store.hookvalues import ConflictSpec, SelectSource
from dendrux.store.statements import Shape, page, shape_of, within
from dendrux.store.tx import Entry, Facts, Outcome, Tx, Unchanged
from dendrux.vocabulary import TERMINAL_STATUSES, UNSCOPED, NoteOutcome, TenantScope

runs, notes = agent_runs.c, run_inbox.c
IDS_IN_ONE_STATEMENT = 500


async def add_note(
    tx: Tx,
    run_id: str,
    *,
    note_id: str,
    text: str,
    metadata: Any = None,
    max_pending: int = 100,
    tenant_id: TenantScope = UNSCOPED,
    claim_epoch: int | None = None,
) -> Outcome[NoteOutcome]:
    """Put a note into the inbox of an open run, as long as fewer than `max_pending` wait there.

    Ensures: counting and inserting are one critical section.
    Refuses: RunNotFoundError; WriteConflictError when the id holds something else; StaleClaimError.
    """
    digest = content_digest("add_note", text=text, metadata=metadata)
    run = None if claim_epoch is None else await tx.fence(run_id, claim_epoch, tenant_id)
    fenced = run is not None
    if run is None:
        run = await tx.hold(run_id, tenant_id)
    entry = Entry(
        table=run_inbox,
        values={
            "id": note_id,
            "run_id": run_id,
            "text": text,
            "metadata": metadata,
            "content_digest": digest,
            "created_at": tx.now,
        },
        shared=("text", "metadata"),
    )
    if not fenced and (claim_epoch is not None or run.status in TERMINAL_STATUSES):
        return await _refused(tx, run, entry, claim_epoch)
    await tx.serialize_notes(run_id)
    if await _inserted(tx, entry, max_pending):
        return "added"
    held = await tx.repeated(entry)
    return Unchanged("full") if held is None else _present(tx)


def _present(tx: Tx) -> Unchanged[NoteOutcome]:
    """The note is there: by an earlier call, or by this one before the acknowledgement of its COMMIT was lost."""
    return Unchanged("added" if tx.in_doubt else "duplicate")


async def _refused(tx: Tx, run: Facts, entry: Entry, claim_epoch: int | None) -> Unchanged[NoteOutcome]:
    """A note that comes too late: a repeat is told so first."""
    if await tx.repeated(entry) is not None:
        return _present(tx)
    tx.stale(run, claim_epoch, running=True)
    if claim_epoch is not None:
        raise tx.again()
    return Unchanged("closed")


async def _inserted(tx: Tx, entry: Entry, max_pending: int) -> bool:
    """Insert the note if the inbox has room, counted in the same statement."""
    if tx.settling and await tx.find(entry) is not None:
        return False
    waiting = (
        select(func.count())
        .select_from(run_inbox)
        .where(notes.run_id == entry.values["run_id"], notes.delivered_at.is_(None))
        .scalar_subquery()
    )
    terms: list[Any] = [
        literal(value, run_inbox.c[name].type).label(name) for name, value in entry.values.items() if value is not None
    ]
    source = select(*terms).select_from(agent_runs).where(runs.id == entry.values["run_id"], waiting < max_pending)
    plan = tx.store.insert_if_absent_stmt(
        run_inbox,
        SelectSource([term.key for term in terms], source),
        conflict=ConflictSpec((notes.id,), constraint="pk_run_inbox"),
    )
    return bool((await tx.result(plan.statement)).rowcount)


async def mark_notes_delivered(
    tx: Tx, run_id: str, note_ids: Sequence[str], *, iteration: int, claim_epoch: int | None = None
) -> Outcome[int]:
    """Stamp notes as delivered in this iteration: how many were stamped now. The first stamp stays.

    Refuses: RunNotFoundError, StaleClaimError.
    """
    if claim_epoch is None or await tx.fence(run_id, claim_epoch) is None:
        run = await tx.hold(run_id)
        tx.stale(run, claim_epoch, running=True)
        if claim_epoch is not None:
            raise tx.again()
    stamped = 0
    for start in range(0, len(note_ids), IDS_IN_ONE_STATEMENT):
        some = tx.store.id_in(notes.id, list(note_ids[start : start + IDS_IN_ONE_STATEMENT]))
        result = await tx.result(
            update(run_inbox)
            .where(notes.run_id == run_id, notes.delivered_at.is_(None), some)
            .values(delivered_at=tx.now, delivered_iteration=iteration)
        )
        stamped += result.rowcount
    return stamped or Unchanged(0)


async def get_notes(
    tx: Tx,
    run_id: str,
    *,
    undelivered_only: bool = False,
    limit: int = 1000,
    after: str | None = None,
    tenant_id: TenantScope = UNSCOPED,
) -> list[NoteRecord]:
    """A page of the inbox in the order the notes came, after the note `after`.

    Refuses: RunNotFoundError when a scope is given that the run is not in.
    """
    values = {"p_run": run_id, "p_after": after, "p_tenant": tenant_id, "p_limit": limit, "p_offset": 0}
    found = await tx.rows(_page(undelivered_only, after is not None, shape_of(tenant_id)), values)
    if tenant_id is not UNSCOPED and not found:
        raise RunNotFoundError(run_id)
    return [records.note(row) for row in found if row.id is not None]


@cache
def _page(undelivered_only: bool, after: bool, scope: Shape) -> Select[Any]:
    """One statement also under a scope: the run's row comes without a note when it has none to show."""
    run_id, last = bindparam("p_run", type_=runs.id.type), bindparam("p_after", type_=notes.id.type)
    wanted = [notes.run_id == run_id]
    if undelivered_only:
        wanted.append(notes.delivered_at.is_(None))
    if after:
        seen = select(notes.created_at).where(notes.id == last, notes.run_id == run_id).scalar_subquery()
        wanted.append(or_(notes.created_at > seen, and_(notes.created_at == seen, notes.id > last)))
    statement = records.NOTE.where(*wanted)
    if scope != "every":
        joined = records.NOTE.select_from(agent_runs.outerjoin(run_inbox, and_(*wanted)))
        statement = within(joined.where(runs.id == run_id), scope)
    return page(statement, notes.created_at, notes.id)
