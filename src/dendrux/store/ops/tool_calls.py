"""Tool calls of a run: stored in one piece, or as an intent that is completed later."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, Final, NoReturn

from sqlalchemy import Row, Select, Update, and_, bindparam, update

from dendrux.db.models import agent_runs, run_events, tool_calls
from dendrux.errors import RunNotFoundError, ToolCallNotStartedError
from dendrux.runtime.values import (
    BlobEdge,
    EventWrite,
    JsonObject,
    ReplayedToolCalls,
    ToolCallRecord,
    ToolCallStart,
    ToolCallWrite,
    TraceWrite,
)
from dendrux.store import records
from dendrux.store.checks import json_value
from dendrux.store.digest import content_digest, given
from dendrux.store.ids import derived_id
from dendrux.store.ops._references import Edges, digested, refer
from dendrux.store.ops.events import written_event
from dendrux.store.ops.evidence import store_once
from dendrux.store.ops.traces import trace_entry
from dendrux.store.statements import by_identity, page, scoped
from dendrux.store.tx import Entry, Facts, Outcome, Tx, Unchanged
from dendrux.vocabulary import RUNNING, TOOL_COMPLETED, TOOL_STARTED, UNSCOPED, TenantScope

runs = agent_runs.c
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


def tool_call_entry(tx: Tx, run_id: str, call: ToolCallWrite, storage_format: int, refs: Edges = None) -> Entry:
    """A call in one piece, the same row whichever operation stores it."""
    shown = {
        "tool_call_id": call.tool_call_id,
        "provider_tool_call_id": call.provider_tool_call_id,
        "tool_name": call.tool_name,
        "target": call.target,
        "params": call.params,
        "result": decoded(call.result_payload),
        "success": call.success,
        "duration_ms": call.duration_ms,
        "iteration_index": call.iteration_index,
        "error_message": call.error_message,
        "meta": call.meta,
        "outcome": call.outcome,
    }
    place = call.tool_call_id if storage_format == 2 else None
    values = {
        "id": None if call.row_id is None else str(call.row_id),
        "agent_run_id": run_id,
        **shown,
        "position_key": place,
        "content_digest": content_digest("save_tool_call", **shown, **digested(refs)),
        "completed_at": tx.now,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    return Entry(table=tool_calls, values=values, position=(calls.position_key, place))


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
    blob_refs: Sequence[BlobEdge] | None = None,
    blob_refs_scope: str | None = None,
) -> Outcome[None]:
    """Store a tool call with its result. On format 2 one row holds a tool call id.

    Refuses: RunNotFoundError, WriteConflictError, StaleClaimError, RunAlreadyTerminalError, BlobNotFoundError.
    """
    write = ToolCallWrite(
        tool_call_id=tool_call_id,
        provider_tool_call_id=provider_tool_call_id,
        tool_name=tool_name,
        target=target,
        params=params,
        result_payload=result_payload,
        success=success,
        duration_ms=duration_ms,
        iteration_index=iteration_index,
        error_message=error_message,
        meta=meta,
        row_id=row_id,
        outcome=outcome,
    )

    def entry(run: Facts) -> Entry:
        return tool_call_entry(tx, run_id, write, run.format, blob_refs)

    appended = await store_once(tx, run_id, claim_epoch, entry, final=True)
    if not appended.fresh:
        return Unchanged(None)
    await refer(tx, run_id, blob_refs, blob_refs_scope)
    return None


HELD: Final = records.TOOL_CALL.add_columns(calls.agent_run_id.label("owner"), calls.content_digest, calls.start_digest)
"""A tool call as records show it, whose it is, and what stored its result and its intent."""


async def _held(tx: Tx, row_id: str) -> tuple[ToolCallRecord, Row[Any]] | None:
    """The tool call of this id, whoever's it is."""
    row = await tx.row(HELD.where(calls.id == row_id))
    return None if row is None else (records.tool_call(row), row)


def _refuse(tx: Tx, run: Facts, claim_epoch: int) -> NoReturn:
    """Say why an owner's write met no run under its epoch."""
    tx.stale(run, claim_epoch)
    tx.closed(run)
    tx.stale(run, claim_epoch, running=True)
    raise tx.again()  # the fence holds now: the run was changed between the two statements


