"""Stored bytes of runs: once per tenant and content, referred to by rows, collected when nobody refers to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.runtime.values import BlobEdge, EventWrite, TraceWrite
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._nasty import LONG, TENANTS, TEXTS
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import OWNED, OWNER, WAITING, born, ended, paused
from dendrux.vocabulary import (
    EDGES_MAX,
    GARBAGE_AGE_S,
    NO_TENANT,
    REASON_LENGTH,
    TOOL_COMPLETED,
    TOOL_STARTED,
    blob_scope,
)
from dendrux_model.operations import (
    BlobInfo,
    BlobReferences,
    CollectGarbage,
    CompleteToolCall,
    CreateRun,
    PurgeBlob,
    PutBlob,
    ReadBlob,
    SaveToolCall,
    SaveTrace,
    StartToolCall,
    SubmitAndClaim,
)
from dendrux_model.outcomes import CONFLICT, INVALID, NO_BLOB, NONE, Returned
from dendrux_model.programs import Do, Look, Program, Tick

HOUR_S: Final = GARBAGE_AGE_S
SCOPE: Final = blob_scope("t")


def put(payload: str = "picture", tenant_scope: str = NO_TENANT, **given: Any) -> Do:
    """Somebody stores bytes."""
    return Do(PutBlob(payload=payload, tenant_scope=tenant_scope, **given))


def edge(payload: str = "picture", tenant_scope: str = NO_TENANT, **given: Any) -> BlobEdge:
    """A reference to them."""
    about: dict[str, Any] = {"owner_kind": "trace", "owner_id": "0", "ordinal": 0, **given}
    return BlobEdge(tenant_scope=tenant_scope, sha256=payload, **about)


def looks(number: int, *edges: BlobEdge, **given: Any) -> SaveTrace:
    """A message that refers to blobs."""
    about = {"run_id": "r", "role": "user", "content_text": "look", "order_index": number, "trace_id": f"m{number}"}
    return SaveTrace(**about, blob_refs=edges, **given)  # type: ignore[arg-type]


def collects(older_than_s: int = HOUR_S, tenant_scope: str = SCOPE) -> CollectGarbage:
    """A collection of one tenant's garbage."""
    return CollectGarbage(older_than_s=older_than_s, tenant_scope=tenant_scope)


def collected(deleted: int, skipped: int = 0) -> Returned:
    """What a collection says it did."""
    return Returned({"deleted_blobs": deleted, "skipped_referenced": skipped, "failed": [], "next_after": None})


MINE: Final[Program] = (born(tenant_id="t"), put(tenant_scope=SCOPE))
"""A run of a tenant, and bytes that it may refer to."""

sample(PutBlob(payload="picture"))
sample(ReadBlob(sha256="picture"), before=(*OWNED, put()))
sample(BlobInfo(sha256="picture"), before=(*OWNED, put()))
sample(BlobReferences(sha256="picture"), before=(*OWNED, put(), Do(looks(0, edge()))))
sample(PurgeBlob(sha256="picture", reason="asked"), before=(*OWNED, put()))
sample(collects(), before=(*MINE, Tick(HOUR_S)))

# -- put and read -----------------------------------------------------------------------------------------------------

contract(
    "basic.put_blob.bytes_come_back_exactly",
    "Bytes are read as they were put, of a megabyte too.",
    *(step for text in (*TEXTS, LONG) for step in (put(text), Do(ReadBlob(sha256=text), expect=Returned(text)))),
    cause="The column holds text, or fewer bytes than this.",
)
contract(
    "basic.put_blob.once_per_scope_and_content",
    "The same bytes in the same scope are one blob, however often they are put; in another scope they are another.",
    put(),
    put(),
    put(media_type="image/png"),
    put(tenant_scope=SCOPE),
    Do(BlobInfo(sha256="picture"), expect=Returned({"state": "live", "media_type": "text/plain", "byte_length": 7})),
    Do(PurgeBlob(sha256="picture")),
    Do(ReadBlob(sha256="picture", tenant_scope=SCOPE), expect=Returned("picture")),
)
ABOUT: Final[dict[str, Any]] = {
    "media_type": "image/png",
    "width": 640,
    "height": 480,
    "frame_count": 3,
    "ingest_transform": "shrunk",
}
OTHER: Final[dict[str, Any]] = {name: "other" if isinstance(value, str) else 7 for name, value in ABOUT.items()}
LARGEST: Final[dict[str, Any]] = dict.fromkeys(("width", "height", "frame_count"), 2**31 - 1)

