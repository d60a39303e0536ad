"""What a real PostgreSQL answers when something goes wrong, and what callers of the store see of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.session import get_engine
from dendrux.errors import PersistenceError, StoreBusyError, StoreOutcomeUnknown, StoreUnavailableError
from dendrux.store import DbErrorKind, PostgresStateStore
from dendrux.store.dberrors import OUR_NAMES

END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
OTHERS = f"{END} AND pid <> pg_backend_pid()"
HOLD = "SELECT 1 FROM agent_runs WHERE id = 'r' FOR UPDATE"


class Made:
    """A store, and a second engine for whoever gets in its way."""

    def __init__(self, url):
        self.url = url
        self.engine = get_engine(url, pool_size=2, max_overflow=0, pool_timeout=0.2)
        self.store = PostgresStateStore(self.engine)
        self.store.retry_backoff_s = 0.01
        self.other = create_async_engine(url)

    async def admin(self, statement):
        async with self.other.begin() as connection:
            done = await connection.execute(text(statement.format(self.url.database)))
            return done.first() if done.returns_rows else None

    async def waiting(self, number=1):
        """Return once that many sessions wait for a lock."""
        async with asyncio.timeout(10):
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'"
            while (await self.admin(query))[0] < number:  # noqa: ASYNC110  a server tells nobody
                await asyncio.sleep(0.01)

    async def error_of(self, *statements, engine=None):
        """What classify says of the first error that these statements meet."""
        async with (engine or self.engine).connect() as connection:
            try:
                for statement in statements:
                    await connection.execute(text(statement))
                await connection.commit()
            except Exception as error:  # noqa: BLE001  whatever the driver raises
                return self.store.classify_db_error(error)
        raise AssertionError("no error")


@pytest_asyncio.fixture
async def made(postgres_url):
    made = Made(postgres_url)
    await made.store.create_run("r", "agent", idempotency_key="k")
    yield made
    await made.engine.dispose()
    await made.other.dispose()


INSERT = "INSERT INTO run_events (id, agent_run_id, event_type, sequence_index, created_at) VALUES ('{}', 'r', 'x', {}, now())"

CODES = {
    "primary key": ([INSERT.format("e", 0), INSERT.format("e", 1)], "unique_violation", "23505", "pk_run_events"),
    "position": ([INSERT.format("e", 0), INSERT.format("f", 0)], "unique_violation", "23505", "uq_run_events_sequence"),
    "too large": (["SELECT repeat('x', 1073741824)"], "statement_too_large", "54000", None),
    "read only": (["SET TRANSACTION READ ONLY", "DELETE FROM agent_runs"], "connection_lost", "25006", None),
    "statement timeout": (["SET LOCAL statement_timeout = 10", "SELECT pg_sleep(5)"], "lock_timeout", "57014", None),
    "terminated": (["SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1"], "connection_lost", None, None),
    "serialization": (
        ["DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$"],
        "deadlock_or_serialization",
        "40001",
        None,
    ),
    "syntax": (["SELEC 1"], "other", "42601", None),
}


@pytest.mark.parametrize("case", CODES)
async def test_the_server_s_own_errors_are_classified(made, case):
    statements, kind, code, constraint = CODES[case]
    found = await made.error_of(*statements)
    assert (found.kind, found.constraint) == (kind, constraint)
    assert code in (None, found.code)


async def test_a_foreign_constraint_is_not_named(made):
    await made.admin("CREATE UNIQUE INDEX theirs ON run_events (event_type)")
    found = await made.error_of(INSERT.format("e", 0), INSERT.format("f", 1))
    assert (found.kind, found.constraint) == ("unique_violation", None)
    assert "theirs" not in OUR_NAMES


async def test_a_deadlock_is_one(made):
    await made.store.create_run("s", "agent")
    update = "UPDATE agent_runs SET agent_name = agent_name WHERE id = '{}'"

    async def crossing(first, second):
        async with made.engine.connect() as connection:
            try:
                await connection.execute(text(update.format(first)))
                await asyncio.sleep(0.2)
                await connection.execute(text(update.format(second)))
            except Exception as error:  # noqa: BLE001  as above
                return made.store.classify_db_error(error)

    met = [found for found in await asyncio.gather(crossing("r", "s"), crossing("s", "r")) if found is not None]
    assert [(found.kind, found.code) for found in met] == [(DbErrorKind.DEADLOCK_OR_SERIALIZATION, "40P01")]


async def test_a_write_that_dies_in_a_deadlock_is_tried_again(made):
    """Somebody inserts an event and then wants the run: the store's transaction holds the run and wants the event."""
    await made.admin("ALTER DATABASE {} SET deadlock_timeout = '50ms'")
    await made.engine.dispose()
    async with made.other.connect() as connection:
        await connection.execute(text("SET LOCAL deadlock_timeout = '60s'"))
        await connection.execute(text(INSERT.format("e", 0)))
        write = asyncio.create_task(made.store.save_run_event("r", event_type="x", event_id="e", claim_epoch=1))
        await made.waiting()
        await connection.execute(text("UPDATE agent_runs SET agent_name = 'other' WHERE id = 'r'"))
        await connection.rollback()
    assert await write == 0


async def test_a_lock_that_is_never_given_ends_as_busy(made):
    await made.admin("ALTER DATABASE {} SET lock_timeout = '20ms'")
    await made.engine.dispose()
    async with made.other.connect() as connection:
        await connection.execute(text(HOLD))
        with pytest.raises(StoreBusyError) as raised:
            await made.store.save_run_event("r", event_type="x", claim_epoch=1)
        assert (raised.value.kind, raised.value.db_code, raised.value.attempts) == ("lock_timeout", "55P03", 6)
        await connection.rollback()
    assert await made.store.save_run_event("r", event_type="x", claim_epoch=1) == 0


