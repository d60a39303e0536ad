"""Makes stores of one class for the kit's own commands: on new SQLite files, or on the database of a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dendrux.db.models import Base
from dendrux.db.session import get_engine, is_memory
from dendrux.store import SQLiteStateStore, SQLStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.inline import kit_engine
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector


class Workshop:
    """Opens stores and remembers the engines that must be disposed.

    Without a URL every store over empty data has a file of its own. With one, the database is used as it is: missing
    tables are created, rows are added under names of their own and left there.
    """

    def __init__(self, store_class: type[SQLStateStore], url: str | None, folder: Path) -> None:
        self.store_class = store_class
        self.url = None if url is None else make_url(url)
        self.folder = folder
        self.engines: list[AsyncEngine] = []

    async def fresh(self, live_updates: Any = None) -> SQLStateStore:
        """A store over empty data."""
        engine = self.engine(self.url or self.file(len(self.engines)))
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        return self.store_class(engine, live_updates=live_updates)

    async def another(self, store: SQLStateStore) -> SQLStateStore:
        """A store over the same data, with connections of its own."""
        return self.store_class(self.engine(store._engine.url))

    def bench(self) -> Bench:
        """A bench with everything a program may ask for."""
        another = None if self.in_memory else self.another
        return Bench(self.fresh, second=another, reopen=another, clock=self.clock(), injector=SqlFaultInjector())

    def clock(self) -> SqlClock:
        """A clock for the first store that was made."""
        return SqlClock(lambda: self.engines[0])

    @property
    def in_memory(self) -> bool:
        """Whether another engine would see other data."""
        return self.url is not None and is_memory(create_async_engine(self.url))

    async def close(self) -> None:
        """Dispose every engine."""
        for engine in self.engines:
            await engine.dispose()

    def file(self, number: int) -> URL:
        """The URL of a SQLite file of this workshop."""
        return URL.create("sqlite+aiosqlite", database=str(self.folder / f"{number}.db"))

    def engine(self, url: URL) -> AsyncEngine:
        """An engine as the store's users have it; the built-in store on a file of ours gets the kit's faster one."""
        if self.url is not None:
            engine = get_engine(url)
        elif self.store_class is SQLiteStateStore:
            engine = kit_engine(str(url.database))
        else:
            engine = create_async_engine(url)
        self.engines.append(engine)
        return engine
