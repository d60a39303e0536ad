"""What each operation answers, by hand: where several reasons hold at once, the one the contract checks first wins.

The order: arguments, scope, format, identity, fence, closed, guard, position, effect.
"""

from __future__ import annotations

from dataclasses import replace as given

import pytest

from dendrux.runtime.values import UsageStats
from dendrux_model.operations import (
    OPERATIONS,
    AddNote,
    ClaimPausedRun,
    CreateRun,
    FinalizeRun,
    FinalizeRunIfStatusIn,
    FinalizeWithEvent,
    GetRun,
    MarkNotesDelivered,
    PauseRun,
    PauseWithEvent,
    ReleaseRunClaim,
    RequestCancel,
    RequestPause,
    SaveLLMInteraction,
    SaveRunEvent,
    SaveToolCall,
    SaveTrace,
    SaveUsage,
    SubmitAndClaim,
    TouchProgress,
    TryPauseRun,
    UpdateRunMeta,
)
from dendrux_model.outcomes import (
    CLOSED,
    CONFLICT,
    FALSE,
    INVALID,
    KEY_CONFLICT,
    NONE,
    NOT_FOUND,
    OUTCOME_UNKNOWN,
    STALE,
    TERMINAL,
    TRUE,
    VALIDATION,
    Returned,
)
from dendrux_model.world import World, find

CREATE = CreateRun(run_id="r1", agent_name="a", tenant_id="t")
OTHER = CreateRun(run_id="r2", agent_name="a")
PAUSE = PauseWithEvent(run_id="r1", status="paused", pause_data={"q": 1}, event_id="p1", claim_epoch=1)
CLAIM = ClaimPausedRun(run_id="r1", expected_status="paused")
SUBMIT = SubmitAndClaim(run_id="r1", expected_status="paused", submitted_data={"ok": True}, submission_id="s1")
RELEASE = ReleaseRunClaim(run_id="r1", claim_epoch=2)
CANCEL = RequestCancel(run_id="r1")
END = FinalizeWithEvent(
    run_id="r1",
    status="success",
    allowed_current_statuses=("running", "paused"),
    event_type="run.completed",
    event_id="f1",
)

RUNNING = (CREATE, OTHER)
PAUSED = (*RUNNING, PAUSE)
CLAIMED = (*PAUSED, CLAIM)
SUBMITTED = (*PAUSED, SUBMIT)
ENDED = (*RUNNING, END)
LATE = (*CLAIMED, END)
"""Ended under epoch 2, so that a fence at epoch 1 is stale too."""


def world_after(program, storage_format=2):
    """The world after a program in which every step has an effect."""
    world = World(new_format=storage_format)
    for instant, operation in enumerate(program):
        before = world._replace(now=instant)
        world, outcome = operation.step(before)
        assert world is not before, f"{operation} {outcome}"
    return world._replace(now=100)


def created(run_id, outcome="created", status="running", epoch=1, storage_format=2):
    value = {"run_id": run_id, "outcome": outcome, "status": status, "format": storage_format, "claim_epoch": epoch}
    return Returned(value)


EVENT = SaveRunEvent(run_id="r1", event_type="x", event_id="e1", claim_epoch=1)
TRACE = SaveTrace(run_id="r1", role="user", content_text="hi", order_index=0, trace_id="t1", claim_epoch=1)
CALL = SaveToolCall(run_id="r1", tool_call_id="c1", tool_name="look", row_id="k1", claim_epoch=1)
USAGE = SaveUsage(run_id="r1", iteration_index=0, usage=UsageStats(), usage_id="u1", claim_epoch=1)
INTERACTION = SaveLLMInteraction(run_id="r1", iteration_index=0, usage=UsageStats(), interaction_id="i1", claim_epoch=1)
NOTE = AddNote(run_id="r1", note_id="n1", text="hi", max_pending=1, tenant_id="t", claim_epoch=1)
SECOND_NOTE = given(NOTE, note_id="n2", max_pending=2)
DELIVER = MarkNotesDelivered(run_id="r1", note_ids=("n1",), iteration=0, claim_epoch=1)
META = UpdateRunMeta(run_id="r1", patch={"a": 1}, claim_epoch=1)
TOUCH = TouchProgress(run_id="r1", claim_epoch=1)

