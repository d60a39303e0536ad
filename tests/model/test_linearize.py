"""The checker on histories written by hand: what it must allow, what it must not, and when it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from dendrux_model.components import components
from dendrux_model.linearize import Call, connected, linearize, search
from dendrux_model.machines.cells import state
from dendrux_model.machines.starts import LEASE_S
from dendrux_model.operations import (
    AddNote,
    BlobInfo,
    CancelSubtree,
    ClaimPausedRun,
    CollectGarbage,
    CountRuns,
    CreateRun,
    GetLeaseExpired,
    GetNotes,
    GetRun,
    GetRunStatuses,
    GetSubtree,
    ListRuns,
    MarkLeaseExpired,
    Operation,
    PauseWithEvent,
    PutBlob,
    ReadBlob,
    RequestCancel,
    SaveLLMInteraction,
    SaveRunEvent,
    SaveTrace,
    SaveUsage,
)
from dendrux_model.outcomes import CLOSED, FALSE, NONE, TRUE, Outcome, Returned, Unknown
from dendrux_model.possible import Cut, Possible
from dendrux_model.world import SECOND, World
from model.simulator import concrete

LOST = Cut(at_commit=True, lasting=True)
"""The caller's process died, or never heard of its COMMIT."""


def event(number: int, run_id: str = "r1", **given: Any) -> SaveRunEvent:
    return SaveRunEvent(run_id=run_id, event_type="seen", event_id=f"{run_id}-{number}", **given)


def claim(run_id: str = "r1") -> ClaimPausedRun:
    return ClaimPausedRun(run_id=run_id, expected_status="paused")


def verdict(start: str | World, *history: Call, **budget: int) -> Any:
    world = state(start, 2) if isinstance(start, str) else start
    return linearize([Possible(world, {})], history, world.now + 1, **budget)


def answered(world: World, operation: Operation) -> Outcome:
    """What a store would answer in this world."""
    return concrete(operation.step(world)[1])


def after(start: str | World, *operations: Operation) -> World:
    """The world after these calls, one after the other."""
    world = state(start, 2) if isinstance(start, str) else start
    for operation in operations:
        world = operation.step(world._replace(now=world.now + 1))[0]
    return world


# -- orders -----------------------------------------------------------------------------------------------------------


def test_overlapping_calls_may_happen_in_either_order() -> None:
    found = verdict("running", Call(event(1), Returned(1), 1, 4), Call(event(2), Returned(0), 2, 3))
    assert found.result == "ok"
    (end,) = found.worlds
    assert [one.id for one in end.world.runs[0].events] == ["r1-2", "r1-1"]


def test_a_call_that_had_returned_before_another_began_comes_first() -> None:
    assert (
        verdict("running", Call(event(1), Returned(1), 1, 2), Call(event(2), Returned(0), 3, 4)).result == "violation"
    )
    assert verdict("running", Call(event(1), Returned(0), 1, 2), Call(event(2), Returned(1), 3, 4)).result == "ok"


def test_every_order_that_nothing_rules_out_stays_possible() -> None:
    found = verdict(
        "running",
        Call(SaveTrace(run_id="r1", role="user", content_text="a", order_index=0, trace_id="m0"), NONE, 1, 3),
        Call(RequestCancel(run_id="r1"), TRUE, 1, 3),
        Call(AddNote(run_id="r1", note_id="n1", text="a"), Returned("added"), 1, 3),
        Call(AddNote(run_id="r1", note_id="n2", text="b"), Returned("added"), 1, 3),
    )
    assert found.result == "ok"
    orders = {tuple(note.id for note in end.world.runs[0].notes) for end in found.worlds}
    assert orders == {("n1", "n2"), ("n2", "n1")}


def test_one_claim_is_given_to_one_caller() -> None:
    both = [Call(claim(), Returned(2), 1, 4), Call(claim(), Returned(2), 2, 3)]
    assert verdict("paused", *both).result == "violation"
    assert verdict("paused", both[0], both[1]._replace(observed=NONE)).result == "ok"


def test_no_world_is_a_violation_also_from_several_starts() -> None:
    starts = [Possible(state(name, 2), {}) for name in ("running", "paused", "finished")]
    one = Call(claim(), Returned(2), 1, 2)
    assert len(linearize(starts, [one], 9).worlds) == 1
    assert linearize(starts, [one._replace(observed=Returned(3))], 9).result == "violation"


# -- outcomes that nobody knows ---------------------------------------------------------------------------------------


def status(text: str) -> Returned:
    return Returned({"r1": text})


LOOK = GetRunStatuses(run_ids=("r1",))


