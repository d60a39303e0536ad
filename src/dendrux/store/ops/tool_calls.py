"""Tool calls of a run, each stored in one piece."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from dendrux.db.models import tool_calls
from dendrux.runtime.values import JsonObject, ToolCallRecord
from dendrux.store import records
from dendrux.store.arguments import json_value
from dendrux.store.digest import content_digest
from dendrux.store.ops.evidence import store_once
from dendrux.store.tx import Entry, Facts, Outcome, Tx, Unchanged

calls = tool_calls.c


def decoded(payload: str) -> Any:
    """The JSON value of a tool's result; text that is not storable JSON is kept as `{"raw": text}`."""
    try:
        return json_value("result_payload", json.loads(payload, parse_constant=_no_constant))
    except (ValueError, TypeError, RecursionError):
        return {"raw": payload}


def _no_constant(word: str) -> NoReturn:
    """NaN and Infinity are Python's, not JSON's."""
    raise ValueError(word)


async def save_tool_call(
    tx: Tx,
    run_id: str,
    *,
    tool_call_id: str,
    provider_tool_call_id: str | None,
    tool_name: str,
    target: str,
    params: JsonObject | None,
    result_payload: str,
    success: bool,
    duration_ms: int,
    iteration_index: int,
    error_message: str | None = None,
    meta: JsonObject | None = None,
    row_id: str | None = None,
    outcome: str | None = None,
    claim_epoch: int | None = None,
) -> Outcome[None]:
    """Store a tool call with its result. On format 2 one row holds a tool call id.

    Refuses: RunNotFoundError, WriteConflictError, StaleClaimError, RunAlreadyTerminalError.
    """
    shown = {
        "tool_call_id": tool_call_id,
        "provider_tool_call_id": provider_tool_call_id,
        "tool_name": tool_name,
        "target": target,
        "params": params,
        "result": decoded(result_payload),
        "success": success,
        "duration_ms": duration_ms,
        "iteration_index": iteration_index,
        "error_message": error_message,
        "meta": meta,
        "outcome": outcome,
    }
    digest = content_digest("save_tool_call", **shown)

    def entry(run: Facts) -> Entry:
        place = tool_call_id if run.format == 2 else None
        values = {
            "id": row_id,
            "agent_run_id": run_id,
            **shown,
            "position_key": place,
            "started_epoch": claim_epoch,
            "content_digest": digest,
            "completed_at": tx.now,
            "created_at": tx.now,
            "updated_at": tx.now,
        }
        return Entry(table=tool_calls, values=values, position=(calls.position_key, place))

    appended = await store_once(tx, run_id, claim_epoch, entry, final=True)
    return None if appended.fresh else Unchanged(None)


async def get_tool_calls(
    tx: Tx,
    run_id: str,
    *,
    iteration_index: int | None = None,
    limit: int = 1000,
    offset: int = 0,
    before: datetime | None = None,
) -> list[ToolCallRecord]:
    """A page of the run's tool calls in the order they were stored."""
    statement = records.TOOL_CALL.where(calls.agent_run_id == run_id)
    if iteration_index is not None:
        statement = statement.where(calls.iteration_index == iteration_index)
    if before is not None:
        statement = statement.where(calls.created_at < before)
    statement = statement.order_by(calls.created_at, calls.id).limit(limit).offset(offset)
    return [records.tool_call(row) for row in await tx.rows(statement)]