EVIDENCE = [
    # a missing run comes before the identity that another run holds
    ((*RUNNING, EVENT), given(EVENT, run_id="r9"), NOT_FOUND),
    ((*RUNNING, EVENT), given(EVENT, event_type="run.completed"), INVALID),
    ((*LATE[:2], EVENT, *LATE[2:]), EVENT, Returned(0)),
    ((*LATE[:2], EVENT, *LATE[2:]), given(EVENT, event_type="y"), CONFLICT),
    ((*LATE[:2], EVENT, *LATE[2:]), given(EVENT, run_id="r2"), CONFLICT),
    (LATE, EVENT, STALE),
    (LATE, given(EVENT, claim_epoch=2), TERMINAL),
    (LATE, given(EVENT, claim_epoch=None), TERMINAL),
    (PAUSED, EVENT, STALE),
    (PAUSED, given(EVENT, claim_epoch=None), Returned(1)),
    (RUNNING, EVENT, Returned(0)),
    ((*RUNNING, EVENT), given(EVENT, event_id="e2"), Returned(1)),
    ((*RUNNING, TRACE), given(TRACE, run_id="r9"), NOT_FOUND),
    ((*LATE[:2], TRACE, *LATE[2:]), TRACE, NONE),
    ((*LATE[:2], TRACE, *LATE[2:]), given(TRACE, content_text="ho"), CONFLICT),
    ((*LATE[:2], TRACE, *LATE[2:]), given(TRACE, run_id="r2"), CONFLICT),
    ((*LATE[:2], TRACE, *LATE[2:]), given(TRACE, trace_id="t2"), STALE),
    ((*LATE[:2], TRACE, *LATE[2:]), given(TRACE, trace_id="t2", claim_epoch=2), TERMINAL),
    ((*RUNNING, TRACE, PAUSE), given(TRACE, trace_id="t2"), STALE),
    ((*RUNNING, TRACE), given(TRACE, trace_id="t2"), CONFLICT),
    ((*RUNNING, TRACE), given(TRACE, trace_id="t2", order_index=1), NONE),
    ((*RUNNING, CALL), given(CALL, run_id="r9"), NOT_FOUND),
    ((*LATE[:2], CALL, *LATE[2:]), CALL, NONE),
    ((*LATE[:2], CALL, *LATE[2:]), given(CALL, result_payload="1"), CONFLICT),
    ((*LATE[:2], CALL, *LATE[2:]), given(CALL, row_id="k2"), STALE),
    ((*LATE[:2], CALL, *LATE[2:]), given(CALL, row_id="k2", claim_epoch=2), TERMINAL),
    ((*RUNNING, CALL), given(CALL, row_id="k2"), CONFLICT),
    ((*RUNNING, CALL), given(CALL, row_id="k2", tool_call_id="c2"), NONE),
]

BOOKKEEPING = [
    case
    for row, other in ((USAGE, {"model": "m"}), (INTERACTION, {"semantic_request": {}}))
    for case in (
        (RUNNING, given(row, run_id="r9"), NOT_FOUND),
        ((*LATE[:2], row, *LATE[2:]), row, NONE),
        ((*LATE[:2], row, *LATE[2:]), given(row, **other), CONFLICT),
        ((*LATE[:2], row, *LATE[2:]), given(row, run_id="r2"), CONFLICT),
        (LATE, row, STALE),
        (LATE, given(row, claim_epoch=2), STALE),
        (LATE, given(row, claim_epoch=None), NONE),
        (PAUSED, row, STALE),
        (PAUSED, given(row, claim_epoch=None), NONE),
        (RUNNING, row, NONE),
    )
]

