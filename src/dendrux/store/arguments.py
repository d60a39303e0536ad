"""What every parameter accepts: one table by name, applied before any SQL.

A check answers the value to use, or raises ValueError or TypeError naming the parameter. An operation whose parameter
means something of its own has a row `operation.parameter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from dendrux.runtime.values import (
    EventWrite,
    LLMInteractionWrite,
    SeedTrace,
    ToolCallWrite,
    TraceWrite,
    UsageWrite,
)
from dendrux.store import blobarguments
from dendrux.store.checks import (
    CURSOR_LENGTH,
    EVENTS_LIMIT_MAX,
    INT_MAX,
    TOKENS_MAX,
    Check,
    any_status,
    anything,
    duration,
    epoch,
    flag,
    heads,
    identifier,
    index,
    instant,
    integer,
    json_object,
    json_value,
    kind,
    loop_state,
    mapping,
    metadata_filter,
    one_of,
    optional,
    plain_function,
    row_id,
    scope,
    several,
    tenant,
    text,
    title,
    usage,
)
from dendrux.store.ids import MintedId, new_id
from dendrux.vocabulary import (
    FINALIZE_EVENTS,
    ID_LENGTH,
    LIMIT_MAX,
    OPEN_STATUSES,
    PAUSED_STATUSES,
    REASON_LENGTH,
    STATUSES_MAX,
    TERMINAL_EVENTS,
    TERMINAL_STATUSES,
    TOOL_COMPLETED,
    TOOL_STARTED,
    TRACE_KINDS,
    TYPE_LENGTH,
)


def written(kind: type[Any], minted: str | None = None) -> Check:
    """A value that carries several parameters, each checked as if it were given alone. An absent id is minted."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
        given = {f.name: CHECKS[f.name](f"{name}.{f.name}", getattr(value, f.name)) for f in fields(kind)}
        if minted is not None and given[minted] is None:
            given[minted] = MintedId(new_id())
        return kind(**given)

    return check


def blob_edges(name: str, value: Any) -> Any:
    """References to blobs."""
    return blobarguments.edges(name, value, EDGE)


def event_write(event_type: str) -> Check:
    """An EventWrite of the type that belongs to the operation."""
    check = written(EventWrite)

    def check_type(name: str, value: Any) -> Any:
        given = check(name, value)
        if given.event_type != event_type:
            raise ValueError(f"{name}.event_type must be {event_type}")
        return given

    return check_type


EDGE: Final[dict[str, Check]] = {
    "tenant_scope": blobarguments.scope,
    "sha256": blobarguments.digest,
    "owner_kind": kind,
    "owner_id": title,
    "ordinal": index,
}
"""The fields of a reference to a blob."""

