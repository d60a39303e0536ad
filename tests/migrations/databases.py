"""Databases of a test's own: made empty before it, dropped after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, make_url, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

SERVERS = {
    "postgresql": ("DENDRUX_TEST_POSTGRESQL_URL", "postgresql+asyncpg://postgres@127.0.0.1:5432/postgres"),
    "mariadb": ("DENDRUX_TEST_MARIADB_URL", "mysql+asyncmy://root@127.0.0.1:3306/mysql"),
    "mysql": ("DENDRUX_TEST_MYSQL_URL", "mysql+asyncmy://root@127.0.0.1:33306/mysql"),
}
FAMILIES = ("sqlite", *SERVERS)
_NUMBERS = count()


def on(url: str, work: Any, *, transaction: bool = True) -> Any:
    """What a function of a synchronous connection answers; committed when it returns."""

    async def run() -> Any:
        options: dict[str, Any] = {} if transaction else {"isolation_level": "AUTOCOMMIT"}
        engine = create_async_engine(url, poolclass=NullPool, **options)
        try:
            async with engine.connect() as connection:
                answer = await connection.run_sync(work)
                await connection.commit()
                return answer
        finally:
            await engine.dispose()

    return asyncio.run(run())


def statement(url: str, sql: str, *, transaction: bool = True) -> list[Any]:
    """The rows of one statement."""

    def work(connection: Connection) -> list[Any]:
        result = connection.execute(text(sql))
        return list(result) if result.returns_rows else []

    return on(url, work, transaction=transaction)


@contextmanager
def database(family: str, directory: Path) -> Iterator[str]:
    """The URL of an empty database of a family; the test is skipped where no server of it answers."""
    if family == "sqlite":
        yield f"sqlite+aiosqlite:///{directory / f'{next(_NUMBERS)}.db'}"
        return
    variable, usual = SERVERS[family]
    server = os.environ.get(variable, usual)
    name = f"dendrux_mig_{os.getpid()}_{next(_NUMBERS)}"
    try:
        statement(server, f"CREATE DATABASE {name}", transaction=False)
    except Exception as error:
        if variable in os.environ:
            raise
        pytest.skip(f"no {family} server: {type(error).__name__}")
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        force = " WITH (FORCE)" if family == "postgresql" else ""
        statement(server, f"DROP DATABASE {name}{force}", transaction=False)