PROGRESS = [
    (LATE, given(META, run_id="r9"), NOT_FOUND),
    (LATE, META, STALE),
    (LATE, given(META, claim_epoch=2), STALE),
    (LATE, given(META, claim_epoch=2, patch={}), STALE),
    (LATE, given(META, claim_epoch=None), NONE),
    (RUNNING, META, NONE),
    (LATE, given(TOUCH, run_id="r9"), NOT_FOUND),
    (LATE, TOUCH, STALE),
    (LATE, given(TOUCH, claim_epoch=2), STALE),
    (LATE, given(TOUCH, claim_epoch=None), FALSE),
    (RUNNING, given(TOUCH, claim_epoch=None), FALSE),
    (RUNNING, TOUCH, TRUE),
]

NOTES = [
    (RUNNING, given(NOTE, run_id="r9"), NOT_FOUND),
    ((*RUNNING, NOTE), given(NOTE, tenant_id="T"), NOT_FOUND),
    ((*RUNNING, NOTE), given(NOTE, tenant_id=None), NOT_FOUND),
    ((*LATE[:2], NOTE, *LATE[2:]), NOTE, Returned("duplicate")),
    ((*LATE[:2], NOTE, *LATE[2:]), given(NOTE, text="ho"), CONFLICT),
    ((*LATE[:2], NOTE, *LATE[2:]), given(NOTE, run_id="r2", tenant_id=None), CONFLICT),
    ((*RUNNING, NOTE), given(NOTE, max_pending=9), Returned("duplicate")),
    (LATE, NOTE, STALE),
    (LATE, given(NOTE, claim_epoch=2), STALE),
    ((*LATE[:2], NOTE, *LATE[2:]), given(NOTE, note_id="n2", claim_epoch=None), Returned("closed")),
    ((*RUNNING, NOTE), given(NOTE, note_id="n2", claim_epoch=2), STALE),
    ((*RUNNING, NOTE), given(NOTE, note_id="n2"), Returned("full")),
    ((*RUNNING, NOTE, DELIVER), given(NOTE, note_id="n2"), Returned("added")),
    (PAUSED, NOTE, STALE),
    (PAUSED, given(NOTE, claim_epoch=None), Returned("added")),
    (RUNNING, given(DELIVER, run_id="r9"), NOT_FOUND),
    ((*LATE[:2], NOTE, *LATE[2:]), DELIVER, STALE),
    ((*LATE[:2], NOTE, *LATE[2:]), given(DELIVER, claim_epoch=2), STALE),
    ((*LATE[:2], NOTE, *LATE[2:]), given(DELIVER, claim_epoch=None), Returned(1)),
    ((*RUNNING, NOTE, DELIVER), given(DELIVER, iteration=7), Returned(0)),
    ((*RUNNING, NOTE, SECOND_NOTE), given(DELIVER, note_ids=("n2", "n9", "n1", "n2")), Returned(2)),
]

CONTROL = [
    (RUNNING, RequestCancel(run_id="r9"), NOT_FOUND),
    (ENDED, CANCEL, FALSE),
    ((*RUNNING, CANCEL), CANCEL, TRUE),
    (PAUSED, CANCEL, TRUE),
    (RUNNING, RequestPause(run_id="r9"), NOT_FOUND),
    (ENDED, RequestPause(run_id="r1"), FALSE),
    (PAUSED, RequestPause(run_id="r1"), FALSE),
    ((*RUNNING, CANCEL), RequestPause(run_id="r1"), TRUE),
    ((*RUNNING, RequestPause(run_id="r1")), RequestPause(run_id="r1", reason="x"), TRUE),
]

