"""What the store's own tests share: engines that are disposed, statements that are counted, COMMITs that are cut."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dendrux.db.models import Base
from dendrux.db.session import get_engine
from dendrux.store import SQLiteStateStore, SQLStateStore


class Format1Store(SQLiteStateStore):
    """The built-in store without the promises that format 2 adds, so that its new runs are of format 1."""

    def __init__(self, engine: AsyncEngine, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.capabilities = replace(self.capabilities, checkpointing=False, atomic_completion=False, recovery=False)


@contextlib.asynccontextmanager
async def built_in(
    directory: Path, kind: type[SQLStateStore] = SQLiteStateStore, **options: Any
) -> AsyncIterator[SQLStateStore]:
    """A store on a fresh file, on the engine that get_engine makes."""
    engine = get_engine(f"sqlite+aiosqlite:///{directory / 'store.db'}")
    try:
        yield kind(engine, **options)
    finally:
        await engine.dispose()


@contextlib.asynccontextmanager
async def plain_engine(directory: Path, **options: Any) -> AsyncIterator[AsyncEngine]:
    """An untouched engine on a file whose tables create_all made."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{directory / 'plain.db'}", **options)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield engine
    finally:
        await engine.dispose()


@contextlib.contextmanager
def counted(engine: AsyncEngine) -> Iterator[list[str]]:
    """The statements an engine runs, BEGIN and COMMIT aside."""
    statements: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine.sync_engine, "before_cursor_execute", note)


@contextlib.contextmanager
def another_process(path: Path, *, timeout: float = 0.0) -> Iterator[sqlite3.Connection]:
    """A connection to the same file that nothing of ours knows of."""
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def driver_error(text: str = "secret driver words", code: int | None = None, **attributes: Any) -> Exception:
    """An error as the driver raises it."""
    error = sqlite3.OperationalError(text)
    if code is not None:
        error.sqlite_errorcode = code
        error.sqlite_errorname = f"SQLITE_{code}"
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@contextlib.contextmanager
def commits(engine: AsyncEngine, behave: Callable[[int, Callable[[], None]], None]) -> Iterator[list[int]]:
    """Replace COMMIT by `behave(number, the real one)`, and count them."""
    dialect = engine.sync_engine.dialect
    real, seen = dialect.do_commit, []

    def do_commit(connection: Any) -> None:
        seen.append(len(seen) + 1)
        behave(seen[-1], lambda: real(connection))

    dialect.do_commit = do_commit
    try:
        yield seen
    finally:
        del dialect.do_commit


def applied_then_lost(first: int = 1) -> Callable[[int, Callable[[], None]], None]:
    """COMMIT is applied and its answer is lost, the first times."""

    def behave(number: int, real: Callable[[], None]) -> None:
        real()
        if number <= first:
            raise driver_error()

    return behave


def never_sent(first: int = 1) -> Callable[[int, Callable[[], None]], None]:
    """COMMIT does not reach the database, the first times."""

    def behave(number: int, real: Callable[[], None]) -> None:
        if number <= first:
            raise driver_error()
        real()

    return behave


def disconnect(error: Exception) -> OperationalError:
    """The error SQLAlchemy raises when the connection is gone."""
    return OperationalError("SELECT secret", {"secret": 1}, error, connection_invalidated=True)