contract(
    "basic.put_blob.says_what_the_first_put_said",
    "What the first put says of the bytes is what is known of them; a later put that says otherwise changes nothing.",
    put(**ABOUT),
    *(put(**{name: value}) for name, value in OTHER.items()),
    Do(BlobInfo(sha256="picture"), expect=Returned(ABOUT)),
    put("large", **LARGEST),
    Do(BlobInfo(sha256="large"), expect=Returned(LARGEST)),
)
contract(
    "basic.put_blob.purged_bytes_stay_refused",
    "Bytes that were purged from a scope cannot be put there again, and can be put elsewhere.",
    put(),
    Do(PurgeBlob(sha256="picture", reason="asked")),
    Do(PutBlob(payload="picture"), expect=NO_BLOB),
    put(tenant_scope=SCOPE),
    Do(ReadBlob(sha256="picture"), expect=NO_BLOB),
)
contract(
    "basic.read_blob.only_in_its_scope",
    "Bytes are found in exactly the scope of the tenant they were put for.",
    *(put(f"of {tenant!r}", blob_scope(tenant)) for tenant in TENANTS),
    *(
        Do(
            ReadBlob(sha256=f"of {tenant!r}", tenant_scope=blob_scope(scope)),
            expect=Returned(f"of {tenant!r}") if scope == tenant and type(scope) is type(tenant) else NO_BLOB,
        )
        for tenant in TENANTS
        for scope in TENANTS
    ),
    cause="Scopes are compared by a collation that folds case or pads: compare them as bytes.",
)
contract(
    "basic.read_blob.through_a_run_that_refers",
    "Through a run, only the bytes that it refers to are read; what is missing, unreferenced or another tenant's is "
    "refused alike.",
    *MINE,
    born("s", tenant_id="t"),
    put("other", SCOPE),
    put("picture"),
    Do(looks(0, edge(tenant_scope=SCOPE))),
    Do(ReadBlob(sha256="picture", tenant_scope=SCOPE, run_id="r"), expect=Returned("picture")),
    *(
        Do(replace(ReadBlob(sha256="picture", tenant_scope=SCOPE, run_id="r"), **wrong), expect=NO_BLOB)
        for wrong in ({"run_id": "s"}, {"run_id": "nowhere"}, {"sha256": "other"}, {"sha256": "missing"})
    ),
    Do(ReadBlob(sha256="picture", tenant_scope=NO_TENANT, run_id="r"), expect=NO_BLOB),
)
contract(
    "basic.blob_info.says_what_is_known",
    "What is known of a blob is read without its bytes; where there is none there is nothing.",
    put(media_type="image/png"),
    Do(BlobInfo(sha256="picture"), expect=Returned({"media_type": "image/png", "storage": "db", "state": "live"})),
    Do(BlobInfo(sha256="picture", tenant_scope=SCOPE), expect=NONE),
    Do(BlobInfo(sha256="missing"), expect=NONE),
)
contract(
    "basic.blob_references.are_read_by_blob",
    "Each reference says which row of which run it is in.",
    born("r"),
    born("s"),
    put(),
    put("second"),
    Do(BlobReferences(sha256="picture"), expect=Returned([])),
    Do(looks(0, edge(), edge(ordinal=1), edge("second", ordinal=2))),
    Do(replace(looks(1, edge(owner_id="1")), run_id="s")),
    Do(BlobReferences(sha256="picture")),
    Do(BlobReferences(sha256="second")),
    Do(BlobReferences(sha256="picture", tenant_scope=SCOPE), expect=Returned([])),
)

