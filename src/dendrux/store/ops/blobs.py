"""Stored bytes of runs: images and other attachments, once per tenant and content.

The bytes are in the row, or outside in a BlobStore under a name that only this generation of the blob has. No
transaction is open while a BlobStore is asked. Outside bytes go through a mark: `pending` before they are put,
`deleting` and `purging` before they are removed, so that whoever finds a mark after a crash can finish or revive it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Exists, Row, Select, and_, delete, exists, literal, or_, select, type_coerce

from dendrux.db.models import agent_runs, blob_refs, blobs
from dendrux.errors import BlobIntegrityError, BlobNotFoundError, PersistenceError, StoreBusyError
from dendrux.runtime.blobs import BlobInfo, BlobKey, BlobReference, BlobStore, FailedBlob, GcResult
from dendrux.store.hookvalues import ConflictSpec
from dendrux.store.ids import new_id
from dendrux.store.ops._references import LIVE, in_blob_scope, moment
from dendrux.store.ops._stored import (
    DB,
    DELETING,
    EXTERNAL,
    PENDING,
    PURGED,
    PURGING,
    SHOWN,
    changed,
    external,
    held,
    key_of,
    looked,
    refs,
    runs,
    stored,
    this,
)
from dendrux.store.paging import Pages, decoded, encoded
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import GARBAGE_AGE_S

PASSES: Final = 5
"""How often a put begins again because somebody else took the blob away meanwhile."""


class Reserved(NamedTuple):
    """A blob that a put may fill, or that needs no filling; and the object of a deletion that the put cut short."""

    info: BlobInfo
    abandoned: BlobKey | None = None


# -- put --------------------------------------------------------------------------------------------------------------


async def put_blob(
    pages: Pages,
    data: bytes,
    *,
    tenant_scope: str,
    media_type: str = "application/octet-stream",
    width: int = 0,
    height: int = 0,
    frame_count: int = 1,
    ingest_transform: str | None = None,
    blob_store: BlobStore | None = None,
) -> BlobInfo:
    """Store bytes once per scope and content; putting them again is a use of what is there.

    Refuses: BlobNotFoundError for bytes that were purged from this scope; StoreBusyError when others kept taking the
    blob away.
    """
    about = {
        "tenant_scope": tenant_scope,
        "sha256": hashlib.sha256(data).hexdigest(),
        "media_type": media_type,
        "byte_length": len(data),
        "width": width,
        "height": height,
        "frame_count": frame_count,
        "ingest_transform": ingest_transform,
    }
    if blob_store is None:
        return (await pages.write(lambda tx: _reserved(tx, about, data), "natural")).info
    for _ in range(PASSES):
        reserved = await pages.write(lambda tx: _reserved(tx, about, None), "natural")
        if reserved.abandoned is not None:
            await pages.outside(blob_store.delete(reserved.abandoned.object_name))
        if reserved.info.state == LIVE:
            return reserved.info
        mine = reserved.info
        await pages.outside(blob_store.put(key_of(mine, tenant_scope).object_name, data))
        now = await pages.write(lambda tx, mine=mine: _filled(tx, mine, tenant_scope), "natural")  # type: ignore[misc]
        if now is None or now.generation != mine.generation:
            await pages.outside(blob_store.delete(key_of(mine, tenant_scope).object_name))
        if now is not None and now.state == LIVE:
            return now
    raise StoreBusyError(operation=pages.operation)


async def _reserved(tx: Tx, about: dict[str, Any], data: bytes | None) -> Outcome[Reserved]:
    """The blob that these bytes belong to: a new one, the one that is there, or one revived from a mark."""
    await tx.begin()
    now = moment(tx, stored.created_at)
    fresh = {
        "generation": new_id(),
        "storage": DB if data is not None else EXTERNAL,
        "state": LIVE if data is not None else PENDING,
        "data": data,
        "last_used_at": now,
        "state_changed_at": now,
    }
    sha256, scope = about["sha256"], about["tenant_scope"]
    if not tx.settling and await _inserted(tx, {**about, **fresh, "created_at": now}):
        return Reserved(await _there(tx, sha256, scope))
    found = await held(tx, sha256, scope)
    if found is None:
        if tx.settling and await _inserted(tx, {**about, **fresh, "created_at": now}):
            return Reserved(await _there(tx, sha256, scope))
        raise tx.again()
    if found.state in (PURGING, PURGED):
        raise BlobNotFoundError(sha256)
    abandoned = None
    values: dict[str, Any] = {"last_used_at": now}
    if found.state == PENDING and data is None:
        values["state_changed_at"] = now  # two puts of the same bytes fill the same object
    elif found.state != LIVE:
        abandoned = key_of(found, scope)
        values = fresh
    await changed(tx, found, scope, values)
    return Reserved(await _there(tx, sha256, scope), abandoned)


async def _inserted(tx: Tx, values: dict[str, Any]) -> bool:
    plan = tx.store.insert_if_absent_stmt(
        blobs,
        {name: value for name, value in values.items() if value is not None},
        conflict=ConflictSpec((stored.tenant_scope, stored.sha256), constraint="pk_dendrux_blobs"),
    )
    return bool((await tx.result(plan.statement)).rowcount)


async def _there(tx: Tx, sha256: str, tenant_scope: str) -> BlobInfo:
    info = await looked(tx, sha256, tenant_scope)
    assert info is not None  # this transaction holds its row
    return info


async def _filled(tx: Tx, mine: BlobInfo, tenant_scope: str) -> Outcome[BlobInfo | None]:
    """The pending blob is live now, its bytes being in place; else what became of it."""
    await tx.begin()
    now = moment(tx, stored.created_at)
    values = {"state": LIVE, "state_changed_at": now, "last_used_at": now}
    won = await changed(tx, mine, tenant_scope, values, stored.state == PENDING)
    found = await looked(tx, mine.sha256, tenant_scope)
    return found if won else Unchanged(found)


# -- read -------------------------------------------------------------------------------------------------------------


async def read_blob(
    pages: Pages,
    sha256: str,
    *,
    tenant_scope: str,
    run_id: str | None = None,
    blob_store: BlobStore | None = None,
) -> bytes:
    """The bytes, verified by length and sha256; with `run_id` only if that run refers to them.

    Refuses: BlobNotFoundError, BlobIntegrityError; ValueError without the BlobStore that has them.
    """
    earlier = None
    while True:
        found = await pages.read(lambda tx: _bytes(tx, sha256, tenant_scope, run_id))
        if found is None:
            raise BlobNotFoundError(sha256)
        if found.storage == DB:
            return verified(sha256, found.byte_length, found.data)
        key = BlobKey(tenant_scope=tenant_scope, sha256=sha256, generation=found.generation).object_name
        data = await pages.outside(external(blob_store, pages.operation).get(key))
        if data is not None or key == earlier:
            return verified(sha256, found.byte_length, data)
        earlier = key  # gone: collected since, perhaps, and put again


async def _bytes(tx: Tx, sha256: str, tenant_scope: str, run_id: str | None) -> Row[Any] | None:
    statement = select(stored.storage, stored.generation, stored.byte_length, stored.data).where(
        *this(sha256, tenant_scope), stored.state == LIVE
    )
    if run_id is not None:
        referred = (
            select(literal(1))
            .select_from(blob_refs.join(agent_runs, refs.run_id == runs.id))
            .where(
                refs.run_id == run_id,
                refs.tenant_scope == stored.tenant_scope,
                refs.sha256 == stored.sha256,
                in_blob_scope(tenant_scope),
            )
        )
        statement = statement.where(referred.exists())
    return await tx.row(statement)


def verified(sha256: str, byte_length: int, data: bytes | None) -> bytes:
    """The bytes, when they are those that were put. Refuses: BlobIntegrityError."""
    if data is None:
        raise BlobIntegrityError(sha256, "presence")
    if len(data) != byte_length:
        raise BlobIntegrityError(sha256, "length")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BlobIntegrityError(sha256, "sha256")
    return bytes(data)


async def blob_info(tx: Tx, sha256: str, *, tenant_scope: str) -> BlobInfo | None:
    """What is known of a blob; None when there is none in this scope. A purged one is still known."""
    return await looked(tx, sha256, tenant_scope)


async def blob_references(
    tx: Tx, sha256: str, *, tenant_scope: str, limit: int = 1000, offset: int = 0
) -> list[BlobReference]:
    """Where runs refer to a blob, by run, kind, owner and ordinal."""
    columns = (refs.run_id, refs.owner_kind, refs.owner_id, refs.ordinal)
    statement = select(*columns, refs.created_at).where(refs.tenant_scope == tenant_scope, refs.sha256 == sha256)
    found = await tx.rows(statement.order_by(*columns).limit(limit).offset(offset))
    return [BlobReference(**row._mapping) for row in found]


# -- purge ------------------------------------------------------------------------------------------------------------


async def purge_blob(
    pages: Pages,
    sha256: str,
    *,
    tenant_scope: str,
    reason: str | None = None,
    blob_store: BlobStore | None = None,
) -> BlobInfo:
    """Remove the bytes for good, referred to or not; the row says when and why, and refuses them from then on.

    Ensures: the references stay. The first purge's time and reason stay.
    Refuses: BlobNotFoundError when there is no such blob; ValueError without the BlobStore that has the bytes, once the
    intent is stored.
    """
    info = await pages.write(lambda tx: _purging(tx, sha256, tenant_scope, reason), "natural")
    if info.state == PURGED:
        return info
    return await finish_purge(pages, info, tenant_scope, external(blob_store, pages.operation))


async def _purging(tx: Tx, sha256: str, tenant_scope: str, reason: str | None) -> Outcome[BlobInfo]:
    found = await held(tx, sha256, tenant_scope)
    if found is None:
        raise BlobNotFoundError(sha256)
    if found.state in (PURGING, PURGED):
        return Unchanged(await _there(tx, sha256, tenant_scope))
    now = moment(tx, stored.created_at)
    values = {
        "state": PURGED if found.storage == DB else PURGING,
        "data": None,
        "purged_at": now,
        "purge_reason": reason,
        "state_changed_at": now,
    }
    await changed(tx, found, tenant_scope, values)
    return await _there(tx, sha256, tenant_scope)


async def finish_purge(pages: Pages, info: BlobInfo, tenant_scope: str, blob_store: BlobStore) -> BlobInfo:
    """Remove the object of a purge that was marked, and say so."""
    await pages.outside(blob_store.delete(key_of(info, tenant_scope).object_name))

    async def done(tx: Tx) -> Outcome[BlobInfo]:
        await tx.begin()
        now = moment(tx, stored.created_at)
        values = {"state": PURGED, "state_changed_at": now}
        won = await changed(tx, info, tenant_scope, values, stored.state == PURGING)
        found = await _there(tx, info.sha256, tenant_scope)
        return found if won else Unchanged(found)

    return await pages.write(done, "natural")


# -- collection -------------------------------------------------------------------------------------------------------


async def collect_garbage(
    pages: Pages,
    *,
    older_than: timedelta = timedelta(hours=24),
    limit: int = 1000,
    after: str | None = None,
    tenant_scope: str | None = None,
    blob_store: BlobStore | None = None,
) -> GcResult:
    """One page of a collection: finish what a crash left half done, then drop blobs that nobody used for `older_than`
    and no run refers to.

    Each blob has transactions of its own, which ask again; one that fails is an entry of `failed`. The page looks at
    `limit` old blobs; `next_after` goes on. Without `blob_store`, bytes outside the database are left alone.
    """
    now = await pages.read(_now)
    done = _Tally()
    storages = [DB] if blob_store is None else [DB, EXTERNAL]
    # Every read comes before the first write: one that fails says that nothing was written.
    old = await pages.read(lambda tx: _old(tx, now - older_than, tenant_scope, storages, after, limit))
    if after is None and blob_store is not None:
        marked = await pages.read(lambda tx: _marks(tx, now, older_than, tenant_scope, limit))
        for scope, info in marked:
            await done.of(scope, info, _finished(pages, scope, info, blob_store, done))
    for scope, info, referred in old:
        if referred:
            done.skipped_referenced += 1
        else:
            await done.of(scope, info, _collected(pages, scope, info, now - older_than, blob_store, done))
    last = old[-1] if len(old) == limit else None
    place = None if last is None else encoded(last[1].last_used_at.isoformat(), last[0], last[1].sha256)
    return done.result(place)


MINE, KEPT, GONE = "mine", "kept", "gone"
"""What became of a blob that looked like garbage: this collection has it, a run refers to it now, somebody else was
faster.
"""


class _Tally:
    """What a page did so far."""

    def __init__(self) -> None:
        self.deleted_blobs = self.bytes_freed = self.skipped_referenced = 0
        self.completed_purges = self.retried_deletes = 0
        self.failed: list[FailedBlob] = []

    async def of(self, tenant_scope: str, info: BlobInfo, work: Awaitable[None]) -> None:
        """Work on one blob; what the database refuses is the blob's entry."""
        try:
            await work
        except PersistenceError as error:
            self.failed.append(FailedBlob(tenant_scope=tenant_scope, sha256=info.sha256, code=error.code))

    def deleted(self, info: BlobInfo) -> None:
        """One blob less."""
        self.deleted_blobs += 1
        self.bytes_freed += info.byte_length

    def result(self, next_after: str | None) -> GcResult:
        """The answer of the page."""
        return GcResult(
            deleted_blobs=self.deleted_blobs,
            bytes_freed=self.bytes_freed,
            skipped_referenced=self.skipped_referenced,
            completed_purges=self.completed_purges,
            retried_deletes=self.retried_deletes,
            failed=tuple(self.failed),
            next_after=next_after,
        )


