"""Stores of earlier releases and stores that promise less: which calls they get, and what is refused for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from inspect import signature

import pytest
import pytest_asyncio

from agent.old_stores import OldestStore, OldStore, TemptingStore
from dendrux.db.session import get_engine
from dendrux.errors import RunNotFoundError
from dendrux.runtime.legacy import LEGACY_EPOCH, adapted
from dendrux.runtime.recovery import reclaim, sweep
from dendrux.runtime.state import UNSCOPED, EventWrite, SeedTrace, TraceWrite, UsageStats
from dendrux.store import RunNotFoundError as UnreadableRun
from dendrux.store import RunStore, SQLiteStateStore
from dendrux.vocabulary import CAPABILITIES

pytestmark = pytest.mark.asyncio
KINDS = [OldestStore, OldStore, TemptingStore]
USAGE = UsageStats(input_tokens=1)


@pytest.fixture(params=KINDS)
def old(request):
    return request.param()


async def a_run(store, run_id="r"):
    """Every call that an agent makes of a format-1 store, with everything that this release adds to it."""
    made = await store.create_run(run_id, "a", seed_traces=(), pii_mapping=None, parent_claim_epoch=None)
    await store.save_run_event(run_id, event_type="run.started", event_id="e", claim_epoch=1)
    await store.save_llm_interaction(run_id, iteration_index=1, usage=USAGE, interaction_id="i", claim_epoch=1)
    await store.save_usage(run_id, iteration_index=1, usage=USAGE, usage_id="u", claim_epoch=1)
    await store.save_trace(run_id, "user", "hi", order_index=0, trace_id="t", trace_kind="observation", claim_epoch=1)
    await store.save_tool_call(
        run_id, tool_call_id="c", provider_tool_call_id=None, tool_name="n", target="server", params=None,
        result_payload="1", success=True, duration_ms=1, iteration_index=1, row_id="w", outcome="completed",
        claim_epoch=1,
    )  # fmt: skip
    await store.touch_progress(run_id, claim_epoch=1)
    await store.update_run_meta(run_id, {"x": 1}, claim_epoch=1)
    return made


async def test_a_legacy_store_gets_the_old_calls(old):
    store = adapted(old)
    made = await a_run(store)
    assert (made.outcome, made.status, made.format, made.claim_epoch) == ("created", "running", 1, LEGACY_EPOCH)
    assert [kind for kind, _ in old.written] == ["interaction", "usage", "trace", "tool", "touch"]
    assert old.written[0][1] == {"id": "i"}
    index = await store.pause_with_event(
        "r", status="waiting_approval", pause_data={"n": 1}, event_id="p", iteration_count=2, total_usage=USAGE,
        claim_epoch=1,
    )  # fmt: skip
    assert index == 1
    assert await store.claim_paused_run("r", expected_status="paused") is None
    claimed = await store.submit_and_claim(
        "r", expected_status="waiting_approval", submitted_data={"ok": True}, submission_id="s"
    )
    assert claimed == LEGACY_EPOCH
    assert await store.get_pause_state("r") == {"n": 1, "ok": True}
    ended = {"status": "success", "event_type": "run.completed", "answer": "done", "event_id": "f", "claim_epoch": 1}
    assert await store.finalize_with_event(
        "r", allowed_current_statuses=["running"], total_usage=USAGE, failure_reason=None, trace=None, **ended
    ) == 2  # fmt: skip
    assert await store.finalize_with_event("r", allowed_current_statuses=["running"], **ended) is None
    assert [(index, kind) for _, index, kind, _ in old.events] == [
        (0, "run.started"), (1, "run.paused"), (2, "run.completed"),
    ]  # fmt: skip
    assert getattr(old, "tempted", []) == []
    await store.close()


async def test_names_and_keywords_promise_nothing(old):
    store = adapted(old)
    await a_run(store)
    asked = {
        "start_tool_call": {}, "complete_tool_call": {}, "checkpoint_step": {}, "consume_submission": {},
        "conversation_traces": {}, "mark_lease_expired": {}, "reclaim_run": {}, "release_run_claim": {},
    }  # fmt: skip
    for name in asked:
        with pytest.raises(NotImplementedError, match=f"{type(old).__name__} has no {name}"):
            getattr(store, name)
    with pytest.raises(NotImplementedError, match=type(old).__name__):
        await reclaim(old)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.create_run("new", "a", seed_traces=[SeedTrace(role="user", content="x")]),
        lambda s: s.create_run("new", "a", pii_mapping={"A": "b"}),
        lambda s: s.save_trace("r", "user", "x", order_index=0, trace_kind="rewrite"),
        lambda s: s.finalize_with_event(
            "r", status="success", allowed_current_statuses=["running"], event_type="run.completed",
            trace=TraceWrite(role="assistant", content="x", order_index=1),
        ),
    ],
)  # fmt: skip
async def test_content_that_would_be_lost_is_refused(old, call):
    store = adapted(old)
    await a_run(store)
    written, events = list(old.written), list(old.events)
    with pytest.raises(ValueError, match="needs a store that declares"):
        await call(store)
    assert (old.written, old.events, set(old.runs)) == (written, events, {"r"})
    assert old.runs["r"].status == "running"


async def test_events_of_one_process_take_one_index_each(old):
    store = adapted(old)
    await a_run(store)
    old.events.clear()

    async def slow(run_id):
        found = max((index for _, index, *_ in old.events), default=-1) + 1
        await asyncio.sleep(0)
        return found

    old.get_next_event_sequence = slow
    indexes = await asyncio.gather(*(store.save_run_event("r", event_type="x") for _ in range(8)))
    assert sorted(indexes) == list(range(8))


async def test_an_end_is_never_overwritten(old):
    store = adapted(old)
    await a_run(store)
    assert await store.finalize_run("r", status="success", total_usage=USAGE, failure_reason=None, claim_epoch=1)
    assert not await store.finalize_run("r", status="error")
    assert old.runs["r"].status == "success"


async def test_a_run_that_is_asked_to_cancel_is_not_paused_by_separate_writes():
    old = OldestStore()
    store = adapted(old)
    await a_run(store)
    await store.request_cancel("r")
    assert (await store.get_run_control("r")).cancel_requested
    assert await store.pause_with_event("r", status="paused", pause_data={}) is None
    assert (old.runs["r"].status, [event[2] for event in old.events]) == ("running", ["run.started"])


async def test_scopes_are_looked_at_where_the_old_call_has_none(old):
    store = adapted(old)
    await store.create_run("r", "a", tenant_id="t")
    assert (await store.get_run("r", tenant_id="t")).tenant_id == "t"
    for scope in (None, "T", ""):
        assert await store.get_run("r", tenant_id=scope) is None
        with pytest.raises(RunNotFoundError):
            await store.claim_paused_run("r", expected_status="running", tenant_id=scope)
    assert old.runs["r"].status == "running"
    assert [run.id for run in await store.list_runs(tenant_id=UNSCOPED)] == ["r"]
    assert [run.id for run in await store.list_runs(tenant_id="t")] == ["r"]
    with pytest.raises(NotImplementedError, match="no tenant"):
        await store.list_runs(tenant_id=None)


async def test_a_record_shows_what_the_old_one_has(old):
    store = adapted(old)
    await a_run(store)
    run = await store.get_run("r")
    assert (run.id, run.format, run.claim_epoch, run.status, run.iteration_count) == (
        "r",
        1,
        LEGACY_EPOCH,
        "running",
        0,
    )
    assert run.created_at.tzinfo is not None


async def test_an_inbox_of_the_earlier_release():
    old = OldStore()
    store = adapted(old)
    await a_run(store)
    assert [await store.add_note("r", note_id=f"n{n}", text="x", max_pending=2) for n in range(3)] == [
        "added", "added", "full",
    ]  # fmt: skip
    assert [note.id for note in await store.get_notes("r", after="n0")] == ["n1"]
    assert [note.id for note in await store.get_notes("r", limit=1)] == ["n0"]
    assert await store.mark_notes_delivered("r", ["n0"], iteration=1, claim_epoch=1) == 1
    old.notes.clear()
    old.runs["r"].status = "success"
    assert await store.add_note("r", note_id="late", text="x") == "closed"
    with pytest.raises(RunNotFoundError):
        await store.add_note("absent", note_id="n", text="x")


async def test_what_an_oldest_store_lacks_is_empty():
    store = adapted(OldestStore())
    await a_run(store)
    assert await store.get_notes("r") == []
    assert (await store.run_usage("r")).llm_calls == 0
    with pytest.raises(NotImplementedError, match="OldestStore has no sweep_abandoned_runs"):
        await store.sweep_abandoned_runs(older_than=timedelta(0))


async def test_a_sweep_of_a_legacy_store(old):
    await a_run(adapted(old))
    result = await sweep(state_store=old, stale_running=timedelta(0))
    assert ([run.run_id for run in result.stale_running], result.next_after) == (["r"], None)


async def test_a_reader_shows_runs_of_a_legacy_store(old):
    store = adapted(old)
    await a_run(store)
    reader = RunStore(old)
    assert [run.run_id for run in await reader.list_runs()] == ["r"]
    assert await reader.count_runs() == 1
    assert (await reader.get_llm_calls("r"))[0].total_tokens == 7
    assert (await reader.get_event_view("r", tenant_id=None)).status == "running"
    document = {"pending_tool_calls": [{"id": "c", "name": "n"}], "pause_reason": "requested", "iteration": 3}
    await store.pause_with_event("r", status="waiting_client_tool", pause_data=document)
    pending = await reader.get_pending("r", tenant_id=None)
    assert (pending.reason, pending.iteration, [call.id for call in pending.calls]) == ("requested", 3, ["c"])
    assert await reader.get_pending("r", tenant_id="t") is None
    await store.finalize_with_event(
        "r", status="cancelled", allowed_current_statuses=["waiting_client_tool"], event_type="run.cancelled"
    )
    seen = [event.event_type async for event in reader.follow("r", poll_interval_s=0.01)]
    assert seen == ["run.started", "run.paused", "run.cancelled"]
    with pytest.raises(UnreadableRun):
        await anext(reader.follow("r", tenant_id="t"))


async def test_a_follower_of_two_writes_takes_one_more_look():
    """The oldest stores end a run and log it one after the other, so that what is last may not be what ends the log."""
    old = OldestStore()
    store = adapted(old)
    await a_run(store)
    await store.finalize_with_event(
        "r", status="success", allowed_current_statuses=["running"], event_type="run.completed"
    )
    following = asyncio.create_task(_types(RunStore(old).follow("r", poll_interval_s=0.01)))
    await asyncio.sleep(0.03)
    await store.save_run_event("r", event_type="tool.completed")
    assert await following == ["run.started", "run.completed", "tool.completed"]


async def _types(events):
    return [event.event_type async for event in events]


# -- stores that promise less -----------------------------------------------------------------------------------------


class Watched(SQLiteStateStore):
    """Notes which keywords each call gets."""

    def __init__(self, engine, **promised):
        super().__init__(engine)
        off = {flag: promised.get(flag, False) for flag in CAPABILITIES}
        self.capabilities = replace(self.capabilities, **off)
        self.got = {}

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name.startswith(("save_", "create_", "finalize_", "update_", "touch_", "pause_")):

            def noting(*arguments, **keywords):
                self.got[name] = set(keywords)
                return found(*arguments, **keywords)

            noting.__signature__ = signature(found)
            return noting
        return found


@pytest_asyncio.fixture
async def engine(tmp_path):
    engine = get_engine(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
    yield engine
    await engine.dispose()


async def test_a_store_that_keeps_every_promise_is_used_as_it_is(engine):
    store = SQLiteStateStore(engine)
    assert adapted(store) is store
    partial = adapted(Watched(engine))
    assert adapted(partial) is partial


@pytest.mark.parametrize(
    ("promised", "words"),
    [
        ({}, set()),
        ({"fenced_writes": True}, {"claim_epoch"}),
        ({"retry_ids": True}, {"trace_id", "event_id", "usage_id", "row_id"}),
        ({"fenced_writes": True, "retry_ids": True}, {"claim_epoch", "trace_id", "event_id", "usage_id", "row_id"}),
        ({"checkpointing": True}, {"trace_kind", "outcome", "seed_traces", "pii_mapping"}),
    ],
)
async def test_a_partial_declaration_enables_what_it_names(engine, promised, words):
    store = Watched(engine, **promised)
    made = await a_run(adapted(store))
    assert (made.format, made.claim_epoch) == (1, 1)
    everything = {
        "claim_epoch", "parent_claim_epoch", "trace_id", "event_id", "usage_id", "row_id", "trace_kind", "outcome",
        "seed_traces", "pii_mapping",
    }  # fmt: skip
    got = {word for keywords in store.got.values() for word in keywords & everything}
    assert got - {"parent_claim_epoch"} == words
    assert ("claim_epoch" in store.got["save_trace"]) == ("fenced_writes" in promised)


async def test_methods_of_a_flag_that_is_off_are_not_called(engine):
    store = adapted(Watched(engine, fenced_writes=True, retry_ids=True))
    for name in ("checkpoint_step", "start_tool_call", "reclaim_run", "conversation_traces"):
        with pytest.raises(NotImplementedError, match="does not declare"):
            getattr(store, name)
    kept = adapted(Watched(engine, fenced_writes=True, retry_ids=True, checkpointing=True, atomic_completion=True))
    await kept.create_run("r", "a", seed_traces=[SeedTrace(role="user", content="x")])
    started = await kept.start_tool_call(
        "r", row_id="w", tool_call_id="c", provider_tool_call_id=None, tool_name="n", target="server", params={},
        iteration_index=1, claim_epoch=1, event=EventWrite(event_type="tool.started"),
    )  # fmt: skip
    assert started.attempt == 1
    with pytest.raises(NotImplementedError, match="recovery"):
        await reclaim(kept)


async def test_recovery_of_a_store_that_does_not_fence(engine):
    store = Watched(engine, recovery=True)
    await adapted(store).create_run("r", "a", meta={"dendrux.loop": "react"})
    for given in (store, adapted(store)):
        assert (await reclaim(given)).reclaimed == ()
    result = await sweep(state_store=adapted(store), stale_running=timedelta(0), on_stale="reclaim")
    assert [run.run_id for run in result.stale_running] == ["r"], "a run of format 1 is ended, not marked"
