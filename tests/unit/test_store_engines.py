"""What a store refuses of an engine before it uses it, and how it shares one connection."""

from __future__ import annotations

import asyncio
import sys

import pytest
from sqlalchemy import create_mock_engine, event, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import StaticPool

from dendrux.db.models import Base, tool_calls
from dendrux.db.session import get_engine
from dendrux.errors import PersistenceError, SchemaNotInitializedError, SchemaOutOfDateError, StoreUnavailableError
from dendrux.store import SQLiteStateStore, store_for_engine
from dendrux.store.dialects import sqlite
from unit.store_support import another_process, built_in, plain_engine

pytestmark = pytest.mark.asyncio


async def test_autocommit_engines_are_refused(tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path / 'a.db'}"
    plain = create_async_engine(url)
    async with plain.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    engines = [
        create_async_engine(url, isolation_level="AUTOCOMMIT"),
        plain.execution_options(isolation_level="AUTOCOMMIT"),
        create_async_engine(url, connect_args={"isolation_level": None}),
    ]
    if sys.version_info >= (3, 12):
        engines.append(create_async_engine(url, connect_args={"autocommit": True}))
    for engine in engines:
        with pytest.raises(ValueError, match="AUTOCOMMIT"):
            await SQLiteStateStore(engine).create_run("r", "agent")
        with pytest.raises(ValueError, match="AUTOCOMMIT"):
            await SQLiteStateStore(engine).get_run("r")
        await engine.dispose()
    assert await SQLiteStateStore(plain).get_run("r") is None
    await plain.dispose()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has autocommit= since Python 3.12")
async def test_a_driver_that_is_always_in_a_transaction_works(tmp_path):
    async with plain_engine(tmp_path, connect_args={"autocommit": False}) as engine:
        store = SQLiteStateStore(engine)
        await store.create_run("r", "agent")
        assert [await store.save_run_event("r", event_type="x", claim_epoch=1) for _ in range(3)] == [0, 1, 2]


async def test_a_store_belongs_to_one_event_loop(tmp_path):
    async with built_in(tmp_path) as store:
        await store.create_run("r", "agent")

        def elsewhere():
            asyncio.run(store.get_run("r"))

        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(elsewhere)
        assert (await store.get_run("r")).id == "r"


async def test_an_unprepared_database_is_named(tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(SchemaNotInitializedError) as raised:
        await SQLiteStateStore(engine).create_run("r", "agent")
    assert isinstance(raised.value, PersistenceError)
    assert raised.value.__context__ is None
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        await connection.execute(text("ALTER TABLE run_events DROP COLUMN content_digest"))
        await connection.execute(text("DROP TABLE run_inbox"))
    with pytest.raises(SchemaOutOfDateError, match=r"run_events\.content_digest, run_inbox") as late:
        await SQLiteStateStore(engine).get_run("r")
    assert late.value.__context__ is None
    await engine.dispose()


async def test_the_schema_is_looked_at_once_per_engine(tmp_path):
    async with plain_engine(tmp_path) as engine:
        await SQLiteStateStore(engine).get_run("r")
        looks = []
        event.listen(engine.sync_engine, "before_cursor_execute", lambda *a: looks.append(a[2]))
        await SQLiteStateStore(engine).get_run("r")
        assert not [sql for sql in looks if "table_info" in sql]


async def test_a_disposed_engine_is_checked_again():
    engine = create_async_engine("sqlite+aiosqlite://")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    store = SQLiteStateStore(engine)
    await store.create_run("r", "agent")
    await engine.dispose()  # an in-memory database is gone with its connection
    with pytest.raises(SchemaNotInitializedError):
        await store.get_run("r")
    await engine.dispose()


@pytest.mark.parametrize("url", ["sqlite+aiosqlite://", "sqlite+aiosqlite:///file::memory:?cache=shared&uri=true"])
async def test_one_memory_is_shared_in_turns(url):
    engine = get_engine(url)
    one, two = SQLiteStateStore(engine), SQLiteStateStore(engine)
    assert one.capabilities.deployment == "single_process"
    await one.create_run("r", "agent")
    stores = [one, two] * 20
    indexes = await asyncio.gather(
        *(store.save_run_event("r", event_type="x", claim_epoch=1) for store in stores),
        *(store.get_run("r") for store in stores),
    )
    assert sorted(indexes[:40]) == list(range(40))
    await engine.dispose()


async def test_a_refusal_leaves_the_one_connection_usable():
    engine = get_engine("sqlite+aiosqlite://")
    store = SQLiteStateStore(engine)
    await store.create_run("r", "agent")
    for _ in range(3):
        with pytest.raises(PersistenceError):
            await store.save_run_event("r", event_type="x", claim_epoch=7)
    assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0
    await engine.dispose()


async def test_files_are_of_one_host(tmp_path):
    async with built_in(tmp_path) as store:
        assert store.capabilities.deployment == "single_host"


async def test_what_get_engine_sets(tmp_path):
    engine = get_engine(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
    async with engine.connect() as connection:
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 5000)):
            assert (await connection.execute(text(f"PRAGMA {pragma}"))).scalar() == value
        format_ = await connection.execute(text("SELECT value FROM dendrux_settings WHERE key = 'storage_format'"))
        assert format_.scalar() == "2"
        with pytest.raises(Exception, match="FOREIGN KEY"):
            await connection.execute(
                text("INSERT INTO run_inbox (id, run_id, text, created_at) VALUES ('n', 'missing', 'x', '2026-01-01')")
            )
    await engine.dispose()