PAUSES = [
    (RUNNING, given(PAUSE, run_id="r9", status="success"), INVALID),
    (RUNNING, given(PAUSE, run_id="r9"), NOT_FOUND),
    ((*LATE,), PAUSE, Returned(0)),
    ((*LATE,), given(PAUSE, pause_data={"q": 2}), CONFLICT),
    ((*LATE,), given(PAUSE, event_id="p2"), STALE),
    ((*LATE,), given(PAUSE, event_id="p2", claim_epoch=2), NONE),
    ((*LATE,), given(PAUSE, event_id="p2", claim_epoch=None), NONE),
    ((*CLAIMED, CANCEL), given(PAUSE, event_id="p2"), STALE),
    ((*CLAIMED, CANCEL), given(PAUSE, event_id="p2", claim_epoch=2), NONE),
    # an id that another run holds counts only after the guard is won
    ((*PAUSED,), given(PAUSE, run_id="r2", claim_epoch=2), STALE),
    ((*PAUSED, RequestCancel(run_id="r2")), given(PAUSE, run_id="r2"), NONE),
    ((*PAUSED,), given(PAUSE, run_id="r2"), CONFLICT),
    (SUBMITTED, given(PAUSE, event_id="p2", claim_epoch=2), CONFLICT),
    (RUNNING, PAUSE, Returned(0)),
    ((*RUNNING, EVENT), PAUSE, Returned(1)),
]

CLAIMS = [
    (PAUSED, given(CLAIM, run_id="r9"), NOT_FOUND),
    (PAUSED, given(CLAIM, tenant_id="T"), NOT_FOUND),
    (PAUSED, given(CLAIM, expected_status="waiting_approval"), NONE),
    ((*PAUSED, CANCEL), CLAIM, NONE),
    (RUNNING, CLAIM, NONE),
    (RUNNING, given(CLAIM, expected_status="running"), NONE),
    (ENDED, CLAIM, NONE),
    (PAUSED, CLAIM, Returned(2)),
    (PAUSED, given(CLAIM, tenant_id="t"), Returned(2)),
    (SUBMITTED, given(SUBMIT, run_id="r9"), NOT_FOUND),
    (SUBMITTED, given(SUBMIT, tenant_id=None), NOT_FOUND),
    (SUBMITTED, given(SUBMIT, submitted_data={"ok": 1}), CONFLICT),
    (SUBMITTED, SUBMIT, OUTCOME_UNKNOWN),
    (SUBMITTED, given(SUBMIT, validate="refuse"), OUTCOME_UNKNOWN),
    (SUBMITTED, given(SUBMIT, submission_id="s2"), NONE),
    ((*PAUSED, CANCEL), given(SUBMIT, validate="refuse"), NONE),
    (PAUSED, given(SUBMIT, validate="refuse"), VALIDATION),
    (PAUSED, given(SUBMIT, validate="accept"), Returned(2)),
    ((*SUBMITTED, RELEASE), SUBMIT, Returned(3)),
    ((*SUBMITTED, RELEASE), given(SUBMIT, submitted_data={"ok": 1}), Returned(3)),
    ((*SUBMITTED, END), SUBMIT, NONE),
    (CLAIMED, given(RELEASE, run_id="r9"), NOT_FOUND),
    (LATE, given(RELEASE, claim_epoch=1), STALE),
    (LATE, RELEASE, FALSE),
    ((*CLAIMED, RELEASE), RELEASE, FALSE),
    (RUNNING, given(RELEASE, claim_epoch=1), FALSE),
    (CLAIMED, RELEASE, TRUE),
    ((*CLAIMED, CANCEL), RELEASE, TRUE),
    (SUBMITTED, RELEASE, TRUE),
]

