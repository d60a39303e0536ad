"""The end of a run: a terminal status, which nothing leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import false, literal

from dendrux.db.models import agent_runs
from dendrux.runtime.values import JsonObject, TraceWrite, UsageStats
from dendrux.store.digest import content_digest, given
from dendrux.store.hookvalues import OrderedAssignments
from dendrux.store.ids import derived_id
from dendrux.store.ops.claims import cleared_submission
from dendrux.store.ops.events import event_entry
from dendrux.store.ops.pauses import owned, progressed
from dendrux.store.ops.runs import patch_expression
from dendrux.store.ops.traces import trace_entry
from dendrux.store.records import stored_object
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import META_ERROR_INFO, OPEN_STATUSES, UNSCOPED

runs = agent_runs.c


def _ended(
    tx: Tx,
    status: str,
    claim_epoch: int | None,
    carried: list[tuple[Any, Any]],
    *,
    answer: str | None,
    error: str | None,
    failure_reason: str | None,
) -> OrderedAssignments:
    """The run as its end leaves it: no request, no document, no submission, no lease mark."""
    renewal = {runs.lease_expired_at: None} if claim_epoch is None else tx.renewal()
    said = [
        (runs.output_data, None if answer is None else {"answer": answer}),
        (runs.error, error),
        (runs.failure_reason, failure_reason),
    ]
    return [
        (runs.status, status),
        (runs.cancel_requested, false()),
        (runs.pause_requested, false()),
        (runs.pause_reason, None),
        (runs.pause_data, None),
        *cleared_submission(),
        *carried,
        *((column, value) for column, value in said if value is not None),
        *renewal.items(),
        (runs.updated_at, tx.now),
    ]


async def finalize_with_event(
    tx: Tx,
    run_id: str,
    *,
    status: str,
    allowed_current_statuses: Sequence[str],
    event_type: str,
    event_data: JsonObject | None = None,
    event_id: str | None = None,
    answer: str | None = None,
    error: str | None = None,
    iteration_count: int | None = None,
    total_usage: UsageStats | None = None,
    pii_mapping: dict[str, str] | None = None,
    failure_reason: str | None = None,
    trace: TraceWrite | None = None,
    claim_epoch: int | None = None,
) -> Outcome[int | None]:
    """End an open run and log its terminal event and its last message, together: the event's index, or None when lost.

    Ensures: `event_data["error_info"]` shows as `meta["dendrux.error_info"]`, written by the winner only.
    Refuses: RunNotFoundError, ValueError for `trace` on format 1, StaleClaimError, WriteConflictError when the event
    id holds something else, or the trace's id or position does.
    """
    digest = content_digest(
        "finalize_with_event",
        status=status,
        event_type=event_type,
        event_data=event_data,
        answer=answer,
        error=error,
        iteration_count=iteration_count,
        total_usage=total_usage,
        pii_mapping=pii_mapping,
        failure_reason=failure_reason,
        trace=given(trace),
    )
    await tx.begin(run_id)
    carried = progressed(iteration_count, pii_mapping, total_usage)
    if event_data is not None and "error_info" in event_data:
        carried.append((runs.meta, await _with_error_info(tx, run_id, event_data["error_info"])))
    guard = [runs.status.in_(sorted(set(allowed_current_statuses))), *owned(claim_epoch)]
    if trace is not None:
        guard.append(runs.storage_format == 2)
    said = {"answer": answer, "error": error, "failure_reason": failure_reason}
    run = await tx.swap(run_id, guard, _ended(tx, status, claim_epoch, carried, **said))
    entry = event_entry(tx, run_id, event_id, digest, event_type, event_data, 0 if run is None else run.iteration_count)
    if run is not None:
        place = await tx.added(entry)
        if trace is not None:
            last = replace(trace, trace_id=trace.trace_id or derived_id(entry.id, "final"))
            await tx.added(trace_entry(tx, run_id, last, run.format))
        return place
    run = await tx.hold(run_id)
    if trace is not None:
        tx.format_2_only(run, "save_trace", "trace")
    held = await tx.repeated_here(entry)
    if held is not None:
        return Unchanged(held.place)
    tx.stale(run, claim_epoch)
    return tx.lost(run, holds=run.status in allowed_current_statuses, answer=None)


async def _with_error_info(tx: Tx, run_id: str, error_info: Any) -> Any:
    """The run's meta with the error's structure, patched by the database or under the row's lock."""
    patch = {META_ERROR_INFO: error_info}
    expression = patch_expression(tx, patch)
    if expression is not None:
        return expression
    run = await tx.hold(run_id, UNSCOPED, runs.meta)
    return literal({**stored_object(run.meta), **patch}, runs.meta.type)


async def finalize_run(
    tx: Tx,
    run_id: str,
    *,
    status: str,
    answer: str | None = None,
    error: str | None = None,
    iteration_count: int | None = None,
    total_usage: UsageStats | None = None,
    expected_current_status: str | None = None,
    pii_mapping: dict[str, str] | None = None,
    failure_reason: str | None = None,
    claim_epoch: int | None = None,
) -> Outcome[bool]:
    """Format 1: end an open run, or one that has exactly the expected status, without an event. False when lost.

    Refuses: RunNotFoundError, ValueError on format 2, StaleClaimError.
    """
    allowed = OPEN_STATUSES if expected_current_status is None else {expected_current_status}
    carried = progressed(iteration_count, pii_mapping, total_usage)
    said = {"answer": answer, "error": error, "failure_reason": failure_reason}
    return await _finalized(tx, run_id, status, sorted(allowed), claim_epoch, carried, said)


async def finalize_run_if_status_in(
    tx: Tx,
    run_id: str,
    *,
    status: str,
    allowed_current_statuses: Sequence[str],
    answer: str | None = None,
    error: str | None = None,
    iteration_count: int | None = None,
    total_usage: UsageStats | None = None,
    pii_mapping: dict[str, str] | None = None,
    failure_reason: str | None = None,
    claim_epoch: int | None = None,
) -> Outcome[bool]:
    """Format 1: end a run that has one of these statuses, without an event. False when lost.

    Refuses: RunNotFoundError, ValueError on format 2, StaleClaimError.
    """
    carried = progressed(iteration_count, pii_mapping, total_usage)
    said = {"answer": answer, "error": error, "failure_reason": failure_reason}
    return await _finalized(tx, run_id, status, sorted(set(allowed_current_statuses)), claim_epoch, carried, said)


async def _finalized(
    tx: Tx,
    run_id: str,
    status: str,
    allowed: list[str],
    claim_epoch: int | None,
    carried: list[tuple[Any, Any]],
    said: dict[str, str | None],
) -> Outcome[bool]:
    """The legacy pair: one guard, no event, never a change of a run that has ended."""
    await tx.begin(run_id)
    guard = [runs.status.in_(allowed), runs.storage_format == 1, *owned(claim_epoch)]
    assignments = _ended(
        tx,
        status,
        claim_epoch,
        carried,
        answer=said["answer"],
        error=said["error"],
        failure_reason=said["failure_reason"],
    )
    if await tx.swap(run_id, guard, assignments) is not None:
        return True
    run = await tx.hold(run_id)
    tx.format_1_only(run, "finalize_with_event")
    tx.stale(run, claim_epoch)
    return tx.lost(run, holds=run.status in allowed, answer=False)
