"""Values at their bounds, on every database: what is accepted can be read for ever, what is not is refused before SQL."""

from __future__ import annotations

from datetime import timedelta

import pytest
import pytest_asyncio

from dendrux.db.session import get_engine
from dendrux.errors import PersistenceError, StoreUnavailableError
from dendrux.store import SQLiteStateStore, UsageStats
from dendrux.vocabulary import LIMIT_MAX

TOKENS = 2**44 - 1
INDEX = 2**31 - 1


@pytest_asyncio.fixture
async def store(database, tmp_path):
    async with database.engine(tmp_path) as engine:
        made = database.kind(engine)
        await made.create_run("r", "agent")
        yield made


async def test_sums_of_the_largest_counts_can_be_read(store):
    largest = UsageStats(
        input_tokens=TOKENS,
        output_tokens=TOKENS,
        total_tokens=TOKENS,
        cache_read_input_tokens=TOKENS,
        cache_creation_input_tokens=TOKENS,
        reasoning_tokens=TOKENS,
    )
    for child in ("c0", "c1", "c2"):
        await store.create_run(child, "agent", parent_run_id="r", delegation_level=1)
        for iteration in (1, 2):
            await store.save_llm_interaction(
                child, iteration_index=iteration, usage=largest, duration_ms=TOKENS, claim_epoch=1
            )
        await store.finalize_with_event(
            child,
            status="success",
            allowed_current_statuses=["running"],
            event_type="run.completed",
            total_usage=largest,
            claim_epoch=1,
        )
    assert (await store.run_usage("c0")).input_tokens == 2 * TOKENS
    assert (await store.subtree_usage("r")).output_tokens == 6 * TOKENS
    assert (await store.get_subtree("r")).usage.reasoning_tokens == 6 * TOKENS
    assert (await store.get_delegation_info("r")).subtree_summary.subtree_input_tokens == 3 * TOKENS
    with pytest.raises(ValueError, match=r"usage\.input_tokens"):
        await store.save_llm_interaction("r", iteration_index=1, usage=UsageStats(input_tokens=TOKENS + 1))


@pytest.mark.parametrize("read", ["get_traces", "get_tool_calls", "get_llm_interactions", "get_notes", "list_runs"])
async def test_the_largest_offset_shows_nothing_and_a_larger_one_is_refused(store, read):
    run = () if read == "list_runs" else ("r",)
    offset = {} if read == "get_notes" else {"offset": INDEX}
    assert await getattr(store, read)(*run, **offset) == []
    if offset:
        with pytest.raises(ValueError, match="offset"):
            await getattr(store, read)(*run, offset=INDEX + 1)


async def test_names_that_are_repeated_count_once(store):
    many = 70_000
    assert [run.id for run in await store.list_runs(status=["running"] * many)] == ["r"]
    assert await store.count_runs(status=["running"] * many) == 1
    ended = await store.finalize_with_event(
        "r",
        status="success",
        allowed_current_statuses=["running"] * many,
        event_type="run.completed",
        claim_epoch=1,
    )
    assert ended == 0
    types = [f"t{number}" for number in range(LIMIT_MAX)]
    assert [event.event_type for event in await store.get_run_events("r", event_types=types)] == []
    with pytest.raises(ValueError, match="event_types"):
        await store.get_run_events("r", event_types=[*types, "more"])


async def test_garbage_of_any_age_that_can_be_said(store):
    assert (await store.collect_garbage(older_than=timedelta(days=365_000))).deleted_blobs == 0
    with pytest.raises(ValueError, match="older_than"):
        await store.collect_garbage(older_than=timedelta(days=1_000_000))


@pytest.mark.parametrize("level", [list, dict])
async def test_a_document_nests_a_hundred_levels(store, level):
    def nested(levels):
        value = "leaf"
        for _ in range(levels - 1):
            value = [value] if level is list else {"k": value}
        return {"k": value}

    await store.update_run_meta("r", nested(100))
    assert (await store.get_run("r")).meta == nested(100)
    await store.save_run_event("r", event_type="x", data=nested(100))
    assert (await store.get_run_events("r"))[0].data == nested(100)
    for document in (nested(101), nested(5000)):
        with pytest.raises(ValueError, match="nested"):
            await store.update_run_meta("r", document)


@pytest.mark.only("sqlite")
async def test_a_file_that_is_no_database_is_not_tried_again_later(tmp_path):
    (tmp_path / "junk.db").write_bytes(bytes(range(256)) * 20)
    engine = get_engine(f"sqlite+aiosqlite:///{tmp_path / 'junk.db'}")
    with pytest.raises(PersistenceError) as raised:
        await SQLiteStateStore(engine).get_run("r")
    await engine.dispose()
    assert not isinstance(raised.value, StoreUnavailableError)
