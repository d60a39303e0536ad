"""What a server says of its connections: whether one waits for a lock, and whether they have left anything open.

It is asked over a connection of its own.

PostgreSQL is asked with `pg_blocking_pids`. MySQL and MariaDB are asked for the InnoDB monitor: the lock-wait tables of
`information_schema` are copies that a server renews only when nobody has read them for 100 ms, so whoever polls them
reads the past, and those of `performance_schema` are not switched on everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from dendrux.lab.seam import engine_of
from dendrux.lab.sessions import WORDS, beside

T = TypeVar("T")


async def waits_in_postgresql(connection: AsyncConnection, session: int) -> bool:
    """Whether some other backend holds what this one wants."""
    found = await connection.exec_driver_sql(f"SELECT cardinality(pg_blocking_pids({session:d})) > 0")
    return found.scalar_one() is True


async def waits_in_innodb(connection: AsyncConnection, session: int) -> bool:
    """Whether the monitor shows a lock wait in the transaction of this connection."""
    monitor = (await connection.exec_driver_sql("SHOW ENGINE INNODB STATUS")).mappings().one()["Status"]
    return any(
        re.search(rf"\bthread id {session:d},", transaction) is not None and "LOCK WAIT" in transaction
        for transaction in str(monitor).split("---TRANSACTION")[1:]
    )


QUESTIONS: Final[Mapping[str, Callable[[AsyncConnection, int], Awaitable[bool]]]] = {
    "postgresql": waits_in_postgresql,
    "mysql": waits_in_innodb,
    "mariadb": waits_in_innodb,
}
"""How a server is asked, by the name of the dialect. A database that is not here is watched by the clock alone."""


class Waits:
    """Asks the server of one engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = beside(engine)
        self.question = QUESTIONS[engine.dialect.name]
        self.connection: AsyncConnection | None = None
        self.refused = False

    async def blocked(self, session: int | None) -> bool | None:
        """Whether this session waits for a lock; None when the server does not say."""
        return None if session is None else await self._ask(self.question, session)

    async def unfinished(self, sessions: Collection[int]) -> bool | None:
        """Whether one of these sessions is in a transaction, or holds a lock; None when the server does not say."""
        return await self._ask(WORDS[self.engine.dialect.name].unfinished, sessions) if sessions else False

    async def _ask(self, question: Callable[[AsyncConnection, T], Awaitable[bool]], about: T) -> bool | None:
        if self.refused:
            return None
        try:
            if self.connection is None:
                self.connection = await self.engine.connect()
                await self.connection.execution_options(isolation_level="AUTOCOMMIT")
            return await question(self.connection, about)
        except (SQLAlchemyError, OSError):  # such as an account that may not look
            self.refused = True
            return None

    async def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            await self.connection.close()
        await self.engine.dispose()


OPEN: WeakKeyDictionary[Any, Waits] = WeakKeyDictionary()
"""By engine, from the first question until `forget`."""


def waits_of(store: Any) -> Waits | None:
    """Who asks the server of this store; None where none can be asked."""
    engine = engine_of(store)
    if engine is None or engine.dialect.name not in QUESTIONS:
        return None
    if engine not in OPEN:
        OPEN[engine] = Waits(engine)
    return OPEN[engine]


async def forget(store: Any) -> None:
    """Ask about this store no more."""
    engine = engine_of(store)
    found = None if engine is None else OPEN.pop(engine, None)
    if found is not None:
        await found.close()
