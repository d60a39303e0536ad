"""MySQL and MariaDB: errors, each made on a real server, and what becomes of a call that meets one or is cancelled."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio
from asyncmy import errors
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.util import await_only

from dendrux.db.models import agent_runs, react_traces
from dendrux.errors import (
    PersistenceError,
    StatementTooLargeError,
    StoreBusyError,
    StoreOutcomeUnknown,
    StoreUnavailableError,
)
from dendrux.store.dberrors import ERRNOS, classify
from dialects.mysql_support import open_transactions, opened, other

SLOW = "SELECT SLEEP(10) FROM agent_runs WHERE id = 'r'"


@pytest_asyncio.fixture
async def store(mysql_url):
    async with opened(mysql_url, pool_size=1, max_overflow=0) as store:
        store.retry_backoff_s = 0.001
        await store.create_run("r", "agent")
        yield store


@pytest_asyncio.fixture
async def rival(mysql_url):
    async with other(mysql_url) as connection:
        yield connection


async def error_of(store, *statements):
    """What the last of some statements on a connection of the store means."""
    async with store.engine.connect() as connection:
        try:
            for statement in statements:
                await connection.execute(text(statement) if isinstance(statement, str) else statement)
        except (DBAPIError, OSError) as error:
            return store.classify_db_error(error)
    raise AssertionError("no error")


async def sessions(rival):
    """The other sessions on this database."""
    query = text("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
    return [row.id for row in await rival.execute(query)]


async def kill(rival, what=""):
    for session in await sessions(rival):
        with suppress(DBAPIError):  # it may be gone
            await rival.execute(text(f"KILL {what} {session}"))


async def until(condition):
    """Wait until a coroutine function answers true."""
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110  the server has no event to wait for
            await asyncio.sleep(0.01)


async def busy(rival):
    """Whether some session waits inside a statement."""
    query = text(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() "
        "AND command = 'Query'"
    )
    return await rival.scalar(query) > 0


@asynccontextmanager
async def held(rival):
    """Somebody else holds the run's row meanwhile."""
    await rival.execute(text("SELECT id FROM agent_runs WHERE id = 'r' FOR UPDATE"))
    try:
        yield
    finally:
        await rival.rollback()


# -- what numbers mean ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ERRNOS)
def test_a_number_means_what_the_table_says_and_shows_no_words(number):
    original = errors.OperationalError(number, "secret")
    found = classify(OperationalError("secret", {}, original))
    assert (found.kind, found.constraint, found.code) == (ERRNOS[number], None, str(number))


LOST = [
    errors.InterfaceError(0, "Not connected"),
    errors.InternalError("Packet sequence number wrong - got 1 expected 2"),
    ConnectionResetError("secret"),
    asyncio.IncompleteReadError(b"secret", 4),
    TimeoutError("secret"),
    OSError(9, "secret"),
    OSError(1213, "secret"),
]


@pytest.mark.parametrize("error", LOST, ids=repr)
def test_every_form_of_a_lost_connection_is_one(error):
    assert classify(error).kind == "connection_lost"


def test_a_key_in_a_value_is_not_the_key():
    error = errors.IntegrityError(1062, "Duplicate entry 'x' for key 'uq_agent_runs_idempotency'-y' for key 'mine'")
    assert classify(error).constraint is None


async def test_a_unique_violation_names_the_constraint(store):
    await store.create_run("k", "agent", idempotency_key="key")
    await store.save_trace("r", "user", "x", order_index=0, trace_id="t")
    run, trace = agent_runs.insert().from_select, react_traces.insert().from_select
    runs = {c.name: c for c in agent_runs.c if c.name not in ("id", "idempotency_key")}
    traces = {c.name: c for c in react_traces.c if c.name != "id"}
    fresh = text("SELECT 'new'").columns(agent_runs.c.id).scalar_subquery()
    made = {
        "pk_agent_runs": run(
            [agent_runs.c.id, *runs], agent_runs.select().with_only_columns(agent_runs.c.id, *runs.values())
        ),
        "uq_agent_runs_idempotency": run(
            ["id", "idempotency_key", *runs],
            agent_runs.select()
            .with_only_columns(fresh, agent_runs.c.idempotency_key, *runs.values())
            .where(agent_runs.c.id == "k"),
        ),
        "uq_react_traces_position": trace(
            ["id", *traces], react_traces.select().with_only_columns(fresh, *traces.values())
        ),
    }
    for name, statement in made.items():
        found = await error_of(store, statement)
        assert (found.kind, found.constraint, found.code) == ("unique_violation", name, "1062")


