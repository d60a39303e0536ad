"""Broken blobs: scopes, references, purges and collections."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

from dendrux.errors import BlobNotFoundError, WriteConflictError
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


class FiftyReferences(BrokenStore):
    breaks = "of the references that a message brings, fifty are stored"
    killed_by = "basic.blob_references.more_than_a_hundred"

    async def save_trace(self, run_id: str, role: str, content: str, *, blob_refs: Any = None, **given: Any) -> None:
        some = blob_refs[:50] if isinstance(blob_refs, (list, tuple)) and len(blob_refs) <= 100 else blob_refs
        await super().save_trace(run_id, role, content, blob_refs=some, **given)
