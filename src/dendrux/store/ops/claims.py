"""Who owns a run: claims of paused runs, each under a new epoch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import false

from dendrux.db.models import agent_runs
from dendrux.errors import StoreOutcomeUnknown
from dendrux.runtime.values import BlobEdge, JsonObject, Submission, ToolCallWrite, TraceWrite
from dendrux.store.digest import content_digest
from dendrux.store.hookvalues import OrderedAssignments
from dendrux.store.ops._references import digested, refer
from dendrux.store.ops.evidence import store_all
from dendrux.store.ops.tool_calls import tool_call_entry
from dendrux.store.ops.traces import trace_entry
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import RUNNING, UNSCOPED, TenantScope

runs = agent_runs.c


def _claim(tx: Tx) -> OrderedAssignments:
    """What a claim changes. claimed_epoch comes first: a later assignment may see an earlier one."""
    return [
        (runs.claimed_epoch, runs.claim_epoch + 1),
        (runs.claim_epoch, runs.claim_epoch + 1),
        (runs.status, RUNNING),
        *tx.renewal().items(),
        (runs.updated_at, tx.now),
    ]


async def claim_paused_run(
    tx: Tx, run_id: str, *, expected_status: str, tenant_id: TenantScope = UNSCOPED
) -> Outcome[int | None]:
    """Take a paused run: the new epoch, or None to whoever came too late.

    Ensures: exactly one caller is returned an epoch; the pause document stays.
    Refuses: RunNotFoundError.
    """
    await tx.begin(run_id)
    guard = [runs.status == expected_status, runs.cancel_requested == false()]
    claimed = await tx.swap(run_id, guard, _claim(tx), tenant_id=tenant_id)
    if claimed is not None:
        return int(claimed.claim_epoch)
    run = await tx.hold(run_id, tenant_id, runs.cancel_requested)
    return tx.lost(run, holds=run.status == expected_status and not run.cancel_requested, answer=None)


async def submit_and_claim(
    tx: Tx,
    run_id: str,
    *,
    expected_status: str,
    submitted_data: JsonObject,
    submission_id: str | None = None,
    validate: Callable[[JsonObject], None] | None = None,
    tenant_id: TenantScope = UNSCOPED,
    blob_refs: Sequence[BlobEdge] | None = None,
    blob_refs_scope: str | None = None,
) -> Outcome[int | None]:
    """Take a paused run and leave a submission beside its document: the new epoch, or None when lost.

    `validate(document)` runs inside the transaction, may run again when it is retried, and must not call the store.

    Refuses: RunNotFoundError; WriteConflictError when the id holds other content; StoreOutcomeUnknown while the same
    submission is unconsumed: somebody owns that claim, and it may not be this caller; BlobNotFoundError.
    """
    digest = content_digest("submit_and_claim", submitted_data=submitted_data, **digested(blob_refs))
    run = await tx.hold(
        run_id,
        tenant_id,
        runs.cancel_requested,
        runs.submission_id,
        runs.submission_digest,
        runs.consumption_id,
        runs.pause_data,
    )
    if run.submission_id is not None and run.submission_id == submission_id:
        if run.submission_digest != digest:
            raise tx.conflict()
        if run.consumption_id is None:
            raise StoreOutcomeUnknown(
                "This submission is stored and unconsumed: somebody owns its claim, and it may not be this caller. "
                "Start no work on it; lease and reclaim recover the run.",
                operation=tx.operation,
                run_id=run_id,
            )
        return Unchanged(None)
    if run.status != expected_status or run.cancel_requested:
        return Unchanged(None)
    if validate is not None:
        validated(validate, run.pause_data or {})
        tx.check_stop()
    submission: list[tuple[Any, Any]] = [
        (runs.submission_id, submission_id),
        (runs.submission_digest, digest),
        (runs.submission_data, submitted_data),
        (runs.consumption_id, None),
    ]
    claimed = await tx.swap(run_id, [runs.claim_epoch == run.claim_epoch], [*_claim(tx), *submission])
    if claimed is None:
        raise tx.again()
    await refer(tx, run_id, blob_refs, blob_refs_scope)
    return int(claimed.claim_epoch)


async def consume_submission(
    tx: Tx,
    run_id: str,
    *,
    claim_epoch: int,
    consumption_id: str,
    traces: Sequence[TraceWrite] = (),
    tool_calls: Sequence[ToolCallWrite] = (),
    pii_mapping: dict[str, str] | None = None,
) -> Outcome[Submission | None]:
    """Format 2: hand the submission to the run's owner, once, and store the rows that are made of it.

    Ensures: the same consumption_id is handed it again and changes nothing; another is answered None, as is a run
    without a submission.
    Refuses: RunNotFoundError; ValueError on format 1; StaleClaimError; RunAlreadyTerminalError; WriteConflictError for
    a known id or a taken position.
    """
    held = await tx.hold(run_id, UNSCOPED, runs.submission_id, runs.submission_data, runs.consumption_id)
    tx.format_2_only(held, "get_pause_state")
    tx.stale(held, claim_epoch)
    tx.closed(held)
    tx.stale(held, claim_epoch, running=True)
    if held.submission_id is None or held.consumption_id not in (None, consumption_id):
        return Unchanged(None)
    submission = Submission(submission_id=held.submission_id, data=held.submission_data or {})
    if held.consumption_id is not None:
        return Unchanged(submission)
    guard = [runs.claim_epoch == claim_epoch, runs.status == RUNNING, runs.consumption_id.is_(None)]
    mapping = [] if pii_mapping is None else [(runs.pii_mapping, pii_mapping)]
    consumed = [(runs.consumption_id, consumption_id), *mapping, *tx.renewal().items()]
    if await tx.swap(run_id, guard, consumed) is None:
        raise tx.again()
    rows = [trace_entry(tx, run_id, trace, held.format) for trace in traces]
    await store_all(tx, [*rows, *(tool_call_entry(tx, run_id, call, held.format) for call in tool_calls)])
    return submission


def validated(validate: Callable[[JsonObject], Any], document: JsonObject) -> None:
    """Ask the caller's function, which says no by raising."""
    try:
        answer = validate(document)
    except StopIteration as error:  # Python lets none out of a coroutine
        raise RuntimeError("validate raised StopIteration") from error
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("validate must be a plain function: what it returned waits to be awaited")


