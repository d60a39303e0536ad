"""What the store must know of an engine before it uses it: whether its connections are real transactions of the
caller's own, and whether the schema is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Select, exists, false, inspect, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import AssertionPool, NullPool, Pool, SingletonThreadPool, StaticPool

from dendrux.db.models import STORAGE_FORMAT, STORAGE_FORMAT_KEY, agent_runs, metadata, settings
from dendrux.db.session import is_memory
from dendrux.errors import SchemaNotInitializedError, SchemaOutOfDateError


class Access:
    """One engine's door. Kept per pool: two stores on one engine share it, and a disposed engine starts anew."""

    def __init__(self, pool: Pool, *, shared: bool) -> None:
        self.shared = shared or isinstance(pool, StaticPool | SingletonThreadPool | AssertionPool)
        """Whether everybody gets the same connection, or the same memory: then one transaction runs at a time."""
        self.schema_checked = False
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def enter(self) -> None:
        """Wait for the turn, before a connection is asked for."""
        if not self.shared:
            return
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop = asyncio.Lock(), loop
        await self._lock.acquire()

    def leave(self) -> None:
        """Let the next one in, once rollback or commit has finished."""
        if self.shared and self._lock is not None and self._lock.locked():
            self._lock.release()


_ACCESS: WeakKeyDictionary[Pool, Access] = WeakKeyDictionary()


def access(engine: AsyncEngine) -> Access:
    """The door of this engine's present pool."""
    pool = engine.sync_engine.pool
    found = _ACCESS.get(pool)
    if found is None:
        found = _ACCESS[pool] = Access(pool, shared=is_memory(engine.url))
    return found


def refuse_forgetful_pool(engine: AsyncEngine) -> None:
    """Data in memory lives as long as its connection.

    Refuses: ValueError for data in memory behind a pool that keeps no connection.
    """
    if is_memory(engine.url) and isinstance(engine.sync_engine.pool, NullPool):
        raise ValueError(
            "an in-memory database needs a pool that keeps its one connection: "
            "create the engine with poolclass=StaticPool, or take it from get_engine"
        )


async def refuse_autocommit(connection: AsyncConnection) -> None:
    """Every write is one real transaction.

    Refuses: ValueError for an engine or driver connection in AUTOCOMMIT mode, as the application set it.
    """
    level = await connection.run_sync(_isolation_option)
    raw = await connection.get_raw_connection()
    if str(level).upper() == "AUTOCOMMIT" or await connection.run_sync(_driver_autocommit) or await _flag(raw):
        raise ValueError(
            "the engine is in AUTOCOMMIT mode: a store needs real transactions; "
            "create the engine without isolation_level='AUTOCOMMIT' and without driver autocommit"
        )


def _isolation_option(connection: Connection) -> Any:
    return connection.get_execution_options().get("isolation_level")


def _driver_autocommit(connection: Connection) -> bool:
    dbapi_connection = connection.connection.dbapi_connection
    try:
        return bool(connection.dialect.detect_autocommit_setting(dbapi_connection))  # type: ignore[arg-type]
    except NotImplementedError:
        return False


async def _flag(raw: Any) -> bool:
    """The driver attribute `autocommit`, read in the driver's own thread where it has one."""
    driver = raw.driver_connection
    with suppress(AttributeError):
        return await driver._execute(getattr, driver._conn, "autocommit", None) is True
    return False


async def check_schema(connection: AsyncConnection) -> None:
    """The tables and columns this release needs are there.

    Refuses: SchemaNotInitializedError without our tables, SchemaOutOfDateError when some table or column is missing or
    the storage format is not one this release knows.
    """
    failed, found = None, None
    try:
        found = await connection.scalar(_everything())
    except DBAPIError as error:
        failed = error
    if failed is not None:  # outside the handler: what is raised here must not carry the statement
        await connection.rollback()
        missing = await connection.run_sync(_missing)
        if missing is None:
            raise SchemaNotInitializedError
        if missing:
            raise SchemaOutOfDateError(
                f"The database's dendrux tables are of an older release: run `dendrux db migrate`. "
                f"Missing: {_some(missing)}."
            )
        raise failed
    if found not in (None, "1", STORAGE_FORMAT):
        raise SchemaOutOfDateError("The database was activated by a later release. Use that release, or a later one.")


@cache
def _everything() -> Select[Any]:
    """The storage format, in a statement that names every column: one round trip where all are there."""
    value = select(settings.c.value).where(settings.c.key == STORAGE_FORMAT_KEY).scalar_subquery()
    nothing = [exists(select(*table.columns).where(false())) for table in metadata.sorted_tables]
    return select(value, *nothing)


def _missing(connection: Connection) -> list[str] | None:
    """Missing tables and columns by name; None when the schema is not there at all."""
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    if agent_runs.name not in present:
        return None
    missing: list[str] = []
    for table in metadata.sorted_tables:
        if table.name not in present:
            missing.append(table.name)
            continue
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        missing += [f"{table.name}.{column.name}" for column in table.columns if column.name not in columns]
    return missing


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
