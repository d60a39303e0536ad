"""What the tests of MySQL and MariaDB share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncConnection

from dendrux.db.session import get_engine
from dendrux.store import MySQLStateStore


@contextlib.asynccontextmanager
async def opened(url: URL, **options: Any) -> AsyncIterator[MySQLStateStore]:
    """A store on an engine of get_engine."""
    store = MySQLStateStore.from_url(url, **options)
    try:
        yield store
    finally:
        await store.engine.dispose()


@contextlib.asynccontextmanager
async def other(url: URL) -> AsyncIterator[AsyncConnection]:
    """A connection of somebody else."""
    engine = get_engine(url)
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


OPEN = text(
    "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p "
    "ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()"
)
"""Transactions that other sessions have open on this database."""
RENEWED_S = 0.15
"""The table of transactions is a copy, which MariaDB renews when nobody has read it for 0.1 s."""


async def open_transactions(connection: AsyncConnection) -> int:
    """How many there are now, and not when somebody last looked."""
    await asyncio.sleep(RENEWED_S)
    return int(await connection.scalar(OPEN) or 0)
