"""Mutants of tool calls: completions in parts, work handed to the wrong owner, results of the wrong owner."""

from __future__ import annotations

from typing import Any

from dendrux_model.operations import CompleteToolCall, FinalizeWithEvent, GetReplayedToolCalls, StartToolCall, Step
from dendrux_model.outcomes import Outcome, Returned
from dendrux_model.swaps import Swap, mutant, seen_as, step_keeping, step_of, swapped
from dendrux_model.world import Run, World, find, put


@mutant("tool_pair", "tools")
def result_without_event() -> Swap:
    """A result is stored, and its event is left to a transaction of its own."""
    return step_keeping(CompleteToolCall, "events")


@mutant("tool_pair", "tools")
def result_without_observation() -> Swap:
    """A result is stored, and its observation is left to a transaction of its own."""
    return step_keeping(CompleteToolCall, "traces")


@mutant("tool_pair", "tools")
def event_without_result() -> Swap:
    """The event of a completion is logged although its result is not stored."""
    return step_keeping(CompleteToolCall, "tool_calls")


@mutant("tool_pair", "tools")
def intent_without_event() -> Swap:
    """An intent is stored without its event."""
    return step_keeping(StartToolCall, "events")


@mutant("permission_needs_claim", "tools")
def work_for_former_owners() -> Swap:
    """Whoever owned the run once is handed its calls."""
    return seen_as(StartToolCall, lambda op, run: run._replace(claim_epoch=op.claim_epoch))


@mutant("permission_needs_claim", "tools")
def replay_leaves_the_epoch() -> Swap:
    """A call that is handed out again stays with the owner it was handed to first."""

    def wrap(original: Any) -> Any:
        def begun(self: Any, world: World, run: Run, call: Any) -> Step:
            kept = call if call.attempt == 1 else call._replace(started_epoch=1)
            after: Step = original(self, world, run, kept)
            return after

        return begun

    return swapped(StartToolCall, "begun", wrap)


@mutant("permission_needs_claim", "tools")
def result_of_a_former_attempt() -> Swap:
    """The present owner stores a result for a call that a former owner started."""

    def adopted(op: CompleteToolCall, run: Run) -> Run:
        calls = (call if call.completed else call._replace(started_epoch=op.claim_epoch) for call in run.tool_calls)
        return run._replace(tool_calls=tuple(calls))

    return seen_as(CompleteToolCall, adopted)


@mutant("identity_once", "tools")
def intent_without_content() -> Swap:
    """A call of this id is taken for the same call, whatever was to be executed."""

    def same(op: StartToolCall, run: Run) -> Run:
        return run._replace(tool_calls=tuple(call._replace(started=op.content) for call in run.tool_calls))

    return seen_as(StartToolCall, same)


@mutant("tenant_wall", "tools")
def replays_of_other_tenants() -> Swap:
    """Replayed calls are told in every scope."""
    return seen_as(GetReplayedToolCalls, lambda op, run: run._replace(tenant_id=op.tenant_id))


@mutant("events_gapless", "tools")
def completion_counts_from_one() -> Swap:
    """A completion is answered the number of events, not its event's index."""
    return step_of(
        CompleteToolCall,
        lambda _op, before, after, outcome: (after, outcome if after is before else Returned(outcome.value + 1)),
    )


@mutant("identity_once", "tools")
def end_without_last_message() -> Swap:
    """The end of a run leaves its last message to a transaction of its own."""
    return step_keeping(FinalizeWithEvent, "traces")


@mutant(None, "tools")
def start_of_a_completed_call_writes() -> Swap:
    """Asking for a call that is completed renews the lease."""

    def change(op: Any, before: World, after: World, outcome: Outcome) -> Step:
        run = find(after, op.run_id)
        if run is None or not isinstance(outcome, Returned) or outcome.value["completed"] is None:
            return after, outcome
        return put(after, run._replace(progress_at=after.now)), outcome

    return step_of(StartToolCall, change)


@mutant("tool_pair", "tools")
def mapping_left_behind() -> Swap:
    """A completion does not store the mapping."""
    return step_keeping(CompleteToolCall, "pii_mapping")