async def test_sessions_that_ended_between_two_calls_are_not_noticed(made):
    await asyncio.gather(*(made.store.get_run("r") for _ in range(2)))
    await made.admin(OTHERS)
    assert await made.store.save_run_event("r", event_type="x", claim_epoch=1) == 0
    await made.admin(OTHERS)
    assert (await made.store.get_run("r")).id == "r"


async def test_a_session_that_ends_during_a_statement_is_replaced(made):
    async with made.other.connect() as connection:
        await connection.execute(text(HOLD))
        write = asyncio.create_task(made.store.save_run_event("r", event_type="x", claim_epoch=1))
        await made.waiting()
        await connection.execute(text(f"{END} AND wait_event_type = 'Lock'"))
        await asyncio.sleep(0.1)
        await made.waiting()
        assert not write.done()
        await connection.rollback()
    assert await write == 0
    assert made.engine.sync_engine.pool.checkedout() == 0


SLOW_COMMIT = """
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF pg_backend_pid() <> 0 AND nextval('dawdling') = 1 THEN {} END IF; RETURN NULL; END $$
"""
TRIGGER = (
    "CREATE CONSTRAINT TRIGGER dawdling AFTER INSERT OR UPDATE ON agent_runs "
    "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION dawdle()"
)


async def at_the_first_commit(made, action):
    """Let the next COMMIT that changed a run do something first."""
    async with made.other.begin() as connection:
        await connection.execute(text("CREATE SEQUENCE dawdling"))
        await connection.execute(text(SLOW_COMMIT.format(action)))
        await connection.execute(text(TRIGGER))


async def test_a_session_that_ends_during_commit_leaves_the_outcome_unknown(made):
    await at_the_first_commit(made, "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1);")
    with pytest.raises(StoreOutcomeUnknown):
        await made.store.update_run_meta("r", {"a": 1}, claim_epoch=1)


async def test_a_repeat_by_identity_settles_a_session_that_ended_during_commit(made):
    await at_the_first_commit(made, "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1);")
    assert await made.store.save_run_event("r", event_type="x", claim_epoch=1) == 0
    assert len(await made.store.get_run_events("r")) == 1


async def test_a_commit_that_is_answered_with_a_serialization_failure_wrote_nothing(made):
    await at_the_first_commit(made, "RAISE EXCEPTION 'x' USING ERRCODE = '40001';")
    await made.store.update_run_meta("r", {"a": 1}, claim_epoch=1)
    assert (await made.store.get_run("r")).meta == {"a": 1}


async def test_a_server_that_became_read_only_is_unavailable_and_then_used_again(made):
    await made.store.get_run("r")
    await made.admin("ALTER DATABASE {} SET default_transaction_read_only = on")
    await made.engine.dispose()
    with pytest.raises(StoreUnavailableError) as raised:
        await made.store.save_run_event("r", event_type="x", claim_epoch=1)
    assert (raised.value.kind, raised.value.db_code) == ("connection_lost", "25006")
    assert raised.value.retryable
    async with made.other.connect() as connection:
        await connection.execute(text("SET default_transaction_read_only = off"))
        await connection.execute(text(f"ALTER DATABASE {made.url.database} RESET default_transaction_read_only"))
        await connection.commit()
    assert await made.store.save_run_event("r", event_type="x", claim_epoch=1) == 0, "with a new session"


async def test_a_session_that_became_read_only_is_not_used_again(made):
    """After a failover a pool still holds sessions of the old primary, whose connections are fine."""
    async with made.engine.connect() as connection:
        await connection.execute(text("SET default_transaction_read_only = on"))
        await connection.commit()
    assert await made.store.save_run_event("r", event_type="x", claim_epoch=1) == 0


async def test_a_plan_from_before_a_migration_is_made_anew(made):
    """Old processes go on while columns change: a prepared statement whose result changed is refused once."""
    for _ in range(8):  # psycopg prepares what it has seen five times
        await made.store.get_run("r")
        await made.store.touch_progress("r", claim_epoch=1)
    await made.admin("ALTER TABLE agent_runs ALTER COLUMN agent_name TYPE text")
    await made.admin("ALTER TABLE agent_runs ALTER COLUMN id TYPE varchar(65)")
    for _ in range(8):
        assert (await made.store.get_run("r")).id == "r"
        assert await made.store.touch_progress("r", claim_epoch=1)


async def test_a_pool_that_has_no_connection_to_give_says_so_at_once(made):
    async with contextlib.AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(made.engine.connect())
        with pytest.raises(StoreUnavailableError) as raised:
            await made.store.save_run_event("r", event_type="x", claim_epoch=1)
        assert (raised.value.db_code, raised.value.attempts) == ("pool_timeout", 1)
    assert await made.store.save_run_event("r", event_type="x", claim_epoch=1) == 0


async def test_a_server_that_cannot_be_reached_is_unavailable(made):
    engine = get_engine(made.url.set(port=1))
    with pytest.raises(StoreUnavailableError) as raised:
        await PostgresStateStore(engine).get_run("r")
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    await engine.dispose()


async def test_a_database_that_is_not_there_says_nothing_of_its_name(made):
    """asyncpg has the server's code for it; psycopg has none for what fails while connecting, so it is tried again."""
    engine = get_engine(made.url.set(database="nobody_made_this"))
    with pytest.raises(PersistenceError) as raised:
        await PostgresStateStore(engine).get_run("r")
    told = made.url.get_driver_name() == "asyncpg"
    assert type(raised.value) is (PersistenceError if told else StoreUnavailableError)
    assert raised.value.attempts == (1 if told else 6)
    assert "nobody_made_this" not in f"{raised.value!r} {vars(raised.value)}"
    await engine.dispose()
