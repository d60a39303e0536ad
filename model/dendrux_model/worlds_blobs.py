"""The small world of stored bytes."""

from __future__ import annotations

from typing import Any

from dendrux.runtime.values import BlobEdge
from dendrux.vocabulary import blob_scope
from dendrux_model.operations import (
    BlobInfo,
    BlobReferences,
    CollectGarbage,
    Operation,
    PurgeBlob,
    PutBlob,
    ReadBlob,
    SaveToolCall,
    SaveTrace,
    SubmitAndClaim,
)
from dendrux_model.world import SECOND
from dendrux_model.worlds import APPROVAL, R1, R2, end, pause, run, small_world

SCOPE, NOBODY = blob_scope("t"), blob_scope(None)
HOUR_S = 3600


def edge(content: str, owner: str, scope: str = SCOPE) -> BlobEdge:
    """A reference to a blob from the row of an owner."""
    return BlobEdge(tenant_scope=scope, sha256=content, owner_kind="trace", owner_id=owner, ordinal=0)


@small_world
def images(storage_format: int) -> dict[str, Any]:
    """Two old blobs of a tenant and one of nobody, runs that refer to them, a purge and a collection."""

    def trace(number: int, *edges: BlobEdge, **given: Any) -> SaveTrace:
        named = {"run_id": R1, "role": "user", "content_text": "look", "trace_id": f"t{number}", **given}
        return SaveTrace(order_index=number, blob_refs=edges, **named)

    alphabet: list[Operation] = [
        PutBlob(payload="one", tenant_scope=SCOPE),
        PutBlob(payload="new", tenant_scope=SCOPE),
        trace(0, edge("one", "0")),
        trace(0, edge("two", "0")),
        trace(1, edge("two", "0"), edge("two", "1")),
        trace(2, edge("new", "2"), claim_epoch=1),
        trace(3, edge("one", "3", NOBODY)),
        trace(3, edge("one", "3", NOBODY), blob_refs_scope=SCOPE),
        SaveToolCall(run_id=R1, tool_call_id="c", tool_name="camera", row_id="c1", blob_refs=(edge("two", "c"),)),
        run(R2, tenant_id="t", blob_refs=(edge("one", "input"),)),
        pause(R1, "p1", 1),
        SubmitAndClaim(
            run_id=R1, expected_status=APPROVAL, submission_id="s", submitted_data={}, blob_refs=(edge("one", "s"),)
        ),
        end(R1, "f1", None),
        PurgeBlob(sha256="one", tenant_scope=SCOPE, reason="asked"),
        PurgeBlob(sha256="nothing", tenant_scope=SCOPE),
        CollectGarbage(older_than_s=HOUR_S, tenant_scope=SCOPE),
        CollectGarbage(older_than_s=HOUR_S - 1, tenant_scope=SCOPE),
        *(ReadBlob(sha256=content, tenant_scope=SCOPE) for content in ("one", "new")),
        ReadBlob(sha256="one", tenant_scope=SCOPE, run_id=R1),
        ReadBlob(sha256="one", tenant_scope=NOBODY, run_id=R1),
        BlobInfo(sha256="one", tenant_scope=SCOPE),
        BlobReferences(sha256="one", tenant_scope=SCOPE),
        BlobReferences(sha256="two", tenant_scope=NOBODY),
        BlobInfo(sha256="two", tenant_scope=NOBODY),
    ]
    return {
        "setup": (
            run(R1, tenant_id="t"),
            PutBlob(payload="one", tenant_scope=SCOPE),
            PutBlob(payload="two", tenant_scope=SCOPE),
            PutBlob(payload="one", tenant_scope=NOBODY),
        ),
        "alphabet": tuple(alphabet),
        "starts_at": HOUR_S * SECOND,
        "sometimes": ("reference_saves_a_blob",),
    }
