"""Leases, reclaims and sweeps of the store: budgets, cursors, rows of the earlier release, and what field reports warn of."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from sqlalchemy import event, text

from dendrux.db.models import metadata
from dendrux.errors import StaleClaimError
from dendrux.runtime.state import ExpiredLease, FailedRun
from dendrux.testing.store_kit.sql import SqlClock
from unit.store_support import applied_then_lost, commits, counted

pytestmark = pytest.mark.asyncio

REACT = {"dendrux.loop": "react"}
LEASE = timedelta(minutes=10)
PAUSE = {"status": "paused", "pause_data": {"a": 1}}


@pytest_asyncio.fixture
async def store(database, tmp_path):
    async with database.store(tmp_path) as store:
        yield store


async def aged(store, by=LEASE):
    await SqlClock(lambda: store._engine).advance(by)


async def mark(store, **given):
    return await store.mark_lease_expired(**{"cutoff": datetime.now(UTC) - LEASE, **given})


async def marked(store, *names):
    for name in names:
        await store.create_run(name, "agent", meta=REACT)
    await aged(store)
    await mark(store)


async def epochs(store, *names):
    return [(await store.get_run(name)).claim_epoch for name in names]


async def types(store, name):
    return [entry.event_type for entry in await store.get_run_events(name)]


# -- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.requires("supports_update_returning")
async def test_a_page_costs_its_read_and_two_statements_for_each_run_it_changes(store):
    for name in ("a", "b", "c"):
        await store.create_run(name, "agent", meta=REACT)
    await store.create_run("plain", "agent")
    for name in ("x", "y"):
        await store.create_run(name, "agent")
        await store.pause_with_event(name, **PAUSE)
    await aged(store)
    with counted(store._engine) as statements:
        await mark(store)
    assert len(statements) == 1 + 2 * 3
    with counted(store._engine) as statements:
        await mark(store)
    assert len(statements) == 1
    with counted(store._engine) as statements:
        await mark(store, finalise_unrecoverable=True)
    assert len(statements) == 1 + 2
    with counted(store._engine) as statements:
        await store.reclaim_run("a", expected_epoch=1)
    assert len(statements) == 2
    with counted(store._engine) as statements:
        assert [lease.run_id for lease in await store.get_lease_expired()] == ["b", "c"]
    assert len(statements) == 1
    with counted(store._engine) as statements:
        await store.sweep_stale_runs(older_than=LEASE)
    assert len(statements) == 1 + 2 * 2
    with counted(store._engine) as statements:
        await store.sweep_abandoned_runs(older_than=LEASE)
    assert len(statements) == 1 + 2 * 2


@pytest.mark.only("sqlite")
@pytest.mark.parametrize("operation", ["mark_lease_expired", "get_lease_expired", "sweep_stale_runs", "reclaim_run"])
async def test_no_page_scans_or_sorts_a_table(store, operation):
    await marked(store, "a", "b")
    seen = []

    def note(_conn, _cursor, statement, parameters, *_):
        if statement.startswith(("SELECT", "UPDATE", "INSERT")):
            seen.append((statement, parameters))

    call = {
        "mark_lease_expired": lambda after: mark(store, after=after, limit=1),
        "get_lease_expired": lambda after: store.get_lease_expired(after=after, limit=1),
        "sweep_stale_runs": lambda after: store.sweep_stale_runs(older_than=LEASE, after=after, limit=1),
        "reclaim_run": lambda after: store.reclaim_run("b", expected_epoch=1),
    }[operation]
    event.listen(store._engine.sync_engine, "before_cursor_execute", note)
    page = await call(None)
    after = page[-1].cursor if isinstance(page, list) else getattr(page, "next_after", None)
    await call(after)
    event.remove(store._engine.sync_engine, "before_cursor_execute", note)
    async with store._engine.connect() as connection:
        for statement, parameters in seen:
            for row in await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
                whole = row[3].startswith("SCAN") and row[3].split()[1] in metadata.tables and "USING" not in row[3]
                assert not whole, (statement, row[3])
                assert "TEMP B-TREE" not in row[3], (statement, row[3])


# -- pages and cursors ------------------------------------------------------------------------------------------------


async def test_pages_follow_the_order_of_silence(store):
    for name in ("c", "a", "b"):
        await store.create_run(name, "agent", meta=REACT)
    await aged(store)
    seen, after = [], None
    while True:
        page = await mark(store, limit=1, after=after)
        seen += page.marked
        after = page.next_after
        if after is None:
            break
        assert len(after) <= 512
    assert seen == ["c", "a", "b"]
    leases, after = [], None
    while page := await store.get_lease_expired(limit=2, after=after):
        leases += page
        after = page[-1].cursor
    assert [lease.run_id for lease in leases] == ["c", "a", "b"]
    assert all(isinstance(lease, ExpiredLease) and lease.expired_at.tzinfo is not None for lease in leases)


async def test_a_page_of_rows_that_need_nothing_does_not_hide_the_rest(store):
    """B010: the ten oldest rows are not sweepable, the eleventh is."""
    for number in range(10):
        await store.create_run(f"old{number}", "agent")
    await store.create_run("due", "agent", meta=REACT)
    await aged(store)
    page = await mark(store, limit=10)
    assert page.marked == ()
    assert page.next_after is not None
    page = await mark(store, limit=10, after=page.next_after)
    assert page.marked == ("due",)
    assert page.next_after is None


@pytest.mark.parametrize("cursor", ["", "x" * 513, "nonsense", "WzEsMiwzXQ==", "WzksMCwiYSJd", "Wy0xLDAsImEiXQ==", 7])
async def test_a_text_that_is_no_cursor_is_refused_by_name(store, cursor):
    """The coded ones are places of another shape: [1,2,3], [9,0,"a"] and [-1,0,"a"]."""
    for call in (
        lambda: mark(store, after=cursor),
        lambda: store.sweep_stale_runs(older_than=LEASE, after=cursor),
        lambda: store.sweep_abandoned_runs(older_than=LEASE, after=cursor),
        lambda: store.get_lease_expired(after=cursor),
    ):
        with pytest.raises((ValueError, TypeError), match="after"):
            await call()


@pytest.mark.parametrize(
    "given",
    [{"cutoff": datetime(2020, 1, 1)}, {"cutoff": 7}, {"limit": 0}, {"limit": 1001}, {"finalise_unrecoverable": 1}],  # noqa: DTZ001
)
async def test_bad_arguments_of_a_mark(store, given):
    with pytest.raises((ValueError, TypeError), match=next(iter(given))):
        await mark(store, **given)


@pytest.mark.parametrize("older_than", [timedelta(seconds=-1), timedelta.max, 600, None])
async def test_bad_ages_of_a_sweep(store, older_than):
    for sweep in (store.sweep_stale_runs, store.sweep_abandoned_runs):
        with pytest.raises((ValueError, TypeError), match="older_than"):
            await sweep(older_than=older_than)


async def test_runs_of_an_older_release_without_clocks_are_swept_by_what_they_have(store):
    for name in ("stale", "fresh"):
        await store.create_run(name, "agent")
        await store.create_run(f"{name}-paused", "agent")
        await store.pause_with_event(f"{name}-paused", **PAUSE)
        if name == "stale":
            await aged(store)
    async with store._engine.begin() as connection:
        await connection.execute(text("UPDATE agent_runs SET last_progress_at = NULL, paused_at = NULL"))
    await store.create_run("clocked", "agent")
    stale, after = [], None
    while True:
        page = await store.sweep_stale_runs(older_than=LEASE / 2, limit=1, after=after)
        stale += [run.run_id for run in page.swept]
        after = page.next_after
        if after is None:
            break
    assert stale == ["stale"]
    page = await store.sweep_abandoned_runs(older_than=LEASE / 2)
    assert [run.run_id for run in page.swept] == ["stale-paused"]


# -- failures ---------------------------------------------------------------------------------------------------------


async def test_a_run_that_fails_is_named_and_the_page_goes_on(store):
    for name in ("a", "b", "c"):
        await store.create_run(name, "agent", meta=REACT)
    await aged(store)
    with commits(store._engine, applied_then_lost(1)):
        page = await mark(store)
    assert page.failed == (FailedRun(run_id="a", code="store_outcome_unknown"),)
    assert page.marked == ("b", "c")
    assert (await store.get_run("a")).lease_expired_at is not None
    assert (await mark(store)).marked == ()


@pytest.mark.only("sqlite")
async def test_a_cancelled_sweep_ends_between_two_runs(store):
    names = [f"r{number}" for number in range(20)]
    for name in names:
        await store.create_run(name, "agent")
    await aged(store)
    sweep = asyncio.ensure_future(store.sweep_stale_runs(older_than=LEASE))
    while "error" not in [(await store.get_run(name)).status for name in names]:  # noqa: ASYNC110  # seen from outside
        await asyncio.sleep(0)
    sweep.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweep
    assert "running" in [(await store.get_run(name)).status for name in names]
    assert (await store.sweep_stale_runs(older_than=LEASE)).failed == ()
    for name in names:
        assert (await store.get_run(name)).status == "error"
        assert (await types(store, name)) == ["run.interrupted"]


# -- field reports ----------------------------------------------------------------------------------------------------


async def test_a_snapshot_that_somebody_acted_on_gives_nothing(store):
    """B001: two sweepers read the same expired run, one reclaims, the other applies its old list."""
    await marked(store, "r")
    first, second = await store.get_lease_expired(), await store.get_lease_expired()
    assert await store.reclaim_run("r", expected_epoch=first[0].claim_epoch) == 2
    assert await store.reclaim_run("r", expected_epoch=second[0].claim_epoch) is None
    assert await epochs(store, "r") == [2]
    assert await types(store, "r") == ["run.lease_expired", "run.reclaimed"]


async def test_a_run_that_ends_between_the_page_and_its_transaction_is_left(store, monkeypatch):
    """B007, B008, B034: the sweep acts on what it finds, not on what its page showed."""
    from dendrux.store.paging import Pages

    for name in ("done", "written"):
        await store.create_run(name, "agent", meta=REACT)
    await aged(store)
    one = Pages.one

    async def late(self, run_id, body):
        if run_id == "done":
            end = {"status": "success", "allowed_current_statuses": ["running"], "event_type": "run.completed"}
            assert await store.finalize_with_event(run_id, answer="yes", claim_epoch=1, **end) is not None
        else:
            await store.touch_progress(run_id, claim_epoch=1)
        return await one(self, run_id, body)

    monkeypatch.setattr(Pages, "one", late)
    page = await store.sweep_stale_runs(older_than=LEASE)
    assert page.swept == page.failed == ()
    assert (await store.get_run("done")).answer == "yes"
    assert await types(store, "done") == ["run.completed"]
    assert (await store.get_run("written")).status == "running"


async def test_a_working_owner_is_never_taken_for_dead(store):
    """B011: ten leases of work with a sign of life in each."""
    await store.create_run("r", "agent", meta=REACT)
    for _ in range(10):
        await aged(store, LEASE * 0.9)
        assert (await mark(store)).marked == ()
        assert await store.touch_progress("r", claim_epoch=1)


async def test_many_sweepers_reclaim_every_run_once(store):
    """B009, B014: four sweepers over fifty expired runs."""
    names = [f"r{number:02}" for number in range(50)]
    await marked(store, *names)

    async def sweeper():
        return [
            lease.run_id
            for lease in await store.get_lease_expired(limit=1000)
            if await store.reclaim_run(lease.run_id, expected_epoch=lease.claim_epoch) is not None
        ]

    won = [name for got in await asyncio.gather(*(sweeper() for _ in range(4))) for name in got]
    assert sorted(won) == names
    for name in names:
        run = await store.get_run(name)
        assert (run.claim_epoch, run.reclaim_count) == (2, 1)


async def test_whoever_watched_the_former_owner_cannot_fail_the_run(store):
    """B015: the end of the run is told late, under the epoch of the owner that died."""
    await marked(store, "r")
    assert await store.reclaim_run("r", expected_epoch=1) == 2
    end = {"status": "error", "allowed_current_statuses": ["running"], "event_type": "run.error"}
    with pytest.raises(StaleClaimError):
        await store.finalize_with_event("r", claim_epoch=1, **end)
    assert (await store.get_run("r")).status == "running"


@pytest.mark.parametrize("lease", [timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=4)])
async def test_a_dead_owner_holds_its_run_for_one_lease_and_one_sweep(store, lease):
    """B012, B024: the run is free again after the lease that the sweep goes by, whatever its length."""
    await store.create_run("r", "agent", meta=REACT)
    await aged(store, lease + timedelta(seconds=1))
    assert (await mark(store, cutoff=datetime.now(UTC) - lease)).marked == ("r",)
    assert await store.reclaim_run("r", expected_epoch=1) == 2


async def test_marks_and_sweeps_at_once_tell_of_one_expiry(store):
    """B031: whoever comes first decides, and one event tells of it."""
    await store.create_run("r", "agent", meta=REACT)
    await aged(store)
    pages = await asyncio.gather(*(mark(store) for _ in range(4)))
    assert [run for page in pages for run in page.marked] == ["r"]
    assert await types(store, "r") == ["run.lease_expired"]


@pytest.mark.parametrize("epoch", [0, -1, None, "", True, 1.5])
async def test_no_falsy_epoch_reclaims(store, epoch):
    """B040: an epoch that is none is refused, never taken for no guard."""
    await marked(store, "r")
    with pytest.raises((ValueError, TypeError), match="expected_epoch"):
        await store.reclaim_run("r", expected_epoch=epoch)
    assert await epochs(store, "r") == [1]
