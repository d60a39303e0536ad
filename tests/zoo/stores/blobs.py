"""Broken blobs: scopes, references, purges and collections."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from dendrux.errors import BlobIntegrityError, BlobNotFoundError, WriteConflictError
from zoo.stores.base import BrokenStore

ANY = "SELECT tenant_scope FROM dendrux_blobs WHERE sha256 = :sha AND state = 'live' ORDER BY created_at"


class BlobsOfEverybody(BrokenStore):
    breaks = "bytes that one tenant put can be read by another that knows their digest"
    killed_by = "basic.read_blob.only_in_its_scope"

    async def read_blob(self, sha256: str, *, tenant_scope: str, **given: Any) -> bytes:
        row = await self.run_sql(ANY, sha=sha256)
        return await super().read_blob(sha256, tenant_scope=row[0] if row else tenant_scope, **given)


class BlobsOfAnyRun(BrokenStore):
    breaks = "a run reads bytes that it does not refer to"
    killed_by = "basic.read_blob.through_a_run_that_refers"

    async def read_blob(self, sha256: str, *, run_id: str | None = None, **given: Any) -> bytes:
        return await super().read_blob(sha256, **given)


class PurgedBytesComeBack(BrokenStore):
    breaks = "bytes that were purged can be put again"
    killed_by = "basic.put_blob.purged_bytes_stay_refused"

    async def put_blob(self, data: bytes, *, tenant_scope: str, **given: Any) -> Any:
        try:
            return await super().put_blob(data, tenant_scope=tenant_scope, **given)
        except BlobNotFoundError:
            await self.run_sql(
                "UPDATE dendrux_blobs SET state = 'live', data = :data, purged_at = NULL, purge_reason = NULL "
                "WHERE sha256 = :sha AND tenant_scope = :scope",
                data=data,
                sha=hashlib.sha256(data).hexdigest(),
                scope=tenant_scope,
            )
            return await super().put_blob(data, tenant_scope=tenant_scope, **given)


class PurgeDropsReferences(BrokenStore):
    breaks = "a purge takes the references to the bytes along"
    killed_by = "basic.purge_blob.bytes_go_and_references_stay"

    async def purge_blob(self, sha256: str, **given: Any) -> Any:
        purged = await super().purge_blob(sha256, **given)
        await self.run_sql("DELETE FROM dendrux_blob_refs WHERE sha256 = :sha", sha=sha256)
        return purged


class PurgesAgain(BrokenStore):
    breaks = "purging what does not exist succeeds without a word"
    killed_by = "basic.purge_blob.missing_blob"

    async def purge_blob(self, sha256: str, **given: Any) -> Any:
        try:
            return await super().purge_blob(sha256, **given)
        except BlobNotFoundError:
            return None


class CollectsReferences(BrokenStore):
    breaks = "a collection looks at the age alone"
    killed_by = "basic.collect_garbage.old_blobs_that_nobody_refers_to"

    async def collect_garbage(self, **given: Any) -> Any:
        await self.run_sql("DELETE FROM dendrux_blob_refs")
        return await super().collect_garbage(**given)


class AgeFromTheFirstPut(BrokenStore):
    breaks = "a blob's age counts from its first put"
    killed_by = "basic.collect_garbage.age_counts_from_the_last_put"

    async def collect_garbage(self, **given: Any) -> Any:
        await self.run_sql("UPDATE dendrux_blobs SET last_used_at = created_at")
        return await super().collect_garbage(**given)


class CollectsTheYoung(BrokenStore):
    breaks = "a collection may ask for blobs of any age"
    killed_by = "basic.collect_garbage.never_younger_than_an_hour"

    async def collect_garbage(self, *, older_than: timedelta = timedelta(hours=24), **given: Any) -> Any:
        return await super().collect_garbage(older_than=max(older_than, timedelta(hours=1)), **given)


class CollectsWhatItSaw(BrokenStore):
    breaks = "a collection deletes what an earlier transaction called garbage, with the references made since"
    killed_by = "concurrency.collect_garbage.reference_or_collection"

    async def collect_garbage(self, *, older_than: timedelta = timedelta(hours=24), **given: Any) -> Any:
        row = await self.run_sql(
            "SELECT sha256 FROM dendrux_blobs WHERE sha256 NOT IN (SELECT sha256 FROM dendrux_blob_refs)"
        )
        if row is not None:
            await self.run_sql("DELETE FROM dendrux_blob_refs WHERE sha256 = :sha", sha=row[0])
        return await super().collect_garbage(older_than=older_than, **given)


class ReferencesReplaced(BrokenStore):
    breaks = "a second reference at one place is dropped without a word"
    killed_by = "basic.save_trace.one_reference_holds_a_place"

    async def save_trace(self, run_id: str, role: str, content: str, *, blob_refs: Any = None, **given: Any) -> None:
        try:
            await super().save_trace(run_id, role, content, blob_refs=blob_refs, **given)
        except WriteConflictError:
            if not blob_refs or any(row.order_index == given["order_index"] for row in await self.get_traces(run_id)):
                raise
            await super().save_trace(run_id, role, content, **given)


class ForeignReferences(BrokenStore):
    breaks = "a tool call that refers to bytes of nobody is stored without the reference"
    killed_by = "basic.save_tool_call.refers_to_blobs"

    async def save_tool_call(self, run_id: str, *, blob_refs: Any = None, **given: Any) -> None:
        try:
            await super().save_tool_call(run_id, blob_refs=blob_refs, **given)
        except BlobNotFoundError:
            await super().save_tool_call(run_id, **given)


class ReferencesWithoutOrdinal(BrokenStore):
    breaks = "references to a blob do not say which one of their row they are"
    killed_by = "basic.blob_references.are_read_by_blob"

    async def blob_references(self, sha256: str, **given: Any) -> Any:
        return [replace(row, ordinal=0) for row in await super().blob_references(sha256, **given)]


class PutForgetsTheFrames(BrokenStore):
    breaks = "what is known of a blob is what the last put said"
    killed_by = "basic.put_blob.once_per_scope_and_content"

    async def put_blob(self, data: bytes, **given: Any) -> Any:
        return replace(await super().put_blob(data, **given), media_type=given.get("media_type", ""))


class Objects:
    """A BlobStore of which one method does something else."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def put(self, key: str, data: bytes) -> None:
        await self.inner.put(key, data)

    async def get(self, key: str) -> bytes | None:
        found: bytes | None = await self.inner.get(key)
        return found

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)


