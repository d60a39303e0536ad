"""The databases that tests run on. SQLite is always there; servers are looked for when the first test asks for one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from dendrux.db.models import Base
from dendrux.db.session import get_engine
from dendrux.store import SQLStateStore
from dendrux.store.factory import BUILT_IN
from dendrux.testing.databases import NAMES, NotFound, Server, find
from dendrux.testing.scratch import empty, scratch

DATABASES = ("sqlite", "postgresql", "mariadb", "mysql")
"""Everything that says `database` runs on each of these, as far as it was found."""

REQUIRE = "DENDRUX_TEST_REQUIRE"


@dataclass
class Database:
    """A database of one test session. Between two tests it is emptied, not made anew."""

    name: str
    url: URL | None
    """None for SQLite, which has a file for each test."""
    has_schema: bool = False

    @property
    def kind(self) -> type[SQLStateStore]:
        """The built-in store."""
        return BUILT_IN[self.name]

    @asynccontextmanager
    async def engine(self, folder: Path) -> AsyncIterator[AsyncEngine]:
        """An engine on empty data; `folder` is for a database that is a file."""
        engine = get_engine(self.url if self.url is not None else f"sqlite+aiosqlite:///{folder / 'store.db'}")
        try:
            if self.url is not None:
                await self.empty(engine)
            yield engine
        finally:
            await engine.dispose()

    async def empty(self, engine: AsyncEngine) -> None:
        """Delete every row, the tables made before the first time. Rows of a run go with it."""
        async with engine.begin() as connection:
            if not self.has_schema:
                await connection.run_sync(Base.metadata.create_all)
                self.has_schema = True
            await empty(connection)

    @asynccontextmanager
    async def engine_beside(self) -> AsyncIterator[AsyncEngine]:
        """Another engine on the data of a server, as they are."""
        assert self.url is not None
        engine = get_engine(self.url)
        try:
            yield engine
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def store(self, folder: Path, **options: Any) -> AsyncIterator[SQLStateStore]:
        """The built-in store on empty data."""
        async with self.engine(folder) as engine:
            yield self.kind(engine, **options)


@dataclass
class Found:
    """What was looked for in this session, and what came of it."""

    servers: dict[str, Server | NotFound] = field(default_factory=dict)
    databases: dict[str, Database] = field(default_factory=dict)
    at_the_end: ExitStack = field(default_factory=ExitStack)

    def server(self, name: str) -> Server:
        """A server, looked for once. Raises NotFound."""
        if name not in self.servers:
            try:
                self.servers[name] = find(name)
            except NotFound as missing:
                self.servers[name] = missing
            else:
                self.at_the_end.callback(self.servers[name].stop)
        found = self.servers[name]
        if isinstance(found, NotFound):
            raise found
        return found

    def database(self, name: str) -> Database:
        """A database for tests, on a server a new one that is dropped at the end. Raises NotFound."""
        if name not in self.databases:
            url = None if name == "sqlite" else self.at_the_end.enter_context(scratch(self.server(name)))
            self.databases[name] = Database(name, url)
        return self.databases[name]

    def missing(self, required: Sequence[str]) -> list[str]:
        """Why each required server is not there."""
        return [str(why) for why in map(self.look, required) if why is not None]

    def look(self, name: str) -> NotFound | None:
        """Look for a server."""
        try:
            self.server(name)
        except NotFound as missing:
            return missing
        return None

    def report(self) -> Iterator[str]:
        """A line for each server that was looked for and not found."""
        yield from (str(found) for found in self.servers.values() if isinstance(found, NotFound))

    def close(self) -> None:
        """Drop what was made and stop what was started."""
        self.at_the_end.close()


def required() -> list[str]:
    """The servers that the environment insists on. ValueError for a name that no server has."""
    names = [name.strip() for name in os.environ.get(REQUIRE, "").split(",") if name.strip()]
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise ValueError(f"{REQUIRE} names {', '.join(unknown)}; known are {', '.join(NAMES)}")
    return names
