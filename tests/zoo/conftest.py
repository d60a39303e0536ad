"""Benches for broken stores: a database of their own, on SQLite with the kit's inline driver."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.models import Base
from dendrux.db.session import get_engine
from dendrux.testing.bench import Bench
from dendrux.testing.inline import kit_engine
from dendrux.testing.recording import RecordingUpdates
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector
from dialects.found import Database

MakeBench = Callable[[type[Any]], Bench]


@pytest_asyncio.fixture
async def bench_of(tmp_path: Path) -> AsyncIterator[MakeBench]:
    """Makes a bench of any store class, each over a database of its own."""
    engines: list[Any] = []
    number = itertools.count()

    def make(store_class: type[Any]) -> Bench:
        path = tmp_path / f"zoo{next(number)}.db"

        def engine() -> Any:
            threaded = getattr(store_class, "threaded", False)
            engines.append(create_async_engine(f"sqlite+aiosqlite:///{path}") if threaded else kit_engine(path))
            return engines[-1]

        return bench(store_class, engine, engines)

    yield make
    for used in engines:
        await used.dispose()


@pytest_asyncio.fixture
async def bench_on() -> AsyncIterator[Callable[[type[Any], Database], Bench]]:
    """Makes a bench of a store class on a server's database, whose tables are emptied when the first store is made."""
    engines: list[Any] = []

    def make(store_class: type[Any], database: Database) -> Bench:
        def engine() -> Any:
            assert database.url is not None
            engines.append(get_engine(database.url))
            return engines[-1]

        return bench(store_class, engine, engines, database)

    yield make
    for used in engines:
        await used.dispose()


def bench(
    store_class: type[Any], engine: Callable[[], Any], engines: list[Any], database: Database | None = None
) -> Bench:
    """The fixtures of an author whose stores each have an engine."""

    live = RecordingUpdates()

    async def factory() -> Any:
        made = engine()
        if database is not None:
            await database.empty(made)
        else:
            async with made.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
        return store_class(made, live_updates=live)

    async def another(store: Any) -> Any:
        return store_class(engine())

    return Bench(
        factory,
        second=another,
        reopen=another,
        clock=SqlClock(lambda: engines[-1]),
        injector=SqlFaultInjector(),
        live=live,
    )
