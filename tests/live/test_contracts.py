"""The kit's group on every built-in store, its announcements on their way through a real transport."""

from __future__ import annotations

import asyncio
import logging
import secrets

import pytest

from dendrux.db.session import get_engine
from dendrux.live import PostgresUpdates, RedisUpdates
from dendrux.store import PostgresStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.recording import Announcement, RecordingUpdates
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import Settings, Situation
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector
from live.support import Ear

GROUP = [c for c in catalogue() if c.group == "live_updates" and "format_1" not in c.needs]
HEARD_S = 20.0


class Relayed(RecordingUpdates):
    """Sends what is flushed to another instance, and looks when it has arrived there."""

    def __init__(self, speaks, hears):
        super().__init__()
        self.speaks, self.hears, self.ear = speaks, hears, Ear()
        hears.listen(self.ear.hear)

    async def flush(self):
        self.flushes += 1
        ids, self.pending = list(dict.fromkeys(self.pending)), []
        self.ear.ids.clear()
        self.speaks.enqueue(ids)
        await self.speaks.flush()
        await self.ear.until(lambda: set(self.ear.ids) >= set(ids))
        for run_id in self.ear.ids:
            self.sent.append(Announcement(run_id, None if self.look is None else await self.look(run_id)))


@pytest.fixture(params=["redis", "postgres"])
def transport(request, database, found):
    """Makes instances that hear each other: Redis for every database, and PostgreSQL's own for PostgreSQL."""
    channel = f"test_{secrets.token_hex(6)}"
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        return lambda: RedisUpdates(url, channel=channel)
    if database.kind is not PostgresStateStore:
        pytest.skip("LISTEN is PostgreSQL's")
    dsn = database.url.render_as_string(hide_password=False)
    return lambda: PostgresUpdates(dsn, channel=channel)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, "dendrux.store")  # cut transactions are what these contracts are about


@pytest.fixture
async def ends(transport):
    """Two instances that hear each other."""
    speaks, hears = transport(), transport()
    yield speaks, hears
    await speaks.close()
    await hears.close()


async def test_the_group_is_green(database, ends, tmp_path):
    assert len(GROUP) >= 28
    live = Relayed(*ends)
    await live.ear.until(lambda: live.ear.nothings)
    async with database.engine(tmp_path) as engine:
        other = get_engine(engine.url)
        for contract in GROUP:
            injector = SqlFaultInjector()
            bench = Bench(
                lambda: database.kind(engine, live_updates=live),
                second=lambda _: database.kind(other),
                reopen=lambda _: database.kind(engine),
                clock=SqlClock(lambda: engine),
                injector=injector,
                live=live,
            )
            live.forget()
            live.bound.clear()
            situation = Situation(bench=bench, format=2, capabilities=None, settings=Settings(), note=lambda *_: None)
            async with asyncio.timeout(60):
                await contract.check(situation)
            injector.close()
            await bench.close()
        await other.dispose()
