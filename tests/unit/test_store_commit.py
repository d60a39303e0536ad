"""Lost acknowledgements of COMMIT: each class of operation reports what it can prove, and nothing is written twice."""

from __future__ import annotations

import pytest
import pytest_asyncio

from dendrux.errors import StoreBusyError, StoreOutcomeUnknown
from dendrux.store import UsageStats
from unit.store_support import Format1Store, applied_then_lost, built_in, commits, driver_error, never_sent

pytestmark = pytest.mark.asyncio
BEHAVIOURS = [applied_then_lost, never_sent]


@pytest_asyncio.fixture
async def store(tmp_path):
    async with built_in(tmp_path, Format1Store) as store:
        await store.create_run("r", "agent")
        yield store


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_an_event_is_stored_once_and_its_index_is_reported(store, behaviour):
    with commits(store._engine, behaviour()) as seen:
        assert await store.save_run_event("r", event_type="x", claim_epoch=1) == 0
    assert [e.sequence_index for e in await store.get_run_events("r")] == [0]
    assert len(seen) == (1 if behaviour is applied_then_lost else 2)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_a_run_is_created_once(store, behaviour):
    with commits(store._engine, behaviour()):
        result = await store.create_run("r2", "agent", idempotency_key="k")
    assert (result.run_id, result.outcome, result.claim_epoch) == ("r2", "created", 1)
    assert await store.count_runs() == 2


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_pause_and_finalize_report_the_first_outcome(store, behaviour):
    with commits(store._engine, behaviour()):
        assert await store.pause_with_event("r", status="paused", pause_data={"a": 1}, claim_epoch=1) == 0
    assert await store.claim_paused_run("r", expected_status="paused") == 2
    with commits(store._engine, behaviour()):
        assert (
            await store.finalize_with_event(
                "r", status="success", allowed_current_statuses=["running"], event_type="run.completed", claim_epoch=2
            )
            == 1
        )
    assert [e.event_type for e in await store.get_run_events("r")] == ["run.paused", "run.completed"]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_every_row_by_identity_is_stored_once(store, behaviour):
    with commits(store._engine, behaviour()):
        await store.save_trace("r", "user", "x", order_index=0, claim_epoch=1)
    with commits(store._engine, behaviour()):
        await store.save_llm_interaction("r", iteration_index=0, usage=UsageStats(), claim_epoch=1)
    with commits(store._engine, behaviour()):
        outcome = await store.add_note("r", note_id="n", text="x")
    assert len(await store.get_traces("r")) == 1
    assert len(await store.get_llm_interactions("r")) == 1
    assert len(await store.get_notes("r")) == 1
    assert outcome == "added", "a repeat inside the store reports the first outcome"


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_a_claim_is_unknown_whatever_a_read_shows(store, behaviour):
    await store.pause_with_event("r", status="paused", pause_data={}, claim_epoch=1)
    with commits(store._engine, behaviour()) as seen, pytest.raises(StoreOutcomeUnknown):
        await store.claim_paused_run("r", expected_status="paused")
    assert len(seen) == 1


async def test_a_submission_is_unknown_too(store):
    await store.pause_with_event("r", status="paused", pause_data={}, claim_epoch=1)
    with commits(store._engine, applied_then_lost()), pytest.raises(StoreOutcomeUnknown):
        await store.submit_and_claim("r", expected_status="paused", submitted_data={"a": 1}, submission_id="s")
    assert (await store.get_pause_state("r"))["submission_id"] == "s"


async def test_what_nothing_makes_repeatable_is_unknown(store):
    with commits(store._engine, applied_then_lost()) as seen, pytest.raises(StoreOutcomeUnknown):
        await store.update_run_meta("r", {"a": 1}, claim_epoch=1)
    assert len(seen) == 1


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_what_is_repeatable_by_nature_runs_again_once(store, behaviour):
    with commits(store._engine, behaviour()):
        assert await store.request_cancel("r") is True
    with commits(store._engine, behaviour(2)), pytest.raises(StoreOutcomeUnknown):
        await store.touch_progress("r", claim_epoch=1)


async def test_doubt_is_not_forgotten(store):
    """After one unknown COMMIT, busy repeats must not promise that nothing was written."""

    def behave(number, real):
        real() if number == 1 else None
        raise driver_error() if number == 1 else driver_error(code=5)

    store.retry_backoff_s = 0.0
    with commits(store._engine, behave), pytest.raises(StoreOutcomeUnknown):
        await store.finalize_run("r", status="success")
    with commits(store._engine, lambda _n, _real: _raise(driver_error())), pytest.raises(StoreOutcomeUnknown):
        await store.save_run_event("r", event_type="y")


async def test_a_commit_answered_busy_wrote_nothing(store):
    store.retry_backoff_s = 0.0
    with commits(store._engine, lambda _n, _real: _raise(driver_error(code=5))), pytest.raises(StoreBusyError):
        await store.claim_paused_run("r", expected_status="paused") or await store.request_cancel("r")
    assert (await store.get_run("r")).cancel_requested is False


async def test_a_busy_commit_is_repeated_alone(store):
    def behave(number, real):
        if number <= 2:
            raise driver_error(code=5)
        real()

    await store.pause_with_event("r", status="paused", pause_data={}, claim_epoch=1)
    with commits(store._engine, behave) as seen:
        assert await store.claim_paused_run("r", expected_status="paused") == 2
    assert len(seen) == 3
    assert (await store.get_run("r")).claim_epoch == 2


async def test_nothing_stays_checked_out(store):
    pool = store._engine.sync_engine.pool
    with commits(store._engine, applied_then_lost()), pytest.raises(StoreOutcomeUnknown):
        await store.update_run_meta("r", {"a": 1})
    assert pool.checkedout() == 0


def _raise(error):
    raise error
