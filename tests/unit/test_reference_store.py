"""ReferenceStore as an application uses it in its tests, and as the model's other side."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dendrux.errors import (
    BlobNotFoundError,
    IdempotencyConflictError,
    RunAlreadyTerminalError,
    RunNotFoundError,
    StaleClaimError,
    WriteConflictError,
)
from dendrux.live import PendingUpdates
from dendrux.runtime.state import StateStore
from dendrux.runtime.values import BlobEdge, EventWrite, SeedTrace, TraceWrite, UsageStats
from dendrux.store import RunStore, SQLStateStore, validate_capabilities
from dendrux.testing import ReferenceClock, ReferenceStore
from dendrux.testing.bench import Bench
from dendrux.testing.execution import Execution
from dendrux.testing.in_memory.call import PARAMETERS
from dendrux.testing.in_memory.methods import HANDLERS
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.checking import perform
from dendrux_model.operations import OPERATIONS, CancelSubtree
from dendrux_model.passing import Pass
from dendrux_model.programs import Do, Tick
from dendrux_model.world import World
from dendrux_model.worlds import SMALL_WORLDS

METHODS = [name for name, member in vars(StateStore).items() if inspect.iscoroutinefunction(member) and name != "close"]
SCOPE = "-"
RECOVERABLE = {"dendrux.loop": "react"}


@pytest.fixture
def store() -> ReferenceStore:
    return ReferenceStore()


class Format1(ReferenceStore):
    def __init__(self, **options):
        super().__init__(**options)
        self.capabilities = replace(self.capabilities, checkpointing=False, atomic_completion=False, recovery=False)


# -- the protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_methods_have_the_signatures_of_the_protocol(store, method):
    assert inspect.signature(getattr(ReferenceStore, method)) == inspect.signature(getattr(StateStore, method))
    assert "self" not in inspect.signature(getattr(store, method)).parameters


@pytest.mark.parametrize("method", METHODS)
def test_no_parameter_is_ignored_without_somebody_who_looks_at_it(method):
    """A parameter that the model does not have is read by the method's handler, or documented as ignored."""
    beyond = set(inspect.signature(getattr(StateStore, method)).parameters) - {"self"}
    beyond -= PARAMETERS.get(method, frozenset()) | ({"sequence_index"} if method == "save_run_event" else set())
    assert not beyond or method in HANDLERS, f"nobody looks at {beyond}"


def test_a_method_answers_under_its_own_name_only():
    with pytest.raises((TypeError, RuntimeError)):
        type("Renamed", (), {"get_run": vars(ReferenceStore)["create_run"]})


def test_it_declares_everything_in_one_process(store):
    validate_capabilities(store)
    assert store.capabilities.deployment == "single_process"


# -- the model --------------------------------------------------------------------------------------------------------


def on_the_way(step):
    """Whether a step goes on from a cursor: the model's are ids of its programs."""
    return isinstance(step, CancelSubtree) and step.after is not None


@pytest.mark.parametrize(("form", "kind"), [(1, Format1), (2, ReferenceStore)])
async def test_walks_through_the_small_worlds(budget, form, kind):
    chance = random.Random(form)
    worlds = [world for world in SMALL_WORLDS.values() if world.format == form]
    clock = ReferenceClock()
    store = kind(clock=clock)
    for number in range({"quick": 12, "full": 400}[budget]):
        world = worlds[number % len(worlds)]
        alphabet = [step for step in world.alphabet if not on_the_way(step)]
        steps = [*world.setup, *(chance.choice(alphabet) for _ in range(15))]
        walk = Execution(Bench(lambda: store, clock=clock), world=World(new_format=form))
        await walk.run([Tick(step.seconds) if isinstance(step, Pass) else Do(step) for step in steps])


async def test_a_second_instance_sees_what_the_first_wrote():
    contract = next(c for c in catalogue() if c.id == "concurrency.get_run.sees_other_instances")
    bench = Bench(ReferenceStore, second=lambda store: ReferenceStore(data_of=store))
    await perform(contract.program, bench, 2)


# -- as an application uses it ----------------------------------------------------------------------------------------