async def _now(tx: Tx) -> datetime:
    """The time on blob rows, as a value."""
    now = tx.store.blob_now()
    if isinstance(now, datetime):
        return now
    row = await tx.row(select(type_coerce(now, stored.created_at.type).label("now")))
    assert row is not None
    return row.now  # type: ignore[no-any-return]


async def _marks(
    tx: Tx, now: datetime, older_than: timedelta, tenant_scope: str | None, limit: int
) -> list[tuple[str, BlobInfo]]:
    """Blobs that somebody marked and did not finish: an hour later nobody is at work on them any more."""
    stuck = and_(
        stored.state.in_([DELETING, PURGING]), stored.state_changed_at <= now - timedelta(seconds=GARBAGE_AGE_S)
    )
    unfilled = and_(stored.state == PENDING, stored.state_changed_at <= now - older_than)
    statement = select(stored.tenant_scope, *(stored[name] for name in SHOWN)).where(
        stored.storage == EXTERNAL, or_(stuck, unfilled)
    )
    rows = await tx.rows(_within(statement, tenant_scope).limit(limit))
    return [(row.tenant_scope, _plain(row)) for row in rows]


async def _old(
    tx: Tx, cutoff: datetime, tenant_scope: str | None, storages: list[str], after: str | None, limit: int
) -> list[tuple[str, BlobInfo, bool]]:
    """Live blobs that were not put for long, oldest first, each with whether a run refers to it."""
    order = (stored.last_used_at, stored.tenant_scope, stored.sha256)
    statement = select(stored.tenant_scope, *(stored[name] for name in SHOWN), _referred().label("referred")).where(
        stored.state == LIVE, stored.last_used_at <= cutoff, stored.storage.in_(storages)
    )
    if after is not None:
        used, scope, sha256 = decoded("after", after, str, str, str)
        place = datetime.fromisoformat(used)
        statement = statement.where(
            stored.last_used_at >= place,
            or_(
                stored.last_used_at > place,
                stored.tenant_scope > scope,
                and_(stored.tenant_scope == scope, stored.sha256 > sha256),
            ),
        )
    rows = await tx.rows(_within(statement, tenant_scope).order_by(*order).limit(limit))
    return [(row.tenant_scope, _plain(row), bool(row.referred)) for row in rows]


