"""The row of a blob: what every operation on blobs asks of it and does to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Row, Select, func, select, update
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import agent_runs, blob_refs, blobs
from dendrux.runtime.blobs import BlobInfo, BlobKey, BlobStore
from dendrux.store.tx import Tx

stored, refs, runs = blobs.c, blob_refs.c, agent_runs.c
DB, EXTERNAL = "db", "external"
PENDING, DELETING, PURGING, PURGED = "pending", "deleting", "purging", "purged"

SHOWN: Final = (
    "sha256",
    "media_type",
    "byte_length",
    "width",
    "height",
    "frame_count",
    "storage",
    "state",
    "generation",
    "created_at",
    "last_used_at",
    "purged_at",
    "purge_reason",
    "ingest_transform",
    "state_changed_at",
)


def this(sha256: str, tenant_scope: str) -> list[ColumnElement[bool]]:
    """The predicate of one blob."""
    return [stored.tenant_scope == tenant_scope, stored.sha256 == sha256]


def info_statement() -> Select[Any]:
    """Everything but the bytes; a reference counts as a use at its own time."""
    newest = (
        select(func.max(refs.created_at))
        .where(refs.tenant_scope == stored.tenant_scope, refs.sha256 == stored.sha256)
        .scalar_subquery()
    )
    return select(*(stored[name] for name in SHOWN), newest.label("referred_at"))


def shown(row: Row[Any]) -> BlobInfo:
    """A blob as its row tells."""
    fields = dict(row._mapping)
    referred_at = fields.pop("referred_at")
    if referred_at is not None:
        fields["last_used_at"] = max(fields["last_used_at"], referred_at)
    return BlobInfo(**fields)


def key_of(info: BlobInfo, tenant_scope: str) -> BlobKey:
    """The external object of this generation."""
    return BlobKey(tenant_scope=tenant_scope, sha256=info.sha256, generation=info.generation)


async def held(tx: Tx, sha256: str, tenant_scope: str) -> BlobInfo | None:
    """Take the blob's row: nobody refers to it, revives it or takes it away until this transaction ends."""
    await tx.begin()
    statement = select(*(stored[name] for name in SHOWN)).where(*this(sha256, tenant_scope))
    row = await tx.row(tx.store.lock_clause(statement, "update_no_key"))
    return None if row is None else BlobInfo(**row._mapping)


async def changed(
    tx: Tx, info: BlobInfo, tenant_scope: str, values: Mapping[str, Any], *guard: ColumnElement[bool]
) -> bool:
    """Change the blob of this generation, if it satisfies the guard."""
    statement = update(blobs).where(*this(info.sha256, tenant_scope), stored.generation == info.generation, *guard)
    return bool((await tx.result(statement.values(**values))).rowcount)


async def looked(tx: Tx, sha256: str, tenant_scope: str) -> BlobInfo | None:
    """The blob as this transaction sees it."""
    row = await tx.row(info_statement().where(*this(sha256, tenant_scope)))
    return None if row is None else shown(row)


def external(blob_store: BlobStore | None, operation: str) -> BlobStore:
    """The BlobStore that the bytes are in. Refuses: ValueError without one."""
    if blob_store is None:
        raise ValueError(f"{operation} needs the blob_store that holds the bytes of this blob")
    return blob_store
