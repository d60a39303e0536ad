"""Which writes are announced, and when."""

from __future__ import annotations

import pytest
import pytest_asyncio

from dendrux.errors import PersistenceError, StoreOutcomeUnknown
from dendrux.live import LiveUpdates, PendingUpdates
from dendrux.store import SQLiteStateStore, UsageStats
from unit.store_support import applied_then_lost, built_in, commits, driver_error

pytestmark = pytest.mark.asyncio


class Recorder:
    def __init__(self):
        self.pending, self.sent, self.closed, self.store = [], [], 0, None

    def bind(self, store):
        self.store = store

    def enqueue(self, run_ids):
        assert not isinstance(run_ids, str)
        self.pending += run_ids

    async def flush(self):
        self.sent += self.pending
        self.pending = []

    async def close(self):
        self.closed += 1

    def taken(self):
        taken, self.sent = self.sent, []
        return taken


@pytest_asyncio.fixture
async def live(tmp_path):
    recorder = Recorder()
    async with built_in(tmp_path, live_updates=recorder) as store:
        assert store.live_updates is recorder
        assert recorder.store is store
        await store.create_run("r", "agent")
        assert recorder.taken() == ["r"]
        yield recorder


async def test_changes_are_announced_with_their_run(live):
    store = live.store
    for call in (
        store.save_run_event("r", event_type="x"),
        store.request_pause("r"),
        store.pause_with_event("r", status="paused", pause_data={}),
        store.claim_paused_run("r", expected_status="paused"),
        store.release_run_claim("r", claim_epoch=2),
        store.submit_and_claim("r", expected_status="paused", submitted_data={}),
        store.request_cancel("r"),
        store.finalize_with_event(
            "r",
            status="cancelled",
            allowed_current_statuses=["running"],
            event_type="run.cancelled",
        ),
    ):
        await call
        assert live.taken() == ["r"]


async def test_rows_and_clocks_are_not(live):
    store = live.store
    await store.save_trace("r", "user", "x", order_index=0, claim_epoch=1)
    await store.save_usage("r", iteration_index=0, usage=UsageStats())
    await store.add_note("r", note_id="n", text="x")
    await store.mark_notes_delivered("r", ["n"], iteration=0)
    await store.touch_progress("r", claim_epoch=1)
    await store.update_run_meta("r", {"a": 1})
    await store.get_run("r")
    assert live.taken() == []


async def test_what_changed_nothing_is_not(live):
    store = live.store
    await store.save_run_event("r", event_type="x", event_id="e")
    await store.request_cancel("r")
    live.taken()
    await store.save_run_event("r", event_type="x", event_id="e")
    await store.request_cancel("r")
    assert await store.claim_paused_run("r", expected_status="paused") is None
    with pytest.raises(PersistenceError):
        await store.save_run_event("r", event_type="x", claim_epoch=4)
    await store.create_run("r", "agent")
    assert live.taken() == []
    assert live.pending == []


async def test_a_failed_call_leaves_its_hint_for_the_next(live):
    store = live.store
    await store.pause_with_event("r", status="paused", pause_data={})
    live.taken()
    with commits(store._engine, applied_then_lost()), pytest.raises(StoreOutcomeUnknown):
        await store.claim_paused_run("r", expected_status="paused")
    assert live.taken() == []
    assert live.pending == ["r"]
    await store.touch_progress("r", claim_epoch=2)
    assert live.taken() == ["r"]


async def test_an_answered_refusal_of_commit_takes_the_hint_back(live):
    def busy(number, real):
        raise driver_error(code=5)

    live.store.retry_backoff_s = 0.0
    with commits(live.store._engine, busy), pytest.raises(PersistenceError):
        await live.store.request_cancel("r")
    assert live.pending == []


async def test_an_override_that_calls_another_method_flushes_for_itself(tmp_path):
    class Audited(SQLiteStateStore):
        async def save_run_event(self, run_id, **kwargs):
            index = await super().save_run_event(run_id, **kwargs)
            await self.request_pause(run_id)
            return index

    recorder = Recorder()
    async with built_in(tmp_path, Audited, live_updates=recorder) as store:
        await store.create_run("r", "agent")
        await store.save_run_event("r", event_type="x")
        assert recorder.taken() == ["r", "r", "r"]


async def test_off_and_the_transport_a_store_does_not_have(tmp_path):
    for off in (None, False):
        async with built_in(tmp_path, live_updates=off) as store:
            assert store.live_updates is None
    with pytest.raises(ValueError, match=r"SQLiteStateStore .*RedisUpdates"):
        async with built_in(tmp_path, live_updates=True):
            pass


async def test_close_closes_the_transport_and_not_the_engine(live):
    await live.store.close()
    await live.store.close()
    assert live.closed == 2, "the transport's own close is idempotent"
    assert (await live.store.get_run("r")).id == "r"


async def test_pending_updates_are_bounded_and_refuse_a_bare_string():
    class Few(PendingUpdates):
        pending_max = 2

        def __init__(self):
            super().__init__()
            self.batches = []

        async def send(self, run_ids):
            self.batches.append(list(run_ids))

    few = Few()
    assert isinstance(few, LiveUpdates)
    with pytest.raises(TypeError):
        few.enqueue("01J")
    few.enqueue(["a", "b", "a", "c", "", "x" * 65])
    assert few.dropped == 3
    await few.flush()
    await few.flush()
    assert few.batches == [["a", "b"]]
    few.bind(one := object())
    few.bind(one)
    with pytest.raises(ValueError, match="another store"):
        few.bind(object())
