"""Sweeps and reclaims: what becomes of runs whose owner is gone, and what is refused before anything is written."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import pytest_asyncio

import dendrux
from dendrux.errors import StaleClaimError, StoreCapabilityError, StoreOutcomeUnknown, StoreUnavailableError
from dendrux.runtime.recovery import RECLAIM_LIMIT, ReclaimedRun, reclaim, sweep
from dendrux.store import SQLiteStateStore
from dendrux.testing.store_kit.sql import SqlClock
from unit.store_support import Format1Store

pytestmark = pytest.mark.asyncio
REACT = {"dendrux.loop": "react"}
HOUR = timedelta(hours=1)


@pytest_asyncio.fixture
async def engine(database, tmp_path):
    async with database.engine(tmp_path) as engine:
        yield engine


@pytest.fixture
def store(database, engine):
    return database.kind(engine)


@pytest.fixture
def clock(engine):
    return SqlClock(lambda: engine)


async def started(store, *run_ids, agent="a", meta=REACT, tenant=None):
    for run_id in run_ids:
        await store.create_run(run_id, agent, meta=meta, tenant_id=tenant)
        await store.save_run_event(run_id, event_type="run.started", claim_epoch=1)


async def expired(store, clock, *run_ids, **more):
    """Runs of which the leases are marked, in this order."""
    for run_id in run_ids:
        await started(store, run_id, **more)
        await clock.advance(2 * HOUR)
        await sweep(state_store=store, stale_running=HOUR, on_stale="mark")


async def statuses(store, *run_ids):
    return [(await store.get_run(run_id)).status for run_id in run_ids]


@pytest.mark.only("sqlite")
async def test_both_are_names_of_the_package():
    assert (dendrux.sweep, dendrux.reclaim) == (sweep, reclaim)
    assert not hasattr(dendrux, "nonsense")


# -- sweep ------------------------------------------------------------------------------------------------------------


async def test_by_default_silent_runs_are_ended(store, clock):
    await started(store, "old")
    await clock.advance(2 * HOUR)
    await started(store, "fresh")
    result = await sweep(state_store=store, stale_running=HOUR)
    assert [(run.run_id, run.failure_reason) for run in result.stale_running] == [("old", "stale_running")]
    assert (result.marked, result.reclaimed, result.next_after) == ([], [], None)
    assert await statuses(store, "old", "fresh") == ["error", "running"]


async def test_marking_ends_only_what_cannot_be_recovered(store, clock):
    await started(store, "react")
    await started(store, "other", meta=None)
    await clock.advance(2 * HOUR)
    result = await sweep(state_store=store, stale_running=HOUR, on_stale="mark")
    assert (result.marked, [run.run_id for run in result.stale_running]) == (["react"], ["other"])
    assert await statuses(store, "react", "other") == ["running", "error"]
    again = await sweep(state_store=store, stale_running=HOUR, on_stale="mark")
    assert (again.marked, again.stale_running) == ([], [])


async def test_a_sweep_that_reclaims_answers_who_owns_what(store, clock):
    await started(store, "r", tenant="t")
    await clock.advance(2 * HOUR)
    result = await sweep(state_store=store, stale_running=HOUR, on_stale="reclaim")
    assert result.reclaimed == [ReclaimedRun(run_id="r", agent_name="a", tenant_id="t", claim_epoch=2, reclaim_count=1)]
    with pytest.raises(StaleClaimError):
        await store.save_run_event("r", event_type="late", claim_epoch=1)
    await store.save_run_event("r", event_type="mine", claim_epoch=2)


async def test_waiting_runs_are_ended_beside_silent_ones(store, clock):
    await started(store, "silent", "waits")
    await store.pause_with_event("waits", status="waiting_approval", pause_data={}, claim_epoch=1)
    await clock.advance(2 * HOUR)
    result = await sweep(state_store=store, stale_running=HOUR, abandoned_waiting=3 * HOUR)
    assert (len(result.stale_running), result.abandoned_waiting) == (1, [])
    result = await sweep(state_store=store, abandoned_waiting=HOUR)
    assert [run.failure_reason for run in result.abandoned_waiting] == ["abandoned_waiting"]


async def test_a_sweep_stops_and_goes_on_where_it_was(store, clock):
    runs = [f"r{number}" for number in range(5)]
    await started(store, *runs)
    for run_id in runs[3:]:
        await store.pause_with_event(run_id, status="paused", pause_data={}, claim_epoch=1)
    await clock.advance(2 * HOUR)
    arguments = {"state_store": store, "stale_running": HOUR, "abandoned_waiting": HOUR, "limit": 2, "max_pages": 1}
    swept, after = [], None
    for _ in range(9):
        page = await sweep(**arguments, after=after)
        found = [run.run_id for run in (*page.stale_running, *page.abandoned_waiting)]
        assert len(found) <= 2
        swept += found
        after = page.next_after
        if after is None:
            break
    assert sorted(swept) == runs
    assert after is None


async def test_a_sweep_by_url(store, clock, engine):
    await started(store, "r")
    await clock.advance(2 * HOUR)
    url = engine.url.render_as_string(hide_password=False)
    result = await sweep(database_url=url, stale_running=HOUR)
    assert [run.run_id for run in result.stale_running] == ["r"]


# -- reclaim ----------------------------------------------------------------------------------------------------------


async def test_the_oldest_come_first_and_no_more_than_wanted(store, clock):
    await expired(store, clock, "one", "two", "three")
    first = await reclaim(store, limit=2)
    assert [run.run_id for run in first.reclaimed] == ["one", "two"]
    assert first.next_after is not None
    rest = await reclaim(store, limit=2, after=first.next_after)
    assert ([run.run_id for run in rest.reclaimed], rest.next_after) == (["three"], None)
    assert (await reclaim(store)).reclaimed == ()


async def test_only_runs_of_these_agents_and_this_tenant(store, clock):
    await expired(store, clock, "a", agent="writer")
    await expired(store, clock, "b", agent="reader", tenant="t")
    assert (await reclaim(store, agents=["nobody"])).reclaimed == ()
    assert (await reclaim(store, tenant_id="T")).reclaimed == ()
    assert [run.run_id for run in (await reclaim(store, agents=["reader"])).reclaimed] == ["b"]
    assert [run.run_id for run in (await reclaim(store, tenant_id=None)).reclaimed] == ["a"]


async def test_an_owner_that_was_only_slow_keeps_its_run(store, clock, monkeypatch):
    await expired(store, clock, "slow", "dead")
    read = store.get_run

    async def meanwhile(run_id, **more):
        if run_id == "slow":
            await store.save_run_event("slow", event_type="alive", claim_epoch=1)
        return await read(run_id, **more)

    monkeypatch.setattr(store, "get_run", meanwhile, raising=False)
    for max_reclaims in (0, 3):  # as a poison run that would be ended it keeps it, too
        result = await reclaim(store, max_reclaims=max_reclaims, on_poison="error")
        assert "slow" not in [run.run_id for run in result.reclaimed]
    assert (await read("slow")).claim_epoch == 1
    await store.save_run_event("slow", event_type="still", claim_epoch=1)


async def test_several_at_once_share_the_runs(store, clock, engine):
    runs = [f"r{number}" for number in range(6)]
    await expired(store, clock, *runs)
    results = await asyncio.gather(*(reclaim(type(store)(engine)) for _ in range(4)))
    taken = [run.run_id for result in results for run in result.reclaimed]
    assert sorted(taken) == runs
    assert {run.claim_epoch for result in results for run in result.reclaimed} == {2}
    lost = {run_id for result in results for run_id in result.lost}
    assert lost <= set(runs)


async def test_a_run_that_was_taken_over_too_often_is_set_aside(store, clock):
    await expired(store, clock, "poison", "good")
    for _ in range(3):
        assert [run.run_id for run in (await reclaim(store, limit=1)).reclaimed] == ["poison"]
        await store.touch_progress("good", claim_epoch=1)
        await clock.advance(2 * HOUR)
        await sweep(state_store=store, stale_running=HOUR, on_stale="mark")
    result = await reclaim(store)
    assert [(run.run_id, run.reclaim_count, run.ended) for run in result.set_aside] == [("poison", 3, False)]
    assert [run.run_id for run in result.reclaimed] == ["good"]
    assert await statuses(store, "poison") == ["running"]
    # It is still there for whoever raises the limit.
    assert (await reclaim(store, max_reclaims=None)).reclaimed[0].reclaim_count == 4


async def test_a_poison_run_can_be_ended(store, clock):
    await expired(store, clock, "poison")
    result = await reclaim(store, max_reclaims=0, on_poison="error")
    assert [(run.run_id, run.ended) for run in result.set_aside] == [("poison", True)]
    run = await store.get_run("poison")
    assert (run.status, run.failure_reason, run.error) == (
        "error", RECLAIM_LIMIT, "Run taken over 0 times without an end",
    )  # fmt: skip
    assert (await store.get_run_events("poison"))[-1].event_type == "run.error"
    with pytest.raises(StaleClaimError):
        await store.save_run_event("poison", event_type="late", claim_epoch=1)


@pytest.fixture
def failing(store, monkeypatch):
    """Make a method of the store fail from its nth call on, or on one run."""

    def fail(name, error, *, run_id=None, calls=0):
        method, count = getattr(store, name), [0]

        async def instead(*arguments, **keywords):
            count[0] += 1
            if (run_id is None or run_id in arguments) and count[0] > calls:
                raise error
            return await method(*arguments, **keywords)

        monkeypatch.setattr(store, name, instead, raising=False)

    return fail


async def test_nobody_is_handed_a_run_whose_takeover_is_unknown(store, clock, failing):
    await expired(store, clock, "one", "two", "three")
    failing("reclaim_run", StoreOutcomeUnknown(), run_id="two")
    result = await reclaim(store)
    assert [run.run_id for run in result.reclaimed] == ["one", "three"]
    assert [(run.run_id, run.code) for run in result.failed] == [("two", "store_outcome_unknown")]
    assert result.next_after is None


@pytest.mark.parametrize("method", ["reclaim_run", "get_run"])
async def test_what_was_taken_over_survives_a_database_that_goes(store, clock, failing, method):
    await expired(store, clock, "one", "two", "three")
    failing(method, StoreUnavailableError(), calls=1)
    result = await reclaim(store)
    assert [run.run_id for run in result.reclaimed] == ["one"]
    assert [(run.run_id, run.code) for run in result.failed] == [("two", "store_unavailable")]
    rest = await reclaim(type(store)(store._engine), after=result.next_after)
    assert [run.run_id for run in rest.reclaimed] == ["two", "three"]


async def test_a_list_that_cannot_be_read_on_loses_nothing(store, clock, failing, monkeypatch):
    monkeypatch.setattr("dendrux.runtime.recovery.LEASES_PAGE", 1)
    await expired(store, clock, "one", "two")
    failing("get_lease_expired", StoreUnavailableError(), calls=1)
    result = await reclaim(store)
    assert [run.run_id for run in result.reclaimed] == ["one"]
    assert result.next_after is not None


async def test_a_database_that_is_not_there_at_first_is_said(store, clock, failing):
    await expired(store, clock, "one")
    failing("reclaim_run", StoreUnavailableError())
    with pytest.raises(StoreUnavailableError):
        await reclaim(store)


# -- refused before anything is written -------------------------------------------------------------------------------


@pytest.mark.only("sqlite")
@pytest.mark.parametrize("asking", ["mark", "reclaim", "call"])
async def test_a_store_without_recovery_is_refused_before_any_write(engine, clock, asking):
    store = Format1Store(engine)
    await started(store, "r")
    await store.pause_with_event("r", status="paused", pause_data={}, claim_epoch=1)
    await started(store, "s")
    await clock.advance(2 * HOUR)
    before = [await store.get_run(run_id) for run_id in ("r", "s")]
    if asking == "call":
        doing = reclaim(store)
    else:
        doing = sweep(state_store=store, stale_running=HOUR, abandoned_waiting=HOUR, on_stale=asking)
    with pytest.raises(NotImplementedError, match="Format1Store does not"):
        await doing
    assert [await store.get_run(run_id) for run_id in ("r", "s")] == before
    result = await sweep(state_store=store, stale_running=HOUR, abandoned_waiting=HOUR)
    assert (len(result.stale_running), len(result.abandoned_waiting)) == (1, 1)


class Careless(SQLiteStateStore):
    async def mark_lease_expired(self, *args, **kwargs):
        raise AssertionError


@pytest.mark.only("sqlite")
async def test_a_declaration_that_the_methods_do_not_keep_is_refused_first(engine, clock):
    store = Careless(engine)
    await started(store, "r", meta=None)
    await clock.advance(2 * HOUR)
    for doing in (reclaim(store), sweep(state_store=store, stale_running=HOUR, on_stale="reclaim")):
        with pytest.raises(StoreCapabilityError, match="finalise_unrecoverable"):
            await doing
    assert await statuses(store, "r") == ["running"]


@pytest.mark.only("sqlite")
@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({}, ValueError, "nothing to sweep"),
        ({"stale_running": HOUR, "database_url": "sqlite+aiosqlite:///x"}, ValueError, "either database_url or"),
        ({"stale_running": -HOUR}, ValueError, "stale_running"),
        ({"abandoned_waiting": timedelta(days=365_001)}, ValueError, "abandoned_waiting"),
        ({"stale_running": HOUR, "on_stale": "forget"}, ValueError, "on_stale"),
        ({"stale_running": HOUR, "limit": 0}, ValueError, "limit"),
        ({"stale_running": HOUR, "limit": True}, TypeError, "limit"),
        ({"stale_running": HOUR, "max_pages": 0}, ValueError, "max_pages"),
        ({"stale_running": HOUR, "after": "stale"}, ValueError, "after"),
        ({"stale_running": HOUR, "after": "abandoned x"}, ValueError, "after"),
        ({"stale_running": HOUR, "after": "stale x"}, ValueError, "after"),
        ({"stale_running": HOUR, "on_stale": "reclaim", "max_reclaims": -1}, ValueError, "max_reclaims"),
    ],
)
async def test_arguments_of_a_sweep(store, clock, arguments, error, word):
    await started(store, "r")
    await clock.advance(2 * HOUR)
    with pytest.raises(error, match=word):
        await sweep(state_store=store, **arguments)
    run = await store.get_run("r")
    assert (run.status, run.lease_expired_at) == ("running", None)


@pytest.mark.only("sqlite")
@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"limit": 0}, ValueError, "limit"),
        ({"agents": "writer"}, TypeError, "agents"),
        ({"max_reclaims": 1.5}, TypeError, "max_reclaims"),
        ({"on_poison": "bury"}, ValueError, "on_poison"),
        ({"after": "x"}, ValueError, "after"),
    ],
)
async def test_arguments_of_a_reclaim(store, clock, arguments, error, word):
    await expired(store, clock, "r")
    with pytest.raises(error, match=word):
        await reclaim(store, **arguments)
    assert (await store.get_run("r")).claim_epoch == 1