class Kept(Objects):
    """Deletes nothing."""

    async def delete(self, key: str) -> None:
        return


class Swallowed(Objects):
    """Says nothing of a put that failed."""

    async def put(self, key: str, data: bytes) -> None:
        with suppress(Exception):
            await self.inner.put(key, data)


class PurgeKeepsObject(BrokenStore):
    breaks = "a purge leaves the object in the BlobStore"
    killed_by = "basic.purge_blob.bytes_go_and_references_stay_outside"

    async def purge_blob(self, sha256: str, *, blob_store: Any = None, **given: Any) -> Any:
        return await super().purge_blob(sha256, blob_store=blob_store and Kept(blob_store), **given)


class CollectionKeepsObject(BrokenStore):
    breaks = "a collection drops the row and leaves the object in the BlobStore"
    killed_by = "basic.collect_garbage.old_blobs_that_nobody_refers_to_outside"

    async def collect_garbage(self, *, blob_store: Any = None, **given: Any) -> Any:
        return await super().collect_garbage(blob_store=blob_store and Kept(blob_store), **given)


class PutsInside(BrokenStore):
    breaks = "bytes are put into the database although there is a BlobStore"
    killed_by = "basic.put_blob.bytes_come_back_exactly_outside"

    async def put_blob(self, data: bytes, *, blob_store: Any = None, **given: Any) -> Any:
        return await super().put_blob(data, **given)