async def start_tool_call(
    tx: Tx,
    run_id: str,
    *,
    row_id: str,
    tool_call_id: str,
    provider_tool_call_id: str | None,
    tool_name: str,
    target: str,
    params: JsonObject | None,
    iteration_index: int,
    claim_epoch: int,
    event: EventWrite,
    trace_id: str | None = None,
) -> Outcome[ToolCallStart]:
    """Store the intent of a call and its `tool.started` event, before the call is executed. Fence first.

    Ensures: a call that an earlier owner left open is handed out again as one more attempt, with one more event; a
    completed one is answered with its result, and nothing is written.
    Refuses: RunNotFoundError; ValueError on format 1; StaleClaimError; RunAlreadyTerminalError; WriteConflictError when
    the row holds another call, or another row this one, or the event id something else.
    """
    intent = {
        "tool_call_id": tool_call_id,
        "provider_tool_call_id": provider_tool_call_id,
        "tool_name": tool_name,
        "target": target,
        "params": params,
        "iteration_index": iteration_index,
        "trace_id": trace_id,
    }
    digest = content_digest("start_tool_call", **intent, event=given(event))
    run = await tx.fence(run_id, claim_epoch)
    if run is None:
        run = await tx.hold(run_id)
        tx.format_2_only(run, "save_tool_call")
        _refuse(tx, run, claim_epoch)
    tx.format_2_only(run, "save_tool_call")
    event_id = event.event_id or derived_id(row_id, TOOL_STARTED)
    if await tx.inserted(_intent(tx, run_id, row_id, intent, claim_epoch, digest)):
        await tx.added(written_event(tx, run_id, event, event_id, digest))
        return ToolCallStart(attempt=1, replayed=False)
    held = await _held(tx, row_id)
    if held is None:
        raise tx.again()  # the row that absorbed the insert is gone again
    call, row = held
    if row.owner != run_id or row.start_digest != digest:
        raise tx.conflict()
    if call.completed or call.started_epoch == claim_epoch:
        stored = call if call.completed else None
        return Unchanged(ToolCallStart(attempt=call.attempt, replayed=call.attempt > 1, completed=stored))
    attempt = call.attempt + 1
    await tx.result(_replay(tx, row_id, attempt, claim_epoch))
    await tx.added(written_event(tx, run_id, event, derived_id(row_id, TOOL_STARTED, attempt), digest))
    return ToolCallStart(attempt=attempt, replayed=True)


