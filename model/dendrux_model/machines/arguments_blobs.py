"""Arguments of operations on stored bytes, and the references that other writers store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from dendrux.runtime.values import BlobEdge
from dendrux.vocabulary import GARBAGE_AGE_S, NO_TENANT, TENANT_PREFIX, blob_scope
from dendrux_model import operations as ops
from dendrux_model.world import Run, World

T = TypeVar("T")

CONTENTS: Final = ("one", "two", "é")
AGES: Final = (GARBAGE_AGE_S, 24 * GARBAGE_AGE_S, GARBAGE_AGE_S - 1)
"""Of garbage; the last one is too young to ask for."""


class BlobArguments:
    """The part of `Arguments` about blobs."""

    world: World

    def pick(self, options: Sequence[T]) -> T:
        raise NotImplementedError

    def record(self, run_id: str) -> Run | None:
        raise NotImplementedError

    # -- pools --------------------------------------------------------------------------------------------------------

    def blob_scope(self) -> str:
        """The scope of the first run first, then that of nobody."""
        return self.pick([*(blob_scope(run.tenant_id) for run in self.world.runs), NO_TENANT])

    def blob(self) -> tuple[str, str]:
        """Scope and content of a blob that is there first; rarely of one that is not."""
        known = [(blob.tenant_scope, blob.sha256) for blob in self.world.blobs]
        return self.pick([*known, (NO_TENANT, "missing")])

    def edges(self, tenant_id: str | None, kind: str, owner_id: str) -> tuple[BlobEdge, ...] | None:
        """No references first, then one to each blob of the tenant, all of them, and one that is somebody else's.

        Where nothing is stored there is nothing to choose.
        """
        if not self.world.blobs:
            return None
        own = [blob.sha256 for blob in self.world.blobs if blob.tenant_scope == blob_scope(tenant_id)]
        choices = [*((content,) for content in own), tuple(own), ("missing",)]
        chosen = self.pick([None, *choices])
        if chosen is None:
            return None
        scope = self.pick([blob_scope(tenant_id), *(blob.tenant_scope for blob in self.world.blobs)])
        return tuple(
            BlobEdge(tenant_scope=scope, sha256=content, owner_kind=kind, owner_id=owner_id, ordinal=ordinal)
            for ordinal, content in enumerate(chosen)
        )

    def refs(self, run_id: str, kind: str, owner_id: str) -> tuple[BlobEdge, ...] | None:
        """References of a row of this run."""
        run = self.record(run_id)
        return self.edges(run.tenant_id if run else None, kind, owner_id)

    # -- operations ---------------------------------------------------------------------------------------------------

    def put_blob(self) -> ops.Operation:
        return ops.PutBlob(payload=self.pick(CONTENTS), tenant_scope=self.blob_scope())

    def read_blob(self) -> ops.Operation:
        scope, content = self.blob()
        return ops.ReadBlob(
            sha256=content, tenant_scope=scope, run_id=self.pick([None, *(run.id for run in self.world.runs)])
        )

    def blob_info(self) -> ops.Operation:
        scope, content = self.blob()
        return ops.BlobInfo(sha256=content, tenant_scope=scope)

    def blob_references(self) -> ops.Operation:
        scope, content = self.blob()
        return ops.BlobReferences(sha256=content, tenant_scope=scope)

    def purge_blob(self) -> ops.Operation:
        scope, content = self.blob()
        return ops.PurgeBlob(sha256=content, tenant_scope=scope, reason=self.pick([None, "asked"]))

    def collect_garbage(self) -> ops.Operation:
        """One tenant's garbage: other programs put the blobs of nobody beside ours."""
        tenants = [blob.tenant_scope for blob in self.world.blobs if len(blob.tenant_scope) > len(TENANT_PREFIX)]
        return ops.CollectGarbage(older_than_s=self.pick(AGES), tenant_scope=self.pick([*tenants, "t:t"]))