ENDS = [
    (RUNNING, given(END, run_id="r9", event_type="run.cancelled"), INVALID),
    (RUNNING, given(END, run_id="r9", event_type="run.interrupted", status="error"), INVALID),
    (RUNNING, given(END, run_id="r9", allowed_current_statuses=()), INVALID),
    (RUNNING, given(END, run_id="r9", allowed_current_statuses=("running", "error")), INVALID),
    (RUNNING, given(END, run_id="r9"), NOT_FOUND),
    (LATE, given(END, claim_epoch=1), Returned(1)),
    (LATE, given(END, answer="x", claim_epoch=1), CONFLICT),
    (LATE, given(END, event_id="p1", claim_epoch=1), CONFLICT),
    (LATE, given(END, event_id="f2", claim_epoch=1), STALE),
    (LATE, given(END, event_id="f2", claim_epoch=2), NONE),
    (PAUSED, given(END, allowed_current_statuses=("running",), claim_epoch=2), STALE),
    (PAUSED, given(END, allowed_current_statuses=("running",)), NONE),
    (
        (*ENDED, given(PAUSE, run_id="r2", event_id="p2")),
        given(END, run_id="r2", allowed_current_statuses=("running",)),
        NONE,
    ),
    (ENDED, given(END, run_id="r2"), CONFLICT),
    (PAUSED, given(END, claim_epoch=1), Returned(1)),
    ((*PAUSED, CANCEL), END, Returned(1)),
]

CHILD = CreateRun(
    run_id="c", agent_name="a", tenant_id="t", parent_run_id="r1", delegation_level=1, parent_claim_epoch=1
)
KEYED = CreateRun(run_id="k", agent_name="a", tenant_id="t", idempotency_key="key", idempotency_fingerprint="f")

CREATIONS = [
    (RUNNING, given(CHILD, parent_run_id="r9", delegation_level=7), NOT_FOUND),
    (RUNNING, given(CHILD, tenant_id="T", delegation_level=7), NOT_FOUND),
    (RUNNING, given(CHILD, retry_of_run_id="r2", delegation_level=7), NOT_FOUND),
    (RUNNING, given(CHILD, run_id="r2", delegation_level=7), INVALID),
    ((*RUNNING, CHILD, *LATE[2:]), CHILD, created("c")),
    ((*RUNNING, CHILD, *LATE[2:]), given(CHILD, model="m"), CONFLICT),
    (LATE, CREATE, created("r1", status="success")),
    (RUNNING, given(CREATE, tenant_id="T"), CONFLICT),
    ((*LATE, KEYED), given(CHILD, idempotency_key="key"), KEY_CONFLICT),
    (
        (*LATE, KEYED),
        given(CHILD, idempotency_key="key", idempotency_fingerprint="f"),
        created("k", "existing_active", epoch=0),
    ),
    (
        (*RUNNING, KEYED, given(END, run_id="k")),
        given(KEYED, run_id="k2"),
        created("k", "existing_terminal", "success", 0),
    ),
    ((*RUNNING, KEYED), given(KEYED, run_id="k2", tenant_id="T"), created("k2")),
    ((*RUNNING, KEYED), given(KEYED, run_id="r1"), CONFLICT),
    (
        (given(KEYED, tenant_id=None),),
        given(KEYED, run_id="k2", tenant_id=""),
        created("k", "existing_active", epoch=0),
    ),
    (LATE, CHILD, STALE),
    (LATE, given(CHILD, parent_claim_epoch=None), CLOSED),
    ((*PAUSED, CANCEL), CHILD, CLOSED),
    (PAUSED, CHILD, STALE),
    (PAUSED, given(CHILD, parent_claim_epoch=None), created("c")),
    (CLAIMED, given(CHILD, parent_claim_epoch=2), created("c")),
]

TABLES = {
    "evidence": EVIDENCE,
    "bookkeeping": BOOKKEEPING,
    "progress": PROGRESS,
    "notes": NOTES,
    "control": CONTROL,
    "pauses": PAUSES,
    "claims": CLAIMS,
    "ends": ENDS,
    "creations": CREATIONS,
}