async def test_a_run_lives_and_ends(store):
    created = await store.create_run("r", "agent", seed_traces=[SeedTrace(role="user", content="hello")])
    assert (created.outcome, created.claim_epoch, created.format) == ("created", 1, 2)
    before = datetime.now(UTC)
    await store.save_run_event("r", event_type="run.started", claim_epoch=1)
    await store.save_llm_interaction("r", iteration_index=0, usage=UsageStats(input_tokens=3), claim_epoch=1)
    assert await store.finalize_with_event(
        "r", status="success", allowed_current_statuses=["running"], event_type="run.completed", answer="done"
    )
    events = await store.get_run_events("r")
    assert [(event.event_type, event.sequence_index) for event in events] == [("run.started", 0), ("run.completed", 1)]
    assert len({event.id for event in events}) == 2
    assert before - timedelta(seconds=1) <= events[0].created_at < events[1].created_at
    [message] = await store.get_traces("r")
    assert (message.content, message.trace_kind, bool(message.id)) == ("hello", "seed", True)
    [call] = await store.get_llm_interactions("r")
    assert call.input_tokens == 3
    run = await store.get_run("r")
    assert (run.status, run.answer, run.updated_at) == ("success", "done", events[1].created_at)


async def test_what_is_read_is_nobody_elses(store):
    given = {"k": [1]}
    await store.create_run("r", "agent", meta=given)
    given["k"].append(2)
    (await store.get_run("r")).meta["k"].append(3)
    assert (await store.get_run("r")).meta == {"k": [1]}


async def test_time_passes_on_the_clock_of_the_store(store):
    await store.create_run("r", "agent", meta=RECOVERABLE)
    cutoff = store.clock.now() - timedelta(minutes=5)
    assert (await store.mark_lease_expired(cutoff=cutoff)).marked == ()
    store.clock.advance(timedelta(minutes=10))
    swept = await store.mark_lease_expired(cutoff=store.clock.now() - timedelta(minutes=5))
    assert swept.marked == ("r",)
    [lease] = await store.get_lease_expired()
    assert await store.get_lease_expired(after=lease.cursor) == []
    assert await store.reclaim_run("r", expected_epoch=lease.claim_epoch) == 2
    with pytest.raises(StaleClaimError):
        await store.save_run_event("r", event_type="late", claim_epoch=1)


async def test_a_cutoff_is_exact(store):
    await store.create_run("r", "agent", meta=RECOVERABLE)
    written = (await store.get_run("r")).last_progress_at
    assert (await store.mark_lease_expired(cutoff=written)).marked == ()
    assert (await store.mark_lease_expired(cutoff=written + timedelta(microseconds=1))).marked == ("r",)


async def test_time_does_not_go_back(store):
    with pytest.raises(ValueError, match="does not go back"):
        store.clock.advance(timedelta(seconds=-1))


async def test_sweeps_come_in_pages(store):
    for number in range(5):
        await store.create_run(f"r{number}", "agent")
    store.clock.advance(timedelta(hours=1))
    first = await store.sweep_stale_runs(older_than=timedelta(minutes=1), limit=3)
    rest = await store.sweep_stale_runs(older_than=timedelta(minutes=1), limit=3, after=first.next_after)
    assert [run.run_id for run in (*first.swept, *rest.swept)] == [f"r{number}" for number in range(5)]
    assert (first.failed, rest.failed, rest.next_after) == ((), (), None)
    with pytest.raises(ValueError, match="no cursor"):
        await store.sweep_stale_runs(older_than=timedelta(minutes=1), after="nonsense")


async def test_a_family_is_cancelled_page_by_page(store):
    await store.create_run("root", "agent")
    for number in range(3):
        await store.create_run(f"c{number}", "agent", parent_run_id="root", delegation_level=1)
    page = await store.cancel_subtree("root", limit=3)
    assert page.requested == ["root", "c0", "c1"]
    assert (await store.cancel_subtree("root", limit=3, after=page.next_after)).requested == ["c2"]
    with pytest.raises(ValueError, match="no cursor"):
        await store.cancel_subtree("root", after="nonsense")
    with pytest.raises(RunNotFoundError, match="'nowhere'"):
        await store.cancel_subtree("nowhere")


async def test_reads_are_bounded_by_time(store):
    await store.create_run("r", "agent")
    for name in ("a", "b"):
        await store.save_run_event("r", event_type=name)
        await store.save_tool_call(
            "r",
            tool_call_id=name,
            provider_tool_call_id=None,
            tool_name=name,
            target="server",
            params=None,
            result_payload="1",
            success=True,
            duration_ms=1,
            iteration_index=0,
        )
        await store.add_note("r", note_id=name, text=name)
    second = (await store.get_run_events("r"))[1].created_at
    assert [event.event_type for event in await store.get_run_events("r", before=second)] == ["a"]
    assert [call.tool_name for call in await store.get_tool_calls("r", before=second)] == ["a"]
    assert await store.get_tool_calls("r", before=second, offset=1) == []
    assert [note.id for note in await store.get_notes("r", after="a")] == ["b"]
    assert await store.get_notes("r", after="nowhere") == []
    await store.create_run("s", "agent")
    born = (await store.get_run("s")).created_at
    assert [run.id for run in await store.list_runs(started_after=born)] == ["s"]
    assert await store.count_runs(started_before=born) == 1
    assert [run.id for run in await store.list_runs(limit=1, offset=1)] == ["r"]


