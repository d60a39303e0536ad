"""Blobs of the reference store: the model knows which there are, the bytes are kept beside it or in a BlobStore.

The model knows a blob by its text; here that text is the digest. Where a BlobStore is used, the bytes are there before
the world says so, and are removed after it says so.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any, Final

from dendrux.errors import PersistenceError
from dendrux.runtime.blobs import BlobInfo, BlobKey, BlobStore, FailedBlob, GcResult
from dendrux.store.ids import new_id
from dendrux.store.ops._stored import DB, EXTERNAL, external
from dendrux.store.ops.blobs import verified
from dendrux.store.paging import decoded, encoded
from dendrux.testing.in_memory.call import Call, Handler
from dendrux.testing.in_memory.data import MICROSECOND, Data, Kept
from dendrux.testing.in_memory.refusals import error_of
from dendrux_model import rules
from dendrux_model.operations import CollectGarbage, PutBlob, ReadBlob
from dendrux_model.operations.blobs import CollectedAlone
from dendrux_model.outcomes import Refused, Returned
from dendrux_model.world import SECOND, Blob

Key = tuple[str, str]
"""Scope and digest of a blob."""


def object_name(key: Key, kept: Kept) -> str:
    """The name of a blob's object in a BlobStore."""
    return BlobKey(tenant_scope=key[0], sha256=key[1], generation=kept.generation).object_name


async def put_blob(call: Call) -> Any:
    """Store bytes, unless they are there or were purged."""
    given, data = call.given, call.data
    content: bytes = given["data"]
    outside: BlobStore | None = given["blob_store"]
    sha256 = hashlib.sha256(content).hexdigest()
    key = given["tenant_scope"], sha256
    operation: PutBlob = call.operation(data=sha256)
    outcome = operation.step(data.world)[1]
    if isinstance(outcome, Refused):
        raise error_of(data.world, operation, outcome)
    kept = Kept(
        byte_length=len(content),
        storage=DB if outside is None else EXTERNAL,
        generation=new_id(),
        content=content if outside is None else None,
    )
    put = outside is not None and rules.blob_of(data.world, *key) is None
    if put and outside is not None:
        await outside.put(object_name(key, kept), content)
    mine = rules.blob_of(data.world, *key) is None
    try:
        if mine:
            data.blobs[key] = kept
        return call.answer(call.value(operation))
    finally:
        if rules.blob_of(data.world, *key) is None:
            data.blobs.pop(key, None)  # the write was not applied
        if put and outside is not None and data.blobs.get(key) is not kept:
            await outside.delete(object_name(key, kept))


async def read_blob(call: Call) -> bytes:
    """The bytes, verified."""
    sha256, scope = call.given["sha256"], call.given["tenant_scope"]
    call.value(ReadBlob(sha256=sha256, tenant_scope=scope, run_id=call.given["run_id"]))
    kept = call.data.blobs[scope, sha256]
    content = kept.content
    if kept.storage == EXTERNAL:
        content = await external(call.given["blob_store"], call.method).get(object_name((scope, sha256), kept))
    return verified(sha256, kept.byte_length, content)


async def purge_blob(call: Call) -> Any:
    """Remove the bytes for good; what is known of them stays. A purge whose BlobStore failed is gone on with."""
    data, key = call.data, (call.given["tenant_scope"], call.given["sha256"])
    held = rules.blob_of(data.world, *key)
    outside = held is not None and data.blobs[key].storage == EXTERNAL and not data.blobs[key].removed
    where = external(call.given["blob_store"], call.method) if outside else None
    found: BlobInfo = call.answer(call.value(call.operation()))
    data.blobs[key] = data.blobs[key]._replace(content=None)
    if where is not None:
        await where.delete(object_name(key, data.blobs[key]))
        data.blobs[key] = data.blobs[key]._replace(removed=True)
    return found


# -- collection -------------------------------------------------------------------------------------------------------


def place(blob: Blob) -> tuple[int, str, str]:
    """Where a blob stands in the order of a collection: those that were not put for longest come first."""
    return blob.put_at, blob.tenant_scope, blob.sha256


def old(data: Data, call: Call, age: Fraction, now: int) -> list[Blob]:
    """The live blobs that were not put for that long, where the collection may look for them."""
    scope, storages = call.given["tenant_scope"], (DB, EXTERNAL) if call.given["blob_store"] is not None else (DB,)
    world = data.world._replace(now=now)
    found = [
        blob
        for blob in world.blobs
        if blob.state == "live"
        and scope in (None, blob.tenant_scope)
        and collection(blob, age).unused(world, blob)
        and data.blobs[blob.tenant_scope, blob.sha256].storage in storages
    ]
    return sorted(found, key=place)


def collection(blob: Blob, age: Fraction) -> CollectGarbage:
    """The collection that looks at this blob."""
    return CollectGarbage(
        older_than_s=age,  # type: ignore[arg-type]  # programs say whole seconds; the model only multiplies them
        tenant_scope=blob.tenant_scope,
    )


async def collect_garbage(call: Call) -> GcResult:
    """One page: drop the old blobs that no run refers to."""
    data, limit, after = call.data, call.given["limit"], call.given["after"]
    age = Fraction(call.given["older_than"] // MICROSECOND, SECOND)
    begin = (-1, "", "") if after is None else decoded("after", after, int, str, str)
    page = [blob for blob in old(data, call, age, data.tick()) if place(blob) > begin][:limit]
    deleted, freed, skipped = 0, 0, 0
    failed: list[FailedBlob] = []
    for blob in page:
        key = blob.tenant_scope, blob.sha256
        try:
            outcome = call.transactions.outcome(CollectedAlone(collection=collection(blob, age), sha256=blob.sha256))
        except PersistenceError as error:
            failed.append(FailedBlob(tenant_scope=key[0], sha256=key[1], code=error.code))
            continue
        if outcome == Returned("deleted"):
            kept = data.blobs.pop(key)
            deleted, freed = deleted + 1, freed + kept.byte_length
            if kept.storage == EXTERNAL:
                await external(call.given["blob_store"], call.method).delete(object_name(key, kept))
        elif outcome == Returned("skipped"):
            skipped += 1
    return GcResult(
        deleted_blobs=deleted,
        bytes_freed=freed,
        skipped_referenced=skipped,
        failed=tuple(failed),
        next_after=encoded(*place(page[-1])) if len(page) == limit else None,
    )


HANDLERS: Final[dict[str, Handler]] = {
    "put_blob": put_blob,
    "read_blob": read_blob,
    "purge_blob": purge_blob,
    "collect_garbage": collect_garbage,
}
