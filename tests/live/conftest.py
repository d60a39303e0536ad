"""Transports on real servers. A Redis that is restarted is one of the test's own, never the session's."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from sqlalchemy import URL, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.live import PendingUpdates, PostgresUpdates, RedisUpdates
from dendrux.testing.databases import NotFound
from dialects.found import Found
from live.support import OwnRedis


def server(found: Found, name: str) -> URL:
    try:
        return found.server(name).url
    except NotFound as missing:
        pytest.skip(str(missing))


class Transport(Protocol):
    """One channel: instances on it, and how its connections are cut."""

    def made(self, kind: Any = None) -> PendingUpdates: ...

    async def cut(self) -> None: ...


class OnPostgres:
    def __init__(self, url: URL) -> None:
        self.url = url.set(drivername="postgresql+asyncpg")
        self.channel = f"test_{secrets.token_hex(6)}"

    def made(self) -> PendingUpdates:
        dsn = self.url.set(drivername="postgresql").render_as_string(hide_password=False)
        return PostgresUpdates(dsn, channel=self.channel)

    async def cut(self) -> None:
        await cut_postgres(self.url)


async def cut_postgres(url: URL) -> int:
    """Kill every connection of live updates to this database: how many there were."""
    engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
    try:
        async with engine.connect() as connection:
            killed = await connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'dendrux live updates' AND datname = current_database()"
                )
            )
            return len(killed.all())
    finally:
        await engine.dispose()


class OnRedis:
    def __init__(self, own: OwnRedis) -> None:
        self.own = own
        self.channel = f"test:{secrets.token_hex(6)}"

    def made(self) -> PendingUpdates:
        return RedisUpdates(self.own.url, channel=self.channel)

    async def cut(self) -> None:
        await self.own.restart()


@pytest.fixture(scope="session")
def own_redis() -> Iterator[OwnRedis]:
    """A Redis that only this session uses, so that it may be restarted."""
    pytest.importorskip("redis")
    try:
        own = OwnRedis()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    yield own
    own.stop()


@pytest.fixture
def redis_url(found: Found) -> str:
    """The Redis of the session; tests use channels of their own."""
    pytest.importorskip("redis")
    return server(found, "redis").render_as_string(hide_password=False)


@pytest.fixture
def postgres_url(found: Found) -> URL:
    """A database of this session on PostgreSQL."""
    pytest.importorskip("asyncpg")
    try:
        url = found.database("postgresql").url
    except NotFound as missing:
        pytest.skip(str(missing))
    assert url is not None
    return url


@pytest_asyncio.fixture(params=["postgresql", "redis"])
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    """Each transport in turn."""
    if request.param == "redis":
        yield OnRedis(request.getfixturevalue("own_redis"))
    else:
        yield OnPostgres(request.getfixturevalue("postgres_url"))


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A URL at which nobody answers, with a password that nobody may show."""
    return make_url("postgresql://me:hush-hush@127.0.0.1:1/x").render_as_string(hide_password=False)
