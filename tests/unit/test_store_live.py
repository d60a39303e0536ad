"""Which writes are announced, and when."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import pytest_asyncio

from dendrux.errors import PersistenceError, StoreOutcomeUnknown
from dendrux.live import PendingUpdates
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
        store.update_run_meta("r", {"a": 1}),
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


async def test_what_is_no_live_updates_is_refused(tmp_path):
    for wrong in ("redis://:hush-hush@host", 1, PendingUpdates, object()):
        with pytest.raises(TypeError, match="live_updates must be") as refused:
            async with built_in(tmp_path, live_updates=wrong):
                pass
        assert "hush" not in str(refused.value)


async def test_a_transport_that_raises_fails_no_write(live, caplog):
    def enqueue(run_ids):
        raise RuntimeError("hush-hush")

    async def flush():
        raise RuntimeError("hush-hush")

    live.enqueue, live.flush = enqueue, flush
    assert await live.store.save_run_event("r", event_type="x", event_id="e") == 0
    assert [event.event_type for event in await live.store.get_run_events("r")] == ["x"]
    assert "hush" not in caplog.text
    assert caplog.text.count("RuntimeError") == 2


async def test_a_cancellation_during_the_flush_passes_through(live):
    reached = asyncio.Event()

    async def flush():
        reached.set()
        await asyncio.sleep(60)

    live.flush = flush
    call = asyncio.create_task(live.store.save_run_event("r", event_type="x"))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(await live.store.get_run_events("r")) == 1


async def test_a_call_of_another_store_inside_one_flushes_for_itself(live, tmp_path):
    # A BlobStore may keep its own books in a store: it must not count as an inner call of the one that called it.
    books = Recorder()
    (tmp_path / "books").mkdir()

    class Keeping:
        async def put(self, key, data):
            await other.create_run("noted", "agent")
            assert books.taken() == ["noted"]

        get = delete = put

    async with built_in(tmp_path / "books", live_updates=books) as other:
        await live.store.put_blob(b"x", tenant_scope="-", blob_store=Keeping())
        assert await other.get_run("noted") is not None


async def test_every_call_of_many_runs_announces_each_of_them(live):
    store = live.store
    await store.create_run("child", "agent", parent_run_id="r", delegation_level=1)
    live.taken()
    page = await store.cancel_subtree("r")
    assert sorted(page.requested) == ["child", "r"]
    assert sorted(live.taken()) == ["child", "r"]
    swept = await store.sweep_stale_runs(older_than=timedelta(0))
    assert sorted(live.taken()) == sorted(run.run_id for run in swept.swept) == ["child", "r"]