contract(
    "basic.blob_references.page_by_page",
    "A page of references has as many as it is told, from where it is told, by run, kind, owner and ordinal.",
    put(),
    *(
        Do(CreateRun(run_id=run_id, agent_name="agent", blob_refs=tuple(edge(**where) for where in places)))
        for run_id, places in (
            ("s", ({"owner_id": "b"}, {"owner_kind": "row"}, {"ordinal": 1}, {})),
            ("r", tuple({"ordinal": place} for place in reversed(range(EDGES_MAX)))),
        )
    ),
    *(
        Do(BlobReferences(sha256="picture", limit=limit, offset=offset))
        for limit, offset in (
            (1000, 0),
            (1, 0),
            (1, 1),
            (100, 2),
            (2, 100),
            (1000, 103),
            (1000, 104),
            (1000, 2**31 - 1),
        )
    ),
    cause="The page is cut by other arguments than those given, or sorted as something else than numbers and bytes.",
)

# -- references -------------------------------------------------------------------------------------------------------

WRITERS: Final[dict[str, tuple[Program, Any]]] = {
    "create_run": ((), CreateRun(run_id="n", agent_name="agent")),
    "save_trace": ((born(),), looks(0)),
    "save_tool_call": ((born(),), SaveToolCall(run_id="r", tool_call_id="c", tool_name="camera", row_id="c")),
    "submit_and_claim": (
        (born(), paused()),
        SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"a": 1}, submission_id="s"),
    ),
    "complete_tool_call": (
        (
            born(),
            Do(
                StartToolCall(
                    run_id="r",
                    row_id="c",
                    tool_call_id="c",
                    tool_name="camera",
                    claim_epoch=1,
                    event=EventWrite(event_type=TOOL_STARTED, event_id="e0"),
                )
            ),
        ),
        CompleteToolCall(
            run_id="r",
            row_id="c",
            claim_epoch=1,
            trace=TraceWrite(role="tool", content="seen", order_index=0, trace_id="m", trace_kind="observation"),
            event=EventWrite(event_type=TOOL_COMPLETED, event_id="e1"),
        ),
    ),
}
"""Each writer of references: what comes before, and a call without any."""

ABSENT: Final = (
    "The row is stored although its blob is not there: lock the blob rows in the writing transaction, and refuse the "
    "whole write."
)

for _method, (_before, _call) in WRITERS.items():
    _format_2: Any = {"format_2"} if _method == "complete_tool_call" else set()
    _stored = (*_before, put(), put("second"), put("gone"), put("theirs", SCOPE), Do(PurgeBlob(sha256="gone")))
    contract(
        f"basic.{_method}.refers_to_blobs",
        f"{_method} stores the references with its row, or leaves no trace when one of the blobs is missing, purged "
        "or another tenant's.",
        *_stored,
        Look(),
        *(
            Do(replace(_call, blob_refs=refused), expect=NO_BLOB)
            for refused in (
                (edge("missing"),),
                (edge("gone"),),
                (edge(), edge("missing", ordinal=1)),
                (edge("theirs", SCOPE),),
                (edge("theirs"),),
            )
        ),
        Do(replace(_call, blob_refs=(edge(),), blob_refs_scope=SCOPE), expect=NO_BLOB),
        Look(),
        Do(replace(_call, blob_refs=(edge("second", ordinal=1), edge()), blob_refs_scope=NO_TENANT)),
        needs=_format_2,
        cause=ABSENT,
    )

