"""The built-in SQLite store keeps every contract, on runs of both formats."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import create_engine

from dendrux.db.models import Base
from dendrux.store import SQLiteStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.inline import kit_engine
from dendrux.testing.recording import RecordingUpdates
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.checking import run_program
from dendrux.testing.store_kit.contract import Contract, Settings, Situation
from dendrux.testing.store_kit.obligations import disconnects
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector

ALL = [
    c
    for c in catalogue()
    if c.unverified is None
    and not c.id.startswith(("declaration.", "concurrency.pair_matrix."))
    and ".stateful." not in c.id
    and disconnects(c.program or ()) <= {"invalidated"}
]
"""The other forms of a lost connection are those of servers."""


FULL = os.environ.get("DENDRUX_BUDGET") == "full"
"""A quick run cuts writes on runs of format 2 alone: the transactions of both are the same code."""


class Format1Store(SQLiteStateStore):
    """The built-in store without the promises that format 2 adds, so that its new runs are of format 1."""

    def __init__(self, engine: Any, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.capabilities = replace(self.capabilities, checkpointing=False, atomic_completion=False, recovery=False)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Cut transactions are what these tests are about; what the store logs of them is not."""
    logger = logging.getLogger("dendrux.store")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Any]]:
    """Engines by number, the even and the odd ones on a file each: contracts have namespaces, and statements are
    compiled once. Where time passes everything stored grows old, so those contracts keep to a file of their own.
    """
    folder = tmp_path_factory.mktemp("contracts")
    made: dict[int, Any] = {}

    def engine(number: int) -> Any:
        if number not in made:
            made[number] = kit_engine(folder / f"{number % 2}.db")
        return made[number]

    for name in ("0.db", "1.db"):
        plain = create_engine(f"sqlite:///{folder / name}")
        Base.metadata.create_all(plain)
        plain.dispose()
    yield engine
    for used in made.values():
        used.sync_engine.dispose()


@pytest.fixture
async def situation(engines: Callable[[int], Any], request: pytest.FixtureRequest) -> AsyncIterator[Situation]:
    kind = Format1Store if request.param == 1 else SQLiteStateStore
    timed = "clock" in request.node.callspec.params["contract"].needs
    here, there = (engines(1), engines(3)) if timed else (engines(0), engines(2))
    injector = SqlFaultInjector()
    live = RecordingUpdates()
    bench = Bench(
        lambda: kind(here, live_updates=live),
        second=lambda _: kind(there),
        reopen=lambda _: kind(here),
        clock=SqlClock(lambda: here),
        injector=injector,
        live=live,
    )
    yield Situation(bench=bench, format=request.param, capabilities=None, settings=Settings(), note=lambda *_: None)
    injector.close()
    await bench.close()


@pytest.mark.parametrize(
    ("contract", "situation"),
    [
        pytest.param(c, form, id=f"{c.id}-format_{form}")
        for form in (1, 2)
        for c in ALL
        if f"format_{3 - form}" not in c.needs and (form == 2 or FULL or c.group != "crash_recovery")
    ],
    indirect=["situation"],
)
async def test_contract(contract: Contract, situation: Situation) -> None:
    if contract.check is not None:
        await contract.check(situation)
    else:
        await run_program(contract.program or (), situation)
