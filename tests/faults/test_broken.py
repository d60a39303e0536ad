"""Stores that are wrong in ways that only a real form of loss, or a cancellation, brings to light."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from dendrux.db.models import agent_runs, run_events
from dendrux.db.session import get_engine
from dendrux.errors import StoreOutcomeUnknown, StoreUnavailableError
from dendrux.lab.seam import watching
from dendrux.lab.waits import forget
from dendrux.store import SQLStateStore
from dendrux.testing import hygiene
from dendrux.testing.bench import Bench
from dendrux.testing.execution import Failed
from dendrux.testing.hygiene import CHECKED_OUT, OPEN, UNFINISHED, Hygiene
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import CONTRACTS, Contract, Settings, Situation
from dendrux.testing.store_kit.contracts._crashes import Crash
from dendrux.testing.store_kit.obligations import disconnects
from dendrux.testing.store_kit.sql import SqlFaultInjector
from dialects.found import Database


def contracts_of(method: str) -> Iterator[tuple[str, Contract]]:
    """The contracts of the crash matrix about a method, by the name of their family."""
    catalogue()
    for contract in CONTRACTS.values():
        if isinstance(contract.check, Crash) and contract.check.sample.method == method:
            yield contract.check.family.name, contract


async def found_in(
    kind: type[SQLStateStore], method: str, engine: AsyncEngine, families: frozenset[str] | None = None
) -> dict[str, Failed]:
    """What the crash matrix of a method finds in a store, by the name of the family; all families, or these."""
    found: dict[str, Failed] = {}
    for family, contract in contracts_of(method):
        if families is not None and family not in families:
            continue
        injector, second = SqlFaultInjector(), get_engine(engine.url)
        bench = Bench(lambda: kind(engine), second=lambda _, beside=second: kind(beside), injector=injector)
        situation = Situation(
            bench=bench, format=2, capabilities=None, settings=Settings(), note=lambda *_: None, fixtures=frozenset()
        )
        assert contract.check is not None
        try:
            if disconnects(contract.program or ()) <= set(injector.disconnect_forms(await bench.instance())):
                await contract.check(situation)
        except Failed as failed:
            found[family] = failed
        finally:
            for store in bench.stores:
                await let_go(store)
            await bench.close()
            await second.dispose()
    return found


async def let_go(store: Any) -> None:
    """Close what a broken store has kept, so that the database can be emptied."""
    for connection in getattr(store, "kept", ()):
        await connection.close()


def reads_instead(kind: type[SQLStateStore]) -> type[SQLStateStore]:
    """After a lost answer it looks for its row, and takes an absence for proof that nothing was written."""

    class ReadsInstead(kind):  # type: ignore[misc,valid-type]
        retry_limit = 0  # the base gives up, and what it does not know is found out here

        async def save_run_event(self, run_id: str, *, event_type: str, event_id: Any = None, **given: Any) -> int:
            try:
                index: int = await super().save_run_event(run_id, event_type=event_type, event_id=event_id, **given)
                return index
            except StoreOutcomeUnknown:
                pass
            async with self._engine.connect() as connection:
                found = await connection.scalar(select(run_events.c.sequence_index).where(run_events.c.id == event_id))
            if found is not None:
                return int(found)
            raise StoreUnavailableError(operation="save_run_event", run_id=run_id)

    return ReadsInstead


@pytest.mark.requires("supports_row_locks")
async def test_only_a_delayed_commit_shows_that_a_plain_read_proves_nothing(database: Database, tmp_path: Path) -> None:
    async with database.engine(tmp_path) as engine:
        found = await found_in(reads_instead(database.kind), "save_run_event", engine)
    assert set(found) == {"commit_delayed"}
    assert any(
        "save_run_event" in line.call and "unavailable" in str(line.observed) for line in found.popitem()[1].lines
    )


CANCELLED = frozenset({"statements", "cancelled"})
"""Where a call ends before its COMMIT was sent."""


def keeps_open(kind: type[SQLStateStore]) -> type[SQLStateStore]:
    """Its work stops when the caller is gone, and forgets the transaction that it had begun."""

    class KeepsOpen(kind):  # type: ignore[misc,valid-type]
        def __init__(self, engine: AsyncEngine) -> None:
            super().__init__(engine)
            self.kept: list[AsyncConnection] = []

        async def request_cancel(self, run_id: str, **_: Any) -> bool:
            gone: list[bool] = []
            task = asyncio.ensure_future(self.work(run_id, gone))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                gone.append(True)
                await asyncio.wait((task,))
                raise

        async def work(self, run_id: str, gone: list[bool]) -> bool:
            connection = await self._engine.connect()
            wanted = update(agent_runs).where(agent_runs.c.id == run_id).values(cancel_requested=True)
            try:
                await connection.execute(wanted)
                if gone:
                    self.kept.append(connection)
                    return False
                await connection.commit()
            except DBAPIError:
                pass
            else:
                await connection.close()
                return True
            await connection.close()
            raise StoreUnavailableError(operation="request_cancel", run_id=run_id)

    return KeepsOpen


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left for a moment counts as left."""
    monkeypatch.setattr(hygiene, "RESTS_S", 0.3)


@pytest.mark.usefixtures("hasty")
async def test_a_cancelled_call_must_not_keep_its_transaction(database: Database, tmp_path: Path) -> None:
    async with database.engine(tmp_path) as engine:
        found = await found_in(keeps_open(database.kind), "request_cancel", engine, CANCELLED)
    assert "statements" not in found, "where a statement fails it is in order"
    assert found["cancelled"].why == CHECKED_OUT


@pytest.mark.usefixtures("hasty")
async def test_an_open_transaction_is_seen_by_whom_it_belongs_to(database: Database, tmp_path: Path) -> None:
    """On SQLite the driver's connection tells, on a server its own views: the pool may not know of the connection."""
    async with database.store(tmp_path) as store:
        await store.create_run("r", "agent")
        left = Hygiene(store)
        with watching(store, left):
            async with store._engine.connect() as connection:
                left.before = left.checked_out()
                await connection.execute(update(agent_runs).values(model="m"))
                assert await left.left() == (OPEN if database.name == "sqlite" else UNFINISHED)
                await connection.rollback()
                assert await left.left() is None
        await forget(store)
