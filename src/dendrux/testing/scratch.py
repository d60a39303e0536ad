"""Databases that tests make and drop: `dendrux_test_` and a random name, on a server that lets us create one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.testing.databases import Server, in_a_loop

PREFIX: Final = "dendrux_test_"


@contextmanager
def scratch(server: Server) -> Iterator[URL]:
    """The URL of an empty database, which is dropped after the block with everything that still uses it."""
    name = PREFIX + secrets.token_hex(6)
    in_a_loop(run(server.url, *making(server.name, name)))
    try:
        yield server.url.set(database=name)
    finally:
        in_a_loop(run(server.url, *dropping(server.name, name)))


def making(server: str, name: str) -> tuple[str, ...]:
    """The statements that make a database. What is in it need not survive a crash of the server."""
    if server == "postgresql":
        return f"CREATE DATABASE {name}", f"ALTER DATABASE {name} SET synchronous_commit = off"
    return (f"CREATE DATABASE {name} CHARACTER SET utf8mb4",)


def dropping(server: str, name: str) -> tuple[str, ...]:
    """The statements that drop it, whoever is connected."""
    return (f"DROP DATABASE {name} WITH (FORCE)" if server == "postgresql" else f"DROP DATABASE {name}",)


async def run(url: URL, *statements: str) -> None:
    """Run statements outside of a transaction."""
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    try:
        async with engine.connect() as connection:
            for statement in statements:
                await connection.exec_driver_sql(statement)
    finally:
        await engine.dispose()
