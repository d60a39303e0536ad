"""Errors: classified by codes, free of the driver's words along the whole chain, and logged for the operator."""

from __future__ import annotations

import logging
import sqlite3

import pytest
import pytest_asyncio
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, OperationalError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dendrux.errors import (
    PersistenceError,
    StaleClaimError,
    StatementTooLargeError,
    StoreBusyError,
    StoreOutcomeUnknown,
    StoreUnavailableError,
    WriteConflictError,
)
from dendrux.store import DbErrorKind, SQLiteStateStore
from dendrux.store.dberrors import classify, constraint_of
from unit.store_support import applied_then_lost, built_in, commits, disconnect, driver_error

SECRET = "secret"


@pytest_asyncio.fixture
async def store(tmp_path):
    async with built_in(tmp_path) as store:
        store.retry_backoff_s = 0.0
        await store.create_run("r", "agent")
        yield store


def chain(error: BaseException):
    """The error and everything that hangs on it."""
    while error is not None:
        yield error
        assert error.__cause__ is None
        error = error.__context__


def assert_clean(error: BaseException):
    linked = list(chain(error))
    assert linked == [error], "nothing of the driver hangs on a public error"
    said = f"{error!r} {error} {vars(error)}"
    for word in (SECRET, "SELECT", "UPDATE", "INSERT", "sqlite", "parameters"):
        assert word not in said.replace("SQLITE_", "")


def fail_statements(engine, error, *, times=99, matching=""):
    """Make the engine's next statements raise a driver's error."""
    left = [times]

    def fail(_conn, _cursor, statement, *_):
        if matching in statement and left[0] > 0:
            left[0] -= 1
            raise error

    event.listen(engine.sync_engine, "before_cursor_execute", fail)
    return lambda: event.remove(engine.sync_engine, "before_cursor_execute", fail)


CASES = [
    (driver_error(SECRET), PersistenceError, "other", 1),
    (driver_error(SECRET, 5), StoreBusyError, "lock_timeout", 6),
    (driver_error(SECRET, 517), StoreBusyError, "deadlock_or_serialization", 6),
    (driver_error(SECRET, 18), StatementTooLargeError, "statement_too_large", 1),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("error", "expected", "kind", "attempts"), CASES)
@pytest.mark.parametrize("call", ["write", "read"])
async def test_statement_errors_come_out_clean(store, error, expected, kind, attempts, call):
    wrapped = OperationalError(f"SELECT {SECRET}", {"p": SECRET}, error)
    undo = fail_statements(store._engine, wrapped)
    with pytest.raises(PersistenceError) as raised:
        await (store.save_run_event("r", event_type="x", data={"a": SECRET}) if call == "write" else store.get_run("r"))
    undo()
    assert type(raised.value) is expected
    assert (raised.value.kind, raised.value.attempts) == (kind, attempts)
    assert raised.value.operation in {"save_run_event", "get_run"}
    assert raised.value.run_id == "r"
    assert_clean(raised.value)
    assert store._engine.sync_engine.pool.checkedout() == 0


@pytest.mark.asyncio
async def test_a_lost_connection_is_retried_on_a_fresh_one(store):
    undo = fail_statements(store._engine, disconnect(driver_error(SECRET)), times=2)
    assert await store.save_run_event("r", event_type="x") == 0
    undo()
    undo = fail_statements(store._engine, disconnect(driver_error(SECRET)))
    with pytest.raises(StoreUnavailableError) as raised:
        await store.save_run_event("r", event_type="x")
    undo()
    assert raised.value.retryable
    assert_clean(raised.value)


@pytest.mark.asyncio
async def test_a_retry_keeps_the_minted_id(store):
    """The first transaction fails at its insert; the second must not store the event under another id."""
    ids = []
    event.listen(
        store._engine.sync_engine,
        "before_cursor_execute",
        lambda _c, _u, sql, params, *_: ids.append(params[0]) if "INSERT INTO run_events" in sql else None,
    )
    undo = fail_statements(store._engine, OperationalError("x", {}, driver_error(code=5)), times=1, matching="INSERT")
    await store.save_run_event("r", event_type="x")
    undo()
    assert len(ids) == 2
    assert ids[0] == ids[1] == (await store.get_run_events("r"))[0].id


@pytest.mark.asyncio
async def test_unknown_outcomes_and_refusals_are_clean(store):
    with commits(store._engine, applied_then_lost()), pytest.raises(StoreOutcomeUnknown) as unknown:
        await store.update_run_meta("r", {"a": 1})
    assert_clean(unknown.value)
    await store.save_run_event("r", event_type="x", event_id="e")
    with pytest.raises(WriteConflictError) as conflict:
        await store.save_run_event("r", event_type="y", event_id="e")
    assert_clean(conflict.value)
    with pytest.raises(StaleClaimError) as stale:
        await store.save_trace("r", "user", SECRET, order_index=0, claim_epoch=9)
    assert_clean(stale.value)


@pytest.mark.asyncio
async def test_the_operator_finds_the_facts_under_the_id_the_error_shows(store, caplog):
    undo = fail_statements(store._engine, OperationalError("x", {}, driver_error(SECRET)), matching="INSERT")
    with caplog.at_level(logging.DEBUG, "dendrux.store"), pytest.raises(PersistenceError) as raised:
        await store.save_run_event("r", event_type="x", data={"a": SECRET})
    undo()
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert raised.value.error_id in warnings[0].getMessage()
    assert raised.value.error_id in str(raised.value)
    debug = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert any("agent_runs" in line for line in debug)
    assert SECRET not in caplog.text