def test_a_call_with_an_unknown_outcome_may_come_after_its_return() -> None:
    lost = Call(claim(), Unknown(), 1, 2, LOST)
    reads = [Call(LOOK, status("paused"), 3, 4), Call(LOOK, status("running"), 5, 6)]
    assert verdict("paused", lost, *reads).result == "ok"
    answered_call = lost._replace(observed=Returned(2), cut=None)
    assert verdict("paused", answered_call, *reads).result == "violation"


def test_a_call_with_an_unknown_outcome_may_never_happen() -> None:
    found = verdict("paused", Call(claim(), Unknown(), 1, 2, LOST), Call(claim(), Returned(2), 3, 4))
    assert found.result == "ok"
    assert [end.world.runs[0].claim_epoch for end in found.worlds] == [2]


def test_a_call_with_an_unknown_outcome_happens_once_at_most() -> None:
    lost = Call(claim(), Unknown(), 1, 2, LOST)
    gone = [Call(LOOK, status(text), 3 + 2 * i, 4 + 2 * i) for i, text in enumerate(("running", "paused"))]
    assert verdict("paused", lost, *gone).result == "violation"


def test_an_unknown_outcome_needs_a_reason() -> None:
    assert verdict("paused", Call(claim(), Unknown(), 1, 2)).result == "violation"


# -- budgets and components -------------------------------------------------------------------------------------------


def crowd(runs: int, calls: int) -> tuple[World, list[Call]]:
    """Calls that all overlap: on each run, this many events and one read that no order explains."""
    names = [f"r{number}" for number in range(runs)]
    world = after("empty", *(CreateRun(run_id=name, agent_name="a") for name in names))
    history = [Call(event(n, name), Returned(calls - 1 - n), 1, 9) for name in names for n in range(calls)]
    return world, history


def test_a_search_that_runs_out_of_budget_is_unknown_and_keeps_no_world() -> None:
    world, history = crowd(1, 6)
    assert verdict(world, *history).result == "ok"
    assert verdict(world, *history, budget=5) == ("unknown", (), 0)


def test_a_violation_that_the_budget_does_not_reach_is_unknown_too() -> None:
    world, history = crowd(1, 6)
    wrong = [*history, Call(event(9, "r0"), Returned(77), 1, 9)]
    assert verdict(world, *wrong).result == "violation"
    assert verdict(world, *wrong, budget=5).result == "unknown"


def test_runs_that_nothing_connects_are_searched_apart() -> None:
    world, history = crowd(6, 4)
    assert verdict(world, *history, budget=60).result == "ok"
    whole = search(Possible(world, {}), list(enumerate(history)), world.now + 1, 5000)
    assert whole.result == "unknown"


def test_a_violation_in_one_component_counts_whatever_the_others_cost() -> None:
    world, history = crowd(2, 6)
    broken = [call for call in history if call.operation.run_id == "r0"]
    broken += [Call(event(0, "r1"), Returned(5), 1, 9)]
    assert connected(Possible(world, {}), broken, world.now + 1, 10).result == "violation"


def edge(content: str) -> Any:
    from dendrux.runtime.values import BlobEdge

    return (BlobEdge(tenant_scope="-", sha256=content, owner_kind="trace", owner_id="0", ordinal=0),)


def message(run_id: str, **given: Any) -> SaveTrace:
    return SaveTrace(run_id=run_id, role="user", content_text="", order_index=0, **given)


CONNECTED: dict[str, tuple[Operation, Operation]] = {
    "a run": (GetRun(run_id="r1"), RequestCancel(run_id="r1")),
    "an identity": (message("r1", trace_id="m"), message("r2", trace_id="m")),
    "a key": (
        CreateRun(run_id="r1", agent_name="a", idempotency_key="k"),
        CreateRun(run_id="r2", agent_name="a", idempotency_key="k"),
    ),
    "the order of runs": (CreateRun(run_id="r1", agent_name="a"), CreateRun(run_id="r2", agent_name="a")),
    "a parent": (CreateRun(run_id="r2", agent_name="a", parent_run_id="r1"), RequestCancel(run_id="r1")),
    "a blob": (PutBlob(payload="one"), message("r1", blob_refs=edge("one"))),
    "a blob that is read": (ReadBlob(sha256="one"), PutBlob(payload="one")),
    "several runs in one read": (GetRunStatuses(run_ids=("r1", "r2")), RequestCancel(run_id="r2")),
    "a family": (GetSubtree(run_id="r1"), RequestCancel(run_id="r2")),
    "a list": (CountRuns(agent_name="a"), RequestCancel(run_id="r2")),
    "a page of a cancellation": (CancelSubtree(root_run_id="r1"), RequestCancel(run_id="r2")),
}


