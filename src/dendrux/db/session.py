"""Engines: what a database needs so that the store's promises hold, set once where the connection is made."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import URL, Dialect
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateIndex, CreateTable

from dendrux.db.models import STORAGE_FORMAT, STORAGE_FORMAT_KEY, agent_runs, metadata, settings
from dendrux.db.urls import engine_on, read_url

BUSY_TIMEOUT_S: Final = 5.0
"""How long one SQLite statement waits for another connection's write lock."""

UTC_SESSION: Final = "SET time_zone = '+00:00'"
"""What a MySQL or MariaDB session of `get_engine` begins with."""

COMMITTED: Final = "READ COMMITTED"
"""The isolation level of a server's transactions, whatever the server's own default is."""


def get_engine(url: str | URL, **options: Any) -> AsyncEngine:
    """An engine that a store can use as it is. The caller owns it and disposes it.

    Ensures: on SQLite every connection checks foreign keys, syncs fully and waits a bounded time for locks; a file is
    in WAL mode; the schema is prepared on first connection, also when several processes start at once. On servers
    every transaction reads committed rows, and on MySQL and MariaDB the session is in UTC, unless the options say
    otherwise. Other databases get a plain engine. Prepare the schema of a server with `dendrux db migrate` or
    `Base.metadata.create_all`.
    Refuses: ValueError for a URL that cannot be used, without repeating any of it.
    """
    made = read_url(url)
    if made.get_backend_name() in ("mysql", "mariadb"):
        connect_args = {"init_command": UTC_SESSION, **options.pop("connect_args", {})}
        return engine_on(made, connect_args=connect_args, **{"isolation_level": COMMITTED, **options})
    if made.get_backend_name() == "postgresql":
        return engine_on(made, **{"isolation_level": COMMITTED, **options})
    if made.get_backend_name() != "sqlite":
        return engine_on(made, **options)
    connect_args = {"timeout": BUSY_TIMEOUT_S, **options.pop("connect_args", {})}
    engine = engine_on(made, connect_args=connect_args, **options)
    preparation = _Preparation(engine.dialect, memory=is_memory(engine.url))

    @event.listens_for(engine.sync_engine, "connect")
    def _on_connect(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.run_async(preparation.run)

    return engine


def is_memory(url: URL) -> bool:
    """Whether the data lives in this process's memory: in one connection, or in a cache its connections share."""
    if url.get_backend_name() != "sqlite":
        return False
    database = url.database or ""
    return database == "" or ":memory:" in database or "mode=memory" in database or url.query.get("mode") == "memory"


def _schema() -> Iterator[CreateTable | CreateIndex]:
    for table in metadata.sorted_tables:
        yield CreateTable(table, if_not_exists=True)
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield CreateIndex(index, if_not_exists=True)


class _Preparation:
    """What a new SQLite connection goes through before anybody gets it."""

    def __init__(self, dialect: Dialect, *, memory: bool) -> None:
        self.memory = memory
        self.prepared = False
        self.statements = [str(ddl.compile(dialect=dialect)) for ddl in _schema()]

    async def run(self, connection: Any) -> None:
        """Set what the connection keeps, then make the schema if this engine has not seen it yet."""
        await _pragma(connection, "foreign_keys = ON")
        await _pragma(connection, "synchronous = FULL")
        if not self.memory:
            await _write_ahead(connection)
        if self.memory or not self.prepared:
            await self._prepare_schema(connection)
            self.prepared = True

    async def _prepare_schema(self, connection: Any) -> None:
        """One transaction under the write lock, so that of several processes one makes the schema."""
        await _pragma_free(connection, "BEGIN IMMEDIATE")
        try:
            cursor = await connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (agent_runs.name,)
            )
            existed = await cursor.fetchone() is not None
            await cursor.close()
            if not existed:
                await self._create(connection)
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise

    async def _create(self, connection: Any) -> None:
        for statement in self.statements:
            await _pragma_free(connection, statement)
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        await connection.execute(
            f"INSERT OR REPLACE INTO {settings.name} (key, value, updated_at) VALUES (?, ?, ?)",  # noqa: S608
            (STORAGE_FORMAT_KEY, STORAGE_FORMAT, now),
        )


async def _pragma(connection: Any, setting: str) -> None:
    await _pragma_free(connection, f"PRAGMA {setting}")


async def _pragma_free(connection: Any, statement: str) -> None:
    cursor = await connection.execute(statement)
    await cursor.close()


async def _write_ahead(connection: Any) -> None:
    """Put the file into WAL mode. SQLite answers busy at once here instead of waiting, so the wait is ours."""
    for pause_s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, None):
        cursor = await connection.execute("PRAGMA journal_mode")
        mode = (await cursor.fetchone())[0]
        await cursor.close()
        if mode == "wal":
            return
        try:
            await _pragma(connection, "journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if pause_s is None or getattr(error, "sqlite_errorname", "").startswith("SQLITE_READONLY"):
                raise
            await asyncio.sleep(pause_s)