@pytest.mark.asyncio
async def test_an_unreadable_document_is_not_shown(store):
    async with store._engine.begin() as connection:
        await connection.execute(text(f"UPDATE agent_runs SET meta = '{{{SECRET}'"))
    with pytest.raises(PersistenceError) as raised:
        await store.get_run("r")
    assert_clean(raised.value)


@pytest.mark.asyncio
async def test_what_the_caller_raises_passes_untouched(store):
    class Refused(Exception):
        pass

    error = Refused()

    def validate(document):
        raise error

    await store.pause_with_event("r", status="paused", pause_data={"a": 1})
    with pytest.raises(Refused) as raised:
        await store.submit_and_claim("r", expected_status="paused", submitted_data={}, validate=validate)
    assert raised.value is error
    assert (await store.get_run("r")).claim_epoch == 1


@pytest.mark.asyncio
async def test_a_failing_rollback_throws_the_connection_away(store):
    dialect = store._engine.sync_engine.dialect

    def do_rollback(connection):
        raise driver_error(SECRET)

    dialect.do_rollback = do_rollback
    with pytest.raises(StaleClaimError):
        await store.save_run_event("r", event_type="x", claim_epoch=9)
    del dialect.do_rollback
    assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0
    assert store._engine.sync_engine.pool.checkedout() == 0


def test_classification_reads_codes_not_words():
    unique = sqlite3.IntegrityError("UNIQUE constraint failed: run_events.agent_run_id, run_events.sequence_index")
    unique.sqlite_errorcode, unique.sqlite_errorname = 2067, "SQLITE_CONSTRAINT_UNIQUE"
    found = classify(IntegrityError("x", {}, unique))
    assert (found.kind, found.constraint, found.code) == (
        "unique_violation",
        "uq_run_events_sequence",
        "SQLITE_CONSTRAINT_UNIQUE",
    )
    foreign = sqlite3.IntegrityError("UNIQUE constraint failed: run_events.id")
    foreign.sqlite_errorcode = 787  # a foreign key, whatever the words say
    assert classify(IntegrityError("x", {}, foreign)).kind == "other"
    assert classify(sqlite3.OperationalError("database is locked")).kind == "other"
    assert classify(StatementError("x", "SELECT", {}, ValueError())).kind == "other"
    assert classify(PoolTimeout()).kind == "connection_lost"
    assert classify(ConnectionResetError()).kind == "connection_lost"
    assert classify(disconnect(driver_error(code=5))).kind == "connection_lost"


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"sqlstate": "40P01"}, "deadlock_or_serialization"),
        ({"sqlstate": "23505", "constraint_name": "uq_run_events_sequence"}, "unique_violation"),
        ({"sqlstate": "08006"}, "connection_lost"),
        ({"sqlstate": "25006"}, "connection_lost"),
        ({"sqlstate": "42P01"}, "other"),
        ({"args": (1213, "Deadlock found")}, "deadlock_or_serialization"),
        ({"args": (1205, "Lock wait timeout")}, "lock_timeout"),
        ({"args": (1153, "packet")}, "statement_too_large"),
        ({"args": (1062, "Duplicate entry 'secret'")}, "unique_violation"),
    ],
)
def test_server_codes(attributes, kind):
    error = Exception()
    for name, value in attributes.items():
        setattr(error, name, value)
    found = classify(OperationalError("x", {}, error))
    assert found.kind == DbErrorKind(kind)
    assert found.constraint == attributes.get("constraint_name")


def test_only_our_own_constraints_are_named():
    assert constraint_of("UNIQUE constraint failed: run_events.id") == "pk_run_events"
    assert constraint_of("UNIQUE constraint failed: agent_runs.idempotency_scope, agent_runs.idempotency_key") == (
        "uq_agent_runs_idempotency"
    )
    assert constraint_of("UNIQUE constraint failed: orders.id") is None
    assert constraint_of("UNIQUE constraint failed: run_events.agent_run_id") is None


@pytest.mark.asyncio
async def test_a_foreign_unique_key_is_not_taken_for_ours(store):
    """An index of the application's own on our table: neither a repeat nor a conflict, and no endless retry."""
    async with store._engine.begin() as connection:
        await connection.execute(text("CREATE UNIQUE INDEX theirs ON run_events (event_type)"))
    await store.save_run_event("r", event_type="x")
    with pytest.raises(PersistenceError) as raised:
        await store.save_run_event("r", event_type="x")
    assert type(raised.value) is PersistenceError
    assert (raised.value.kind, raised.value.constraint) == ("unique_violation", None)
    assert await store.save_run_event("r", event_type="y") == 1


@pytest.mark.asyncio
async def test_ids_of_another_run_say_nothing_about_it(store):
    await store.create_run("other", "agent", tenant_id="t2")
    await store.save_run_event("other", event_type="x", event_id="e", data={"a": SECRET})
    with pytest.raises(WriteConflictError) as raised:
        await store.save_run_event("r", event_type="x", event_id="e", data={"a": SECRET})
    assert "other" not in str(raised.value)
    assert raised.value.run_id == "r"
    assert isinstance(store, SQLiteStateStore)