@pytest.mark.parametrize("why", CONNECTED)
def test_what_connects_two_calls(why: str) -> None:
    apart = RequestCancel(run_id="r9")
    one, other = CONNECTED[why]
    found = components([one, apart, other], World())
    assert any({0, 2} <= set(part) for part in found)


def test_what_connects_nothing() -> None:
    calls = [
        RequestCancel(run_id="r1"),
        message("r2", trace_id="m"),
        PutBlob(payload="one"),
        BlobInfo(sha256="two"),
        PutBlob(payload="one", tenant_scope="t:t"),
        CreateRun(run_id="r3", agent_name="a", idempotency_key="k"),
    ]
    assert components(calls, World()) == [[0], [1], [2], [3], [4], [5]]


def test_a_key_connects_a_creation_with_the_run_that_holds_it() -> None:
    """It answers with that run's status, whichever run_id it was given."""
    first = CreateRun(run_id="r1", agent_name="a", idempotency_key="k")
    again = CreateRun(run_id="r2", agent_name="a", idempotency_key="k")
    pause = PauseWithEvent(run_id="r1", status="waiting_human_input", pause_data={})
    held = after("empty", first)
    assert components([pause, again], held) == [[0, 1]]
    paused = pause.step(held)[0]
    history = [Call(pause, answered(held, pause), 1, 3), Call(again, answered(paused, again), 2, 4)]
    assert verdict(held, *history).result == "ok"


# -- calls of several steps -------------------------------------------------------------------------------------------


def test_a_sweep_passes_each_run_at_a_moment_of_its_own() -> None:
    world = after("empty", *(RECOVERABLE(f"r{number}") for number in (1, 2)))
    world = world._replace(now=world.now + LEASE_S * SECOND)
    marks = Call(MarkLeaseExpired(cutoff_s=LEASE_S), Returned({"marked": ["r2"], "finalised": {}, "failed": {}}), 1, 9)
    touched = Call(event(1, "r1", claim_epoch=1), Returned(0), 2, 3)
    # The owner of r1 writes, then the one of r2: the sweep came after the first and before the second.
    late = Call(event(1, "r2", claim_epoch=1), Returned(1), 4, 5)
    assert verdict(world, marks, touched, late).result == "ok"
    assert verdict(world, marks, late).result == "violation", "nobody kept r1 from being marked"
    nothing = marks._replace(observed=Returned({"marked": [], "finalised": {}, "failed": {}}))
    assert verdict(world, nothing, touched).result == "violation", "r2 was stale all the time"


def RECOVERABLE(run_id: str) -> CreateRun:  # noqa: N802  # a value but for the id
    from dendrux.vocabulary import META_LOOP, RECOVERABLE_LOOP

    return CreateRun(run_id=run_id, agent_name="a", meta={META_LOOP: RECOVERABLE_LOOP})


def test_pages_of_a_read_may_lie_far_apart() -> None:
    world = after("expired", RECOVERABLE("r2"))
    lease = answered(world, GetLeaseExpired()).value["r1"]
    read = Call(GetLeaseExpired(limit=1), Returned({"r1": lease}), 1, 9)
    assert verdict(world, read, Call(event(1, "r1", claim_epoch=1), Returned(1), 2, 3)).result == "ok"
    assert verdict(world, read._replace(invoked=4), Call(event(1, claim_epoch=1), Returned(1), 2, 3)).result == (
        "violation"
    )


CHILD = CreateRun(run_id="r2", agent_name="a", parent_run_id="r1", delegation_level=1)
CREATED = Returned({"run_id": "r2", "outcome": "created", "status": "running", "format": 2, "claim_epoch": 1})


def page(requested: list[str]) -> Returned:
    return Returned({"cancelled": [], "requested": requested, "already_terminal": [], "failed": [], "next_after": None})


def test_no_child_is_begun_behind_a_cancellation() -> None:
    cancels = Call(CancelSubtree(root_run_id="r1"), page(["r1", "r2"]), 1, 9)
    begins = Call(CHILD, CREATED, 2, 3)
    assert verdict("running", cancels, begins).result == "ok"
    assert verdict("running", cancels._replace(observed=page(["r1"])), begins._replace(observed=CLOSED)).result == "ok"
    # Each has not seen what the other wrote, as under snapshot isolation: the child lives on, and nobody reaches it.
    assert verdict("running", cancels._replace(observed=page(["r1"])), begins).result == "violation"


def test_a_cancellation_reaches_each_run_at_a_moment_of_its_own() -> None:
    world = after("running", CHILD)
    cancels = Call(CancelSubtree(root_run_id="r1"), page(["r1", "r2"]), 1, 9)
    seen = Call(GetRunStatuses(run_ids=("r1", "r2")), Returned({"r1": "running", "r2": "running"}), 2, 3)
    assert verdict(world, cancels, seen).result == "ok"
    assert verdict(world, cancels._replace(observed=page(["r2"])), seen).result == "violation"