async def test_a_deadlock_is_one(store, rival):
    await store.create_run("s", "agent")
    change = "UPDATE agent_runs SET error = 'x' WHERE id = '{}'"
    await rival.execute(text(change.format("r")))
    mine = asyncio.create_task(error_of(store, change.format("s"), change.format("r")))
    await until(lambda: busy(rival))
    try:
        await rival.execute(text(change.format("s")))
        await rival.rollback()
        found = await mine
    except DBAPIError as error:
        found = store.classify_db_error(error)
        await rival.rollback()
        with pytest.raises(AssertionError, match="no error"):
            await mine
    assert (found.kind, found.code) == ("deadlock_or_serialization", "1213")


async def test_a_lock_that_is_not_given_is_a_lock_timeout(store, rival):
    async with held(rival):
        wait = "SELECT id FROM agent_runs WHERE id = 'r' FOR UPDATE"
        assert (await error_of(store, "SET innodb_lock_wait_timeout = 1", wait)).kind == "lock_timeout"
        assert (await error_of(store, f"{wait} NOWAIT")).kind == "lock_timeout"


async def test_a_lock_timeout_leaves_nothing_of_the_call(store, rival):
    """The server rolls back the statement alone; the store rolls back the rest."""
    store.retry_limit = 0
    with_timeout = store.engine.sync_engine

    @event.listens_for(with_timeout, "checkout")
    def _short(connection, *_):
        cursor = connection.cursor()
        cursor.execute("SET innodb_lock_wait_timeout = 1")
        cursor.close()

    async with held(rival):
        with pytest.raises(StoreBusyError):
            await store.save_run_event("r", event_type="x", claim_epoch=1)
    assert await store.get_run_events("r") == []
    assert await open_transactions(rival) == 0


async def test_a_read_only_server_is_a_lost_connection(store):
    write = "UPDATE agent_runs SET error = 'x'"
    found = await error_of(store, "COMMIT", "SET SESSION TRANSACTION READ ONLY", write)
    assert (found.kind, found.code) == ("connection_lost", "1792")
    await store.engine.dispose()


async def test_a_killed_session_is_a_lost_connection(store, rival):
    async with store.engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
        await kill(rival)
        with pytest.raises((DBAPIError, OSError)) as between:
            await connection.execute(text("SELECT 1"))
        assert store.classify_db_error(between.value).kind == "connection_lost"
    during = asyncio.create_task(error_of(store, SLOW))
    await until(lambda: busy(rival))
    await kill(rival)
    assert (await during).kind == "connection_lost"


# -- what becomes of a call -------------------------------------------------------------------------------------------


async def test_a_call_on_a_killed_connection_runs_on_another(store, rival):
    for _ in range(3):
        await kill(rival)
        assert (await store.get_run("r")).id == "r"
    await kill(rival)
    assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0


async def test_a_call_that_is_killed_in_the_middle_runs_again(store, rival, mysql_url):
    async with other(mysql_url) as killer:
        async with held(rival):
            call = asyncio.create_task(store.save_run_event("r", event_type="x", claim_epoch=1))
            await until(lambda: busy(killer))
            holder = await rival.scalar(text("SELECT CONNECTION_ID()"))
            for session in await sessions(killer):
                if session != holder:
                    await killer.execute(text(f"KILL {session}"))
            await asyncio.sleep(0.05)
        assert await call == 0
    assert len(await store.get_run_events("r")) == 1


async def test_a_killed_query_is_an_error_and_leaves_nothing_open(store, rival, mysql_url):
    async with other(mysql_url) as killer:
        async with held(rival):
            call = asyncio.create_task(store.save_run_event("r", event_type="x", claim_epoch=1))
            await until(lambda: busy(killer))
            await kill(killer, "QUERY")
            with pytest.raises(PersistenceError) as caught:
                await call
        assert caught.value.db_code == "1317"
        await killer.rollback()
        assert await open_transactions(killer) == 0
    assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0


@asynccontextmanager
async def killed_at_commit(store, mysql_url, times=1):
    """The session is ended when COMMIT is about to be sent."""
    left = [times]
    async with other(mysql_url) as killer:

        def cut(connection):
            if left[0]:
                left[0] -= 1
                await_only(kill(killer))

        event.listen(store.engine.sync_engine, "commit", cut)
        try:
            yield
        finally:
            event.remove(store.engine.sync_engine, "commit", cut)


async def test_a_connection_lost_at_commit_is_settled_by_identity(store, mysql_url):
    async with killed_at_commit(store, mysql_url):
        assert await store.save_run_event("r", event_type="x", event_id="e", claim_epoch=1) == 0
    assert [found.id for found in await store.get_run_events("r")] == ["e"]


