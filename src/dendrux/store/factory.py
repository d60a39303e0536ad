"""Which built-in store goes with an engine."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncEngine

from dendrux.store.base import SQLStateStore
from dendrux.store.dialects.mysql import MySQLStateStore
from dendrux.store.dialects.postgresql import PostgresStateStore
from dendrux.store.dialects.sqlite import SQLiteStateStore

BUILT_IN: Final[dict[str, type[SQLStateStore]]] = {
    "mariadb": MySQLStateStore,
    "mysql": MySQLStateStore,
    "postgresql": PostgresStateStore,
    "sqlite": SQLiteStateStore,
}
"""Each built-in class by the dialect name of its engines."""


def store_for_engine(engine: AsyncEngine, **options: Any) -> SQLStateStore:
    """The built-in store of the engine's database; options go to its constructor.

    Refuses: ValueError naming the dialect. A store of your own is passed to whoever uses it, not found here.
    """
    found = BUILT_IN.get(engine.dialect.name)
    if found is None:
        raise ValueError(
            f"no built-in store for the dialect {engine.dialect.name!r}; known are {', '.join(sorted(BUILT_IN))}"
        )
    return found(engine, **options)
