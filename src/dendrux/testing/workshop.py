"""Makes stores of one class for the kit's own commands: on new SQLite files, or on the database of a URL."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, event, true
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dendrux.db.models import Base, agent_runs, blobs
from dendrux.db.session import get_engine, is_memory
from dendrux.store import SQLiteStateStore, SQLStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.driver import SESSION
from dendrux.testing.inline import kit_engine
from dendrux.testing.scratch import empty
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector
from dendrux.vocabulary import TENANT_PREFIX

BACKOFF_S = 0.001
"""First wait of a store of the kit's own that met a lock: the holder is parked in the same loop and goes on at once."""


class Engines:
    """Engines that outlive one test, so that a statement is compiled once and a schema is made once.

    A SQLite engine of ours opens whatever file its test points it at; the file of a new test is a copy of one that
    `create_all` made. On the database of a URL an engine keeps its connections, so all tests run in one loop; what a
    test has stored is deleted after it, because whoever pages over every run would otherwise meet all of it.
    """

    def __init__(self, store_class: type[SQLStateStore], url: URL | None, folder: Path, *, ours: bool = False) -> None:
        self.store_class = store_class
        self.url = url
        self.folder = folder
        self.ours = ours
        """Whether the database of the URL was made for this, so that everything in it may go."""
        self.has_schema = False
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

    @contextmanager
    def alone(self, number: int, another: Callable[[], AbstractContextManager[URL | None]] | None) -> Iterator[None]:
        """In a process of its own: work in a folder, or on a database, that no other process has."""
        assert another is not None
        with another() as url:
            self.url = url
            self.folder = self.folder / f"part-{number}"
            self.folder.mkdir()
            yield

    async def prepare(self, engine: AsyncEngine) -> None:
        """Make the tables that are missing, once; in memory they are gone with the connection."""
        if not self.has_schema:
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            self.has_schema = self.lasting

    @property
    def lasting(self) -> bool:
        """Whether the data is on the database of a URL, and there when its connections are gone."""
        return self.url is not None and not in_memory(self.url)

    async def put_back(self, engine: AsyncEngine) -> None:
        """Let the next test have the engine, with its connections unless one is still in use or they hold the data."""
        if not self.lasting or engine.pool.checkedout():  # type: ignore[attr-defined]  # of the pools get_engine makes
            await engine.dispose()
        self.at_rest.append(engine)

    async def clear(self) -> None:
        """Delete what this process has stored. Rows of a run go with it."""
        runs = true() if self.ours else agent_runs.c.id.startswith(SESSION)
        pictures = true() if self.ours else blobs.c.tenant_scope.startswith(TENANT_PREFIX + SESSION)
        async with self.at_rest[-1].begin() as connection:
            await empty(connection, runs=runs, pictures=pictures)

    async def close(self) -> None:
        """Close every connection."""
        for engine in self.at_rest:
            await engine.dispose()


class Workshop:
    """Opens the stores of one test and remembers their engines.

    Without a URL every store over empty data has a file of its own. With one, the database is used as it is: missing
    tables are created, rows are added under names of their own and deleted again.
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
        await self.shelf.prepare(store._engine)
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
        """Give every engine back, and leave no row behind."""
        for engine in self.engines:
            await self.shelf.put_back(engine)
        if self.engines and self.shelf.lasting:
            await self.shelf.clear()


def in_memory(url: URL | None) -> bool:
    """Whether the data is one connection's: another engine would see other data, and a lost connection loses it."""
    return url is not None and is_memory(url)