class PutsInVain(BrokenStore):
    breaks = "a put succeeds although the BlobStore failed"
    killed_by = "basic.put_blob.what_a_blob_store_raises_passes"

    async def put_blob(self, data: bytes, *, blob_store: Any = None, **given: Any) -> Any:
        return await super().put_blob(data, blob_store=blob_store and Swallowed(blob_store), **given)


class ExternalUnverified(BrokenStore):
    breaks = "bytes of a BlobStore are answered as they come"
    killed_by = "basic.read_blob.outside_bytes_are_verified"

    async def read_blob(self, sha256: str, *, blob_store: Any = None, **given: Any) -> bytes:
        try:
            return await super().read_blob(sha256, blob_store=blob_store, **given)
        except BlobIntegrityError:
            (found,) = blob_store.kept.values()
            return bytes(found)


class PurgesWithoutItsStore(BrokenStore):
    breaks = "a purge without the BlobStore says that it is done"
    killed_by = "basic.purge_blob.goes_on_with_its_blob_store"

    async def purge_blob(self, sha256: str, **given: Any) -> Any:
        try:
            return await super().purge_blob(sha256, **given)
        except ValueError:
            return await self.blob_info(sha256, tenant_scope=given["tenant_scope"])


class DropsDimensions(BrokenStore):
    breaks = "a put does not store what it is told about an image"
    killed_by = "basic.put_blob.says_what_the_first_put_said"

    async def put_blob(
        self,
        data: bytes,
        *,
        width: int = 0,
        height: int = 0,
        frame_count: int = 1,
        ingest_transform: str | None = None,
        **given: Any,
    ) -> Any:
        return await super().put_blob(data, **given)


class RefsWithoutOffset(BrokenStore):
    breaks = "every page of references is the first one"
    killed_by = "basic.blob_references.page_by_page"

    async def blob_references(self, sha256: str, *, offset: int = 0, **given: Any) -> Any:
        return await super().blob_references(sha256, **given)


class EmptyPurgeReasonIsNone(BrokenStore):
    breaks = "the empty reason of a purge is no reason"
    killed_by = "basic.purge_blob.reason_is_kept"

    async def purge_blob(self, sha256: str, *, reason: str | None = None, **given: Any) -> Any:
        return await super().purge_blob(sha256, reason=reason or None, **given)


class GcWithoutPages(BrokenStore):
    breaks = "a collection ends with its first page"
    killed_by = "basic.collect_garbage.page_by_page"

    async def collect_garbage(self, *, after: str | None = None, **given: Any) -> Any:
        return replace(await super().collect_garbage(**given), next_after=None)


class GcOfNobody(BrokenStore):
    breaks = "a collection without a scope is one of what belongs to no tenant"
    killed_by = "basic.collect_garbage.of_every_scope_after_a_day"

    async def collect_garbage(self, *, tenant_scope: str | None = None, **given: Any) -> Any:
        return await super().collect_garbage(tenant_scope="-" if tenant_scope is None else tenant_scope, **given)


class GcHalfHourOverHorizon(BrokenStore):
    breaks = "a collection is half an hour early when it is given more than an hour"
    killed_by = "basic.collect_garbage.no_younger_than_it_is_told"

    async def collect_garbage(self, *, older_than: timedelta = timedelta(hours=24), **given: Any) -> Any:
        if older_than > timedelta(hours=1):
            older_than = max(timedelta(hours=1), older_than - timedelta(minutes=30))
        return await super().collect_garbage(older_than=older_than, **given)


class FiftyReferences(BrokenStore):
    breaks = "of the references that a message brings, fifty are stored"
    killed_by = "basic.blob_references.more_than_a_hundred"

    async def save_trace(self, run_id: str, role: str, content: str, *, blob_refs: Any = None, **given: Any) -> None:
        some = blob_refs[:50] if isinstance(blob_refs, (list, tuple)) and len(blob_refs) <= 100 else blob_refs
        await super().save_trace(run_id, role, content, blob_refs=some, **given)