async def test_a_claim_whose_commit_is_lost_is_unknown(store, mysql_url):
    await store.pause_with_event("r", status="paused", pause_data={})
    async with killed_at_commit(store, mysql_url):
        with pytest.raises(StoreOutcomeUnknown):
            await store.claim_paused_run("r", expected_status="paused")
    assert (await store.get_run("r")).status == "paused"


async def test_a_statement_that_is_too_large_is_said_to_be(store):
    capacity = await store.statement_capacity()
    for excess in (1, 1_000_000):
        with pytest.raises(StatementTooLargeError) as caught:
            await store.save_trace("r", "user", "x" * (capacity + excess), order_index=0, claim_epoch=1)
        assert caught.value.attempts == 1
    await store.save_trace("r", "user", "fits", order_index=0, claim_epoch=1)


async def test_a_server_that_hangs_up_on_a_statement_that_is_too_large_has_said_so(store):
    gone = errors.OperationalError(2006, "MySQL server has gone away")
    capacity = await store.statement_capacity()
    large, fits = (OperationalError("%s", ("x" * length,), gone) for length in (capacity, capacity // 2))
    assert store.classify_db_error(large).kind == "statement_too_large"
    assert store.classify_db_error(fits).kind == "connection_lost"


async def test_a_server_that_is_not_there_is_unavailable(mysql_url):
    async with opened(mysql_url.set(port=1)) as store:
        store.retry_backoff_s = 0.001
        with pytest.raises(StoreUnavailableError) as caught:
            await store.get_run("r")
        assert "127.0.0.1" not in str(caught.value)


# -- cancellation -----------------------------------------------------------------------------------------------------

CALLS = {
    "create_run": lambda s, n: s.create_run(f"new{n}", "agent", meta={"a": 1}),
    "save_run_event": lambda s, n: s.save_run_event("r", event_type="x", claim_epoch=1),
    "update_run_meta": lambda s, n: s.update_run_meta("r", {"a": n}),
    "list_runs": lambda s, n: s.list_runs(limit=5),
    "cancel_subtree": lambda s, n: s.cancel_subtree("r"),
    "put_blob": lambda s, n: s.put_blob(b"%d" % n, tenant_scope="-"),
}


class Cancelling:
    """Cancels a task at its n-th step with the database: before a statement, while it is in flight, or after it."""

    def __init__(self, engine, number):
        self.left, self.task, self.engine = number, None, engine
        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(engine.sync_engine, name, self.step)

    def step(self, *_):
        self.left -= 2
        if self.left in (0, 1) and self.task is not None:
            cancel = self.task.cancel
            asyncio.get_running_loop().call_soon(cancel) if self.left else cancel()

    def close(self):
        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.remove(self.engine.sync_engine, name, self.step)


@pytest.mark.parametrize("grace", [5.0, 0.0])
@pytest.mark.parametrize("name", CALLS)
async def test_a_cancelled_call_leaves_the_connection_to_the_next(store, rival, name, grace):
    """With one connection for all: the next call works and reads its own rows, and no transaction stays open."""
    await store.list_runs(limit=1)
    store.cancel_grace_s = grace
    number = 2
    while True:
        cancelling = Cancelling(store.engine, number)
        cancelling.task = asyncio.create_task(CALLS[name](store, number))
        try:
            with suppress(asyncio.CancelledError):
                await cancelling.task
        finally:
            cancelling.close()
        async with asyncio.timeout(10):
            assert (await store.get_run("r")).id == "r"
            assert await store.get_run_statuses(["r"]) == {"r": "running"}
        assert store.engine.sync_engine.pool.checkedout() == 0
        await until(lambda: closed(rival))
        if not cancelling.task.cancelled():
            break
        number += 1
    assert number >= 6


async def closed(rival):
    await rival.rollback()
    return await open_transactions(rival) == 0


async def test_a_cancelled_call_that_waits_for_a_lock_is_cut_after_the_grace(store, rival, mysql_url):
    store.cancel_grace_s = 0.1
    async with other(mysql_url) as watcher:
        async with held(rival):
            call = asyncio.create_task(store.save_run_event("r", event_type="x", claim_epoch=1))
            await until(lambda: busy(watcher))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(call, 2)
            assert (await store.get_run("r")).id == "r"
        await until(lambda: closed(watcher))
    assert await store.get_run_events("r") == []


async def test_a_statement_that_takes_too_long_is_cut(store, rival):
    store.statement_deadline_s, store.retry_limit = 0.1, 0
    async with held(rival):
        with pytest.raises(StoreUnavailableError):
            await store.save_run_event("r", event_type="x", claim_epoch=1)
    store.statement_deadline_s = 60.0
    assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0
