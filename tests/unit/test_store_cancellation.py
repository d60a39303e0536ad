"""Cancellation is never swallowed, never half-done, and leaves the database to others at once."""

from __future__ import annotations

import asyncio
import threading

import pytest
import pytest_asyncio
from sqlalchemy import event

from dendrux.store import SQLiteStateStore
from dendrux.store.binding import to_its_end
from dendrux.store.dberrors import classify
from dendrux.store.tx import Failure, Tx
from unit.store_support import Format1Store, another_process, built_in, commits

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(params=[Format1Store, SQLiteStateStore])
async def store(tmp_path, request):
    async with built_in(tmp_path, request.param) as store:
        await store.create_run("r", "agent")
        yield store


class Gate:
    """Holds the n-th statement of an engine in the driver's thread, as a slow database would."""

    def __init__(self, engine, number):
        self.reached, self.release = threading.Event(), threading.Event()
        self.left = number
        event.listen(engine.sync_engine, "before_cursor_execute", self.hold)

    def hold(self, connection, cursor, statement, *_):
        self.left -= 1
        if self.left == 0:
            raw = connection.connection.driver_connection
            raw._tx.put_nowait((None, self.wait))  # the thread does this before the statement

    def wait(self):
        self.reached.set()
        self.release.wait(10)


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_cancelled_write_rolls_back_at_its_next_boundary(store, tmp_path, number):
    gate = Gate(store._engine, number)
    task = asyncio.create_task(store.save_run_event("r", event_type="x", claim_epoch=1))
    await asyncio.to_thread(gate.reached.wait, 10)
    task.cancel()
    await asyncio.sleep(0.02)
    task.cancel()  # a second cancellation waits, too
    await asyncio.sleep(0.02)
    assert not task.done(), "a statement in flight is not interrupted"
    gate.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    with another_process(tmp_path / "store.db") as other:
        other.execute("BEGIN IMMEDIATE")  # the lock is free at once
        assert other.execute("SELECT count(*) FROM run_events").fetchone() == (0,)
        other.execute("ROLLBACK")
    assert store._engine.sync_engine.pool.checkedout() == 0
    assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0


async def test_cancelled_during_commit_the_write_may_have_landed(store):
    started, go = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def behave(number, real):
        started.set()
        loop.call_soon(go.set)
        real()

    with commits(store._engine, behave):
        task = asyncio.create_task(store.save_run_event("r", event_type="x", event_id="e"))
        await go.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await store.save_run_event("r", event_type="x", event_id="e") == 0
    assert len(await store.get_run_events("r")) == 1


async def test_cancellation_wins_over_a_refusal(store):
    gate = Gate(store._engine, 2)
    task = asyncio.create_task(store.save_run_event("missing", event_type="x"))
    await asyncio.to_thread(gate.reached.wait, 10)
    task.cancel()
    gate.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_is_a_timeout(store):
    gate = Gate(store._engine, 1)
    threading.Timer(0.2, gate.release.set).start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.save_run_event("r", event_type="x")
    assert await store.get_run_events("r") == []


async def test_the_flag_is_looked_at_after_validate(store):
    await store.pause_with_event("r", status="paused", pause_data={})
    task = None

    def validate(document):
        task.cancel()

    task = asyncio.create_task(
        store.submit_and_claim("r", expected_status="paused", submitted_data={}, validate=validate)
    )
    await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await store.get_run("r")).claim_epoch == 1


async def test_a_cancelled_read_keeps_its_connection(store):
    gate = Gate(store._engine, 1)
    task = asyncio.create_task(store.get_run("r"))
    await asyncio.to_thread(gate.reached.wait, 10)
    task.cancel()
    gate.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store._engine.sync_engine.pool.checkedout() == 0
    assert (await store.get_run("r")).id == "r"


async def test_a_waiter_for_a_lock_ends_when_the_lock_does(store, tmp_path):
    with another_process(tmp_path / "store.db") as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(store.request_cancel("r"))
        await asyncio.sleep(0.05)
        task.cancel()
        other.execute("ROLLBACK")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await store.get_run("r")).cancel_requested is False


async def test_a_loop_that_shuts_down_leaves_no_lock(tmp_path):
    def in_a_loop_of_its_own():
        async def main():
            async with built_in(tmp_path) as store:
                await store.create_run("r", "agent")
                gate = Gate(store._engine, 3)
                task = asyncio.create_task(store.save_run_event("r", event_type="x"))
                await asyncio.to_thread(gate.reached.wait, 10)
                threading.Timer(0.05, gate.release.set).start()
                for each in asyncio.all_tasks() - {asyncio.current_task()}:
                    each.cancel()  # what asyncio.run does with what is left
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(main())

    await asyncio.to_thread(in_a_loop_of_its_own)
    with another_process(tmp_path / "store.db") as other:
        other.execute("BEGIN IMMEDIATE")
        assert other.execute("SELECT count(*) FROM run_events").fetchone() == (0,)
        other.execute("ROLLBACK")


class Server:
    """What a store on a database server says of itself: rows lock, so a statement can be cut."""

    supports_row_locks = True
    cancel_grace_s = 0.05
    statement_deadline_s = 0.05
    classify_db_error = staticmethod(classify)


class Endless:
    """A transaction whose statement is not answered."""

    store, operation = Server(), "endless"

    def __init__(self):
        self.stopped = False

    def stop(self):
        self.stopped = True

    async def run(self):
        await asyncio.sleep(60)


async def test_a_server_is_given_a_grace_and_then_its_statement_is_cut():
    transaction = Endless()
    task = asyncio.create_task(to_its_end(transaction))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    assert transaction.stopped
    assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)


async def test_a_server_that_does_not_answer_is_a_lost_connection():
    with pytest.raises(Failure) as raised:
        await Tx(Server(), "op", "r").guarded(asyncio.sleep(60))
    assert raised.value.error.kind == "connection_lost"
    assert raised.value.__context__ is None
