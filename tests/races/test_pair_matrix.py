"""The pair matrix on an engine that nobody prepared, and the list of its cells."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.models import Base
from dendrux.store import SQLiteStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.store_kit.contract import Settings, Situation
from dendrux.testing.store_kit.matrix import run_cells
from dendrux.testing.store_kit.sql import SqlClock
from dendrux_model.machines.cells import cells, writes
from dendrux_model.operations import OPERATIONS

FULL = os.environ.get("DENDRUX_BUDGET") == "full"
QUICK = ("ClaimPausedRun", "SaveRunEvent", "FinalizeWithEvent")
"""Rows of a quick run; stores on plain engines that the suite certifies run all of them through the kit."""

PINNED = Path(__file__).with_name("cells.txt")


def listed() -> str:
    """Every cell of the default size, a line each."""
    return "".join(f"format {form}: {cell.name}\n" for form in (1, 2) for cell in cells(form, "cover"))


def test_the_cells_are_the_pinned_ones() -> None:
    """A changed list is a changed kit: look at the difference, then write `listed()` into the file."""
    assert listed() == PINNED.read_text(encoding="utf-8")


@pytest_asyncio.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Bench]:
    """Two instances on one file, each with an engine as `create_async_engine` makes it."""
    engines: list[Any] = []

    def store() -> SQLiteStateStore:
        engines.append(create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/plain.db"))
        return SQLiteStateStore(engines[-1])

    async def factory() -> SQLiteStateStore:
        made = store()
        async with made._engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        return made

    bench = Bench(factory, second=lambda first: store(), clock=SqlClock(lambda: engines[0]))
    yield bench
    await bench.close()
    for engine in engines:
        await engine.dispose()


@pytest.mark.parametrize("name", writes() if FULL else QUICK)
async def test_every_pair_on_a_plain_engine(name: str, plain: Bench) -> None:
    situation = Situation(
        bench=plain, format=2, capabilities=None, settings=Settings(), note=lambda key, value: None, fixtures={}
    )
    row = [cell for cell in cells(2, "cover") if type(cell.first) is OPERATIONS[name]]
    assert await run_cells(situation, row) >= len(row)