async def test_pending_work_is_read_from_the_pause(store):
    await store.create_run("r", "agent", tenant_id="t")
    assert await store.get_pending("r") is None
    document = {"pause_reason": "asks", "iteration": 2, "pending_tool_calls": [{"id": "c", "name": "mail"}, "no call"]}
    await store.pause_with_event("r", status="waiting_client_tool", pause_data=document)
    pending = await store.get_pending("r", tenant_id="t")
    assert (pending.status, pending.reason, pending.iteration) == ("waiting_client_tool", "asks", 2)
    assert [call.name for call in pending.calls] == ["mail"]
    assert await store.get_pending("r", tenant_id=None) is None


async def test_a_validation_is_asked_only_where_it_decides(store):
    await store.create_run("r", "agent")
    seen = []
    given = {"submitted_data": {"yes": True}, "submission_id": "s", "expected_status": "paused"}
    assert await store.submit_and_claim("r", **given, validate=seen.append) is None
    await store.pause_with_event("r", status="paused", pause_data={"question": "?"})

    def refuse(document):
        raise LookupError("no")

    with pytest.raises(LookupError):
        await store.submit_and_claim("r", **given, validate=refuse)
    assert await store.submit_and_claim("r", **given, validate=seen.append) == 2
    assert seen == [{"question": "?"}]
    assert await store.get_pause_state("r") == {"question": "?", "yes": True, "submission_id": "s"}


async def test_a_repeated_step_needs_no_ids_for_its_rows(store):
    """Ids that nobody chose are no content: the same step without them is a repeat."""
    await store.create_run("r", "agent")
    step = {"step_id": "s", "claim_epoch": 1, "iteration_count": 1}
    for _ in range(2):
        await store.checkpoint_step("r", **step, traces=[TraceWrite(role="user", content="x", order_index=0)])
    assert len(await store.get_traces("r")) == 1
    with pytest.raises(WriteConflictError):
        await store.checkpoint_step("r", **step, traces=[TraceWrite(role="user", content="y", order_index=0)])


async def test_a_completed_call_points_at_its_observation(store):
    await store.create_run("r", "agent")
    given = {"provider_tool_call_id": None, "tool_name": "t", "target": "server", "params": None, "iteration_index": 0}
    await store.start_tool_call(
        "r", row_id="c", tool_call_id="c", **given, claim_epoch=1, event=EventWrite(event_type="tool.started")
    )
    await store.complete_tool_call(
        "r",
        row_id="c",
        result_payload="1",
        success=True,
        outcome=None,
        duration_ms=1,
        claim_epoch=1,
        trace=TraceWrite(role="tool", content="1", order_index=0),
        event=EventWrite(event_type="tool.completed"),
    )
    [call], [message] = await store.get_tool_calls("r"), await store.get_traces("r")
    assert call.trace_id == message.id


async def test_a_reader_reads_it(store):
    await store.create_run("r", "agent")
    async with RunStore(store) as reader:
        assert [run.run_id async for run in reader.iter_runs()] == ["r"]


async def test_calls_take_turns_as_on_a_database(store):
    await store.create_run("r", "agent")
    await store.pause_with_event("r", status="paused", pause_data={})
    claims = await asyncio.gather(*(store.claim_paused_run("r", expected_status="paused") for _ in range(3)))
    assert sorted(claims, key=str) == [2, None, None]


async def test_changed_runs_are_announced():
    class Recorded(PendingUpdates):
        sent: list[str] = []

        async def send(self, run_ids):
            self.sent.extend(run_ids)

    live = Recorded()
    store = ReferenceStore(live_updates=live)
    await store.create_run("r", "agent")
    await store.get_run("r")
    await store.add_note("r", note_id="n", text="x")
    assert live.sent == ["r"]
    await store.request_cancel("r")
    await store.request_cancel("r")
    assert live.sent == ["r", "r"]
    await store.close()
    with pytest.raises(ValueError, match="no transport of its own"):
        ReferenceStore(live_updates=True)