contract(
    "basic.save_trace.one_reference_holds_a_place",
    "An owner's place refers to one blob: the same reference again changes nothing, another is a write conflict.",
    born(),
    put(),
    put("second"),
    Do(looks(0, edge()), expect=NONE),
    Do(looks(1, edge(), edge("second", ordinal=1)), expect=NONE),
    Look(),
    Do(looks(2, edge("second")), expect=CONFLICT),
    Do(looks(2, edge("second", ordinal=2), edge("second")), expect=CONFLICT),
    Do(looks(2, edge("missing")), expect=NO_BLOB),
)
contract(
    "basic.save_trace.references_obey_the_fence",
    "References of an owner who lost the run, and of a run that has ended, are refused with their row.",
    *OWNED,
    put(),
    Do(looks(0, edge(), claim_epoch=OWNER - 1)),
    Do(looks(0, edge(), claim_epoch=OWNER), expect=NONE),
    ended(),
    Do(looks(1, edge(owner_id="1"), claim_epoch=OWNER)),
)
contract(
    "retry_ids.save_trace.references_are_content",
    "A repeat with other references is other content; a repeat needs no blob any more.",
    born(),
    put(),
    put("second"),
    Do(looks(0, edge()), expect=NONE),
    Look(),
    Do(looks(0, edge()), expect=NONE),
    *(
        Do(looks(0, *edges), expect=CONFLICT)
        for edges in ((), (edge("second"),), (edge(ordinal=1),), (edge(), edge("second", ordinal=1)))
    ),
    Do(PurgeBlob(sha256="picture")),
    Do(looks(0, edge()), expect=NONE),
    group="retry_ids",
    cause="References are left out of the content that a repeat compares.",
)

# -- purge and collection ---------------------------------------------------------------------------------------------

contract(
    "basic.purge_blob.bytes_go_and_references_stay",
    "A purge removes the bytes of a blob that runs refer to; the references stay, and the first purge's words.",
    *MINE,
    Do(looks(0, edge(tenant_scope=SCOPE))),
    Do(PurgeBlob(sha256="picture", tenant_scope=SCOPE, reason="first"), expect=Returned({"state": "purged"})),
    Do(PurgeBlob(sha256="picture", tenant_scope=SCOPE, reason="second"), expect=Returned({"purge_reason": "first"})),
    Do(ReadBlob(sha256="picture", tenant_scope=SCOPE), expect=NO_BLOB),
    Do(ReadBlob(sha256="picture", tenant_scope=SCOPE, run_id="r"), expect=NO_BLOB),
    Do(looks(1, edge(tenant_scope=SCOPE, owner_id="1")), expect=NO_BLOB),
)
contract(
    "basic.purge_blob.reason_is_kept",
    "The reason of a purge is kept as it was given: none, an empty one, the longest.",
    *(
        step
        for reason in (None, "", " ", "asked \u00e9", "\U0001d4ea" * REASON_LENGTH)
        for step in (
            put(f"because of {reason!r}"),
            Do(PurgeBlob(sha256=f"because of {reason!r}", reason=reason), expect=Returned({"purge_reason": reason})),
        )
    ),
)
contract(
    "basic.purge_blob.missing_blob",
    "There is nothing to purge where nothing was put, in another tenant's scope either.",
    put(tenant_scope=SCOPE),
    Look(),
    Do(PurgeBlob(sha256="missing", tenant_scope=SCOPE), expect=NO_BLOB),
    Do(PurgeBlob(sha256="picture"), expect=NO_BLOB),
    Do(PurgeBlob(sha256="picture", tenant_scope=blob_scope("T")), expect=NO_BLOB),
)
contract(
    "basic.collect_garbage.old_blobs_that_nobody_refers_to",
    "A collection drops exactly the blobs that are old enough and that no run refers to.",
    *MINE,
    put("kept", SCOPE),
    put("purged", SCOPE),
    put("theirs", blob_scope("T")),
    Do(looks(0, edge("kept", SCOPE))),
    Do(PurgeBlob(sha256="purged", tenant_scope=SCOPE)),
    Tick(HOUR_S),
    put("young", SCOPE),
    Do(collects(), expect=collected(1, 1)),
    Do(ReadBlob(sha256="picture", tenant_scope=SCOPE), expect=NO_BLOB),
    Do(BlobInfo(sha256="picture", tenant_scope=SCOPE), expect=NONE),
    *(Do(ReadBlob(sha256=name, tenant_scope=SCOPE), expect=Returned(name)) for name in ("kept", "young")),
    Do(PutBlob(payload="purged", tenant_scope=SCOPE), expect=NO_BLOB),
    Do(collects(), expect=collected(0, 1)),
    cause="References are not asked for in the statement that deletes, or the purge's row is taken for garbage.",
)
contract(
    "basic.collect_garbage.age_counts_from_the_last_put",
    "Bytes that are put again are as young as new ones, and what was collected can be put again.",
    *MINE,
    Tick(HOUR_S - 60),
    put(tenant_scope=SCOPE),
    Tick(HOUR_S - 60),
    Do(collects(), expect=collected(0)),
    Tick(60),
    Do(collects(), expect=collected(1)),
    put(tenant_scope=SCOPE),
    Do(ReadBlob(sha256="picture", tenant_scope=SCOPE), expect=Returned("picture")),
)
contract(
    "basic.collect_garbage.no_younger_than_it_is_told",
    "A collection leaves what is younger than the age it was given, an hour or a month.",
    *MINE,
    Tick(2 * HOUR_S - 60),
    Do(collects(2 * HOUR_S), expect=collected(0)),
    Do(collects(30 * 24 * HOUR_S), expect=collected(0)),
    Tick(60),
    Do(collects(30 * 24 * HOUR_S), expect=collected(0)),
    Do(collects(2 * HOUR_S), expect=collected(1)),
    cause="The age is bounded from above, or rounded.",
)
contract(
    "basic.collect_garbage.never_younger_than_an_hour",
    "A collection of blobs younger than an hour is refused: what was put is about to be referred to.",
    *MINE,
    Look(),
    Do(collects(HOUR_S - 1), expect=INVALID),
    Do(collects(0), expect=INVALID),
    Do(collects(), expect=collected(0)),
)

