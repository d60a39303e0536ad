"""Arguments and stored values that are nearly right: subclasses, documents changed meanwhile, values at the edge."""

from __future__ import annotations

import asyncio
from enum import Enum, IntEnum

import pytest
import pytest_asyncio

from dendrux.store import SQLStateStore, UsageStats
from dendrux.store.arguments import CHECKS
from unit.store_support import Format2Store, built_in


class Word(str, Enum):
    """An Enum of strings whose str() is not its characters."""

    RUN = "r1"
    AGENT = "agent"
    WAITING = "waiting_human_input"
    KEY = "key"
    VALUE = "value"


class Level(IntEnum):
    ONE = 1
    SEVEN = 7


@pytest_asyncio.fixture
async def store(tmp_path):
    async with built_in(tmp_path, Format2Store) as made:
        yield made


async def paused(store: SQLStateStore, run_id: str = "r1", **document) -> None:
    await store.create_run(run_id, "a")
    await store.pause_with_event(run_id, status="waiting_human_input", pause_data=document, claim_epoch=1)


# -- subclasses of str and int ----------------------------------------------------------------------------------------


async def test_an_enum_of_strings_is_stored_as_its_characters(store):
    await store.create_run(Word.RUN, Word.AGENT, model=Word.VALUE, meta={Word.KEY: [Word.VALUE, {Word.KEY: Level.ONE}]})
    run = await store.get_run("r1")
    assert (run.id, run.agent_name, run.model) == ("r1", "agent", "value")
    assert run.meta == {"key": ["value", {"key": 1}]}
    await store.pause_with_event(Word.RUN, status=Word.WAITING, pause_data={"why": Word.VALUE}, claim_epoch=Level.ONE)
    assert (await store.get_run("r1")).status == "waiting_human_input"
    assert [found.id for found in await store.list_runs(status=Word.WAITING, metadata_filter={})] == ["r1"]
    assert await store.count_runs(metadata_filter={"missing": Word.VALUE}) == 0


async def test_text_and_numbers_of_subclasses_are_plain(store):
    await store.create_run("r1", "a")
    await store.save_trace("r1", "user", Word.VALUE, order_index=Level.SEVEN, trace_id="t", claim_epoch=Level.ONE)
    await store.save_trace("r1", "user", "value", order_index=7, trace_id="t", claim_epoch=1)
    usage = UsageStats(input_tokens=Level.SEVEN, reasoning_tokens=Level.ONE)
    await store.save_llm_interaction("r1", iteration_index=Level.ONE, usage=usage, interaction_id="i")
    [found] = await store.get_llm_interactions("r1")
    assert (found.iteration_index, found.input_tokens, found.reasoning_tokens) == (1, 7, 1)
    [trace] = await store.get_traces("r1")
    assert (trace.content, trace.order_index) == ("value", 7)
    assert type(CHECKS["content"]("content", Word.VALUE)) is str
    assert type(CHECKS["usage"]("usage", usage).input_tokens) is int


# -- arguments changed while the call runs ----------------------------------------------------------------------------


async def test_a_document_is_stored_as_it_was_when_the_call_started(store):
    await store.create_run("r1", "a")
    data, ids = {"n": [1]}, ["n1"]
    call = asyncio.create_task(store.save_run_event("r1", event_type="x", data=data, event_id="e"))
    note = asyncio.create_task(store.mark_notes_delivered("r1", ids, iteration=1))
    await asyncio.sleep(0)
    data["n"].append(2)
    ids.append(object())
    await asyncio.gather(call, note)
    [event] = await store.get_run_events("r1")
    assert event.data == {"n": [1]}
    assert await store.save_run_event("r1", event_type="x", data={"n": [1]}, event_id="e") == 0