async def release_run_claim(tx: Tx, run_id: str, *, claim_epoch: int) -> Outcome[bool]:
    """Hand a claim back unused: only for a caller that was returned the epoch.

    Ensures: the run waits again in the status it was paused in; the submission and its id go; the epoch stays.
    Refuses: RunNotFoundError, StaleClaimError.
    """
    await tx.begin(run_id)
    guard = [
        runs.status == RUNNING,
        runs.claim_epoch == claim_epoch,
        runs.claimed_epoch == claim_epoch,
        runs.paused_status.is_not(None),
        runs.consumption_id.is_(None),
    ]
    assignments = [
        (runs.status, runs.paused_status),
        (runs.paused_at, tx.now),
        (runs.pause_requested, false()),
        (runs.pause_reason, None),
        *cleared_submission(),
        *tx.renewal().items(),
        (runs.updated_at, tx.now),
    ]
    if await tx.swap(run_id, guard, assignments) is not None:
        return True
    run = await tx.hold(run_id, UNSCOPED, runs.claimed_epoch, runs.paused_status, runs.consumption_id)
    tx.stale(run, claim_epoch)
    unused = run.claimed_epoch == claim_epoch and run.paused_status is not None and run.consumption_id is None
    return tx.lost(run, holds=run.status == RUNNING and unused, answer=False)


def cleared_submission() -> OrderedAssignments:
    """A pause, a release and an end leave no submission behind."""
    return [
        (runs.submission_id, None),
        (runs.submission_digest, None),
        (runs.submission_data, None),
        (runs.consumption_id, None),
    ]
