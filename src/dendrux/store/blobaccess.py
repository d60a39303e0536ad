"""The blobs of a store, as readers and operators reach them: by tenant, with the BlobStore that holds the bytes."""

from __future__ import annotations

from datetime import timedelta

from dendrux.runtime.blobs import BlobInfo, BlobReference, BlobStore, GcResult
from dendrux.runtime.state import StateStore
from dendrux.vocabulary import UNSCOPED, TenantScope, blob_scope


class BlobAccessor:
    """Reads of stored bytes, and the two writes that an operator needs: purge and collect_garbage."""

    def __init__(self, store: StateStore, blob_store: BlobStore | None = None) -> None:
        self._store = store
        self._blob_store = blob_store

    async def read(self, sha256: str, *, tenant_id: str | None = None) -> bytes:
        """The bytes, verified by length and sha256.

        Refuses: BlobNotFoundError, BlobIntegrityError; ValueError without the blob_store that has them.
        """
        return await self._store.read_blob(sha256, tenant_scope=blob_scope(tenant_id), blob_store=self._blob_store)

    async def info(self, sha256: str, *, tenant_id: str | None = None) -> BlobInfo | None:
        """What is known of a blob; None when this tenant has none. A purged one is still known."""
        return await self._store.blob_info(sha256, tenant_scope=blob_scope(tenant_id))

    async def references(
        self, sha256: str, *, tenant_id: str | None = None, limit: int = 1000, offset: int = 0
    ) -> list[BlobReference]:
        """A page of the places in runs that refer to a blob."""
        return await self._store.blob_references(sha256, tenant_scope=blob_scope(tenant_id), limit=limit, offset=offset)

    async def purge(self, sha256: str, *, tenant_id: str | None = None, reason: str | None = None) -> BlobInfo:
        """Remove the bytes for good, referred to or not. They cannot be put again in this tenant's scope.

        Refuses: BlobNotFoundError.
        """
        return await self._store.purge_blob(
            sha256, tenant_scope=blob_scope(tenant_id), reason=reason, blob_store=self._blob_store
        )

    async def collect_garbage(
        self,
        *,
        older_than: timedelta = timedelta(hours=24),
        limit: int = 1000,
        after: str | None = None,
        tenant_id: TenantScope = UNSCOPED,
    ) -> GcResult:
        """One page of a collection: `limit` old blobs, of every tenant unless one is named.

        Refuses: ValueError for an age below one hour.
        """
        return await self._store.collect_garbage(
            older_than=older_than,
            limit=limit,
            after=after,
            tenant_scope=None if tenant_id is UNSCOPED else blob_scope(tenant_id),
            blob_store=self._blob_store,
        )
