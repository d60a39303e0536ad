"""References from the rows of a run to stored blobs, written together with the row that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, literal, select, true, union_all
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import agent_runs, blob_refs, blobs
from dendrux.errors import BlobNotFoundError
from dendrux.runtime.values import BlobEdge
from dendrux.store.hookvalues import ConflictSpec, SelectSource
from dendrux.store.ids import new_id
from dendrux.store.tx import Tx
from dendrux.vocabulary import blob_scope

runs, refs, stored = agent_runs.c, blob_refs.c, blobs.c
Edges = Sequence[BlobEdge] | None

LIVE = "live"
OWNER = (refs.run_id, refs.owner_kind, refs.owner_id, refs.ordinal)
"""The place that one reference holds."""


def moment(tx: Tx, column: Column[Any]) -> ColumnElement[Any]:
    """The time on blob rows, as this database gives it."""
    now: datetime | ColumnElement[Any] = tx.store.blob_now()
    return now if isinstance(now, ColumnElement) else literal(now, column.type)


def digested(edges: Edges) -> dict[str, Any]:
    """The references as a part of a write's content; none at all, however that is said, are no part."""
    if not edges:
        return {}
    return {"blob_refs": [[e.tenant_scope, e.sha256, e.owner_kind, e.owner_id, e.ordinal] for e in edges]}


async def refer(tx: Tx, run_id: str, edges: Edges, scope: str | None) -> None:
    """Store the references of a row that this transaction writes to a run it holds.

    Ensures: one statement locks the blobs, ids ascending, and inserts: a collection sees the reference, or the
    reference sees that the blob is gone.
    Refuses: BlobNotFoundError for a blob that is not live in the run's own scope; WriteConflictError when another blob
    holds the place.
    """
    if not edges:
        return
    wanted = scope or edges[0].tenant_scope
    for edge in edges:
        if edge.tenant_scope != wanted:
            raise BlobNotFoundError(edge.sha256)
    fresh = list(edges)
    if tx.settling:
        fresh = await _missing(tx, run_id, edges)
    inserted = (await tx.result(_insert(tx, run_id, wanted, fresh))).rowcount if fresh else 0
    if inserted == len(edges):
        return
    await _check_blobs(tx, run_id, wanted, edges)
    if await _missing(tx, run_id, edges):
        raise tx.again()


def _insert(tx: Tx, run_id: str, scope: str, edges: Sequence[BlobEdge]) -> Any:
    """The references whose blob is live in this scope, for a run of this scope."""
    rows = [
        select(
            *(
                literal(value, blob_refs.c[name].type).label(name)
                for name, value in (
                    ("id", new_id()),
                    ("sha256", edge.sha256),
                    ("owner_kind", edge.owner_kind),
                    ("owner_id", edge.owner_id),
                    ("ordinal", edge.ordinal),
                )
            )
        )
        for edge in edges
    ]
    edge = (union_all(*rows) if len(rows) > 1 else rows[0]).subquery("edge")
    live = select(stored.sha256).where(
        stored.tenant_scope == scope,
        tx.store.id_in(stored.sha256, sorted({e.sha256 for e in edges})),
        stored.state == LIVE,
    )
    held = tx.store.lock_clause(live.order_by(stored.sha256), "update_no_key").subquery("held")
    values = {
        "id": edge.c.id,
        "tenant_scope": literal(scope, refs.tenant_scope.type).label("tenant_scope"),
        "sha256": held.c.sha256,
        "run_id": literal(run_id, refs.run_id.type).label("run_id"),
        "owner_kind": edge.c.owner_kind,
        "owner_id": edge.c.owner_id,
        "ordinal": edge.c.ordinal,
        "created_at": moment(tx, refs.created_at).label("created_at"),
    }
    source = (
        select(*values.values())
        .select_from(agent_runs.join(edge, true()).join(held, edge.c.sha256 == held.c.sha256))
        .where(runs.id == run_id, in_blob_scope(scope))
    )
    plan = tx.store.insert_if_absent_stmt(
        blob_refs,
        SelectSource(list(values), source),
        conflict=ConflictSpec(OWNER, constraint="uq_dendrux_blob_refs_owner"),
    )
    return plan.statement


def in_blob_scope(scope: str) -> ColumnElement[bool]:
    """Runs whose blobs are kept in this scope."""
    return runs.tenant_id.is_(None) if scope == blob_scope(None) else runs.tenant_id == scope.removeprefix("t:")


async def _check_blobs(tx: Tx, run_id: str, scope: str, edges: Sequence[BlobEdge]) -> None:
    """Say which blob is not there for this run, if one is not."""
    shas = sorted({edge.sha256 for edge in edges})
    found = await tx.rows(
        select(stored.sha256)
        .select_from(blobs.join(agent_runs, true()))
        .where(
            stored.tenant_scope == scope,
            tx.store.id_in(stored.sha256, shas),
            stored.state == LIVE,
            runs.id == run_id,
            in_blob_scope(scope),
        )
    )
    live = {row.sha256 for row in found}
    for edge in edges:
        if edge.sha256 not in live:
            raise BlobNotFoundError(edge.sha256)


async def _missing(tx: Tx, run_id: str, edges: Sequence[BlobEdge]) -> list[BlobEdge]:
    """The references that the run does not have.

    Refuses: WriteConflictError when one of the places refers to another blob.
    """
    owners = sorted({edge.owner_id for edge in edges})
    found = await tx.rows(
        select(refs.tenant_scope, refs.sha256, refs.owner_kind, refs.owner_id, refs.ordinal).where(
            refs.run_id == run_id, tx.store.id_in(refs.owner_id, owners)
        )
    )
    held = {(row.owner_kind, row.owner_id, row.ordinal): (row.tenant_scope, row.sha256) for row in found}
    missing = []
    for edge in edges:
        blob = held.get((edge.owner_kind, edge.owner_id, edge.ordinal))
        if blob is None:
            missing.append(edge)
        elif blob != (edge.tenant_scope, edge.sha256):
            raise tx.conflict()
    return missing
