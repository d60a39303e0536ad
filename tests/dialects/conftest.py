"""Databases of their own on the servers that are found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from dendrux.db.models import Base
from dendrux.db.session import get_engine
from dendrux.testing.databases import NotFound, Server
from dendrux.testing.scratch import empty, scratch
from dialects.found import Found


@pytest.fixture(scope="session")
def postgres_server(found: Found) -> Server:
    return server_of(found, "postgresql")


def server_of(found: Found, name: str) -> Server:
    """The session's server of this name."""
    try:
        return found.server(name)
    except NotFound as missing:
        pytest.skip(str(missing))


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[URL]:
    """The URL of a database with our tables, for asyncpg."""
    with scratch(postgres_server) as url:
        asyncio.run(create(url))
        yield url


async def create(url: URL) -> None:
    engine = get_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


@pytest.fixture(params=["asyncpg", "psycopg"])
def postgres_url(request: pytest.FixtureRequest, postgres: URL) -> URL:
    """The same for each driver."""
    pytest.importorskip(request.param)
    return postgres.set(drivername=f"postgresql+{request.param}")


@pytest.fixture(scope="session", params=["mysql", "mariadb"])
def mysql_database(request: pytest.FixtureRequest, found: Found) -> Iterator[URL]:
    """The URL of a database with our tables on each server of the family, kept for the session."""
    with scratch(server_of(found, request.param)) as url:
        asyncio.run(create(url))
        yield url


@pytest.fixture
def mysql_url(mysql_database: URL) -> Iterator[URL]:
    """The same, emptied after the test."""
    yield mysql_database
    asyncio.run(emptied(mysql_database))


async def emptied(url: URL) -> None:
    engine = get_engine(url)
    async with engine.begin() as connection:
        await empty(connection)
    await engine.dispose()