CHECKS: Final[dict[str, Check]] = {
    # runs and rows
    "run_id": row_id,
    "root_run_id": row_id,
    "parent_run_id": optional(row_id),
    "retry_of_run_id": optional(row_id),
    "note_id": row_id,
    "note_ids": several(row_id),
    "run_ids": several(row_id, most=STATUSES_MAX),
    "event_id": optional(row_id),
    "trace_id": optional(row_id),
    "row_id": optional(row_id),
    "start_tool_call.row_id": row_id,
    "complete_tool_call.row_id": row_id,
    "usage_id": optional(row_id),
    "interaction_id": optional(row_id),
    "submission_id": optional(row_id),
    "step_id": row_id,
    "consumption_id": row_id,
    "tool_call_id": title,
    "provider_tool_call_id": optional(title),
    "correlation_id": optional(title),
    "idempotency_key": optional(title),
    "idempotency_fingerprint": optional(identifier(ID_LENGTH, empty=True)),
    # names
    "agent_name": title,
    "list_runs.agent_name": optional(title),
    "count_runs.agent_name": optional(title),
    "tool_name": title,
    "model": optional(title),
    "provider": optional(title),
    "strategy": optional(kind),
    "role": kind,
    "target": kind,
    "outcome": optional(kind),
    "event_type": kind,
    "event_types": optional(several(kind, most=LIMIT_MAX)),
    "failure_reason": optional(identifier(TYPE_LENGTH, empty=True)),
    "trace_kind": one_of(TRACE_KINDS),
    # who
    "tenant_id": scope,
    "create_run.tenant_id": tenant,
    "claim_epoch": epoch,
    "release_run_claim.claim_epoch": integer(1, INT_MAX),
    "start_tool_call.claim_epoch": integer(1, INT_MAX),
    "complete_tool_call.claim_epoch": integer(1, INT_MAX),
    "parent_claim_epoch": epoch,
    "checkpoint_step.claim_epoch": integer(1, INT_MAX),
    "consume_submission.claim_epoch": integer(1, INT_MAX),
    # statuses
    "status": one_of(TERMINAL_STATUSES),
    "pause_with_event.status": one_of(PAUSED_STATUSES),
    "try_pause_run.status": one_of(PAUSED_STATUSES),
    "pause_run.status": one_of(PAUSED_STATUSES),
    "list_runs.status": optional(any_status),
    "count_runs.status": optional(any_status),
    "expected_status": one_of(PAUSED_STATUSES),
    "expected_current_status": optional(one_of(OPEN_STATUSES)),
    "allowed_current_statuses": several(one_of(OPEN_STATUSES), least=1),
    # text
    "content": text,
    "text": text,
    "answer": optional(text),
    "error": optional(text),
    "error_message": optional(text),
    "reason": optional(text),
    "result_payload": text,
    # JSON
    "input_data": optional(json_object),
    "meta": optional(json_object),
    "data": optional(json_object),
    "params": optional(json_object),
    "patch": json_object,
    "pause_data": json_object,
    "event_data": optional(json_object),
    "submitted_data": json_object,
    "semantic_request": optional(json_object),
    "semantic_response": optional(json_object),
    "provider_request": optional(json_object),
    "provider_response": optional(json_object),
    "guardrail_findings": optional(json_object),
    "metadata": json_value,
    "metadata_filter": optional(metadata_filter),
    "pii_mapping": optional(mapping),
    "loop_state": optional(loop_state),
    # numbers
    "order_index": index,
    "iteration_index": index,
    "get_tool_calls.iteration_index": optional(index),
    "get_llm_interactions.iteration_index": optional(index),
    "iteration_count": optional(index),
    "checkpoint_step.iteration_count": index,
    "iteration": index,
    "duration_ms": optional(integer(0, TOKENS_MAX)),
    "delegation_level": index,
    "max_pending": index,
    "usage": usage,
    "total_usage": optional(usage),
    "success": flag,
    # pages and cursors
    "limit": integer(1, LIMIT_MAX),
    "limit_per_run": integer(1, EVENTS_LIMIT_MAX),
    "offset": integer(0, INT_MAX),
    "after": optional(row_id),
    "cancel_subtree.after": optional(text),
    "after_sequence_index": optional(integer(-1, INT_MAX)),
    "after_order_index": optional(integer(-1, INT_MAX)),
    "get_traces_after.order_index": integer(-1, INT_MAX),
    "max_bytes": optional(integer(1, TOKENS_MAX)),
    "heads": heads,
    "undelivered_only": flag,
    "finalise_unrecoverable": flag,
    "cutoff": instant,
    "older_than": duration,
    "expected_epoch": integer(1, INT_MAX),
    **{
        f"{sweep}.after": optional(identifier(CURSOR_LENGTH))
        for sweep in ("mark_lease_expired", "get_lease_expired", "sweep_stale_runs", "sweep_abandoned_runs")
    },
    "before": optional(instant),
    "started_after": optional(instant),
    "started_before": optional(instant),
    # rows that an operation writes beside its own
    "start_tool_call.event": event_write(TOOL_STARTED),
    "complete_tool_call.event": event_write(TOOL_COMPLETED),
    "trace": written(TraceWrite),
    "finalize_with_event.trace": optional(written(TraceWrite)),
    # values that carry several
    "seed_traces": several(written(SeedTrace)),
    "traces": several(written(TraceWrite, "trace_id")),
    "tool_calls": several(written(ToolCallWrite, "row_id")),
    "interaction": optional(written(LLMInteractionWrite, "interaction_id")),
    "checkpoint_step.usage": optional(written(UsageWrite, "usage_id")),
    # blobs
    "put_blob.data": blobarguments.content,
    "sha256": blobarguments.digest,
    "tenant_scope": blobarguments.scope,
    "collect_garbage.tenant_scope": optional(blobarguments.scope),
    "collect_garbage.older_than": blobarguments.age,
    "collect_garbage.after": optional(identifier(CURSOR_LENGTH)),
    "read_blob.run_id": optional(row_id),
    "purge_blob.reason": optional(identifier(REASON_LENGTH, empty=True)),
    "media_type": kind,
    "ingest_transform": optional(kind),
    "width": index,
    "height": index,
    "frame_count": index,
    "blob_store": optional(blobarguments.outside),
    "blob_refs": optional(blob_edges),
    "blob_refs_scope": optional(blobarguments.scope),
    # the rest
    "validate": optional(plain_function),
    "sequence_index": anything,
}


def fitting_end(given: dict[str, Any]) -> None:
    """The terminal event of a run fits its status."""
    event_type, status = given["event_type"], given["status"]
    if event_type not in FINALIZE_EVENTS:
        raise ValueError(f"event_type must be one of {', '.join(sorted(FINALIZE_EVENTS))}")
    if status not in TERMINAL_EVENTS[event_type]:
        raise ValueError(f"status {status!r} does not fit event_type {event_type!r}")


TOGETHER: Final[dict[str, Callable[[dict[str, Any]], None]]] = {"finalize_with_event": fitting_end}
"""Rules over several parameters of one operation."""


def checked(operation: str, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, each as its check answers it."""
    answered = {name: (CHECKS.get(f"{operation}.{name}") or CHECKS[name])(name, value) for name, value in given.items()}
    together = TOGETHER.get(operation)
    if together is not None:
        together(answered)
    return answered
