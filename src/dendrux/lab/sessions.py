"""The sessions of a server: which one a connection has, what one has left open, and how another connection ends one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, bindparam, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

ENDS_S: Final = 20.0
"""A session that was told to end and is there after this long does not end."""
POLL_S: Final = 0.002
NO_SUCH_THREAD: Final = 1094
"""What MySQL and MariaDB call a session that is gone."""


def beside(engine: AsyncEngine) -> AsyncEngine:
    """An engine with connections of its own, made as the given one makes them, whose pool may have one only."""
    made = engine.sync_engine
    return AsyncEngine(Engine(made.pool.recreate(), made.dialect, made.url, hide_parameters=True))


def driver_of(connection: Any) -> Any:
    """The driver's own object of a pool connection, also of one that its pool has been made to forget."""
    adapted = getattr(connection, "dbapi_connection", None)
    return getattr(connection, "driver_connection", None) or getattr(adapted, "driver_connection", adapted)


def session_of(connection: Any) -> int | None:
    """The number under which a server knows this pool connection; None where its driver does not tell."""
    driver = driver_of(connection)
    for tell in ("get_server_pid", "thread_id"):  # asyncpg; the drivers of MySQL
        if callable(getattr(driver, tell, None)):
            return int(getattr(driver, tell)())
    return getattr(getattr(driver, "info", None), "backend_pid", None)  # psycopg


# -- questions --------------------------------------------------------------------------------------------------------

BACKEND: Final = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
UNFINISHED: Final = text(
    "SELECT count(*) FROM pg_stat_activity a WHERE a.pid IN :pids "
    "AND (a.state <> 'idle' OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid))"
).bindparams(bindparam("pids", expanding=True))


async def alive_in_postgresql(connection: AsyncConnection, session: int) -> bool:
    """Whether there is such a backend."""
    return bool(await connection.scalar(BACKEND, {"pid": session}))


async def alive_in_mysql(connection: AsyncConnection, session: int) -> bool:
    """Whether there is such a thread: it goes when its transaction has been rolled back.

    Told to end again, which costs nothing: the lists of threads have another name on each server of the family.
    """
    try:
        await connection.exec_driver_sql(MYSQL.end.format(session))
    except DBAPIError as error:
        if error.orig is not None and error.orig.args[:1] == (NO_SUCH_THREAD,):
            return False
        raise
    return True


async def unfinished_in_postgresql(connection: AsyncConnection, sessions: Collection[int]) -> bool:
    """Whether one of these backends is in a transaction or holds a lock."""
    return bool(await connection.scalar(UNFINISHED, {"pids": sorted(sessions)}))


async def unfinished_in_innodb(connection: AsyncConnection, sessions: Collection[int]) -> bool:
    """Whether the monitor shows a transaction of one of these threads that was begun and has not ended."""
    monitor = (await connection.exec_driver_sql("SHOW ENGINE INNODB STATUS")).mappings().one()["Status"]
    for transaction in str(monitor).split("---TRANSACTION")[1:]:
        thread = re.search(r"\bthread id (\d+),", transaction)
        state = transaction.partition("\n")[0]
        if thread is not None and int(thread[1]) in sessions and ("ACTIVE" in state or "PREPARED" in state):
            return True
    return False


class Words(NamedTuple):
    """How a server is spoken to about sessions."""

    end: str
    alive: Callable[[AsyncConnection, int], Awaitable[bool]]
    unfinished: Callable[[AsyncConnection, Collection[int]], Awaitable[bool]]


MYSQL: Final = Words("KILL {:d}", alive_in_mysql, unfinished_in_innodb)
WORDS: Final[Mapping[str, Words]] = {
    "postgresql": Words("SELECT pg_terminate_backend({:d})", alive_in_postgresql, unfinished_in_postgresql),
    "mysql": MYSQL,
    "mariadb": MYSQL,
}
"""By the name of the dialect. A database that is not here has no sessions that another connection can end."""


async def end_session(engine: AsyncEngine, session: int) -> None:
    """End a session from another connection and wait until it is gone. TimeoutError when it stays."""
    words = WORDS[engine.dialect.name]
    another = beside(engine)
    try:
        async with another.connect() as plain, asyncio.timeout(ENDS_S):
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            await connection.exec_driver_sql(words.end.format(session))
            while await words.alive(connection, session):  # noqa: ASYNC110  # a server sets no event
                await asyncio.sleep(POLL_S)
    finally:
        await another.dispose()
