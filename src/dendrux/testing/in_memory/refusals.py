"""The model's refusals as the errors of the protocol, each naming what the call named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dendrux.errors import (
    REFUSALS,
    BlobNotFoundError,
    IdempotencyConflictError,
    PersistenceError,
    RunAlreadyTerminalError,
    RunNotFoundError,
    StoreOutcomeUnknown,
)
from dendrux.store.ops.events import WRITTEN_BY
from dendrux.vocabulary import LOOP_STATE_MAX, RESERVED_EVENTS
from dendrux_model import rules
from dendrux_model.operations import Operation
from dendrux_model.outcomes import INVALID, Refused
from dendrux_model.world import World, find

ERRORS: Final[dict[str, type[PersistenceError]]] = {
    error.code: error for error in (*REFUSALS, StoreOutcomeUnknown) if issubclass(error, PersistenceError)
}
"""The errors that are told nothing but the operation and the run, by their code."""

INSTEAD: Final[dict[str, tuple[int, str]]] = {
    "checkpoint_step": (1, "update_run_meta and save_trace"),
    "consume_submission": (1, "get_pause_state"),
    "start_tool_call": (1, "save_tool_call"),
    "complete_tool_call": (1, "save_tool_call"),
    "try_pause_run": (2, "pause_with_event"),
    "pause_run": (2, "pause_with_event"),
    "finalize_run": (2, "finalize_with_event"),
    "finalize_run_if_status_in": (2, "finalize_with_event"),
}
"""Operations that a storage format does not have, with the format and what is there instead."""


def error_of(world: World, operation: Any, refused: Refused) -> Exception:
    """The error of a refusal. `world` is the one in which the operation was refused."""
    run_id = named(operation)
    run = find(world, run_id)
    if refused == INVALID:
        return ValueError(invalid(world, operation))
    if refused.code == RunNotFoundError.code:
        return RunNotFoundError(next(absent(world, operation), run_id))
    if refused.code == BlobNotFoundError.code:
        return BlobNotFoundError(next(lacking(world, operation)))
    if refused.code == RunAlreadyTerminalError.code:
        assert run is not None
        return RunAlreadyTerminalError(run_id, run.status)
    if refused.code == IdempotencyConflictError.code:
        return IdempotencyConflictError(operation.holder_of_key(world).id, operation.idempotency_key)
    return ERRORS[refused.code](operation=operation.method, run_id=run_id or None)


def named(operation: Operation) -> str:
    """The run that the call is about; empty for a call about none."""
    return str(getattr(operation, "run_id", getattr(operation, "root_run_id", "")))


def absent(world: World, operation: Any) -> Iterator[str]:
    """The relatives of a run to be created that are not there in its tenant."""
    for related in (getattr(operation, "parent_run_id", None), getattr(operation, "retry_of_run_id", None)):
        run = None if related is None else find(world, related)
        if related is not None and (run is None or run.tenant_id != operation.tenant_id):
            yield related


def lacking(world: World, operation: Any) -> Iterator[str]:
    """The blobs that a call names and cannot have."""
    of_its_own = getattr(operation, "sha256", getattr(operation, "payload", None))
    if of_its_own is not None:
        yield of_its_own
        return
    run = find(world, operation.run_id)
    tenant_id = operation.tenant_id if run is None else run.tenant_id
    for edge in operation.blob_refs:
        blob = rules.blob_of(world, edge.tenant_scope, edge.sha256)
        if not rules.same_scope(tenant_id, operation, edge.tenant_scope) or blob is None or blob.state != "live":
            yield edge.sha256


def invalid(world: World, operation: Any) -> str:
    """Why an argument that is well formed is not one that this run can have."""
    method = operation.method
    run = find(world, named(operation))
    lacks, instead = INSTEAD.get(method, (None, ""))
    if run is not None and run.format == lacks:
        return f"{method} is not for a run of format {run.format}: use {instead}"
    if method == "create_run":
        parent = find(world, operation.parent_run_id or "")
        if parent is not None and operation.delegation_level != parent.delegation_level + 1:
            return f"delegation_level must be {parent.delegation_level + 1}, its parent's plus one"
        return "seed_traces is not for a run of format 1: use save_trace"
    if method == "save_run_event" and operation.event_type in RESERVED_EVENTS:
        used = WRITTEN_BY[operation.event_type]
        return f"event_type {operation.event_type!r} is not for save_run_event on format 2: use {used}"
    if method == "finalize_with_event":
        return "trace of finalize_with_event is not for a run of format 1: use save_trace"
    if method == "checkpoint_step":
        return f"loop_state must have at most {LOOP_STATE_MAX} bytes when it is encoded"
    return f"an argument of {method} does not fit this run" if method != "cancel_subtree" else NO_CURSOR


NO_CURSOR: Final = "after is no cursor that this operation gave for this root"
