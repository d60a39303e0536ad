"""One operation as several callers make it at once: ids of their own, so that each call would change the world."""

from __future__ import annotations

from dataclasses import replace

from dendrux_model.operations import CompleteToolCall, CreateRun, Operation, StartToolCall, UpdateRunMeta
from dendrux_model.world import World


def own(world: World, operation: Operation, number: int) -> Operation:
    """An operation as caller number `number` makes it: its ids are its own."""
    if isinstance(operation, UpdateRunMeta):
        return replace(operation, patch={f"by{number}": number})
    if isinstance(operation, StartToolCall | CompleteToolCall):
        return of_a_call(world, operation, number)
    if operation.identity is None or getattr(operation, operation.identity) is None:
        return operation
    if isinstance(operation, CreateRun):
        return replace(operation, run_id=f"r{len(world.runs) + number}", idempotency_key="k")
    return replace(operation, **{operation.identity: f"{getattr(operation, operation.identity)}-{number}"})


def of_a_call(world: World, operation: StartToolCall | CompleteToolCall, number: int) -> Operation:
    """A start or a completion as caller number `number` makes it, of the call that waits for it where there is one."""
    if isinstance(operation, CompleteToolCall):
        event = replace(operation.event, event_id=f"{operation.event.event_id}-{number}")
        return replace(operation, event=event, trace=replace(operation.trace, trace_id=f"seen-{number}"))
    if any(call.id == operation.row_id for run in world.runs for call in run.tool_calls):
        return operation
    event = replace(operation.event, event_id=f"{operation.event.event_id}-{number}")
    return replace(operation, row_id=f"{operation.row_id}-{number}", event=event)