def test_shared_data_have_one_clock(store):
    assert ReferenceStore(data_of=store).clock is store.clock
    with pytest.raises(ValueError, match="clock"):
        ReferenceStore(data_of=store, clock=ReferenceClock())


# -- refusals ---------------------------------------------------------------------------------------------------------


async def test_errors_name_what_the_call_named(store):
    await store.create_run("r", "agent", idempotency_key="k", idempotency_fingerprint="one")
    with pytest.raises(RunNotFoundError, match="'nowhere'"):
        await store.create_run("s", "agent", parent_run_id="nowhere", delegation_level=1)
    with pytest.raises(RunNotFoundError, match="'gone'"):
        await store.create_run("s", "agent", parent_run_id="r", delegation_level=1, retry_of_run_id="gone")
    with pytest.raises(IdempotencyConflictError) as refused:
        await store.create_run("s", "agent", idempotency_key="k", idempotency_fingerprint="two")
    assert (refused.value.run_id, refused.value.idempotency_key) == ("r", "k")
    with pytest.raises(StaleClaimError, match=r"^touch_progress: ") as stale:
        await store.touch_progress("r", claim_epoch=9)
    assert stale.value.run_id == "r"
    missing = hashlib.sha256(b"missing").hexdigest()
    edge = BlobEdge(tenant_scope=SCOPE, sha256=missing, owner_kind="trace", owner_id="t", ordinal=0)
    with pytest.raises(BlobNotFoundError, match=missing):
        await store.save_trace("r", "user", "x", order_index=0, blob_refs=[edge])
    await store.finalize_with_event(
        "r", status="error", allowed_current_statuses=["running"], event_type="run.error", event_id="e"
    )
    with pytest.raises(RunAlreadyTerminalError, match="'error'"):
        await store.save_run_event("r", event_type="late")


REFUSED = {
    "delegation_level must be 1": lambda s: s.create_run("s", "a", parent_run_id="r", delegation_level=5),
    "use finalize_with_event": lambda s: s.save_run_event("r", event_type="run.completed"),
    "try_pause_run is not for a run of format 2": lambda s: s.try_pause_run("r", status="paused", pause_data={}),
    "limit must be between": lambda s: s.list_runs(limit=0),
    "missing a required argument: 'agent_name'": lambda s: s.create_run("s"),
    "loop_state must have at most": lambda s: s.checkpoint_step(
        "r", step_id="s", claim_epoch=1, iteration_count=0, loop_state={"x": "x" * 300_000}
    ),
}


@pytest.mark.parametrize("said", REFUSED)
async def test_bad_input_gets_a_sentence(store, said):
    await store.create_run("r", "agent")
    with pytest.raises((ValueError, TypeError), match=re.escape(said)):
        await REFUSED[said](store)


async def test_a_loop_state_grows_to_its_bound_only(store):
    await store.create_run("r", "agent")
    for number in range(2):
        await store.checkpoint_step(
            "r", step_id=f"s{number}", claim_epoch=1, iteration_count=0, loop_state={f"x{number}": "x" * 100_000}
        )
    with pytest.raises(ValueError, match="loop_state must have at most"):
        await store.checkpoint_step(
            "r", step_id="s2", claim_epoch=1, iteration_count=0, loop_state={"x2": "x" * 100_000}
        )


@pytest.mark.parametrize(
    ("what", "call"),
    {
        "create_run": lambda s: s.create_run("s", "agent", seed_traces=[SeedTrace(role="user", content="x")]),
        "checkpoint_step": lambda s: s.checkpoint_step("r", step_id="s", claim_epoch=1, iteration_count=0),
        "finalize_with_event": lambda s: s.finalize_with_event(
            "r",
            status="success",
            allowed_current_statuses=["running"],
            event_type="run.completed",
            trace=TraceWrite(role="assistant", content="x", order_index=0),
        ),
    }.items(),
)
async def test_format_1_says_what_it_does_not_have(what, call):
    store = Format1()
    await store.create_run("r", "agent")
    with pytest.raises(ValueError, match="is not for a run of format 1: use"):
        await call(store)


# -- beside the built-in stores ---------------------------------------------------------------------------------------


def test_it_mints_the_ids_that_the_others_mint():
    assert {name: vars(ReferenceStore)[name].minted for name in METHODS} == {
        name: vars(SQLStateStore)[name].minted for name in METHODS
    }


def test_every_operation_of_the_model_is_answered():
    assert {operation.method for operation in OPERATIONS.values()} <= set(METHODS)
