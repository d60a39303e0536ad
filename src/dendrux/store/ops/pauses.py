"""Pausing: a run waits for somebody, with a document that says for what."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, false, or_

from dendrux.db.models import agent_runs
from dendrux.errors import RunAlreadyTerminalError
from dendrux.runtime.pending import PendingWork, pending_calls
from dendrux.runtime.values import JsonObject, UsageStats
from dendrux.store.digest import content_digest
from dendrux.store.hookvalues import OrderedAssignments
from dendrux.store.ops._pending import summary
from dendrux.store.ops.claims import cleared_submission
from dendrux.store.ops.events import event_entry
from dendrux.store.statements import of_run
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import PAUSED_STATUSES, RUN_PAUSED, RUNNING, TERMINAL_STATUSES, UNSCOPED, TenantScope

runs = agent_runs.c


def progressed(
    iteration_count: int | None, pii_mapping: dict[str, str] | None, total_usage: UsageStats | None
) -> list[tuple[Any, Any]]:
    """What pause and finalize carry along, each left alone when None. Usage sets absolute totals."""
    assignments: list[tuple[Any, Any]] = []
    if iteration_count is not None:
        assignments.append((runs.iteration_count, iteration_count))
    if pii_mapping is not None:
        assignments.append((runs.pii_mapping, pii_mapping))
    if total_usage is not None:
        assignments += [
            (runs.total_input_tokens, total_usage.input_tokens),
            (runs.total_output_tokens, total_usage.output_tokens),
            (runs.total_cache_read_tokens, total_usage.cache_read_input_tokens or 0),
            (runs.total_cache_creation_tokens, total_usage.cache_creation_input_tokens or 0),
            (runs.total_reasoning_tokens, total_usage.reasoning_tokens or 0),
            (runs.total_cost_usd, total_usage.cost_usd),
        ]
    return assignments


def _paused(
    tx: Tx, status: str, pause_data: JsonObject, carried: list[tuple[Any, Any]], claim_epoch: int | None
) -> OrderedAssignments:
    """The run as a pause leaves it: a document, no request, no submission, no lease mark."""
    renewal = {runs.lease_expired_at: None} if claim_epoch is None else tx.renewal()
    return [
        (runs.status, status),
        (runs.paused_status, status),
        (runs.paused_at, tx.now),
        (runs.pause_data, pause_data),
        (runs.pause_requested, false()),
        (runs.pause_reason, None),
        *cleared_submission(),
        *carried,
        *renewal.items(),
        (runs.updated_at, tx.now),
    ]


def owned(claim_epoch: int | None) -> list[ColumnElement[bool]]:
    """The fence as a predicate, for an update that has more guards."""
    return [] if claim_epoch is None else [runs.claim_epoch == claim_epoch]


async def pause_with_event(
    tx: Tx,
    run_id: str,
    *,
    status: str,
    pause_data: JsonObject,
    event_data: JsonObject | None = None,
    event_id: str | None = None,
    iteration_count: int | None = None,
    pii_mapping: dict[str, str] | None = None,
    total_usage: UsageStats | None = None,
    claim_epoch: int | None = None,
) -> Outcome[int | None]:
    """Pause a running run that nobody asked to cancel, and log `run.paused`, together: the event's index.

    Ensures: None when the guard is lost, and nothing changes then.
    Refuses: RunNotFoundError, StaleClaimError; WriteConflictError when the event id holds something else, or when on
    format 2 a submission waits to be consumed.
    """
    digest = content_digest(
        "pause_with_event",
        status=status,
        pause_data=pause_data,
        event_data=event_data,
        iteration_count=iteration_count,
        pii_mapping=pii_mapping,
        total_usage=total_usage,
    )
    await tx.begin(run_id)
    consumed = or_(runs.storage_format == 1, runs.submission_id.is_(None), runs.consumption_id.is_not(None))
    guard = [runs.status == RUNNING, runs.cancel_requested == false(), consumed, *owned(claim_epoch)]
    carried = progressed(iteration_count, pii_mapping, total_usage)
    run = await tx.swap(run_id, guard, _paused(tx, status, pause_data, carried, claim_epoch))
    entry = event_entry(tx, run_id, event_id, digest, RUN_PAUSED, event_data, 0 if run is None else run.iteration_count)
    if run is not None:
        appended = await tx.append(entry)
        return appended.place if appended.fresh else Unchanged(appended.place)
    run = await tx.hold(run_id, UNSCOPED, runs.cancel_requested, runs.submission_id, runs.consumption_id)
    held = await tx.repeated_here(entry)
    if held is not None:
        return Unchanged(held.place)
    tx.stale(run, claim_epoch)
    if run.status != RUNNING or run.cancel_requested:
        return Unchanged(None)
    if run.format == 2 and run.submission_id is not None and run.consumption_id is None:
        raise tx.conflict()
    raise tx.again()


async def try_pause_run(
    tx: Tx,
    run_id: str,
    *,
    status: str,
    pause_data: JsonObject,
    iteration_count: int | None = None,
    pii_mapping: dict[str, str] | None = None,
    total_usage: UsageStats | None = None,
    claim_epoch: int | None = None,
) -> Outcome[bool]:
    """Format 1: pause a running run that nobody asked to cancel, without an event. False when lost.

    Refuses: RunNotFoundError, ValueError on format 2, StaleClaimError.
    """
    await tx.begin(run_id)
    guard = [
        runs.status == RUNNING,
        runs.cancel_requested == false(),
        runs.storage_format == 1,
        *owned(claim_epoch),
    ]
    carried = progressed(iteration_count, pii_mapping, total_usage)
    if await tx.swap(run_id, guard, _paused(tx, status, pause_data, carried, claim_epoch)) is not None:
        return True
    run = await tx.hold(run_id, UNSCOPED, runs.cancel_requested)
    tx.format_1_only(run, "pause_with_event")
    tx.stale(run, claim_epoch)
    return tx.lost(run, holds=run.status == RUNNING and not run.cancel_requested, answer=False)


async def pause_run(
    tx: Tx,
    run_id: str,
    *,
    status: str,
    pause_data: JsonObject,
    iteration_count: int | None = None,
    pii_mapping: dict[str, str] | None = None,
    total_usage: UsageStats | None = None,
    claim_epoch: int | None = None,
) -> Outcome[None]:
    """Format 1, legacy: pause a running run, cancel-requested or not.

    Refuses: RunNotFoundError, ValueError on format 2, StaleClaimError, RunAlreadyTerminalError, WriteConflictError for
    a run that is paused already.
    """
    await tx.begin(run_id)
    guard = [runs.status == RUNNING, runs.storage_format == 1, *owned(claim_epoch)]
    carried = progressed(iteration_count, pii_mapping, total_usage)
    if await tx.swap(run_id, guard, _paused(tx, status, pause_data, carried, claim_epoch)) is not None:
        return None
    run = await tx.hold(run_id)
    tx.format_1_only(run, "pause_with_event")
    tx.stale(run, claim_epoch)
    if run.status in TERMINAL_STATUSES:
        raise RunAlreadyTerminalError(run_id, run.status)
    raise tx.again() if run.status == RUNNING else tx.conflict()


async def get_pause_state(tx: Tx, run_id: str) -> JsonObject | None:
    """The pause document with the submission's members laid over it and its id beside them; None without one."""
    found = await tx.row(of_run(runs.pause_data, runs.submission_id, runs.submission_data), {"p_run": run_id})
    if found is None or found.pause_data is None:
        return None
    document: JsonObject = found.pause_data
    if found.submission_id is None:
        return document
    return {**document, **(found.submission_data or {}), "submission_id": found.submission_id}


async def get_pending(tx: Tx, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> PendingWork | None:
    """What a paused run waits for; None when it does not exist, is outside the scope, or is not paused.

    Ensures: the document itself is read only where the database cannot take the summary out of it faithfully.
    """
    found = await summary(tx, run_id, tenant_id)
    if found is None or found[0].status not in PAUSED_STATUSES:
        return None
    run, members = found
    reason, iteration = members["pause_reason"], members["iteration"]
    return PendingWork(
        status=run.status,
        reason=reason if isinstance(reason, str) else None,
        iteration=iteration if isinstance(iteration, int) and not isinstance(iteration, bool) else None,
        calls=pending_calls(members),
        paused_at=run.paused_at,
    )
