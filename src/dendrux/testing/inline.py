"""SQLite without a thread: the driver's calls run in the event loop's own thread.

For the kit's own SQLite stores only. aiosqlite makes about a dozen thread hops per write; without them machines run
several times faster and in the same order every time. A lock held by another connection is answered at once instead of
waited for, because a wait would block the loop in which the holder runs; the store's own retries do the waiting.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.util import await_only


async def _nothing() -> None:
    """SQLAlchemy insists that an async driver awaits."""


class InlineCursor(sqlite3.Cursor):
    """A cursor with the one method that SQLAlchemy's async results ask for."""

    async def _async_soft_close(self) -> None:
        """Rows are still to be read: the result closes the cursor itself."""


class InlineConnection(sqlite3.Connection):
    """A connection whose cursors satisfy the async engine."""

    def cursor(self, factory: Any = InlineCursor) -> Any:
        return super().cursor(factory)


class InlineDialect(SQLiteDialect_pysqlite):
    """pysqlite under an async engine."""

    driver = "inline"
    is_async = True
    supports_statement_cache = True
    refuses_locks = True
    """Connections are made without a timeout, so a lock is an error at once: a call that stands still does not wait."""

    @classmethod
    def get_pool_class(cls, url: Any) -> Any:
        return AsyncAdaptedQueuePool

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        await_only(_nothing())
        cursor.execute(statement, parameters)

    def do_executemany(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        await_only(_nothing())
        cursor.executemany(statement, parameters)

    def do_execute_no_params(self, cursor: Any, statement: str, context: Any = None) -> None:
        await_only(_nothing())
        cursor.execute(statement)


registry.register("sqlite.inline", __name__, "InlineDialect")


def kit_engine(path: Path | str, *, durable: bool = False) -> AsyncEngine:
    """An engine on this file for the kit's own stores. Unless `durable`, a power cut may lose what it wrote."""
    engine = create_async_engine(
        f"sqlite+inline:///{path}",
        connect_args={"factory": InlineConnection, "timeout": 0, "check_same_thread": False},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def set_up(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        cursor.close()

    return engine
