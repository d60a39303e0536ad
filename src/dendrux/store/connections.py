"""Getting a connection and giving it back, so that nothing stays open or checked out, whatever happens between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection

from dendrux.store.engines import access
from dendrux.store.hookvalues import DbError, DbErrorKind
from dendrux.store.remedies import remedy_of
from dendrux.store.tx import Failure

if TYPE_CHECKING:
    from dendrux.store.base import SQLStateStore

WAITED_FOR: Final = frozenset({DbErrorKind.DEADLOCK_OR_SERIALIZATION, DbErrorKind.LOCK_TIMEOUT})


POOL_TIMEOUT: Final = "pool_timeout"
"""The code of a pool that gave no connection within its own bound, which is not waited for again."""


async def open_connection(
    store: SQLStateStore,
    unsent: Callable[[], AbstractContextManager[None]],
    enter: Callable[[], Awaitable[None]],
    leave: Callable[[], None],
) -> AsyncConnection:
    """A connection of the caller's own, waited for within `unsent`.

    A failure to get one is a lost connection: nothing was sent. Unless asking again would fail the same way.
    """
    with unsent():
        await enter()
    connection = None
    try:
        with unsent():
            connection = await store._engine.connect()
        return connection
    except PoolTimeout:
        found = DbError(DbErrorKind.CONNECTION_LOST, None, POOL_TIMEOUT)
    except Exception as error:  # noqa: BLE001  drivers raise anything when they cannot connect
        found = store.classify_db_error(error)
    finally:
        if connection is None:
            leave()
    final = found.kind in WAITED_FOR or remedy_of(found.code) is not None
    raise Failure(found if final else DbError(DbErrorKind.CONNECTION_LOST, None, found.code))


async def close_connection(connection: AsyncConnection | None, leave: Callable[[], None]) -> None:
    """Roll back what is open and give the connection back; one that cannot roll back is thrown away."""
    if connection is None:
        return
    try:
        try:
            await connection.close()
        except Exception:  # noqa: BLE001  the outcome is decided already; only the connection must not stay
            with suppress(Exception):
                await connection.invalidate()
            with suppress(Exception):
                await connection.close()
    finally:
        leave()


async def roll_back(connection: AsyncConnection) -> None:
    """Roll back after a COMMIT that failed.

    SQLAlchemy takes the transaction for ended then and would give the connection back with it still open in the driver.
    """
    if connection.invalidated:
        return
    try:
        await connection.run_sync(lambda sync: sync.dialect.do_rollback(sync.connection))
    except Exception:  # noqa: BLE001  a connection that cannot roll back is thrown away, and the server ends it
        with suppress(Exception):
            await connection.invalidate()


async def discard(store: SQLStateStore, connection: AsyncConnection) -> None:
    """Never use this connection again; a repeat gets a fresh one. Where the connection is the database, keep it."""
    if access(store._engine).shared or connection.invalidated:
        return
    with suppress(Exception):
        await connection.invalidate()