LEGACY_PAUSE = PauseRun(run_id="r1", status="paused", pause_data={}, claim_epoch=1)
LEGACY_TRY = TryPauseRun(run_id="r1", status="paused", pause_data={}, claim_epoch=1)
LEGACY_END = FinalizeRun(run_id="r1", status="success", claim_epoch=1)
LEGACY_END_IN = FinalizeRunIfStatusIn(
    run_id="r1", status="success", allowed_current_statuses=("running",), claim_epoch=1
)
FIRST = given(END, event_id=None)
"""An end whose event nobody can ask for again."""

FORMAT_1 = [
    (RUNNING, given(LEGACY_PAUSE, run_id="r9", status="error"), INVALID),
    (RUNNING, given(LEGACY_PAUSE, run_id="r9"), NOT_FOUND),
    (LATE, LEGACY_PAUSE, STALE),
    (ENDED, LEGACY_PAUSE, TERMINAL),
    (PAUSED, LEGACY_PAUSE, CONFLICT),
    ((*RUNNING, CANCEL), LEGACY_PAUSE, NONE),
    (RUNNING, given(LEGACY_TRY, run_id="r9", status="error"), INVALID),
    (LATE, LEGACY_TRY, STALE),
    (ENDED, LEGACY_TRY, FALSE),
    ((*RUNNING, CANCEL), LEGACY_TRY, FALSE),
    (RUNNING, LEGACY_TRY, TRUE),
    (RUNNING, given(LEGACY_END, run_id="r9", status="paused"), INVALID),
    (RUNNING, given(LEGACY_END, run_id="r9"), NOT_FOUND),
    (LATE, LEGACY_END, STALE),
    (LATE, given(LEGACY_END, claim_epoch=2), FALSE),
    (PAUSED, given(LEGACY_END, expected_current_status="running"), FALSE),
    (PAUSED, LEGACY_END, TRUE),
    (PAUSED, LEGACY_END_IN, FALSE),
    (RUNNING, LEGACY_END_IN, TRUE),
    # an unconsumed submission goes with the next pause
    (SUBMITTED, given(PAUSE, event_id="p2", claim_epoch=2), Returned(1)),
    # no position, no refusal of late rows, no reserved event
    ((*RUNNING, TRACE), given(TRACE, trace_id="t2"), NONE),
    ((*RUNNING, CALL), given(CALL, row_id="k2"), NONE),
    (LATE, given(EVENT, claim_epoch=None), Returned(2)),
    (LATE, given(EVENT, claim_epoch=2), STALE),
    (LATE, given(TRACE, claim_epoch=None), NONE),
    (RUNNING, given(EVENT, event_type="run.completed"), Returned(0)),
    (RUNNING, given(TOUCH, claim_epoch=None), TRUE),
]

CASES = [
    pytest.param(2, *case, id=f"{name}-{number}") for name, table in TABLES.items() for number, case in enumerate(table)
] + [pytest.param(1, *case, id=f"format_1-{number}") for number, case in enumerate(FORMAT_1)]


@pytest.mark.parametrize(("storage_format", "program", "operation", "outcome"), CASES)
def test_the_first_reason_in_the_order_of_the_contract_is_the_answer(storage_format, program, operation, outcome):
    before = world_after(program, storage_format)
    after, answered = operation.step(before)
    assert answered == outcome
    if not isinstance(outcome, Returned):
        assert after is before, "a refusal changes nothing"


@pytest.mark.parametrize("operation", [LEGACY_PAUSE, LEGACY_TRY, LEGACY_END, LEGACY_END_IN], ids=lambda op: op.method)
def test_format_2_has_no_legacy_pause_or_end(operation):
    before = world_after(LATE)
    assert operation.step(before) == (before, INVALID)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_says_what_it_does(name):
    assert (OPERATIONS[name].__doc__ or "").strip().endswith(".")
    assert not (OPERATIONS[name].__doc__ or "").startswith(f"{name}("), "a generated docstring says nothing"


