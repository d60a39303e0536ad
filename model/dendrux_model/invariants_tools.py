"""Invariants of tool calls beside those that the table of the contract starts with."""

from __future__ import annotations

from typing import Any

from dendrux.vocabulary import RUNNING
from dendrux_model.invariants import of_answer, of_change
from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome, Returned
from dendrux_model.values import json_text
from dendrux_model.world import Run, ToolCall, World, find


def call_of(world: World, operation: Any) -> ToolCall | None:
    """The call that an operation is about, in its run."""
    run = find(world, operation.run_id)
    return next((call for call in run.tool_calls if call.id == operation.row_id), None) if run else None


@of_change
def tool_pair__together(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """A call that was open gets its result in the step that stores one observation, one event and the mapping."""
    opened = {call.id for call in old.tool_calls if not call.completed}
    completed = sum(call.completed and call.id in opened for call in new.tool_calls)
    if type(operation).__name__ != "CompleteToolCall" or getattr(operation, "run_id", None) != new.id:
        return completed == 0
    mapping = getattr(operation, "pii_mapping", None)
    if mapping is not None and new.pii_mapping != json_text(mapping):
        return False
    return completed == len(new.traces) - len(old.traces) == len(new.events) - len(old.events) == 1


@of_change
def tool_pair__kept(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """A call never vanishes, its attempts never go back, and a result that is stored never changes."""
    later = {call.id: call for call in new.tool_calls if call.id is not None}
    return all(
        call.id is None
        or (
            call.id in later
            and later[call.id].attempt >= call.attempt
            and (not call.completed or later[call.id] == call)
        )
        for call in old.tool_calls
    )


@of_answer("CompleteToolCall")
def events_gapless__completion(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """A completion answers the place of its own event."""
    run = find(after, operation.run_id)
    place = outcome.value
    if run is None or not 0 <= place < len(run.events):
        return False
    return bool(run.events[place].content == operation.content)


@of_answer("StartToolCall")
def identity_once__started(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Whoever was told that a call is started finds it in that run, with exactly that intent."""
    call = call_of(after, operation)
    return call is not None and call.started == operation.content and call.attempt == outcome.value["attempt"]


@of_answer("FinalizeWithEvent")
def identity_once__last_message(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Whoever was told that a run ended with a last message finds it in the conversation."""
    run = find(after, operation.run_id)
    if operation.trace is None or outcome.value is None or run is None:
        return True
    return any(trace.id == operation.trace.trace_id for trace in run.traces)


@of_answer("StartToolCall")
def permission_needs_claim__calls(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """A call is handed out to the run's current epoch only, and then belongs to it."""
    run, call = find(before, operation.run_id), call_of(after, operation)
    if run is None or call is None or run.status != RUNNING or run.claim_epoch != operation.claim_epoch:
        return False
    return outcome.value["completed"] is not None or call.started_epoch == operation.claim_epoch


@of_answer("CompleteToolCall")
def permission_needs_claim__results(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """A result is stored only by the epoch that the call was handed to."""
    call = call_of(before, operation)
    return after is before or (call is not None and call.started_epoch == operation.claim_epoch)


@of_answer("GetReplayedToolCalls")
def tenant_wall__replays(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Replayed calls of a run are told only in the scope of its tenant."""
    run = find(after, operation.run_id)
    return not outcome.value["calls"] or (
        run is not None and operation.tenant_id in (run.tenant_id, type(operation).tenant_id)
    )
