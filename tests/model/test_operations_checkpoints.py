"""What checkpoints, consumptions and conversations answer, by hand: the check that comes first decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dendrux.runtime.values import SeedTrace, TraceWrite
from dendrux_model.operations import (
    CheckpointStep,
    ClaimPausedRun,
    ConsumeSubmission,
    ConversationTraces,
    CreateRun,
    FinalizeWithEvent,
    PauseWithEvent,
    SaveTrace,
    SubmitAndClaim,
)
from dendrux_model.outcomes import CONFLICT, INVALID, NONE, NOT_FOUND, STALE, TERMINAL, Returned
from dendrux_model.values import JsonText
from dendrux_model.world import World

CREATE = CreateRun(run_id="r1", agent_name="a")
TRACE = TraceWrite(role="user", content="hi", order_index=0, trace_id="t1")
STEP = CheckpointStep(run_id="r1", step_id="s1", claim_epoch=1, iteration_count=2, traces=(TRACE,))
PAUSE = PauseWithEvent(run_id="r1", status="paused", pause_data={"q": 1}, event_id="p1", claim_epoch=1)
CLAIM = ClaimPausedRun(run_id="r1", expected_status="paused")
SUBMIT = SubmitAndClaim(run_id="r1", expected_status="paused", submitted_data={"ok": True}, submission_id="s1")
CONSUME = ConsumeSubmission(run_id="r1", claim_epoch=2, consumption_id="c1", traces=(TRACE,))
END = FinalizeWithEvent(
    run_id="r1", status="success", allowed_current_statuses=("running",), event_type="run.completed", event_id="f1"
)
SAVED = SaveTrace(run_id="r1", role="user", content_text="hi", order_index=0, trace_id="t1")
HUGE = {"x": "x" * 300_000}
HANDED = Returned({"submission_id": "s1", "data": JsonText('{"ok":true}')})

CASES = [
    ((CREATE,), replace(STEP, run_id="r9"), NOT_FOUND),
    ((CREATE,), replace(STEP, run_id="r9", loop_state=HUGE), INVALID),
    ((CREATE, STEP), replace(STEP, claim_epoch=2), STALE),
    ((CREATE, STEP, PAUSE), STEP, STALE),
    ((CREATE, STEP, END), STEP, TERMINAL),
    ((CREATE, STEP, END), replace(STEP, claim_epoch=2), STALE),
    ((CREATE, STEP), STEP, NONE),
    ((CREATE, STEP, PAUSE, CLAIM), replace(STEP, claim_epoch=2), NONE),
    ((CREATE, STEP), replace(STEP, iteration_count=1), CONFLICT),
    ((CREATE, STEP), replace(STEP, step_id="s2", traces=(), iteration_count=1), CONFLICT),
    ((CREATE, STEP), replace(STEP, step_id="s2"), CONFLICT),
    ((CREATE, STEP), replace(STEP, step_id="s2", traces=()), NONE),
    ((CREATE, SAVED), STEP, CONFLICT),
    ((CREATE, STEP), SAVED, NONE),
    ((CREATE, PAUSE, SUBMIT), replace(CONSUME, claim_epoch=1), STALE),
    ((CREATE, PAUSE, SUBMIT, SAVED), CONSUME, CONFLICT),
    ((CREATE, PAUSE, SUBMIT), CONSUME, HANDED),
    ((CREATE, PAUSE, SUBMIT, CONSUME), replace(CONSUME, traces=()), HANDED),
    ((CREATE, PAUSE, SUBMIT, CONSUME), replace(CONSUME, consumption_id="c2"), NONE),
    ((CREATE, PAUSE, SUBMIT, CONSUME, END), CONSUME, TERMINAL),
    ((CREATE, PAUSE, CLAIM), CONSUME, NONE),
    ((), replace(CREATE, seed_traces=(SeedTrace(role="user", content="hi"),), retry_of_run_id="r9"), NOT_FOUND),
]


@pytest.mark.parametrize(("program", "operation", "outcome"), CASES)
def test_the_first_check_that_fails_decides(program, operation, outcome):
    world = World()
    for instant, before in enumerate(program):
        after, _ = before.step(world._replace(now=instant))
        assert after != world, f"{before} has no effect"
        world = after
    after, answered = operation.step(world._replace(now=99))
    assert answered == outcome
    assert isinstance(answered, Returned) or after.runs == world.runs


@pytest.mark.parametrize("operation", [STEP, CONSUME, replace(CREATE, seed_traces=(SeedTrace(role="u", content="x"),))])
def test_format_1_has_none_of_it(operation):
    world = World(new_format=1)
    if operation.method != "create_run":
        world, _ = CREATE.step(world)
    assert operation.step(world) == (world, INVALID)


@pytest.mark.parametrize(
    ("limit", "max_bytes", "after", "found", "going_on"),
    [
        (10, None, None, [2, 3, 4], None),
        (2, None, None, [2, 3], 3),
        (2, None, 3, [4], None),
        (10, 1, None, [2], 2),
        (10, 4, None, [2, 3], 3),
        (10, 3, None, [2], 2),
        (10, 6, None, [2, 3, 4], None),
        (10, None, 9, [], None),
    ],
)
def test_pages_of_a_conversation(limit, max_bytes, after, found, going_on):
    world, _ = CREATE.step(World())
    for place, kind in enumerate(("message", "rewrite", "rewrite", "message", "final")):
        trace = SaveTrace(run_id="r1", role="u", content_text="é", order_index=place, trace_kind=kind)
        world, _ = trace.step(world)
    page = (
        ConversationTraces(run_id="r1", limit=limit, max_bytes=max_bytes, after_order_index=after).step(world)[1].value
    )
    assert [trace["order_index"] for trace in page["traces"]] == found
    assert page["next_after"] == going_on