def _intent(tx: Tx, run_id: str, row_id: str, intent: dict[str, Any], claim_epoch: int, digest: str) -> Entry:
    """The row of a call that was started: open, and without anything that only its result can tell."""
    values = {
        "id": row_id,
        "agent_run_id": run_id,
        **intent,
        "position_key": intent["tool_call_id"],
        "success": False,
        "started_epoch": claim_epoch,
        "started_at": tx.now,
        "start_digest": digest,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    return Entry(table=tool_calls, values=values, position=(calls.position_key, intent["tool_call_id"]))


def _replay(tx: Tx, row_id: str, attempt: int, claim_epoch: int) -> Update:
    """The next attempt, under the run's current owner. Its iteration enters the index of replayed calls."""
    return (
        update(tool_calls)
        .where(calls.id == row_id)
        .values(
            attempt=attempt,
            started_epoch=claim_epoch,
            started_at=tx.now,
            replayed_iteration=calls.iteration_index,
            updated_at=tx.now,
        )
    )


async def complete_tool_call(
    tx: Tx,
    run_id: str,
    *,
    row_id: str,
    result_payload: str,
    success: bool,
    outcome: str | None,
    duration_ms: int | None,
    error_message: str | None = None,
    meta: JsonObject | None = None,
    claim_epoch: int,
    trace: TraceWrite,
    event: EventWrite,
    pii_mapping: dict[str, str] | None = None,
    blob_refs: Sequence[BlobEdge] | None = None,
    blob_refs_scope: str | None = None,
) -> Outcome[int]:
    """Store what a started call came to: result, observation, `tool.completed` event and mapping, together.

    Ensures: answers the event's index; a repeat of a completion with the same content answers the first index.
    Refuses: RunNotFoundError; ValueError on format 1; WriteConflictError for another completion, an intent of another
    epoch, and ids or a position that are taken; StaleClaimError; RunAlreadyTerminalError; ToolCallNotStartedError;
    BlobNotFoundError.
    """
    result = {
        "result": decoded(result_payload),
        "success": success,
        "outcome": outcome,
        "duration_ms": duration_ms,
        "error_message": error_message,
        "meta": meta,
    }
    digest = content_digest(
        "complete_tool_call",
        **result,
        trace=given(trace),
        event=given(event),
        pii_mapping=pii_mapping,
        **digested(blob_refs),
    )
    trace_id = trace.trace_id or derived_id(row_id, "observation")
    event_id = event.event_id or derived_id(row_id, TOOL_COMPLETED)
    run = await _owner(tx, run_id, claim_epoch, pii_mapping)
    if run is not None:
        tx.format_2_only(run, "save_tool_call")
        done = {**result, "trace_id": trace_id, "content_digest": digest, "completed_at": tx.now, "updated_at": tx.now}
        if (await tx.result(_completion(run_id, row_id, claim_epoch, done))).rowcount:
            await tx.added(trace_entry(tx, run_id, replace(trace, trace_id=trace_id), run.format))
            index = await tx.added(written_event(tx, run_id, event, event_id, digest))
            await refer(tx, run_id, blob_refs, blob_refs_scope)
            return index
        repeated = await _completed(tx, run_id, row_id, digest, event_id)
        if repeated is not None:
            return Unchanged(repeated)
        raise tx.conflict()  # the intent belongs to another epoch
    run = await tx.hold(run_id)
    tx.format_2_only(run, "save_tool_call")
    repeated = await _completed(tx, run_id, row_id, digest, event_id, refuse=lambda: _refuse(tx, run, claim_epoch))
    if repeated is not None:
        return Unchanged(repeated)
    _refuse(tx, run, claim_epoch)


async def _owner(tx: Tx, run_id: str, claim_epoch: int, pii_mapping: dict[str, str] | None) -> Facts | None:
    """The fence, with a new mapping in the same statement when there is one."""
    if pii_mapping is None:
        return await tx.fence(run_id, claim_epoch)
    owned = [runs.status == RUNNING, runs.claim_epoch == claim_epoch]
    run: Facts | None = await tx.swap(run_id, owned, [*tx.renewal().items(), (runs.pii_mapping, pii_mapping)])
    return run


def _completion(run_id: str, row_id: str, claim_epoch: int, done: dict[str, Any]) -> Update:
    """The result of a call that is open and was started under this epoch."""
    mine = (calls.id == row_id, calls.agent_run_id == run_id, calls.started_epoch == claim_epoch)
    return update(tool_calls).where(*mine, calls.started_at.is_not(None), calls.completed_at.is_(None)).values(**done)


async def _completed(
    tx: Tx,
    run_id: str,
    row_id: str,
    digest: str,
    event_id: str,
    refuse: Callable[[], NoReturn] | None = None,
) -> int | None:
    """The event's index of a completion with this content; None while the call is open.

    Refuses: WriteConflictError for other content and for a row of another run; what `refuse` says, else
    ToolCallNotStartedError, when there is no such call.
    """
    held = await _held(tx, row_id)
    if held is None:
        if refuse is not None:
            refuse()
        raise ToolCallNotStartedError(operation=tx.operation, run_id=run_id)
    call, row = held
    if row.owner != run_id or (call.completed and row.content_digest != digest):
        raise tx.conflict()
    if not call.completed:
        return None
    logged = await tx.row(by_identity(run_events), {"p_id": event_id})
    if logged is None:
        raise tx.conflict()
    return int(logged.place)


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
    values = {"p_run": run_id, "p_iteration": iteration_index, "p_before": before, "p_limit": limit, "p_offset": offset}
    found = await tx.rows(_of_run(iteration_index is not None, before is not None), values)
    return [records.tool_call(row) for row in found]


@cache
def _of_run(iteration: bool, before: bool) -> Select[Any]:
    statement = records.TOOL_CALL.where(calls.agent_run_id == bindparam("p_run"))
    if iteration:
        statement = statement.where(calls.iteration_index == bindparam("p_iteration"))
    if before:
        statement = statement.where(calls.created_at < bindparam("p_before"))
    return page(statement, calls.created_at, calls.id)


async def get_replayed_tool_calls(
    tx: Tx, run_id: str, *, limit: int = 100, tenant_id: TenantScope = UNSCOPED
) -> ReplayedToolCalls:
    """The calls that were started more than once: by iteration, and there in the order of their first start.

    Refuses: RunNotFoundError when a scope is given that the run is not in.
    """
    wanted = and_(calls.agent_run_id == run_id, calls.replayed_iteration.is_not(None))
    statement = records.TOOL_CALL.where(wanted)
    if tenant_id is not UNSCOPED:  # the run's row comes without a call when it has none to show
        statement = records.TOOL_CALL.select_from(agent_runs.outerjoin(tool_calls, wanted)).where(runs.id == run_id)
        statement = scoped(statement, tenant_id)
    statement = statement.order_by(calls.replayed_iteration, calls.created_at, calls.id).limit(limit + 1)
    found = await tx.rows(statement)
    if tenant_id is not UNSCOPED and not found:
        raise RunNotFoundError(run_id)
    shown = [records.tool_call(row) for row in found if row.id is not None]
    return ReplayedToolCalls(calls=shown[:limit], truncated=len(shown) > limit)
