"""What a call that was cut or refused must not leave behind: a connection in use, an open transaction, a lock.

A server is asked in its own views about the sessions that the call used. On SQLite the driver's connections tell.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any, Final

from dendrux.lab.seam import Seam, engine_of
from dendrux.lab.sessions import driver_of, session_of
from dendrux.lab.waits import waits_of

RESTS_S: Final = 5.0
"""A server notices late that a client is gone; what is there after this long stays."""
POLL_S: Final = 0.005

CHECKED_OUT: Final = "the cut call has ended and a connection of its pool is still checked out"
OPEN: Final = "the cut call has ended and its connection is still in a transaction"
KEPT: Final = "the call was refused and a connection of its pool is still checked out"
UNFINISHED: Final = "the cut call has ended and the server still shows a transaction or a lock of its session"


class Hygiene:
    """Watches the connections that one call uses, and says what it has left of them."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.before = self.checked_out()
        self.sessions: set[int] = set()
        self.connections: dict[int, Any] = {}
        """The driver's connections by identity."""

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None:
        session = session_of(connection)
        if session is not None:
            self.sessions.add(session)
        driver = driver_of(connection)
        self.connections[id(driver)] = driver

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def on_error(self, seam: Seam, error: BaseException) -> None: ...

    def checked_out(self) -> int:
        """How many connections of the pool are in use; a pool that does not count has none."""
        pool = getattr(getattr(engine_of(self.store), "sync_engine", None), "pool", None)
        count = getattr(pool, "checkedout", None)
        return 0 if count is None else int(count())

    def kept(self) -> bool:
        """Whether the call has kept a connection, for the moment at least."""
        return self.checked_out() > self.before

    async def left(self) -> str | None:
        """What the call has left behind, as a sentence; None for nothing."""
        loop = asyncio.get_running_loop()
        until = loop.time() + RESTS_S
        while (found := await self.look()) is not None and loop.time() < until:  # noqa: ASYNC110  # a server sets none
            await asyncio.sleep(POLL_S)
        return found

    async def look(self) -> str | None:
        """What there is now."""
        if self.kept():
            return CHECKED_OUT
        if any(map(in_transaction, self.connections.values())):
            return OPEN
        waits = waits_of(self.store) if self.sessions else None
        if waits is not None and await waits.unfinished(self.sessions):
            return UNFINISHED
        return None


def in_transaction(driver: Any) -> bool:
    """Whether a connection of sqlite3, plain or wrapped, is in a transaction; one that is closed is in none."""
    try:
        return getattr(driver, "in_transaction", None) is True
    except (ValueError, sqlite3.ProgrammingError):  # what aiosqlite and sqlite3 say of a closed one
        return False
