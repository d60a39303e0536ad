"""Databases of their own on the servers that are found."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import pytest
import pytest_asyncio
from sqlalchemy import URL, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.models import Base
from dendrux.db.session import get_engine


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest_asyncio.fixture
async def postgres() -> AsyncIterator[URL]:
    """The URL of a database with our tables, for asyncpg."""
    named = os.environ.get("DENDRUX_TEST_POSTGRESQL_URL")
    if named is None and not listens(5432):
        pytest.skip("no PostgreSQL: name one in DENDRUX_TEST_POSTGRESQL_URL")
    server = make_url(named or "postgresql+asyncpg://postgres@127.0.0.1:5432/postgres")
    name = f"dendrux_test_{secrets.token_hex(6)}"
    admin = create_async_engine(server, isolation_level="AUTOCOMMIT")
    async with admin.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        url = server.set(database=name)
        engine = get_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        await engine.dispose()
        yield url
    finally:
        async with admin.connect() as connection:
            await connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        await admin.dispose()


@pytest.fixture(params=["asyncpg", "psycopg"])
def postgres_url(request: pytest.FixtureRequest, postgres: URL) -> URL:
    """The same for each driver."""
    pytest.importorskip(request.param)
    return postgres.set(drivername=f"postgresql+{request.param}")
