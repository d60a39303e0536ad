"""Stored bytes of runs, once per tenant scope and content. A blob is named by the text that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, ClassVar

from dendrux.vocabulary import GARBAGE_AGE_S, NO_TENANT
from dendrux_model import rules
from dendrux_model.operations.base import Known, LostAck, Operation, Parts, Step
from dendrux_model.outcomes import INVALID, NO_BLOB, NONE, Outcome, Returned, codes_of
from dendrux_model.values import At
from dendrux_model.world import SECOND, Blob, BlobRef, World


def with_blob(world: World, blob: Blob) -> World:
    """The world with this blob in the place of its former self, or behind the others."""
    mine = (blob.tenant_scope, blob.sha256)
    if rules.blob_of(world, *mine) is None:
        return world._replace(blobs=(*world.blobs, blob))
    return world._replace(blobs=tuple(blob if (b.tenant_scope, b.sha256) == mine else b for b in world.blobs))


def references(world: World, blob: Blob) -> list[tuple[str, BlobRef]]:
    """The runs that refer to a blob, and how."""
    return [
        (run.id, ref)
        for run in world.runs
        for ref in run.blob_refs
        if ref.tenant_scope == blob.tenant_scope and ref.sha256 == blob.sha256
    ]


def shown_blob(world: World, blob: Blob) -> dict[str, Any]:
    """What is known of a blob. A reference is a use."""
    used = max([blob.put_at, *(ref.at for _, ref in references(world, blob))])
    return {
        "sha256": blob.sha256,
        "media_type": blob.media_type,
        "byte_length": len(blob.sha256.encode()),
        "width": blob.width,
        "height": blob.height,
        "frame_count": blob.frame_count,
        "storage": "db",
        "state": blob.state,
        "created_at": At(blob.created_at),
        "last_used_at": At(used),
        "purged_at": None if blob.purged_at is None else At(blob.purged_at),
        "purge_reason": blob.purge_reason,
        "ingest_transform": blob.ingest_transform,
        "state_changed_at": At(blob.created_at if blob.purged_at is None else blob.purged_at),
    }


@dataclass(frozen=True, kw_only=True)
class PutBlob(Operation, lost_ack="natural"):
    """Store bytes. Putting them again is a use of what is there; bytes that were purged stay refused."""

    payload: str
    tenant_scope: str = NO_TENANT
    media_type: str = "text/plain"
    width: int = 0
    height: int = 0
    frame_count: int = 1
    ingest_transform: str | None = None

    renamed = {"payload": "data"}

    def step(self, world: World) -> Step:
        held = rules.blob_of(world, self.tenant_scope, self.payload)
        if held is None:
            held = Blob(
                self.tenant_scope,
                self.payload,
                "live",
                self.media_type,
                world.now,
                world.now,
                width=self.width,
                height=self.height,
                frame_count=self.frame_count,
                ingest_transform=self.ingest_transform,
            )
        elif held.state != "live":
            return world, NO_BLOB
        after = with_blob(world, held._replace(put_at=world.now))
        return after, Returned(shown_blob(after, held._replace(put_at=world.now)))


@dataclass(frozen=True, kw_only=True)
class ReadBlob(Operation, lost_ack="read"):
    """Read the bytes; with a run only if it refers to them."""

    sha256: str
    tenant_scope: str = NO_TENANT
    run_id: str | None = None

    def step(self, world: World) -> Step:
        blob = rules.blob_of(world, self.tenant_scope, self.sha256)
        if blob is None or blob.state != "live":
            return world, NO_BLOB
        if self.run_id is not None and self.run_id not in [run_id for run_id, _ in references(world, blob)]:
            return world, NO_BLOB
        return world, Returned(blob.sha256)


@dataclass(frozen=True, kw_only=True)
class BlobInfo(Operation, lost_ack="read"):
    """Read what is known of a blob; a purged one is still known."""

    sha256: str
    tenant_scope: str = NO_TENANT

    def step(self, world: World) -> Step:
        blob = rules.blob_of(world, self.tenant_scope, self.sha256)
        return world, NONE if blob is None else Returned(shown_blob(world, blob))


@dataclass(frozen=True, kw_only=True)
class BlobReferences(Operation, lost_ack="read"):
    """Read a page of the places that refer to a blob, by run, kind, owner and ordinal."""

    sha256: str
    tenant_scope: str = NO_TENANT
    limit: int = 1000
    offset: int = 0

    def step(self, world: World) -> Step:
        blob = rules.blob_of(world, self.tenant_scope, self.sha256)
        found = [] if blob is None else references(world, blob)
        found.sort(key=lambda of: (of[0], of[1].owner_kind, of[1].owner_id, of[1].ordinal))
        return world, Returned(
            [
                {
                    "run_id": run_id,
                    "owner_kind": ref.owner_kind,
                    "owner_id": ref.owner_id,
                    "ordinal": ref.ordinal,
                    "created_at": At(ref.at),
                }
                for run_id, ref in found[self.offset : self.offset + self.limit]
            ]
        )


@dataclass(frozen=True, kw_only=True)
class PurgeBlob(Operation, lost_ack="natural"):
    """Remove the bytes for good; what is known of them stays, and the references. The first purge's words stay."""

    sha256: str
    tenant_scope: str = NO_TENANT
    reason: str | None = None

    def step(self, world: World) -> Step:
        blob = rules.blob_of(world, self.tenant_scope, self.sha256)
        if blob is None:
            return world, NO_BLOB
        if blob.state == "purged":
            return world, Returned(shown_blob(world, blob))
        gone = blob._replace(state="purged", purged_at=world.now, purge_reason=self.reason)
        return with_blob(world, gone), Returned(shown_blob(world, gone))


