"""Mutants of the rules of stored bytes."""

from __future__ import annotations

from dendrux_model import rules
from dendrux_model.operations import PutBlob, blobs
from dendrux_model.outcomes import Outcome
from dendrux_model.swaps import Swap, instead, mutant, step_of, swapped
from dendrux_model.world import World


@mutant("blob_reachable", "images")
def collection_looks_at_age_alone() -> Swap:
    """A collection drops old blobs that runs refer to."""
    return instead(blobs, "collectable", lambda _world, _blob: True)


@mutant("tenant_wall", "images")
def reference_across_tenants() -> Swap:
    """A run may refer to a blob of another scope."""
    return instead(rules, "same_scope", lambda _tenant, _op, _scope: True)


@mutant(None, "images")
def collection_spares_nothing_new() -> Swap:
    """A collection drops blobs that were just put."""
    return instead(blobs.CollectGarbage, "unused", lambda self, _world, blob: blob.tenant_scope == self.tenant_scope)


@mutant(None, "images")
def purged_bytes_come_back() -> Swap:
    """Bytes that were purged can be put again."""

    def forgive(world: World) -> World:
        return world._replace(blobs=tuple(blob._replace(state="live", purged_at=None) for blob in world.blobs))

    return swapped(PutBlob, "step", lambda original: lambda self, world: original(self, forgive(world)))


@mutant(None, "images")
def put_is_no_use() -> Swap:
    """Putting bytes again does not move their age."""

    def change(op: PutBlob, before: World, after: World, outcome: Outcome) -> tuple[World, Outcome]:
        held = rules.blob_of(before, op.tenant_scope, op.payload)
        return (before, outcome) if held is not None and after is not before else (after, outcome)

    return step_of(PutBlob, change)