LOCK: Final = (
    "The collection asks for references before it takes the blob's row, or the writer does not lock the row: whoever "
    "comes second has to see what the first one did."
)

race(
    "collect_garbage.reference_or_collection",
    "A reference that meets a collection keeps its blob, or finds it gone and is refused with its row.",
    looks(0, edge(tenant_scope=SCOPE)),
    collects(),
    before=(*MINE, Tick(HOUR_S)),
    cause=LOCK,
    both_ways=True,
)
race(
    "collect_garbage.birth_or_collection",
    "A run that begins with a blob keeps it, or finds it collected and does not begin.",
    CreateRun(run_id="n", agent_name="agent", tenant_id="t", blob_refs=(edge(tenant_scope=SCOPE),)),
    collects(),
    before=(*MINE, Tick(HOUR_S)),
    cause=LOCK,
    both_ways=True,
)
race(
    "collect_garbage.put_or_collection",
    "Bytes that are put while they are collected are there afterwards.",
    PutBlob(payload="picture", tenant_scope=SCOPE),
    collects(),
    before=(*MINE, Tick(HOUR_S)),
    cause="The put takes the old row for its own after it was deleted, or the deletion does not ask for the age again.",
    both_ways=True,
)
race(
    "collect_garbage.collected_once",
    "Two collections at once drop a blob once.",
    collects(),
    collects(),
    before=(*MINE, Tick(HOUR_S)),
    cause="A collection counts what it wanted to delete, not what it deleted.",
)
race(
    "purge_blob.reference_or_purge",
    "A reference that meets a purge comes before it, or is refused with its row.",
    looks(0, edge(tenant_scope=SCOPE)),
    PurgeBlob(sha256="picture", tenant_scope=SCOPE),
    before=MINE,
    cause=LOCK,
    both_ways=True,
)
race(
    "put_blob.same_bytes_at_once",
    "The same bytes put twice at once are one blob, and both callers are told of it.",
    PutBlob(payload="picture"),
    PutBlob(payload="picture"),
    before=(),
    after=(Do(ReadBlob(sha256="picture"), expect=Returned("picture")),),
    cause="The second insert fails on the key instead of finding the row.",
)
race(
    "save_trace.two_references_for_one_place",
    "Of two references to different blobs for one place, one is stored and the other is a write conflict.",
    looks(0, edge()),
    looks(1, edge("second")),
    before=(born(), put(), put("second")),
    cause="The place of a reference has no unique key, or the clash is taken for a repeat.",
)
