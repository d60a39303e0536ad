"""Where machines begin and what the pair matrix starts from: small states with the shortest program to each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dendrux.runtime.values import BlobEdge, EventWrite, TraceWrite
from dendrux.vocabulary import (
    GARBAGE_AGE_S,
    META_LOOP,
    NO_TENANT,
    RECOVERABLE_LOOP,
    TOOL_COMPLETED,
    TOOL_STARTED,
    blob_scope,
)
from dendrux_model.machines.arguments_leases import LEASE_S
from dendrux_model.operations import (
    AddNote,
    ClaimPausedRun,
    CompleteToolCall,
    ConsumeSubmission,
    CreateRun,
    FinalizeWithEvent,
    MarkLeaseExpired,
    PauseWithEvent,
    PutBlob,
    RequestCancel,
    RequestPause,
    SaveTrace,
    StartToolCall,
    SubmitAndClaim,
)
from dendrux_model.programs import Do, Program, Tick

CREATE: Final = Do(CreateRun(run_id="r1", agent_name="a"))
PAUSE: Final = Do(
    PauseWithEvent(run_id="r1", status="paused", pause_data={"pending": []}, event_id="start-e0", claim_epoch=1)
)
CLAIM: Final = Do(ClaimPausedRun(run_id="r1", expected_status="paused"))
NOTE: Final = Do(AddNote(run_id="r1", note_id="start-n0", text="hello"))
FINISH: Final = Do(
    FinalizeWithEvent(
        run_id="r1",
        status="success",
        allowed_current_statuses=("running", "paused"),
        event_type="run.completed",
        event_id="start-e9",
    )
)

START: Final = StartToolCall(
    run_id="r1",
    row_id="r1-k0",
    tool_call_id="call of r1-k0",
    tool_name="search",
    claim_epoch=1,
    event=EventWrite(event_type=TOOL_STARTED, event_id="r1-k0-begun"),
)
CALL: Final = Do(START)

RECOVERABLE: Final = Do(CreateRun(run_id="r1", agent_name="a", meta={META_LOOP: RECOVERABLE_LOOP}))
LONG: Final = Tick(LEASE_S)
MARK: Final = Do(MarkLeaseExpired(cutoff_s=LEASE_S))

PUT: Final = Do(PutBlob(payload="start", tenant_scope=NO_TENANT))
GARBAGE: Final = Do(PutBlob(payload="start", tenant_scope=blob_scope("t")))
"""One blob only: two collections at once would share several between them, each blob being a step of its own."""

KEYED: Final = Do(CreateRun(run_id="r1", agent_name="a", idempotency_key="k", idempotency_fingerprint="f"))

CHILD: Final = Do(CreateRun(run_id="r2", agent_name="a", parent_run_id="r1", delegation_level=1))
SUBMIT: Final = Do(
    SubmitAndClaim(run_id="r1", expected_status="paused", submitted_data={"answer": 1}, submission_id="s1")
)
CONSUME: Final = Do(ConsumeSubmission(run_id="r1", claim_epoch=2, consumption_id="use1"))
AGAIN: Final = Do(replace(START, claim_epoch=2))
COMPLETE: Final = Do(
    CompleteToolCall(
        run_id="r1",
        row_id="r1-k0",
        claim_epoch=1,
        trace=TraceWrite(role="tool", content="hello", order_index=0, trace_id="r1-k0-seen", trace_kind="observation"),
        event=EventWrite(event_type=TOOL_COMPLETED, event_id="r1-k0-done"),
        result_payload='{"ok": 1}',
        success=True,
    )
)
MESSAGE: Final = SaveTrace(run_id="r1", role="user", content_text="hello", order_index=0, trace_id="start-m0")
SAY: Final = Do(MESSAGE)
REFERENCE: Final = BlobEdge(tenant_scope=NO_TENANT, sha256="start", owner_kind="trace", owner_id="0", ordinal=0)
REFER: Final = Do(replace(MESSAGE, blob_refs=(REFERENCE,)))

STARTS: Final[dict[str, Program]] = {
    "empty": (),
    "running": (CREATE,),
    "noted": (CREATE, NOTE),
    "paused": (CREATE, PAUSE),
    "claimed": (CREATE, PAUSE, CLAIM),
    "submitted": (CREATE, PAUSE, SUBMIT),
    "cancelling": (CREATE, Do(RequestCancel(run_id="r1"))),
    "pausing": (CREATE, Do(RequestPause(run_id="r1", reason="soon"))),
    "paused_cancelling": (CREATE, PAUSE, Do(RequestCancel(run_id="r1"))),
    "finished": (CREATE, FINISH),
    "calling": (CREATE, CALL),
    "left_open": (CREATE, CALL, PAUSE, CLAIM),
    "owner_gone": (RECOVERABLE, LONG),
    "expired": (RECOVERABLE, LONG, MARK),
    "abandoned": (CREATE, PAUSE, LONG),
    "stored": (CREATE, PUT),
    "garbage": (Do(CreateRun(run_id="r1", agent_name="a", tenant_id="t")), GARBAGE, Tick(GARBAGE_AGE_S)),
    "tenant": (Do(CreateRun(run_id="r1", agent_name="a", tenant_id="t")),),
    "consumed": (CREATE, PAUSE, SUBMIT, CONSUME),
    "handed_out_again": (CREATE, CALL, PAUSE, CLAIM, AGAIN),
    "completed": (CREATE, CALL, COMPLETE),
    "answered": (CREATE, SAY, PAUSE, SUBMIT),
    "referenced": (CREATE, PUT, REFER, PAUSE),
    "family": (CREATE, CHILD),
    "keyed": (KEYED,),
    "keyed_finished": (KEYED, FINISH),
}
"""Start states by name."""

MACHINES_ONLY: Final = frozenset(
    {
        "tenant",
        "consumed",
        "answered",
        "handed_out_again",
        "completed",
        "referenced",
        "family",
        "keyed",
        "keyed_finished",
    }
)
"""Start states that the pair matrix leaves out: what is told apart there does not race, or nothing new does."""

LEASE_STARTS: Final = ("running", "paused", "claimed", "cancelling", "owner_gone", "expired", "abandoned")
"""Where owners are silent, or soon will be."""

TIMELESS: Final = tuple(name for name, program in STARTS.items() if not any(isinstance(s, Tick) for s in program))
"""Start states that need no clock."""
