"""Databases that tests make and drop: `dendrux_test_` and a random name, on a server that lets us create one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import URL, delete, or_, true, update
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import agent_runs, blobs
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


UNRELATED: Final = {"parent_run_id": None, "retry_of_run_id": None}
RELATED: Final = or_(*(agent_runs.c[name].is_not(None) for name in UNRELATED))
"""Runs that refer to others. MySQL counts the tables that a deletion reaches, and refuses a long chain of runs."""


EVERY: Final = true()


async def empty(
    connection: AsyncConnection, *, runs: ColumnElement[bool] = EVERY, pictures: ColumnElement[bool] = EVERY
) -> None:
    """Delete the runs and blobs that are meant, all of them by default. Rows of a run go with it."""
    await connection.execute(update(agent_runs).where(runs, RELATED).values(UNRELATED))
    await connection.execute(delete(agent_runs).where(runs))
    await connection.execute(delete(blobs).where(pictures))


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
