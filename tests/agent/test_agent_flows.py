"""The kit's agent_flows on every database, and on a store whose runs are of format 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dendrux.db.session import get_engine
from dendrux.store import SQLiteStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import Contract, Settings, Situation
from dendrux.testing.store_kit.sql import SqlClock

FLOWS = [one for one in catalogue() if one.group == "agent_flows"]


def test_there_are_enough_of_them() -> None:
    assert len(FLOWS) >= 9
    assert all(one.check is not None and one.promise for one in FLOWS)


def situation(bench: Bench, storage_format: int) -> Situation:
    return Situation(
        bench=bench,
        format=storage_format,
        capabilities=None,
        settings=Settings(),
        note=lambda key, value: None,
    )


async def checked(contract: Contract, kind: Any, engine: Any, storage_format: int) -> None:
    made: list[Any] = []

    def make(*_: Any) -> Any:
        made.append(kind(engine))
        return made[-1]

    bench = Bench(make, reopen=make, clock=SqlClock(lambda: engine))
    assert contract.check is not None
    await contract.check(situation(bench, storage_format))


@pytest.mark.parametrize("contract", FLOWS, ids=lambda one: one.id)
async def test_built_in_stores(contract: Contract, database: Any, tmp_path: Path) -> None:
    async with database.engine(tmp_path) as engine:
        await checked(contract, database.kind, engine, 2)


class Narrowed(SQLiteStateStore):
    """A partial declaration: new runs are of format 1."""

    narrow: dict[str, bool]

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.capabilities = replace(self.capabilities, **self.narrow)


def narrowed() -> Iterator[Any]:
    for names in (
        ("atomic_completion",),
        ("checkpointing", "atomic_completion"),
        ("retry_ids", "checkpointing", "atomic_completion"),
        ("fenced_writes",),
        ("fenced_writes", "retry_ids", "checkpointing", "atomic_completion"),
    ):
        narrow = dict.fromkeys((*names, "recovery"), False)
        yield pytest.param(type("Partial", (Narrowed,), {"narrow": narrow}), id="-".join(names))


@pytest.mark.parametrize("kind", list(narrowed()))
@pytest.mark.parametrize("contract", [c for c in FLOWS if c.capability is None], ids=lambda one: one.id)
async def test_partial_stores(contract: Contract, kind: Any, tmp_path: Path) -> None:
    engine = get_engine(f"sqlite+aiosqlite:///{tmp_path / 's.db'}")
    try:
        await checked(contract, kind, engine, 1)
    finally:
        await engine.dispose()
