"""Makes stores of one class for the kit's own commands: on new SQLite files, or on the database of a URL."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sqlalchemy import URL, event, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dendrux.db.models import Base
from dendrux.db.session import get_engine, is_memory
from dendrux.store import SQLiteStateStore, SQLStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.inline import kit_engine
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector

BACKOFF_S = 0.001
"""First wait of a store of the kit's own that met a lock: the holder is parked in the same loop and goes on at once."""


class Engines:
    """Engines that outlive one test, so that a statement is compiled once and a schema is made once.

    A SQLite engine of ours opens whatever file its test points it at; the file of a new test is a copy of one that
    `create_all` made.
    """

    def __init__(self, store_class: type[SQLStateStore], url: URL | None, folder: Path) -> None:
        self.store_class = store_class
        self.url = url
        self.folder = folder
        self.at_rest: list[AsyncEngine] = []
        self.files: dict[AsyncEngine, Path] = {}
        self.template: Path | None = None
        self.number = 0

    async def fresh_file(self) -> Path:
        """A SQLite file with an empty schema."""
        if self.template is None:
            self.template = self.folder / "template.db"
            engine = create_async_engine(f"sqlite+aiosqlite:///{self.template}")
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            await engine.dispose()
        self.number += 1
        return Path(shutil.copyfile(self.template, self.folder / f"{self.number}.db"))

    def take(self, file: Path | None) -> AsyncEngine:
        """An engine on this file, or on the database of the URL."""
        engine = self.at_rest.pop() if self.at_rest else self.make(file)
        if file is not None:
            self.files[engine] = file
        return engine

    def make(self, file: Path | None) -> AsyncEngine:
        """A new engine, as the store's users have it; the built-in store on files gets the kit's faster one."""
        if self.url is not None:
            return get_engine(self.url)
        assert file is not None
        inline = self.store_class is SQLiteStateStore
        engine = kit_engine(file) if inline else create_async_engine(f"sqlite+aiosqlite:///{file}")

        @event.listens_for(engine.sync_engine, "do_connect")
        def point(dialect: Any, record: Any, arguments: list[Any], parameters: Any) -> None:
            arguments[0] = str(self.files[engine])

        return engine

    async def put_back(self, engine: AsyncEngine) -> None:
        """Close the engine's connections; the next test may run in another event loop."""
        await engine.dispose()
        self.at_rest.append(engine)


class Workshop:
    """Opens the stores of one test and remembers their engines.

    Without a URL every store over empty data has a file of its own. With one, the database is used as it is: missing
    tables are created, rows are added under names of their own and left there.
    """

    def __init__(self, engines: Engines) -> None:
        self.shelf = engines
        self.engines: list[AsyncEngine] = []
        self.files: dict[SQLStateStore, Path | None] = {}

    async def fresh(self, live_updates: Any = None) -> SQLStateStore:
        """A store over empty data."""
        if self.shelf.url is None:
            return self.store(await self.shelf.fresh_file(), live_updates)
        store = self.store(None, live_updates)
        async with store._engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        return store

    async def another(self, store: SQLStateStore) -> SQLStateStore:
        """A store over the same data, with connections of its own."""
        return self.store(self.files[store])

    async def reopened(self, store: SQLStateStore) -> SQLStateStore:
        """A restarted store over the same data, which in memory is reached through its engine alone."""
        return self.over(store._engine, None) if in_memory(self.shelf.url) else await self.another(store)

    def store(self, file: Path | None, live_updates: Any = None) -> SQLStateStore:
        """A store on this file or the database of the URL, with an engine of its own."""
        engine = self.shelf.take(file)
        self.engines.append(engine)
        return self.over(engine, file, live_updates)

    def over(self, engine: AsyncEngine, file: Path | None, live_updates: Any = None) -> SQLStateStore:
        """A store with this engine."""
        store = self.shelf.store_class(engine, live_updates=live_updates)
        if self.shelf.url is None:
            store.retry_backoff_s = BACKOFF_S  # type: ignore[misc]  # of this instance
        self.files[store] = file
        return store

    def bench(self) -> Bench:
        """A bench with everything a program may ask for."""
        if in_memory(self.shelf.url):
            return Bench(self.fresh, reopen=self.reopened, clock=self.clock())
        injector = SqlFaultInjector()
        return Bench(self.fresh, second=self.another, reopen=self.reopened, clock=self.clock(), injector=injector)

    def clock(self) -> SqlClock:
        """A clock for the first store that was made."""
        return SqlClock(lambda: self.engines[0])

    async def close(self) -> None:
        """Give every engine back, without connections."""
        for engine in self.engines:
            await self.shelf.put_back(engine)


def in_memory(url: URL | None) -> bool:
    """Whether the data is one connection's: another engine would see other data, and a lost connection loses it."""
    return url is not None and is_memory(create_async_engine(url))


def url_of(text: str | None) -> URL | None:
    """A URL with its password, or None."""
    return None if text is None else make_url(text)