async def test_create_all_on_older_tables_activates_nothing(tmp_path):
    path = tmp_path / "old.db"
    with another_process(path) as connection:
        connection.execute("CREATE TABLE agent_runs (id VARCHAR(26) PRIMARY KEY)")
    for make in (create_async_engine, get_engine):
        engine = make(f"sqlite+aiosqlite:///{path}")
        async with engine.begin() as connection:
            await connection.run_sync(
                lambda sync: Base.metadata.tables["dendrux_settings"].create(sync, checkfirst=True)
            )
            assert (await connection.execute(text("SELECT count(*) FROM dendrux_settings"))).scalar() == 0
        with pytest.raises(SchemaOutOfDateError):
            await SQLiteStateStore(engine).get_run("r")
        await engine.dispose()


async def test_a_database_that_cannot_be_opened_for_now_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "can_be_opened", lambda file: True)
    store = SQLiteStateStore(create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'missing' / 'a.db'}"))
    store.retry_backoff_s = 0.0
    with pytest.raises(StoreUnavailableError) as raised:
        await store.get_run("r")
    assert raised.value.retryable
    assert raised.value.attempts == 6
    await asyncio.sleep(0.05)  # the driver's threads end after their last answer


async def test_the_factory_names_a_dialect_it_does_not_know():
    class Elsewhere:
        dialect = type("Dialect", (), {"name": "oracle"})

    with pytest.raises(ValueError, match="oracle"):
        store_for_engine(Elsewhere())
    with pytest.raises(ValueError, match="oracle"):
        SQLiteStateStore(Elsewhere())


async def test_a_pool_of_one_connection_does_not_deadlock(tmp_path):
    async with plain_engine(tmp_path, poolclass=StaticPool) as engine:
        store = SQLiteStateStore(engine)
        await store.create_run("r", "agent")
        await asyncio.gather(*(store.save_run_event("r", event_type="x", claim_epoch=1) for _ in range(10)))
        assert len(await store.get_run_events("r")) == 10


async def test_create_all_makes_all_tables_or_none_on_sqlite(tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'half.db'}")

    def interrupted(table, connection, **_):
        raise RuntimeError

    event.listen(tool_calls, "after_create", interrupted)
    try:
        with pytest.raises(RuntimeError):
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
    finally:
        event.remove(tool_calls, "after_create", interrupted)
    async with engine.begin() as connection:
        assert await connection.run_sync(lambda sync: inspect(sync).get_table_names()) == []
        await connection.run_sync(Base.metadata.create_all)
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


async def test_the_statements_of_the_schema_can_be_printed():
    shown = []
    engine = create_mock_engine("sqlite://", lambda statement, *_, **__: shown.append(statement))
    Base.metadata.create_all(engine, checkfirst=False)
    assert len(shown) > len(Base.metadata.tables)
