"""The rules every write follows, in the order it checks them: scope, identity, fence, closed, guard, position, effect.

Each is one small function so that a mutant of the model can replace it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dendrux.vocabulary import (
    META_LOOP,
    OPEN_STATUSES,
    PAUSED_STATUSES,
    RECOVERABLE_LOOP,
    RUNNING,
    TERMINAL_STATUSES,
    UNSCOPED,
    TenantScope,
    blob_scope,
)
from dendrux_model.outcomes import CONFLICT, NO_BLOB, NONE, NOT_FOUND, STALE, TERMINAL, Outcome, Refused, Returned
from dendrux_model.values import json_text
from dendrux_model.world import Blob, BlobRef, Event, Run, World, find, put


def in_scope(run: Run, tenant_id: TenantScope) -> bool:
    """Tenants are equal as written: no folding, no padding, no trimming; None is untenanted."""
    return tenant_id is UNSCOPED or run.tenant_id == tenant_id


def stale(run: Run, claim_epoch: int | None) -> bool:
    """Rule 3, the fence: the caller names an epoch, and it is not the run's."""
    return claim_epoch is not None and run.claim_epoch != claim_epoch


def refused(run: Run, claim_epoch: int | None, *, final: bool = False) -> Refused | None:
    """Rules 3 and 4 for a plain write: fence, then closed.

    `final` rows (events, traces, tool calls) are refused on a format-2 run that has ended, fenced or not. A fenced
    plain write needs a running run.
    """
    if stale(run, claim_epoch):
        return STALE
    if final and run.format == 2 and run.status in TERMINAL_STATUSES:
        return TERMINAL
    if claim_epoch is not None and run.status != RUNNING:
        return STALE
    return None


def holder(world: World, rows: str, row_id: str | None) -> tuple[Run, int, Any] | None:
    """Who has a row of this id among `rows`: the run, its place and the row. Ids are global."""
    if row_id is None:
        return None
    for run in world.runs:
        for place, row in enumerate(getattr(run, rows)):
            if row.id == row_id:
                return run, place, row
    return None


def repeated(held: tuple[Run, int, Any], run_id: str, content: str, answer: Outcome) -> Outcome:
    """Rule 2, identity: the same content in the same run is a repeat; anything else conflicts."""
    owner, _, row = held
    return answer if owner.id == run_id and row.content == content else CONFLICT


def taken(run: Run, rows: str, field: str, position: Any) -> bool:
    """Rule 6, position: on format 2 one row holds a place."""
    return run.format == 2 and any(getattr(row, field) == position for row in getattr(run, rows))


POSITIONS: Final = {"traces": "order_index", "tool_calls": "tool_call_id"}
"""The field of a row that only one row of a run may hold."""