# -- effects that the tables above do not show ------------------------------------------------------------------------


def run_after(*program, storage_format=2):
    return find(world_after(program, storage_format), "r1")


def test_a_pause_clears_the_request_and_a_claim_keeps_the_document():
    run = run_after(*RUNNING, RequestPause(run_id="r1", reason="x"), PAUSE, CLAIM)
    assert (run.pause_requested, run.pause_reason) == (False, None)
    assert run.pause_document is not None
    assert (run.claim_epoch, run.claimed_epoch, run.paused_status) == (2, 2, "paused")


def test_an_end_clears_requests_document_and_submission():
    run = run_after(*SUBMITTED, CANCEL, RequestPause(run_id="r1"), END)
    assert (run.cancel_requested, run.pause_requested, run.pause_document, run.submission) == (False, False, None, None)


def test_a_release_goes_back_to_the_paused_status_under_the_same_epoch():
    run = run_after(*SUBMITTED, RELEASE)
    assert (run.status, run.claim_epoch, run.submission) == ("paused", 2, None)
    assert run.pause_document is not None


@pytest.mark.parametrize(
    "operation", [EVENT, TRACE, CALL, USAGE, INTERACTION, NOTE, META, TOUCH], ids=lambda op: op.method
)
def test_a_fenced_write_renews_the_lease_and_an_unfenced_one_does_not(operation):
    before = world_after(RUNNING)
    after, _ = operation.step(before)
    assert find(after, "r1").progress_at == before.now
    after, _ = given(operation, claim_epoch=None).step(before)
    assert find(after, "r1").progress_at == find(before, "r1").progress_at


@pytest.mark.parametrize("operation", [EVENT, TRACE, CALL, USAGE, INTERACTION, NOTE, TOUCH], ids=lambda op: op.method)
def test_evidence_and_the_lease_leave_updated_at(operation):
    before = world_after(RUNNING)
    after, _ = operation.step(before)
    assert find(after, "r1").updated_at == find(before, "r1").updated_at


def test_the_repeat_of_a_pause_under_the_next_epoch_is_told_the_first_index():
    world = world_after((*RUNNING, EVENT, PAUSE, CLAIM))
    assert given(PAUSE, claim_epoch=2).step(world) == (world, Returned(1))


def test_totals_and_counts_are_absolute_and_none_leaves_them():
    usage = UsageStats(input_tokens=5, cost_usd=0.5, cache_read_input_tokens=1)
    run = run_after(*RUNNING, given(PAUSE, total_usage=usage, iteration_count=3, pii_mapping={"a": "b"}), END)
    assert (run.totals.input_tokens, run.totals.cost_usd, run.totals.cache_read_tokens) == (5, 0.5, 1)
    assert (run.iteration_count, str(run.pii_mapping), run.events[-1].iteration_index) == (3, '{"a":"b"}', 3)


def test_error_info_is_projected_to_meta_by_the_winner_only():
    end = given(END, status="error", event_type="run.error", event_data={"error_info": {"kind": "x"}})
    world = world_after((*RUNNING, end))
    assert '"dendrux.error_info":{"kind":"x"}' in str(GetRun(run_id="r1").step(world)[1])
    lost = given(end, event_id="f2", event_data={"error_info": {"kind": "y"}})
    assert lost.step(world) == (world, NONE)


def test_the_reason_of_a_pause_request_shows_as_the_last_member_of_meta():
    world = world_after((given(CREATE, meta={"z": 1}), RequestPause(run_id="r1", reason="lunch")))
    meta = GetRun(run_id="r1").step(world)[1].value["meta"]
    assert meta.text == '{"z":1,"dendrux.pause_request":{"reason":"lunch"}}'
    world, _ = RequestPause(run_id="r1").step(world)
    assert find(world, "r1").pause_reason == "lunch"
