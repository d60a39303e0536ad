"""Checkpoints where the connection fails, ids are left out, and values are large."""

from __future__ import annotations

import pytest
import pytest_asyncio

from dendrux.errors import StaleClaimError, WriteConflictError
from dendrux.store import LLMInteractionWrite, ToolCallWrite, TraceWrite, UsageStats, UsageWrite
from dendrux.vocabulary import LOOP_STATE_MAX
from unit.store_support import (
    another_process,
    applied_then_lost,
    commits,
    driver_error,
    never_sent,
)

pytestmark = pytest.mark.asyncio

STEP = {
    "claim_epoch": 1,
    "iteration_count": 1,
    "loop_state": {"a": 1},
    "traces": [TraceWrite(role="user", content="x", order_index=0)],
    "interaction": LLMInteractionWrite(iteration_index=1, usage=UsageStats()),
    "usage": UsageWrite(iteration_index=1, usage=UsageStats()),
}


@pytest_asyncio.fixture
async def store(database, tmp_path):
    async with database.store(tmp_path) as store:
        await store.create_run("r", "agent")
        yield store


async def rows(store):
    return len(await store.get_traces("r")), len(await store.get_llm_interactions("r"))


@pytest.mark.parametrize("fails", [applied_then_lost(), never_sent()], ids=["applied", "not sent"])
async def test_a_lost_acknowledgement_stores_a_step_once_without_ids_of_its_rows(store, fails):
    with commits(store._engine, fails):
        await store.checkpoint_step("r", step_id="s", **STEP)
    assert await rows(store) == (1, 1)
    await store.checkpoint_step("r", step_id="s", **STEP)
    assert await rows(store) == (1, 1)


@pytest.mark.only("sqlite")
async def test_a_step_that_landed_is_told_to_its_own_call_whoever_has_the_run_by_then(store, tmp_path):
    def behave(number, real):
        real()
        if number == 1:
            with another_process(tmp_path / "store.db", timeout=5) as other:
                other.execute("UPDATE agent_runs SET claim_epoch = 7")
            raise driver_error()

    with commits(store._engine, behave):
        await store.checkpoint_step("r", step_id="s", **STEP)
    with pytest.raises(StaleClaimError):
        await store.checkpoint_step("r", step_id="s", **STEP)
    assert await rows(store) == (1, 1)


async def test_ids_that_were_minted_are_no_content(store):
    await store.checkpoint_step("r", step_id="s", **STEP)
    named = [TraceWrite(role="user", content="x", order_index=0, trace_id="mine")]
    with pytest.raises(WriteConflictError):
        await store.checkpoint_step("r", step_id="s", **STEP | {"traces": named})
    await store.checkpoint_step("r", step_id="s", **STEP)


async def test_large_values_of_a_step_and_a_consumption(store):
    state = {"x": "x" * (LOOP_STATE_MAX - len('{"x":""}'))}
    large = [TraceWrite(role="user", content="\N{SNOWMAN}" * 400_000, order_index=n) for n in range(3)]
    await store.checkpoint_step("r", step_id="s", claim_epoch=1, iteration_count=1, loop_state=state, traces=large)
    assert await store.get_loop_state("r") == state
    await store.pause_with_event("r", status="paused", pause_data={}, claim_epoch=1)
    await store.submit_and_claim("r", expected_status="paused", submitted_data={"t": large[0].content})
    payload = '"' + "y" * 1_000_000 + '"'
    call = ToolCallWrite(tool_call_id="c", tool_name="t", result_payload=payload, success=True)
    handed = await store.consume_submission("r", claim_epoch=2, consumption_id="c", tool_calls=[call])
    assert handed.data == {"t": large[0].content}
    assert (await store.get_tool_calls("r"))[0].result == "y" * 1_000_000
    page = await store.conversation_traces("r", limit=10, max_bytes=2_000_000)
    assert [trace.order_index for trace in page.traces] == [0]
    assert page.next_after == 0


async def test_more_rows_than_one_list_of_a_statement_holds(store):
    traces = [TraceWrite(role="user", content="x", order_index=n, trace_id=f"t{n}") for n in range(1200)]
    await store.checkpoint_step("r", step_id="s1", claim_epoch=1, iteration_count=1, traces=traces)
    clash = [TraceWrite(role="user", content="x", order_index=n) for n in range(2399, 1198, -1)]
    with pytest.raises(WriteConflictError):
        await store.checkpoint_step("r", step_id="s2", claim_epoch=1, iteration_count=2, traces=clash)
    await store.checkpoint_step("r", step_id="s2", claim_epoch=1, iteration_count=2, traces=clash[:-1])
    assert len(await store.get_traces_after("r", order_index=1199, limit=1000)) == 1000
