"""What a store checks once, on first use and before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from dendrux.store.connections import close_connection, open_connection
from dendrux.store.engines import access, check_schema, refuse_autocommit, refuse_forgetful_pool
from dendrux.store.hookvalues import FEATURES, DialectFacts
from dendrux.store.tx import Failure

if TYPE_CHECKING:
    from dendrux.store.base import SQLStateStore


def bind_loop(store: SQLStateStore) -> None:
    """A store lives in the event loop of its first call.

    Refuses: RuntimeError from another loop, before anything waits on an object of the first.
    """
    loop = asyncio.get_running_loop()
    if store._loop is None:
        store._loop = loop
    elif store._loop is not loop:
        raise RuntimeError(
            f"this {type(store).__name__} belongs to another event loop: construct one store per event loop"
        )


async def first_use(store: SQLStateStore, unsent: Callable[[], AbstractContextManager[None]]) -> None:
    """Check the engine, the server and the schema, once per store (the schema once per engine)."""
    if store._ready is access(store._engine):
        return
    with unsent():
        await store._first_use.acquire()
    try:
        door = access(store._engine)
        if store._ready is door:
            return
        refuse_forgetful_pool(store._engine)
        connection = await open_connection(store, unsent, door.enter, door.leave)
        try:
            await _check(store, connection)
            store._ready = door
        finally:
            await close_connection(connection, door.leave)
    finally:
        store._first_use.release()


async def _check(store: SQLStateStore, connection: AsyncConnection) -> None:
    try:
        await refuse_autocommit(connection)
        facts = await store.connection_checks(connection)
        _apply(store, facts)
        door = access(store._engine)
        if not door.schema_checked:
            await check_schema(connection)
            door.schema_checked = True
        return
    except (SQLAlchemyError, OSError, EOFError) as error:
        failure = Failure(store.classify_db_error(error))
    raise failure


def _apply(store: SQLStateStore, facts: DialectFacts) -> None:
    """What was found out about this server wins over the flags of the class, for this instance."""
    for name, value in facts.features.items():
        if name not in FEATURES:
            raise ValueError(f"DialectFacts.features names {name!r}; known are {', '.join(FEATURES)}")
        setattr(store, name, bool(value))
    store.__dict__.pop("_plans", None)
