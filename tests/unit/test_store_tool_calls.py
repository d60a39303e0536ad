"""Tool calls that are started and completed: statements, links, and what the field has seen go wrong with them."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from dendrux.errors import ToolCallNotStartedError, WriteConflictError
from dendrux.store import EventWrite, TraceWrite
from unit.store_support import Format1Store, applied_then_lost, built_in, commits, counted, never_sent

pytestmark = pytest.mark.asyncio

CALL = {
    "row_id": "row",
    "tool_call_id": "call",
    "provider_tool_call_id": None,
    "tool_name": "mail",
    "target": "server",
    "params": {"to": "Ada"},
    "iteration_index": 1,
    "event": EventWrite(event_type="tool.started", event_id="started"),
}
RESULT = {
    "row_id": "row",
    "result_payload": '{"sent": 1}',
    "success": True,
    "outcome": "completed",
    "duration_ms": 5,
    "trace": TraceWrite(role="tool", content="sent", order_index=0, trace_id="seen", trace_kind="observation"),
    "event": EventWrite(event_type="tool.completed", event_id="done"),
    "pii_mapping": {"<1>": "Ada"},
}
END = {"status": "success", "allowed_current_statuses": ["running"], "event_type": "run.completed", "event_id": "end"}
LAST = TraceWrite(role="assistant", content="bye", order_index=1, trace_id="last", trace_kind="final")


@pytest_asyncio.fixture
async def store(database, tmp_path):
    async with database.store(tmp_path) as store:
        await store.create_run("r", "agent")
        yield store


async def taken_over(store):
    """The run under its next owner."""
    await store.pause_with_event("r", status="paused", pause_data={})
    return await store.claim_paused_run("r", expected_status="paused")


async def seen(store):
    """Everything that a tool call can leave."""
    calls = await store.get_tool_calls("r")
    events = [event.event_type for event in await store.get_run_events("r")]
    return calls, events, await store.get_traces("r"), await store.get_pii_mapping("r")


# -- statements -------------------------------------------------------------------------------------------------------


@pytest.mark.requires("supports_update_returning")
async def test_statements_of_a_call_from_its_start_to_the_end_of_its_run(store):
    async def cost(operation, **arguments):
        with counted(store._engine) as statements:
            await getattr(store, operation)("r", **arguments)
        return len(statements)

    assert await cost("start_tool_call", **CALL, claim_epoch=1) == 3
    assert await cost("start_tool_call", **CALL, claim_epoch=1) == 3  # a retry: absorbed, and looked at
    epoch = await taken_over(store)
    assert await cost("start_tool_call", **CALL, claim_epoch=epoch) == 5  # a replay
    assert await cost("complete_tool_call", **RESULT, claim_epoch=epoch) == 4
    assert await cost("start_tool_call", **CALL, claim_epoch=epoch) == 3  # completed already
    assert await cost("get_replayed_tool_calls", tenant_id=None) == 1
    assert await cost("finalize_with_event", **END, trace=LAST, claim_epoch=epoch) == 3


# -- what is stored ---------------------------------------------------------------------------------------------------


async def test_the_record_names_the_question_first_and_then_the_answer(store):
    await store.start_tool_call("r", **CALL, trace_id="asked", claim_epoch=1)
    (call,), *_ = await seen(store)
    assert (call.trace_id, call.completed, call.started_epoch, call.success, call.result) == (
        "asked",
        False,
        1,
        False,
        None,
    )
    await store.complete_tool_call("r", **RESULT, claim_epoch=1)
    (call,), *_ = await seen(store)
    assert (call.trace_id, call.completed, call.started_epoch, call.result) == ("seen", True, 1, {"sent": 1})


async def test_no_link_is_minted_for_a_start_that_names_none(store):
    await store.start_tool_call("r", **CALL, claim_epoch=1)
    assert (await store.get_tool_calls("r"))[0].trace_id is None


async def test_a_call_saved_in_one_piece_counts_as_completed_by_nobodys_epoch(store):
    call = {name: value for name, value in CALL.items() if name != "event"}
    await store.save_tool_call("r", **call, result_payload="1", success=True, duration_ms=1, claim_epoch=1)
    (record,) = await store.get_tool_calls("r")
    assert (record.completed, record.attempt, record.started_epoch) == (True, 1, None)


async def test_format_1_names_the_operation_to_use(tmp_path):
    async with built_in(tmp_path, Format1Store) as store:
        await store.create_run("r", "agent")
        for operation, arguments in (("start_tool_call", CALL), ("complete_tool_call", RESULT)):
            with pytest.raises(ValueError, match="use save_tool_call"):
                await getattr(store, operation)("r", **arguments, claim_epoch=1)
        with pytest.raises(
            ValueError, match="trace of finalize_with_event is not for a run of format 1: use save_trace"
        ):
            await store.finalize_with_event("r", **END, trace=LAST)
        assert (await store.get_run("r")).status == "running"


async def test_a_completion_without_a_start_says_so(store):
    with pytest.raises(ToolCallNotStartedError) as caught:
        await store.complete_tool_call("r", **RESULT, claim_epoch=1)
    assert (caught.value.code, caught.value.operation, caught.value.run_id) == (
        "tool_call_not_started",
        "complete_tool_call",
        "r",
    )
    assert await seen(store) == ([], [], [], None)


# -- reports from the field -------------------------------------------------------------------------------------------


async def test_b047_a_run_with_an_open_call_of_its_own_can_be_paused_and_claimed(store):
    """The open call does not hold the run back, and the next owner is told of it."""
    await store.start_tool_call("r", **CALL, claim_epoch=1)
    epoch = await taken_over(store)
    assert epoch == 2
    (call,) = await store.get_tool_calls("r")
    assert (call.completed, call.started_epoch) == (False, 1)
    started = await store.start_tool_call("r", **CALL, claim_epoch=epoch)
    assert (started.attempt, started.replayed, started.completed) == (2, True, None)
    page = await store.get_replayed_tool_calls("r")
    assert ([one.id for one in page.calls], page.truncated) == (["row"], False)


@pytest.mark.parametrize("cut", [applied_then_lost, never_sent])
async def test_b048_a_lost_answer_is_no_conflict_with_itself(store, cut):
    """Intent and completion whose COMMIT is not answered are settled, whether it was applied or not."""
    with commits(store._engine, cut()):
        started = await store.start_tool_call("r", **CALL, claim_epoch=1)
    assert (started.attempt, started.replayed, started.completed) == (1, False, None)
    with commits(store._engine, cut()):
        assert await store.complete_tool_call("r", **RESULT, claim_epoch=1) == 1
    once = await seen(store)
    assert await store.complete_tool_call("r", **RESULT, claim_epoch=1) == 1
    with pytest.raises(WriteConflictError):
        await store.complete_tool_call("r", **RESULT | {"success": False}, claim_epoch=1)
    with pytest.raises(WriteConflictError):
        await store.start_tool_call("r", **CALL | {"params": {}}, claim_epoch=1)
    assert await seen(store) == once
    assert once[1] == ["tool.started", "tool.completed"]


async def test_b054_between_intent_and_completion_the_call_is_open_and_nothing_else(store):
    """A crash between the two leaves an open intent; the completion and its event come together."""
    await store.start_tool_call("r", **CALL, claim_epoch=1)
    (call,), events, traces, mapping = await seen(store)
    assert (call.completed, call.outcome, call.duration_ms) == (False, None, None)
    assert (events, traces, mapping) == (["tool.started"], [], None)
    await store.complete_tool_call("r", **RESULT, claim_epoch=1)
    (call,), events, traces, mapping = await seen(store)
    assert (call.completed, events, [trace.id for trace in traces], mapping) == (
        True,
        ["tool.started", "tool.completed"],
        ["seen"],
        {"<1>": "Ada"},
    )


async def test_many_starts_of_one_call_at_once_make_one_intent(store):
    started = await asyncio.gather(*(store.start_tool_call("r", **CALL, claim_epoch=1) for _ in range(20)))
    assert {(one.attempt, one.replayed, one.completed) for one in started} == {(1, False, None)}
    calls, events, *_ = await seen(store)
    assert (len(calls), events) == (1, ["tool.started"])