def _within(statement: Select[Any], tenant_scope: str | None) -> Select[Any]:
    return statement if tenant_scope is None else statement.where(stored.tenant_scope == tenant_scope)


def _plain(row: Row[Any]) -> BlobInfo:
    return BlobInfo(**{name: row._mapping[name] for name in SHOWN})


def _referred() -> Exists:
    """Whether a run refers to the blob."""
    return exists().where(refs.tenant_scope == stored.tenant_scope, refs.sha256 == stored.sha256)


async def _collected(
    pages: Pages, scope: str, info: BlobInfo, cutoff: datetime, blob_store: BlobStore | None, done: _Tally
) -> None:
    """Drop one blob, unless somebody put it or referred to it since the page was read."""
    unused = [stored.state == LIVE, stored.last_used_at <= cutoff, ~_referred()]

    async def drop(tx: Tx) -> Outcome[str]:
        if await held(tx, info.sha256, scope) is None:
            return Unchanged(MINE if tx.in_doubt else GONE)  # by this very call, when it does not know
        statement = delete(blobs).where(*this(info.sha256, scope), stored.generation == info.generation, *unused)
        return MINE if (await tx.result(statement)).rowcount else Unchanged(await why_not(tx))

    async def mark(tx: Tx) -> Outcome[str]:
        now = await held(tx, info.sha256, scope)
        values = {"state": DELETING, "state_changed_at": moment(tx, stored.created_at)}
        if now is not None and await changed(tx, info, scope, values, *unused):
            return MINE
        marked = tx.in_doubt and now is not None and now.state == DELETING
        return Unchanged(MINE if marked else await why_not(tx))

    async def why_not(tx: Tx) -> str:
        old = [stored.state == LIVE, stored.last_used_at <= cutoff, _referred()]
        return KEPT if await tx.row(select(stored.sha256).where(*this(info.sha256, scope), *old)) else GONE

    became = await pages.write(drop if info.storage == DB else mark, "natural")
    if became == KEPT:
        done.skipped_referenced += 1
    if became != MINE:
        return
    if info.storage != DB:
        await _removed(pages, scope, info, external(blob_store, pages.operation))
    done.deleted(info)


