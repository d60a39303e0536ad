"""Databases of a test's own: made empty before it, dropped after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.testing.databases import NotFound, Server, find
from dendrux.testing.scratch import scratch

FAMILIES = ("sqlite", "postgresql", "mariadb", "mysql")
_NUMBERS = count()


def on(url: str, work: Any) -> Any:
    """What a function of a synchronous connection answers; committed when it returns."""

    async def run() -> Any:
        engine = create_async_engine(url, poolclass=NullPool)
        try:
            async with engine.connect() as connection:
                answer = await connection.run_sync(work)
                await connection.commit()
                return answer
        finally:
            await engine.dispose()

    return asyncio.run(run())


def statement(url: str, sql: str) -> list[Any]:
    """The rows of one statement."""

    def work(connection: Connection) -> list[Any]:
        result = connection.execute(text(sql))
        return list(result) if result.returns_rows else []

    return on(url, work)


_FOUND: dict[str, Server | str] = {}


def server(family: str) -> Server | str:
    """A server of the family, or why there is none."""
    if family not in _FOUND:
        try:
            _FOUND[family] = find(family)
        except NotFound as missing:
            _FOUND[family] = str(missing)
    return _FOUND[family]


def stop_servers() -> None:
    """Stop what was started for the tests."""
    for found in _FOUND.values():
        if isinstance(found, Server):
            found.stop()
    _FOUND.clear()


@contextmanager
def database(family: str, directory: Path) -> Iterator[str]:
    """The URL of an empty database of a family; the test is skipped where no server of it is found."""
    if family == "sqlite":
        yield f"sqlite+aiosqlite:///{directory / f'{next(_NUMBERS)}.db'}"
        return
    found = server(family)
    if isinstance(found, str):
        pytest.skip(found)
    with scratch(found) as url:
        yield url.render_as_string(hide_password=False)