def test_two_collections_share_the_garbage_between_them() -> None:
    world = after("garbage", PutBlob(payload="two", tenant_scope="t:t"))
    world = world._replace(now=world.now + 3600 * SECOND)
    collect = CollectGarbage(older_than_s=3600, tenant_scope="t:t")

    def gone(number: int, size: int) -> Returned:
        value = answered(world, collect).value
        return Returned(value | {"deleted_blobs": number, "bytes_freed": size})

    both = [Call(collect, gone(1, 3), 1, 9), Call(collect, gone(1, 5), 1, 9)]
    assert verdict(world, *both).result == "ok"
    assert verdict(world, both[0], both[1]._replace(observed=gone(2, 8))).result == "violation", "one twice"
    assert verdict(world, both[0], both[1]._replace(observed=gone(0, 0))).result == "violation", "one left"
    assert verdict(world, both[0], both[1]._replace(observed=gone(0, 0), returned=0, invoked=-1)).result == "violation"


def test_a_subtree_is_read_in_two_statements() -> None:
    world = after("running", CHILD)
    used = SaveLLMInteraction(run_id="r2", iteration_index=0, usage=USAGE, interaction_id="i0")
    before, behind = (answered(one, GetSubtree(run_id="r1")).value for one in (world, after(world, used)))
    mixed = Returned(
        behind | {"nodes": [b | {"usage": a["usage"]} for a, b in zip(behind["nodes"], before["nodes"], strict=True)]}
    )
    history = [Call(GetSubtree(run_id="r1"), mixed, 1, 9), Call(used, NONE, 2, 3)]
    assert verdict(world, *history).result == "ok"
    wrong = Returned(mixed.value | {"usage": before["usage"]})
    assert verdict(world, history[0]._replace(observed=wrong), history[1]).result == "violation"


def _usage() -> Any:
    from dendrux.runtime.values import UsageStats

    return UsageStats(input_tokens=1, output_tokens=2, total_tokens=3)


USAGE = _usage()


# -- lists by time ----------------------------------------------------------------------------------------------------


def birth(number: int) -> tuple[CreateRun, Outcome]:
    value = CREATED.value | {"run_id": f"r{number}"}
    return CreateRun(run_id=f"r{number}", agent_name="a"), Returned(value)


@pytest.mark.parametrize("newest_first", [["r1", "r2"], ["r2", "r1"]])
def test_overlapping_rows_are_listed_in_any_order_of_their_times(newest_first: list[str]) -> None:
    """r1 took its time late and committed early, or the other way round: a read between saw r1 alone."""
    first, second = (Call(*birth(number), 1, 5 * number) for number in (1, 2))
    between = Call(CountRuns(agent_name="a"), Returned(1), 6, 7)
    listed = Call(ListRuns(agent_name="a"), Returned(newest_first), 11, 12)
    assert verdict("empty", first, between, second, listed).result == "ok"


def test_rows_of_calls_that_do_not_overlap_are_listed_in_their_order() -> None:
    first, second = Call(*birth(1), 1, 2), Call(*birth(2), 3, 4)
    listed = [Call(ListRuns(agent_name="a"), Returned(order), 5, 6) for order in (["r2", "r1"], ["r1", "r2"])]
    assert [verdict("empty", first, second, one).result for one in listed] == ["ok", "violation"]


def test_notes_are_shown_by_time() -> None:
    notes = [Call(AddNote(run_id="r1", note_id=f"n{i}", text="a"), Returned("added"), 1, 5) for i in (1, 2)]
    shown = [
        {"text": "a", "metadata": None, "delivered_iteration": None, "delivered_at": None, "id": f"n{i}"}
        for i in (2, 1)
    ]
    assert verdict("running", *notes, Call(GetNotes(run_id="r1"), Returned(shown), 6, 7)).result == "ok"
    apart = [notes[0]._replace(returned=2), notes[1]._replace(invoked=3)]
    assert verdict("running", *apart, Call(GetNotes(run_id="r1"), Returned(shown), 6, 7)).result == "violation"


def test_a_call_that_changed_nothing_needs_no_world_of_its_own() -> None:
    refusals = [Call(SaveUsage(run_id="missing", iteration_index=0, usage=USAGE), NOT_THERE, 1, 9) for _ in range(8)]
    assert (
        verdict("running", *refusals, Call(RequestCancel(run_id="missing"), NOT_THERE, 1, 9), budget=9).result == "ok"
    )
    assert verdict("running", Call(RequestCancel(run_id="r1"), FALSE, 1, 9)).result == "violation"


NOT_THERE = RequestCancel(run_id="missing").step(World())[1]