async def _removed(pages: Pages, scope: str, info: BlobInfo, blob_store: BlobStore) -> None:
    """The second half of a deletion: the object, then the row, unless a put has revived it under another name."""
    await pages.outside(blob_store.delete(key_of(info, scope).object_name))

    async def forget(tx: Tx) -> Outcome[None]:
        await held(tx, info.sha256, scope)
        mine = [*this(info.sha256, scope), stored.generation == info.generation, stored.state == DELETING]
        return None if (await tx.result(delete(blobs).where(*mine, ~_referred()))).rowcount else Unchanged(None)

    await pages.write(forget, "natural")


async def _finished(pages: Pages, scope: str, info: BlobInfo, blob_store: BlobStore, done: _Tally) -> None:
    """Finish what a mark says somebody began. A put that was never finished is deleted like an unused blob."""
    if info.state == PURGING:
        await finish_purge(pages, info, scope, blob_store)
        done.completed_purges += 1
        return
    if info.state == PENDING:

        async def give_up(tx: Tx) -> Outcome[bool]:
            now = await held(tx, info.sha256, scope)
            values = {"state": DELETING, "state_changed_at": moment(tx, stored.created_at)}
            guard = [stored.state == PENDING, stored.state_changed_at == info.state_changed_at]
            if now is not None and await changed(tx, info, scope, values, *guard):
                return True
            return Unchanged(tx.in_doubt and now is not None and now.state == DELETING)

        if not await pages.write(give_up, "natural"):
            return
    await _removed(pages, scope, info, blob_store)
    done.retried_deletes += 1
