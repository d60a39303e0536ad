"""Both transports on real servers: what one instance sends another hears, also after every connection was cut."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dendrux.live import PostgresUpdates, RedisUpdates
from dendrux.store import PostgresStateStore, SQLiteStateStore, store_for_engine
from live.conftest import cut_postgres
from live.support import Ear
from unit.store_support import built_in


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    for kind in (PostgresUpdates, RedisUpdates):
        monkeypatch.setattr(kind, "backoff_first_s", 0.05)
        monkeypatch.setattr(kind, "backoff_most_s", 0.2)


@pytest.fixture
async def pair(transport):
    speaks, hears = transport.made(), transport.made()
    ear = Ear()
    hears.listen(ear.hear)
    await ear.until(lambda: ear.nothings == 1)
    yield speaks, ear, transport
    await speaks.close()
    await hears.close()


async def test_what_one_sends_the_other_hears(pair):
    speaks, ear, _ = pair
    ids = ["r", "\x00", 'a"b', "é" * 64]
    speaks.enqueue(ids)
    await speaks.flush()
    await ear.until(lambda: len(ear.ids) == 4)
    assert sorted(ear.ids) == sorted(ids)


async def test_as_many_ids_as_may_wait(pair):
    speaks, ear, _ = pair
    ids = [f"{chr(0x1F600) * 58}{number:06}" for number in range(speaks.pending_max)]
    speaks.enqueue(ids)
    while speaks._pending or not speaks._sending.done():
        await speaks.flush()
    await ear.until(lambda: len(ear.ids) >= len(ids))
    assert sorted(ear.ids) == sorted(ids)


async def test_after_a_cut_both_ends_come_back_and_everybody_is_told_to_look(pair):
    speaks, ear, transport = pair
    speaks.enqueue(["before"])
    await speaks.flush()
    await ear.until(lambda: "before" in ear.ids)
    for round_ in range(2):
        known = ear.nothings
        await transport.cut()
        await ear.until(lambda known=known: ear.nothings > known)
        speaks.enqueue([f"after {round_}"])

        async def heard(round_=round_):
            while f"after {round_}" not in ear.ids:
                await speaks.flush()
                await asyncio.sleep(0.02)

        async with asyncio.timeout(20):
            await heard()


async def test_close_ends_every_task_and_connection(pair, transport):
    speaks, ear, _ = pair
    speaks.enqueue(["r"])
    await speaks.close()
    await ear.until(lambda: ear.ids == ["r"])
    before = {task for task in asyncio.all_tasks() if task.get_name().startswith("dendrux live")}
    assert len(before) == 1, "the one that listens in the other instance"


async def test_nobody_answers(nowhere, caplog):
    for live in (PostgresUpdates(nowhere), RedisUpdates("redis://:hush-hush@127.0.0.1:1/0")):
        ear = Ear()
        live.listen(ear.hear)
        live.enqueue(["r"])
        with caplog.at_level(logging.DEBUG, "dendrux.live"):
            await live.flush()
            await asyncio.sleep(0.1)
            await live.close()
        assert list(live._pending) == ["r"]
        assert ear.nothings == 0
    assert "hints wait" in caplog.text
    assert "followers poll" in caplog.text
    assert "hush" not in caplog.text


def test_bad_addresses_are_refused_without_being_repeated():
    for make in (
        lambda: PostgresUpdates("mysql://me:hush-hush@host/x"),
        lambda: PostgresUpdates("hush-hush"),
        lambda: RedisUpdates("http://me:hush-hush@host"),
    ):
        with pytest.raises(ValueError, match="URL of") as refused:
            make()
        assert "hush" not in str(refused.value)
    with pytest.raises(ValueError, match="channel"):
        PostgresUpdates("postgresql://h/x", channel="x" * 64)
    with pytest.raises(ValueError, match="channel"):
        RedisUpdates("redis://h", channel="")


async def test_the_engine_says_where_postgres_is_and_a_dsn_overrides_it(tmp_path, postgres_url):
    with pytest.raises(ValueError, match=r"SQLiteStateStore .*dsn"):
        async with built_in(tmp_path, live_updates=PostgresUpdates()):
            pass
    dsn = postgres_url.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
    async with built_in(tmp_path, live_updates=PostgresUpdates(dsn)) as store:
        await store.create_run("r", "agent")
        assert store.live_updates._sender is not None
        await store.close()


@pytest.mark.only("postgresql")
async def test_true_is_postgres_own_transport(database, tmp_path):
    async with database.engine(tmp_path) as engine, database.engine_beside() as other:
        writer = store_for_engine(engine, live_updates=True)
        assert isinstance(writer.live_updates, PostgresUpdates)
        reader = PostgresStateStore(other, live_updates=True)
        ear, seen = Ear(), []
        reader.live_updates.listen(ear.hear)
        await ear.until(lambda: ear.nothings)
        for number in range(20):
            await writer.create_run(f"r{number}", "agent")
            await ear.until(lambda number=number: f"r{number}" in ear.ids)
            seen.append(await reader.get_run(f"r{number}"))
        assert all(run is not None for run in seen)
        assert await cut_postgres(engine.url) == 2, "one connection for each end"
        await writer.save_run_event("r0", event_type="x")
        await writer.close()
        await reader.close()


async def test_redis_serves_a_store_on_any_database(tmp_path, redis_url):
    hears = RedisUpdates(redis_url, channel="test:any")
    ear = Ear()
    hears.listen(ear.hear)
    await ear.until(lambda: ear.nothings)
    async with built_in(tmp_path, SQLiteStateStore, live_updates=RedisUpdates(redis_url, channel="test:any")) as store:
        await store.create_run("r", "agent")
        await ear.until(lambda: ear.ids == ["r"])
        await store.close()
    await hears.close()
