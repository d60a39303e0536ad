"""Benches for broken stores: a file of their own, the kit's inline driver."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.models import Base
from dendrux.testing.bench import Bench
from dendrux.testing.inline import kit_engine
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector

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

        async def factory() -> Any:
            made = engine()
            async with made.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            return store_class(made)

        async def another(store: Any) -> Any:
            return store_class(engine())

        return Bench(
            factory,
            second=another,
            reopen=another,
            clock=SqlClock(lambda: engines[-1]),
            injector=SqlFaultInjector(),
        )

    yield make
    for used in engines:
        await used.dispose()
