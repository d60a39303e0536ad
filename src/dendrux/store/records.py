"""Rows of the tables as records of the protocol: the columns each read selects, and nothing in between."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Row, Select, select

from dendrux.db.models import agent_runs, llm_interactions, react_traces, run_events, run_inbox, tool_calls
from dendrux.db.types import StoredValueError
from dendrux.runtime.values import (
    JsonObject,
    LLMInteractionRecord,
    NoteRecord,
    RunEventRecord,
    RunRecord,
    ToolCallRecord,
    TraceRecord,
)
from dendrux.vocabulary import META_PAUSE_REQUEST

_RUN_COLUMNS: Final = (
    "id",
    "tenant_id",
    "agent_name",
    "status",
    "claim_epoch",
    "claimed_epoch",
    "paused_status",
    "iteration_count",
    "input_data",
    "error",
    "failure_reason",
    "model",
    "strategy",
    "parent_run_id",
    "delegation_level",
    "retry_of_run_id",
    "idempotency_key",
    "cancel_requested",
    "pause_requested",
    "reclaim_count",
    "total_input_tokens",
    "total_output_tokens",
    "total_cache_read_tokens",
    "total_cache_creation_tokens",
    "total_reasoning_tokens",
    "total_cost_usd",
    "lease_expired_at",
    "last_progress_at",
    "paused_at",
    "created_at",
    "updated_at",
)

RUN: Final[Select[Any]] = select(
    *(agent_runs.c[name] for name in _RUN_COLUMNS),
    agent_runs.c.storage_format.label("format"),
    agent_runs.c.output_data,
    agent_runs.c.meta,
    agent_runs.c.pause_reason,
)


def run(row: Row[Any]) -> RunRecord:
    """A run."""
    return run_of(dict(row._mapping))


def run_of(fields: dict[str, Any]) -> RunRecord:
    """A run from its columns. The answer is kept in output_data, as the earlier release keeps it."""
    output = fields.pop("output_data")
    stored_object(fields["meta"])
    fields["answer"] = output.get("answer") if isinstance(output, dict) else None
    fields["meta"] = shown_meta(fields["meta"], fields.pop("pause_reason"), requested=fields["pause_requested"])
    return RunRecord(**fields)


def stored_object(value: Any) -> JsonObject:
    """A stored object, `{}` for none. Refuses: StoredValueError for another JSON value."""
    if value is not None and not isinstance(value, dict):
        raise StoredValueError("a stored document is not an object")
    return value or {}


def shown_meta(meta: JsonObject | None, pause_reason: str | None, *, requested: bool) -> JsonObject | None:
    """The stored meta with the reason of a standing pause request laid over it as its last member."""
    if not requested or pause_reason is None:
        return meta
    shown = {key: value for key, value in (meta or {}).items() if key != META_PAUSE_REQUEST}
    return {**shown, META_PAUSE_REQUEST: {"reason": pause_reason}}


EVENT: Final[Select[Any]] = select(
    run_events.c.id,
    run_events.c.agent_run_id,
    run_events.c.event_type,
    run_events.c.sequence_index,
    run_events.c.iteration_index,
    run_events.c.correlation_id,
    run_events.c.data,
    run_events.c.created_at,
)


def event(row: Row[Any]) -> RunEventRecord:
    """One entry of a log."""
    return RunEventRecord(
        id=row.id,
        run_id=row.agent_run_id,
        event_type=row.event_type,
        sequence_index=row.sequence_index,
        iteration_index=row.iteration_index,
        correlation_id=row.correlation_id,
        data=row.data,
        created_at=row.created_at,
    )


TRACE: Final[Select[Any]] = select(
    *(react_traces.c[name] for name in ("id", "role", "content", "order_index", "meta", "trace_kind", "created_at"))
)


def trace(row: Row[Any]) -> TraceRecord:
    """One message of a conversation."""
    return TraceRecord(**row._mapping)


_TOOL_CALL_COLUMNS: Final = (
    "id",
    "tool_call_id",
    "provider_tool_call_id",
    "tool_name",
    "target",
    "params",
    "result",
    "success",
    "duration_ms",
    "iteration_index",
    "error_message",
    "meta",
    "outcome",
    "attempt",
    "started_epoch",
    "trace_id",
    "created_at",
)

TOOL_CALL: Final[Select[Any]] = select(
    *(tool_calls.c[name] for name in _TOOL_CALL_COLUMNS),
    tool_calls.c.started_at.is_(None).label("in_one_piece"),
    tool_calls.c.completed_at,
)


def tool_call(row: Row[Any]) -> ToolCallRecord:
    """One tool call. A row that nobody started separately was written with its result."""
    shown = {name: row._mapping[name] for name in _TOOL_CALL_COLUMNS}
    return ToolCallRecord(**shown, completed=bool(row.in_one_piece) or row.completed_at is not None)


INTERACTION: Final[Select[Any]] = select(
    *(
        llm_interactions.c[name]
        for name in (
            "id",
            "iteration_index",
            "model",
            "provider",
            "semantic_request",
            "semantic_response",
            "provider_request",
            "provider_response",
            "guardrail_findings",
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "cost_usd",
            "duration_ms",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "reasoning_tokens",
            "created_at",
        )
    )
)


def interaction(row: Row[Any]) -> LLMInteractionRecord:
    """One call of a model."""
    return LLMInteractionRecord(**row._mapping)


NOTE: Final[Select[Any]] = select(
    *(
        run_inbox.c[name]
        for name in ("id", "run_id", "text", "metadata", "created_at", "delivered_at", "delivered_iteration")
    )
)


def note(row: Row[Any]) -> NoteRecord:
    """One note of an inbox."""
    return NoteRecord(**row._mapping)