def free(world: World, run: Run, rows: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether nobody has the ids of these rows, nobody in the run their positions, and no two of them the same."""
    for kind, new in rows.items():
        position = POSITIONS.get(kind)
        ids = [row.id for row in new if row.id is not None]
        if len(set(ids)) < len(ids) or any(holder(world, kind, row_id) is not None for row_id in ids):
            return False
        if position is not None:
            places = [getattr(row, position) for row in new]
            if len(set(places)) < len(places) or any(taken(run, kind, position, place) for place in places):
                return False
    return True


def with_rows(run: Run, rows: Mapping[str, tuple[Any, ...]]) -> Run:
    """The run with these rows after those it has."""
    added: dict[str, Any] = {kind: (*getattr(run, kind), *new) for kind, new in rows.items() if new}
    return run._replace(**added)


def renewed(run: Run, claim_epoch: int | None, now: int) -> int:
    """A fenced write that applies renews the lease; an unfenced one leaves its clock."""
    return run.progress_at if claim_epoch is None else now


def mark(run: Run, claim_epoch: int | None) -> int | None:
    """The mark of expiry after a write that applies: the owner's write clears it, anybody else's leaves it."""
    return run.lease_expired_at if claim_epoch is None else None


def recoverable(run: Run) -> bool:
    """Whether another owner could go on with this run after its owner died: its loop keeps everything in the store."""
    return run.format == 2 and dict(run.meta or ()).get(META_LOOP) == json_text(RECOVERABLE_LOOP)


def append(
    world: World,
    op: Any,
    rows: str,
    row: Any,
    *,
    final: bool = False,
    position: tuple[str, Any] | None = None,
) -> tuple[World, Outcome]:
    """Insert one row of evidence by identity, under the fence: the path that all evidence writers share.

    Answers the row's place for an event, None for the rest.
    """
    run = find(world, op.run_id)
    if run is None:
        return world, NOT_FOUND
    held = holder(world, rows, row.id)
    if held is not None:
        return world, repeated(held, run.id, row.content, Returned(held[1]) if rows == "events" else NONE)
    refusal = refused(run, op.claim_epoch, final=final)
    if refusal is not None:
        return world, refusal
    if position is not None and taken(run, rows, *position):
        return world, CONFLICT
    references = referred(world, op, run.tenant_id, run.blob_refs)
    if isinstance(references, Refused):
        return world, references
    present = getattr(run, rows)
    changes: dict[str, Any] = {
        "blob_refs": references,
        rows: (*present, row),
        "progress_at": renewed(run, op.claim_epoch, world.now),
        "lease_expired_at": mark(run, op.claim_epoch),
    }
    after = run._replace(**changes)
    return put(world, after), Returned(len(present)) if rows == "events" else NONE


def blob_of(world: World, tenant_scope: str, sha256: str) -> Blob | None:
    """The blob of this content in this scope."""
    for blob in world.blobs:
        if blob.sha256 == sha256 and blob.tenant_scope == tenant_scope:
            return blob
    return None


def same_scope(tenant_id: str | None, op: Any, tenant_scope: str) -> bool:
    """A run refers to blobs of its own scope only, which is also the one that the caller names."""
    return tenant_scope == blob_scope(tenant_id) and op.blob_refs_scope in (None, tenant_scope)


def referred(
    world: World, op: Any, tenant_id: str | None, held: tuple[BlobRef, ...] = ()
) -> tuple[BlobRef, ...] | Refused:
    """The references of a run after this write, or why it has to be refused.

    Every blob must be live; then one reference holds a place.
    """
    edges = getattr(op, "blob_refs", None) or ()
    for edge in edges:
        blob = blob_of(world, edge.tenant_scope, edge.sha256)
        if not same_scope(tenant_id, op, edge.tenant_scope) or blob is None or blob.state != "live":
            return NO_BLOB
    added = []
    for edge in edges:
        place = (edge.owner_kind, edge.owner_id, edge.ordinal)
        there = next((ref for ref in held if (ref.owner_kind, ref.owner_id, ref.ordinal) == place), None)
        if there is None:
            added.append(BlobRef(edge.tenant_scope, edge.sha256, *place, world.now))
        elif there[:2] != (edge.tenant_scope, edge.sha256):
            return CONFLICT
    return (*held, *added)


def logged(run: Run, event: Event) -> tuple[Event, ...]:
    """The log with one more entry: its index is its place, so indexes have no gaps."""
    return (*run.events, event)


def ended(run: Run) -> bool:
    """The run has a terminal status, which nothing changes."""
    return run.status in TERMINAL_STATUSES


def is_open(run: Run) -> bool:
    """The run is running or paused."""
    return run.status in OPEN_STATUSES


def claimable(run: Run, expected_status: str) -> bool:
    """The guard of a claim: exactly that paused status, and nobody asked for its cancellation."""
    return run.status == expected_status and run.status in PAUSED_STATUSES and not run.cancel_requested


def unconsumed(run: Run) -> bool:
    """A submission was stored and its content was not handed out yet."""
    return run.submission is not None and run.submission.consumption_id is None
