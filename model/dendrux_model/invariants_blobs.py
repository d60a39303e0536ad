"""The invariants of stored bytes."""

from __future__ import annotations

from dendrux.vocabulary import blob_scope
from dendrux_model.invariants import of_world
from dendrux_model.world import World


@of_world
def blob_reachable(world: World) -> bool:
    """A blob with a reference from a run is never collected: it is there, or what is known of it after its purge."""
    if not any(run.blob_refs for run in world.runs):
        return True
    known = {(blob.tenant_scope, blob.sha256) for blob in world.blobs}
    return all(ref[:2] in known for run in world.runs for ref in run.blob_refs)


@of_world
def tenant_wall__blobs(world: World) -> bool:
    """A run refers to blobs of its own tenant only."""
    return all(ref.tenant_scope == blob_scope(run.tenant_id) for run in world.runs for ref in run.blob_refs)
