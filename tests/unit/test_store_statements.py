"""How many statements each operation takes, BEGIN and COMMIT aside. Their plans: test_store_growth.py."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from dendrux.db.models import blobs
from dendrux.errors import PersistenceError
from dendrux.store import (
    BlobEdge,
    EventWrite,
    LLMInteractionWrite,
    SeedTrace,
    SQLiteStateStore,
    ToolCallWrite,
    TraceWrite,
    UsageStats,
    UsageWrite,
)
from unit.store_support import built_in, counted

pytestmark = pytest.mark.asyncio

EPOCH = {"claim_epoch": 1}
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
TOOL = {
    "tool_call_id": "c",
    "provider_tool_call_id": None,
    "tool_name": "t",
    "target": "server",
    "params": {},
    "result_payload": "1",
    "success": True,
    "duration_ms": 1,
    "iteration_index": 0,
}
START = {
    **{name: value for name, value in TOOL.items() if name not in ("result_payload", "success", "duration_ms")},
    "row_id": "k",
    "event": EventWrite(event_type="tool.started"),
}
RESULT = {
    "row_id": "open",
    "result_payload": "1",
    "success": True,
    "outcome": "completed",
    "duration_ms": 1,
    "trace": TraceWrite(role="tool", content="x", order_index=0),
    "event": EventWrite(event_type="tool.completed"),
    "pii_mapping": {"a": "b"},
}
PAUSE = {"status": "paused", "pause_data": {"a": 1}}
END = {"status": "success", "allowed_current_statuses": ["running"], "event_type": "run.completed"}

MESSAGES = [TraceWrite(role="user", content="x", order_index=n) for n in range(5)]
STEP = {
    "step_id": "s",
    "claim_epoch": 1,
    "iteration_count": 1,
    "loop_state": {"a": 1},
    "traces": MESSAGES,
    "interaction": LLMInteractionWrite(iteration_index=1, usage=UsageStats()),
    "usage": UsageWrite(iteration_index=1, usage=UsageStats()),
    "total_usage": UsageStats(input_tokens=1),
}
"""One for the run, one for each of its three kinds of row."""
CONSUMED = {
    "traces": MESSAGES,
    "tool_calls": [
        ToolCallWrite(tool_call_id=f"c{n}", tool_name="t", result_payload="1", success=True) for n in range(5)
    ],
    "pii_mapping": {"<A>": "x"},
}

SHA = hashlib.sha256(b"stored").hexdigest()
EDGE = BlobEdge(tenant_scope="-", sha256=SHA, owner_kind="trace", owner_id="0", ordinal=0)

BUDGET = {
    "create_run": (1, {"run_id": "new", "agent_name": "agent", "idempotency_key": "k"}),
    "claim_paused_run": (1, {"run_id": "paused", "expected_status": "paused"}),
    "release_run_claim": (1, {"run_id": "claimed", "claim_epoch": 2}),
    "touch_progress": (1, {"run_id": "r", **EPOCH}),
    "mark_lease_expired": (1, {"cutoff": LONG_AGO}),  # the page's read; test_store_leases.py counts what it changes
    "get_lease_expired": (1, {"tenant_id": None}),
    "reclaim_run": (2, {"run_id": "expired", "expected_epoch": 1}),
    "sweep_stale_runs": (1, {"older_than": timedelta(days=1)}),
    "sweep_abandoned_runs": (1, {"older_than": timedelta(days=1)}),
    "request_cancel": (1, {"run_id": "r"}),
    "request_pause": (1, {"run_id": "r", "reason": "x"}),
    "update_run_meta": (1, {"run_id": "r", "patch": {"a": 1}, **EPOCH}),
    "save_run_event": (2, {"run_id": "r", "event_type": "x", **EPOCH}),
    "save_trace": (2, {"run_id": "r", "role": "user", "content": "x", "order_index": 0, **EPOCH}),
    "save_tool_call": (2, {"run_id": "r", **TOOL, **EPOCH}),
    "save_usage": (2, {"run_id": "r", "iteration_index": 0, "usage": UsageStats(), **EPOCH}),
    "save_llm_interaction": (2, {"run_id": "r", "iteration_index": 0, "usage": UsageStats(), **EPOCH}),
    "add_note": (2, {"run_id": "r", "note_id": "n", "text": "x", **EPOCH}),
    "mark_notes_delivered": (2, {"run_id": "noted", "note_ids": ["a"], "iteration": 0, **EPOCH}),
    "pause_with_event": (2, {"run_id": "r", **PAUSE, **EPOCH}),
    "submit_and_claim": (2, {"run_id": "paused", "expected_status": "paused", "submitted_data": {"b": 1}}),
    "finalize_with_event": (2, {"run_id": "r", **END, "event_data": {"error_info": {"a": 1}}, **EPOCH}),
    "start_tool_call": (3, {"run_id": "r", **START, **EPOCH}),
    "complete_tool_call": (4, {"run_id": "calling", **RESULT, **EPOCH}),
    "get_replayed_tool_calls": (1, {"run_id": "r", "tenant_id": None}),
    "checkpoint_step": (4, {"run_id": "r", **STEP}),
    "consume_submission": (4, {"run_id": "submitted", "claim_epoch": 2, "consumption_id": "c", **CONSUMED}),
    "get_loop_state": (1, {"run_id": "r"}),
    "get_traces_after": (1, {"run_id": "r", "order_index": 0, "limit": 10}),
    "conversation_traces": (1, {"run_id": "r", "limit": 10, "max_bytes": 1000}),
    "put_blob": (2, {"data": b"new", "tenant_scope": "-"}),
    "read_blob": (1, {"sha256": SHA, "tenant_scope": "-", "run_id": "noted"}),
    "blob_info": (1, {"sha256": SHA, "tenant_scope": "-"}),
    "blob_references": (1, {"sha256": SHA, "tenant_scope": "-"}),
    "purge_blob": (3, {"sha256": SHA, "tenant_scope": "-"}),
    "collect_garbage": (3, {}),
    "get_pending": (1, {"run_id": "paused", "tenant_id": None}),
    "get_run": (1, {"run_id": "r", "tenant_id": None}),
    "get_pii_mapping": (1, {"run_id": "r"}),
    "get_pause_state": (1, {"run_id": "r"}),
    "get_run_control": (1, {"run_id": "r"}),
    "get_run_events": (1, {"run_id": "r"}),
    "get_traces": (1, {"run_id": "r"}),
    "get_tool_calls": (1, {"run_id": "r"}),
    "get_llm_interactions": (1, {"run_id": "r"}),
    "get_notes": (1, {"run_id": "r", "tenant_id": None}),
    "list_runs": (1, {"status": "running", "limit": 10}),
    "count_runs": (1, {}),
    "get_run_statuses": (1, {"run_ids": ["r", "paused"]}),
    "get_events_for_runs": (1, {"heads": {"r": -1}, "limit_per_run": 10}),
    "cancel_subtree": (3, {"root_run_id": "r"}),  # the root, asking it to stop, its children
    "get_delegation_info": (3, {"run_id": "r", "tenant_id": None}),
    "get_subtree": (2, {"run_id": "r", "tenant_id": None}),
    "child_runs_page": (1, {"run_id": "r"}),
    "run_usage": (1, {"run_id": "r", "tenant_id": None}),
    "subtree_usage": (1, {"run_id": "r"}),
}
"""Statements of the first, applied call; the arguments on the runs that `store` prepares."""


async def prepare(store):
    """The runs that the calls are about."""
    for name in ("r", "paused", "claimed", "noted", "calling", "submitted"):
        await store.create_run(name, "agent", meta={})
    await store.pause_with_event("paused", **PAUSE)
    await store.pause_with_event("claimed", **PAUSE)
    await store.claim_paused_run("claimed", expected_status="paused")
    await store.start_tool_call("calling", **START | {"row_id": "open"}, claim_epoch=1)
    await store.add_note("noted", note_id="a", text="x")
    await store.pause_with_event("submitted", **PAUSE)
    await store.submit_and_claim("submitted", expected_status="paused", submitted_data={"b": 1})
    await store.create_run("expired", "agent", meta={"dendrux.loop": "react"})
    await store.mark_lease_expired(cutoff=datetime.now(UTC) + timedelta(days=1))
    await store.put_blob(b"stored", tenant_scope="-")
    await store.put_blob(b"garbage", tenant_scope="-")
    await store.save_trace("noted", "user", "look", order_index=0, blob_refs=[EDGE])
    async with store._engine.begin() as connection:
        await connection.execute(blobs.update().values(last_used_at=datetime(2020, 1, 1, tzinfo=UTC)))


@pytest_asyncio.fixture
async def store(tmp_path):
    async with built_in(tmp_path, SQLiteStateStore) as store:
        await prepare(store)
        yield store


@pytest.mark.parametrize("operation", BUDGET)
async def test_the_first_call_keeps_its_budget(store, operation):
    budget, arguments = BUDGET[operation]
    with counted(store._engine) as statements:
        await getattr(store, operation)(**arguments)
    assert len(statements) == budget, statements


async def test_every_operation_has_a_budget():
    from dendrux.store.base import SQLStateStore
    from dendrux.store.binding import Operation

    bound = {name for name, value in vars(SQLStateStore).items() if isinstance(value, Operation)}
    legacy = {"try_pause_run", "pause_run", "finalize_run", "finalize_run_if_status_in"}
    assert bound == set(BUDGET) | legacy


@pytest.mark.parametrize("operation", ["save_run_event", "save_trace", "pause_with_event", "finalize_with_event"])
async def test_saying_why_costs_one_more(store, operation):
    budget, arguments = BUDGET[operation]
    identity = {"save_trace": "trace_id"}.get(operation, "event_id")
    await getattr(store, operation)(**arguments, **{identity: "i"})
    with counted(store._engine) as repeated:
        await getattr(store, operation)(**arguments, **{identity: "i"})
    assert len(repeated) == budget + 1
    with counted(store._engine) as refused, pytest.raises(PersistenceError):
        await getattr(store, operation)(**arguments | {"claim_epoch": 7})
    assert len(refused) == budget + 1


async def test_the_parent_costs_one_more(store):
    with counted(store._engine) as statements:
        await store.create_run("child", "agent", parent_run_id="r", delegation_level=1)
    assert len(statements) == 2


async def test_seeds_cost_one_more(store):
    seeds = [SeedTrace(role="user", content=f"m{n}") for n in range(5)]
    with counted(store._engine) as statements:
        await store.create_run("seeded", "agent", seed_traces=seeds, pii_mapping={"<A>": "x"})
    assert len(statements) == 2


async def test_a_step_costs_one_for_each_kind_of_row(store):
    for number, kinds in enumerate(({}, {"traces": MESSAGES}, {"usage": STEP["usage"]})):
        step = {"step_id": f"s{number}", "claim_epoch": 1, "iteration_count": number, **kinds}
        with counted(store._engine) as statements:
            await store.checkpoint_step("r", loop_state={"a": number}, **step)
        assert len(statements) == 1 + len(kinds)
        with counted(store._engine) as repeated:
            await store.checkpoint_step("r", loop_state={"a": number}, **step)
        assert len(repeated) == 2


@pytest.mark.parametrize("state", [{"a": None}, {"odd key": 1}, {"a": "x" * 100_000}])
async def test_a_state_that_no_expression_takes_is_read_first(store, state):
    with counted(store._engine) as statements:
        await store.checkpoint_step("r", step_id="s", claim_epoch=1, iteration_count=1, loop_state=state)
    assert len(statements) <= 3
    assert await store.get_loop_state("r") == {key: value for key, value in state.items() if value is not None}


async def test_consuming_costs_two_and_one_for_each_kind_of_row(store):
    call = {"claim_epoch": 2, "consumption_id": "c"}
    with counted(store._engine) as statements:
        assert await store.consume_submission("submitted", **call)
    assert len(statements) == 2
    with counted(store._engine) as repeated:
        assert await store.consume_submission("submitted", **call)
    assert len(repeated) == 1


async def test_an_unfenced_write_holds_the_run_and_inserts(store):
    for operation in ("save_run_event", "save_trace", "save_tool_call", "save_usage", "save_llm_interaction"):
        arguments = {k: v for k, v in BUDGET[operation][1].items() if k != "claim_epoch"}
        with counted(store._engine) as statements:
            await getattr(store, operation)(**arguments)
        assert len(statements) == 2, operation


async def test_a_second_unique_key_costs_a_fresh_transaction(tmp_path):
    async with built_in(tmp_path, SQLiteStateStore) as store:
        await store.create_run("r", "agent")
        await store.save_trace("r", "user", "x", order_index=0, claim_epoch=1)
        with counted(store._engine) as statements, pytest.raises(PersistenceError):
            await store.save_trace("r", "user", "y", order_index=0, claim_epoch=1)
        assert len(statements) == 5  # fence and insert; then fence, identity, position


async def test_statements_are_compiled_once(store):
    """A statement with literal values in it would be compiled anew at each call."""
    compiled = []
    engine = store._engine.sync_engine
    for round_ in range(3):
        before = len(engine._compiled_cache)
        for n in range(5):
            await store.save_run_event("r", event_type=f"t{n}{round_}", data={"n": n}, claim_epoch=1)
            await store.save_trace("r", "user", f"x{n}", order_index=100 * round_ + n, claim_epoch=1)
            await store.create_run(f"new{n}{round_}", f"agent{n}", meta={"n": n})
            await store.request_pause("r", reason=f"{n}{round_}")
            await store.get_run(f"new{n}{round_}")
            await store.list_runs(limit=n + 1, metadata_filter={"n": n})
        compiled.append(len(engine._compiled_cache) - before)
    assert compiled[1:] == [0, 0], compiled
