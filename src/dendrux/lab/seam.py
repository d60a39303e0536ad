"""Where a test stands between a store and its driver: before each statement, and on both sides of COMMIT.

SQLAlchemy's events run inside the greenlet of the call, so a watcher that waits there suspends exactly that call at
exactly that statement. Core has no event after COMMIT, therefore `dialect.do_commit` is wrapped. `take_off` leaves
the engine as its application made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import event

WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE|MERGE|BEGIN\s+IMMEDIATE)\b", re.IGNORECASE)


WROTE = "dendrux_wrote"
"""Marks, in a pool connection's `info`, a transaction that has written."""


class Watcher(Protocol):
    """Anything that looks at what passes. `connection` is the pool's; `wrote`: the transaction has written."""

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None: ...

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def on_error(self, seam: Seam, error: BaseException) -> None: ...


class Disconnected:
    """Marks the driver errors that a watcher raised to say that the connection is gone."""

    attribute = "dendrux_disconnected"


class Seam:
    """The watched points of one engine. It stays on from the first watcher until `take_off`."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.watchers: list[Watcher] = []
        self._dialect = engine.sync_engine.dialect
        self._do_commit = self._dialect.do_commit
        self._is_disconnect = self._dialect.is_disconnect
        for name, listener in self._listeners():
            event.listen(engine.sync_engine, name, listener)
        self._dialect.do_commit = self._commit
        self._dialect.is_disconnect = self._gone

    def _listeners(self) -> tuple[tuple[str, Any], ...]:
        return (
            ("before_cursor_execute", self._statement),
            ("rollback", self._rollback),
            ("handle_error", self._error),
        )

    def take_off(self) -> None:
        """Leave the engine as its application made it."""
        for name, listener in self._listeners():
            event.remove(self.engine.sync_engine, name, listener)
        del self._dialect.do_commit
        del self._dialect.is_disconnect

    # -- what passes --------------------------------------------------------------------------------------------------

    def _statement(self, conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        for watcher in tuple(self.watchers):
            watcher.before_statement(self, conn.connection, statement)
        if WRITES.match(statement):
            conn.connection.info[WROTE] = True

    def _commit(self, connection: Any) -> None:
        wrote = connection.info.pop(WROTE, False)
        for watcher in tuple(self.watchers):
            watcher.before_commit(self, connection, wrote)
        self._do_commit(connection)
        for watcher in tuple(self.watchers):
            watcher.after_commit(self, connection, wrote)

    def _rollback(self, conn: Any) -> None:
        if not conn.invalidated:  # there is no connection to ask, and asking would fail the store's own rollback
            conn.connection.info.pop(WROTE, None)

    def _error(self, context: Any) -> None:
        for watcher in tuple(self.watchers):
            watcher.on_error(self, context.sqlalchemy_exception or context.original_exception)

    def _gone(self, error: Any, connection: Any, cursor: Any) -> bool:
        if getattr(error, Disconnected.attribute, False):
            return True
        return bool(self._is_disconnect(error, connection, cursor))

    def driver_error(self, *, disconnected: bool) -> Exception:
        """An error of the driver's own class, as if the database had raised it."""
        error: Exception = self._dialect.loaded_dbapi.OperationalError("injected fault")
        if disconnected:
            setattr(error, Disconnected.attribute, True)
        return error


SEAMS: WeakKeyDictionary[Any, Seam] = WeakKeyDictionary()


def engine_of(store: Any) -> Any:
    """The engine of a store that has one."""
    return getattr(store, "_engine", None)


def seam_of(engine: Any) -> Seam:
    """The seam of this engine: one for all who watch it."""
    found = SEAMS.get(engine)
    if found is None:
        found = SEAMS[engine] = Seam(engine)
    return found


def take_off(store: Any) -> None:
    """Take the seam off this store's engine, if it is on."""
    engine = engine_of(store)
    found = None if engine is None else SEAMS.pop(engine, None)
    if found is not None:
        found.take_off()


class Listener:
    """Writes down the statements of one call, text only."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None:
        self.statements.append(statement)

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        self.statements.append("COMMIT")

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def on_error(self, seam: Seam, error: BaseException) -> None: ...


class Errors:
    """Counts what failed: statements, and COMMIT."""

    def __init__(self) -> None:
        self.count = 0

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None: ...

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def on_error(self, seam: Seam, error: BaseException) -> None:
        self.count += 1


@contextmanager
def watching(store: Any, watcher: Watcher) -> Iterator[None]:
    """Let `watcher` see what this store's engine passes in the block; a store without an engine shows nothing."""
    engine = engine_of(store)
    if engine is None:
        yield
        return
    seam = seam_of(engine)
    seam.watchers.append(watcher)
    try:
        yield
    finally:
        seam.watchers.remove(watcher)


@contextmanager
def statements_of(store: Any) -> Iterator[list[str]]:
    """The statements that this store sends in the block; an empty list for a store without an engine."""
    listener = Listener()
    with watching(store, listener):
        yield listener.statements
