"""Rows of an earlier release have no digest: a repeat compares the columns both releases have, where it may."""

from __future__ import annotations

import pytest
import pytest_asyncio
from sqlalchemy import text

from dendrux.errors import WriteConflictError
from dendrux.store import UsageStats
from unit.store_support import built_in

pytestmark = pytest.mark.asyncio

USAGE = UsageStats(input_tokens=3, total_tokens=9, cost_usd=0.25)


@pytest_asyncio.fixture
async def store(tmp_path):
    async with built_in(tmp_path) as store:
        await store.create_run("r", "agent", meta={"a": [1, {"b": None}]}, input_data={"q": "é"})
        await store.save_llm_interaction(
            "r", iteration_index=0, usage=USAGE, provider_request={"a": 1}, interaction_id="i"
        )
        await store.add_note("r", note_id="n", text="x", metadata={"a": 1})
        await store.save_trace("r", "user", "x", order_index=0, trace_id="t")
        async with store._engine.begin() as connection:
            for table in ("agent_runs", "llm_interactions", "run_inbox", "react_traces"):
                await connection.execute(text(f"UPDATE {table} SET content_digest = NULL"))
            await connection.execute(text("UPDATE llm_interactions SET total_tokens = 0"))  # a column of its own time
        yield store


async def test_equal_content_is_a_repeat(store):
    assert (
        await store.create_run("r", "agent", meta={"a": [1, {"b": None}]}, input_data={"q": "é"})
    ).outcome == "created"
    await store.save_llm_interaction("r", iteration_index=0, usage=USAGE, provider_request={"a": 1}, interaction_id="i")
    assert await store.add_note("r", note_id="n", text="x", metadata={"a": 1}) == "duplicate"
    assert len(await store.get_llm_interactions("r")) == len(await store.get_notes("r")) == 1


async def test_other_content_is_a_conflict(store):
    for call in (
        store.create_run("r", "agent", meta={"a": [1.0, {"b": None}]}, input_data={"q": "é"}),
        store.save_llm_interaction(
            "r", iteration_index=0, usage=USAGE, provider_request={"a": True}, interaction_id="i"
        ),
        store.add_note("r", note_id="n", text="x", metadata={"a": 1.0}),
        store.save_trace("r", "user", "x", order_index=0, trace_id="t"),
    ):
        with pytest.raises(WriteConflictError):
            await call
