"""A caller that goes away at any moment leaves the next one a working connection, and nothing open on the server."""

from __future__ import annotations

import asyncio
import types
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.session import get_engine
from dendrux.errors import StoreUnavailableError
from dendrux.store import EventWrite, PostgresStateStore, TraceWrite

EVER = datetime(2000, 1, 1, tzinfo=UTC)
LAST = 400
"""No call of these awaits that often."""

CALLS = {
    "create_run": lambda store, n: store.create_run(f"new{n}", "agent", idempotency_key=f"k{n}"),
    "get_run": lambda store, n: store.get_run("other"),
    "save_run_event": lambda store, n: store.save_run_event("r", event_type="x", event_id=f"e{n}", claim_epoch=1),
    "update_run_meta": lambda store, n: store.update_run_meta("r", {"n": n}, claim_epoch=1),
    "checkpoint_step": lambda store, n: store.checkpoint_step(
        "r",
        step_id=f"s{n}",
        claim_epoch=1,
        iteration_count=n,
        loop_state={"a": n},
        traces=[TraceWrite(role="user", content="x", order_index=n)],
    ),
    "start_tool_call": lambda store, n: store.start_tool_call(
        "r",
        row_id=f"c{n}",
        tool_call_id=f"c{n}",
        provider_tool_call_id=None,
        tool_name="t",
        target="server",
        params={},
        iteration_index=0,
        claim_epoch=1,
        event=EventWrite(event_type="tool.started", event_id=f"started{n}"),
    ),
    "list_runs": lambda store, n: store.list_runs(metadata_filter={"a": 1}),
    "sweep": lambda store, n: store.mark_lease_expired(cutoff=EVER),
}


@pytest_asyncio.fixture
async def store(postgres_url):
    engine = get_engine(postgres_url, pool_size=1, max_overflow=0, pool_timeout=10)
    store = PostgresStateStore(engine)
    await store.create_run("r", "agent")
    await store.create_run("other", "agent", meta={"a": 1})
    yield store
    await engine.dispose()


@pytest_asyncio.fixture
async def server(postgres):
    """Asks about the sessions on this database that are not its own."""
    engine = create_async_engine(postgres, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:

        async def ask(question):
            sessions = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            return await connection.scalar(text(f"SELECT {question} {sessions}"))

        yield ask
    await engine.dispose()


@types.coroutine
def watched(inner, at, cancel):
    """Run a coroutine and call `cancel` when it awaits something for the n-th time."""
    awaited, send = 0, lambda: inner.send(None)
    while True:
        try:
            future = send()
        except StopIteration as end:
            return end.value
        awaited += 1
        if awaited == at:
            cancel()
        try:
            yield future
            send = lambda: inner.send(None)
        except BaseException as error:  # noqa: BLE001  thrown in by the task
            send = lambda thrown=error: inner.throw(thrown)


async def cancelled_at(call, at):
    """Whether a store's call was cancelled when its own task awaited something for the n-th time."""
    loop = asyncio.get_running_loop()
    outer = []

    def cancel():
        outer[0].cancel()

    async def wrapped(inner):
        return await watched(inner, at, cancel)

    def factory(loop, coro, **kwargs):
        ours = getattr(coro, "__qualname__", "") in ("Attempts.run", "Pages.run")
        return asyncio.Task(wrapped(coro) if ours else coro, loop=loop, **kwargs)

    loop.set_task_factory(factory)
    try:
        outer.append(asyncio.ensure_future(call))
        await outer[0]
    except asyncio.CancelledError:
        return True
    finally:
        loop.set_task_factory(None)
    return False


@pytest.mark.parametrize("grace_s", [5.0, 0.0], ids=["waits", "cuts"])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_cancelled_at_every_await_leaves_the_next_one_working(store, server, name, grace_s):
    type(store).cancel_grace_s, kept = grace_s, type(store).cancel_grace_s
    try:
        for at in range(1, LAST):
            cut = await cancelled_at(CALLS[name](store, at), at)
            assert store._engine.sync_engine.pool.checkedout() == 0
            assert (await store.get_run("r")).id == "r"
            assert await server("count(*) FILTER (WHERE state <> 'idle')") == 0
            if not cut:
                assert at > 1, "the call awaited nothing"
                return
    finally:
        type(store).cancel_grace_s = kept
    raise AssertionError("the call never came to its end")


async def until(server, number):
    """Return once that many sessions wait for a lock."""
    async with asyncio.timeout(10):
        while await server("count(*) FILTER (WHERE wait_event_type = 'Lock')") != number:  # noqa: ASYNC110  # to be asked
            await asyncio.sleep(0.01)


async def test_the_wait_for_a_lock_is_cut_after_the_grace(store, server, postgres_url):
    store.cancel_grace_s = 0.2
    other = create_async_engine(postgres_url)
    async with other.connect() as connection:
        await connection.execute(text("SELECT 1 FROM agent_runs WHERE id = 'r' FOR UPDATE"))
        write = asyncio.create_task(store.save_run_event("r", event_type="x", claim_epoch=1))
        await until(server, 1)
        write.cancel()
        await asyncio.sleep(0.05)
        assert not write.done(), "it waits for the statement first"
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(write, 10)
        await until(server, 0)
        assert (await store.get_run("other")).id == "other"
        await connection.rollback()
    assert await store.get_run_events("r") == []
    await other.dispose()


async def test_a_statement_that_takes_too_long_is_cut_and_tried_again(store, server, postgres_url):
    store.statement_deadline_s = 0.2
    store.retry_limit = 2
    other = create_async_engine(postgres_url)
    async with other.connect() as connection:
        await connection.execute(text("SELECT 1 FROM agent_runs WHERE id = 'r' FOR UPDATE"))
        with pytest.raises(StoreUnavailableError) as raised:
            await store.save_run_event("r", event_type="x", claim_epoch=1)
        assert (raised.value.kind, raised.value.attempts) == ("connection_lost", 3)
        await until(server, 0)
        await connection.rollback()
    assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0
    await other.dispose()
