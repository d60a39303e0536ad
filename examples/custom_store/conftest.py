"""What the kit needs to know about LedgerStore: how to open one, and how to disturb it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from ledger_store import LedgerStore
from sqlalchemy import URL, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dendrux.db.models import Base
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector


class Desk:
    """Opens ledgers in one folder and remembers what must be closed."""

    def __init__(self, folder: Path, blank: Path, closing: AsyncExitStack) -> None:
        self.folder = folder
        self.blank = blank
        self.closing = closing
        self.engines: list[AsyncEngine] = []

    async def open_new(self, live_updates: object = None) -> LedgerStore:
        """A store over empty data: a copy of the file that has the tables of this release and no row."""
        file = shutil.copyfile(self.blank, self.folder / f"{len(self.engines)}.db")
        return LedgerStore(self._engine(URL.create("sqlite+aiosqlite", database=str(file))), live_updates=live_updates)

    async def open_again(self, store: LedgerStore) -> LedgerStore:
        """Another store over the same data, with connections of its own."""
        return LedgerStore(self._engine(store._engine.url))

    def _engine(self, url: URL) -> AsyncEngine:
        engine = create_async_engine(url)
        event.listen(engine.sync_engine, "connect", do_not_wait_for_the_disk)
        self.engines.append(engine)
        self.closing.push_async_callback(engine.dispose)
        return engine


def do_not_wait_for_the_disk(connection: Any, record: object) -> None:
    """The files of a test need not survive a power cut."""
    connection.execute("PRAGMA synchronous = OFF").close()
    connection.execute("PRAGMA journal_mode = MEMORY").close()


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables are made once, as a deployment makes them."""
    path = tmp_path_factory.mktemp("blank") / "ledger.db"
    engine = create_engine(URL.create("sqlite", database=str(path)))
    Base.metadata.create_all(engine)
    engine.dispose()
    return path


@pytest_asyncio.fixture
async def desk(tmp_path: Path, blank: Path) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as closing:
        yield Desk(tmp_path, blank, closing)


@pytest.fixture
def dendrux_store_factory(desk: Desk) -> object:
    return desk.open_new


@pytest.fixture
def dendrux_live_store_factory(desk: Desk) -> object:
    return desk.open_new


@pytest.fixture
def dendrux_store_second_instance(desk: Desk) -> object:
    return desk.open_again


@pytest.fixture
def dendrux_store_reopen(desk: Desk) -> object:
    return desk.open_again


@pytest.fixture
def dendrux_clock(desk: Desk) -> SqlClock:
    return SqlClock(lambda: desk.engines[0])


@pytest.fixture
def dendrux_fault_injector() -> Iterator[SqlFaultInjector]:
    injector = SqlFaultInjector()
    yield injector
    injector.close()
