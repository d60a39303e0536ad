"""Storms on every database that is found, and on stores that must not survive one."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from dendrux.store import SQLiteStateStore
from dendrux.testing.execution import Failed
from dendrux.testing.replay import read, replay
from dendrux.testing.storm import Storm, told
from dendrux_model.machines.profiles import PROFILES
from dendrux_model.operations import OPERATIONS
from dendrux_model.programs import Look, Together
from dialects.found import Database
from zoo.conftest import MakeBench, bench_of
from zoo.stores import ZOO

__all__ = ["bench_of"]  # a fixture

pytestmark = pytest.mark.slow

SECONDS = {"quick": 4.0, "full": 30.0}
LONG_S = 120.0
"""A broken store that has survived for this long was not caught. Most are within five seconds."""


async def test_several_processes_are_explained_and_never_told_busy(
    database: Database, tmp_path: Path, budget: str
) -> None:
    url = database.url or make_url(f"sqlite+aiosqlite:///{tmp_path / 'storm.db'}")
    async with Storm(database.kind, url, seed=1) as storm:
        try:
            weather = await storm.rage(SECONDS[budget])
        except Failed as failed:
            pytest.fail(told(failed))
    assert weather.overlaps > weather.rounds, "the processes called one after the other"
    assert len({method for method, _ in weather.branches}) >= (len(OPERATIONS) if budget == "full" else 20)


RACED = ("CreateRun", "SaveRunEvent", "UpdateRunMeta", "PauseWithEvent", "ClaimPausedRun")


@pytest.mark.parametrize("name", ["UnlockedSequence", "LostMetaUpdates", "ClaimWithoutSwap"])
async def test_a_store_with_a_race_does_not_survive(name: str, tmp_path: Path) -> None:
    url = make_url(f"sqlite+aiosqlite:///{tmp_path / 'storm.db'}")
    async with Storm(ZOO[name], url, seed=1, processes=2, names=RACED) as storm:
        with pytest.raises(Failed):
            await storm.rage(LONG_S)


async def test_a_finding_is_a_program_that_shows_it_every_time(tmp_path: Path, bench_of: MakeBench) -> None:
    url = make_url(f"sqlite+aiosqlite:///{tmp_path / 'storm.db'}")
    async with Storm(ZOO["LostMetaUpdates"], url, seed=1, processes=2, names=("CreateRun", "UpdateRunMeta")) as storm:
        with pytest.raises(Failed) as found:
            await storm.rage(LONG_S)
    program = read(told(found.value).partition("\n")[2]).program
    together = program[-2] if isinstance(program[-1], Look) else program[-1]
    assert isinstance(together, Together)
    assert together.branches[0].yield_at is not None
    for _ in range(2):
        assert not (await replay(program, bench_of(ZOO["LostMetaUpdates"]))).agrees
        assert (await replay(program, bench_of(SQLiteStateStore))).agrees


async def test_a_store_that_says_busy_does_not_survive(tmp_path: Path) -> None:
    url = make_url(f"sqlite+aiosqlite:///{tmp_path / 'storm.db'}")
    async with Storm(ZOO["BusyForEver"], url, seed=1, processes=2, names=PROFILES["pauses"]) as storm:
        with pytest.raises(Failed, match="store_busy"):
            await storm.rage(LONG_S)