@dataclass(frozen=True, kw_only=True)
class CollectGarbage(Operation, lost_ack="natural"):
    """Drop the live blobs of a scope that nobody put for so long and no run refers to."""

    older_than_s: int
    tenant_scope: str

    def step(self, world: World) -> Step:
        if self.older_than_s < GARBAGE_AGE_S:
            return world, INVALID
        old = [blob for blob in world.blobs if blob.state == "live" and self.unused(world, blob)]
        gone = [blob for blob in old if collectable(world, blob)]
        after = world if not gone else world._replace(blobs=tuple(blob for blob in world.blobs if blob not in gone))
        fate = [(blob.sha256, "deleted" if blob in gone else "skipped") for blob in old]
        return after, Returned(tally(fate))

    def cut_steps(self, world: World, *, at_commit: bool) -> list[Step]:
        """Each blob has transactions of its own; one whose transaction failed stays, and the answer names it."""
        if at_commit or self.older_than_s < GARBAGE_AGE_S:
            return []
        after, _ = self.step(world)
        gone = [blob for blob in world.blobs if blob not in after.blobs]
        return [self.without(world, blob, code) for blob in gone for code in codes_of(at_commit=False)]

    def without(self, world: World, kept: Blob, code: str) -> Step:
        """The collection, whose work on one blob failed with this code."""
        rest = world._replace(blobs=tuple(blob for blob in world.blobs if blob is not kept))
        after, answer = self.step(rest)
        assert isinstance(answer, Returned)
        failed = {"tenant_scope": kept.tenant_scope, "sha256": kept.sha256, "code": code}
        blobs = tuple(blob for blob in world.blobs if blob is kept or blob in after.blobs)
        return world._replace(blobs=blobs), Returned({**answer.value, "failed": [failed]})

    def partly(self, world: World) -> list[World]:
        if self.older_than_s < GARBAGE_AGE_S:
            return []
        after, _ = self.step(world)
        gone = [blob for blob in world.blobs if blob not in after.blobs]
        some = chain.from_iterable(combinations(gone, number) for number in range(1, len(gone)))
        return [world._replace(blobs=tuple(b for b in world.blobs if b not in deleted)) for deleted in some]

    def ways(self, observed: Outcome, known: Known) -> list[Parts]:
        """A step for each blob. The answer counts them, so any of them may be those that it counts."""
        contents = sorted(content for scope, content in known.blobs if scope == self.tenant_scope)
        found: list[Parts] = []
        for fates in product(("deleted", "skipped", "left"), repeat=len(contents)):
            fate = list(zip(contents, fates, strict=True))
            if isinstance(observed, Returned) and observed.value == tally(fate):
                found.append([(CollectedAlone(collection=self, sha256=one), Returned(what)) for one, what in fate])
        return found or [[(self, observed)]]

    def unused(self, world: World, blob: Blob) -> bool:
        """Whether the blob is of this scope and was not put for long enough."""
        aged = world.now - blob.put_at >= self.older_than_s * SECOND
        return blob.tenant_scope == self.tenant_scope and aged


def tally(fate: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What a collection answers that did this to each blob."""
    gone = [content for content, what in fate if what == "deleted"]
    return {
        "deleted_blobs": len(gone),
        "bytes_freed": sum(len(content.encode()) for content in gone),
        "skipped_referenced": sum(what == "skipped" for _, what in fate),
        "completed_purges": 0,
        "retried_deletes": 0,
        "failed": [],
        "next_after": None,
    }


@dataclass(frozen=True, kw_only=True)
class CollectedAlone(Operation):
    """What a collection does to one blob, in transactions of its own: the part it plays among concurrent calls."""

    collection: CollectGarbage
    sha256: str

    lost_ack: ClassVar[LostAck] = "natural"

    def step(self, world: World) -> Step:
        blob = rules.blob_of(world, self.collection.tenant_scope, self.sha256)
        if blob is None or blob.state != "live" or not self.collection.unused(world, blob):
            return world, Returned("left")
        if not collectable(world, blob):
            return world, Returned("skipped")
        return world._replace(blobs=tuple(other for other in world.blobs if other is not blob)), Returned("deleted")

    def idle(self, observed: Outcome) -> bool:
        return observed != Returned("deleted")


def collectable(world: World, blob: Blob) -> bool:
    """Whether no run refers to a blob."""
    return not references(world, blob)
