"""The checker on histories of a simulated database: nothing correct is called wrong, and what is wrong is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dendrux_model.linearize import apart, connected, linearize, search
from dendrux_model.machines.cells import state
from dendrux_model.machines.starts import STARTS
from dendrux_model.operations import OPERATIONS
from dendrux_model.possible import Possible
from model.simulator import Level, Simulator, judged

EVERY = tuple(OPERATIONS)
LOG = ("SaveRunEvent", "SaveTrace")
IDENTITIES = ("CreateRun", "SaveRunEvent")
BUDGET = 200_000


def simulated(
    level: Level, seed: int, start: str, names: tuple[str, ...] = EVERY, *, processes: int = 3, calls: int = 3
) -> str:
    database = Simulator(level, seed, state(start, 2), processes=processes, names=names)
    return judged(database, database.run(calls), budget=BUDGET)


@pytest.mark.parametrize("start", sorted(STARTS))
def test_serializable_histories_are_explained(start: str, budget: str) -> None:
    seeds = range(500 if budget == "full" else 20)
    assert {seed: found for seed in seeds if (found := simulated("serializable", seed, start)) != "ok"} == {}


FOUND: dict[tuple[Level, str, tuple[str, ...]], int] = {
    ("read_committed", "running", LOG): 0,  # both took the same index of the log: a lost update
    ("read_committed", "empty", EVERY): 118,
    ("snapshot", "running", IDENTITIES): 10,  # one identity in two runs: neither saw the other's row, a write skew
    ("snapshot", "empty", ("CreateRun",)): 201,  # one key for two runs
    ("lossy", "paused", EVERY): 10,
    ("lagging", "running", EVERY): 0,
}
"""A seed whose history has an anomaly of this level, by level, start and operations."""


@pytest.mark.parametrize(("level", "start", "names"), FOUND)
def test_an_anomaly_is_found(level: Level, start: str, names: tuple[str, ...]) -> None:
    seed = FOUND[level, start, names]
    assert simulated(level, seed, start, names) == "violation"
    assert simulated("serializable", seed, start, names) == "ok"


def test_snapshots_lose_no_update() -> None:
    """What read committed loses on the same seeds: the levels differ in what they should differ in."""
    verdicts = {
        level: [simulated(level, seed, "running", LOG) for seed in range(40)]
        for level in ("snapshot", "read_committed")
    }  # type: ignore[arg-type]
    assert set(verdicts["snapshot"]) == {"ok"}
    assert verdicts["read_committed"].count("violation") > 5


def test_a_small_budget_gives_no_verdict() -> None:
    database = Simulator("lossy", 3, state("paused", 2), names=EVERY)
    assert judged(database, database.run(4), budget=3) == "unknown"


@given(
    level=st.sampled_from(["serializable", "snapshot", "read_committed", "lossy", "lagging"]),
    seed=st.integers(0, 2**20),
    start=st.sampled_from(sorted(STARTS)),
    names=st.sampled_from(
        [EVERY, LOG, IDENTITIES, ("SaveRunEvent", "SaveTrace", "UpdateRunMeta", "PutBlob", "CreateRun")]
    ),
)
def test_components_change_no_verdict(level: Level, seed: int, start: str, names: tuple[str, ...]) -> None:
    """The search by components against one search of the whole history: the same verdict, and the same worlds."""
    database = Simulator(level, seed, state(start, 2), processes=2, names=names)
    history = database.run(3)
    before = Possible(database.start, {})
    for steps in apart(history, database.start):
        whole = search(before, list(enumerate(steps)), database.start.now + 1, BUDGET)
        parts = connected(before, steps, database.start.now + 1, BUDGET)
        assert parts.result == whole.result
        assert ends(parts.worlds) == ends(whole.worlds)
    assert linearize([before], history, database.start.now + 1, BUDGET).result != "unknown"


def ends(worlds: tuple[Possible, ...]) -> set[object]:
    """Worlds without the time of their last call, and blobs in no order."""
    return {one.world._replace(now=0, blobs=tuple(sorted(map(repr, one.world.blobs)))) for one in worlds}  # type: ignore[arg-type]
