"""The lease of a running run: its owner is alive as long as it writes, and what becomes of the run when it is not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, case, exists, false, func, literal, not_, or_, select, true, union_all

from dendrux.db.models import agent_runs, run_events
from dendrux.runtime.values import ExpiredLease, FailedRun, JsonObject, LeaseSweep, SweepPage, SweptRun
from dendrux.store.digest import content_digest
from dendrux.store.hooks import Hooks
from dendrux.store.hookvalues import OrderedAssignments
from dendrux.store.ids import new_id
from dendrux.store.ops.claims import cleared_submission
from dendrux.store.ops.events import event_entry
from dendrux.store.paging import Pages, decoded, encoded
from dendrux.store.statements import scoped
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import (
    ABANDONED_WAITING,
    META_LOOP,
    NEVER_STARTED,
    PAUSED_STATUSES,
    RECOVERABLE_LOOP,
    RUN_LEASE_EXPIRED,
    RUN_RECLAIMED,
    RUN_STARTED,
    RUNNING,
    STALE_RUNNING,
    UNSCOPED,
    TenantScope,
)

runs = agent_runs.c


async def touch_progress(tx: Tx, run_id: str, *, claim_epoch: int | None = None) -> Outcome[bool]:
    """Renew the lease of a running run. On format 2 only its owner can: an unfenced call answers False.

    Ensures: the clock never goes back, `updated_at` does not move.
    Refuses: RunNotFoundError, StaleClaimError.
    """
    await tx.begin(run_id)
    if claim_epoch is not None:
        if await tx.fence(run_id, claim_epoch) is not None:
            return True
        run = await tx.hold(run_id)
        tx.stale(run, claim_epoch, running=True)
        raise tx.again()
    guard = [runs.status == RUNNING, runs.storage_format == 1]
    if await tx.swap(run_id, guard, list(tx.renewal().items())) is not None:
        return True
    run = await tx.hold(run_id)
    return tx.lost(run, holds=run.status == RUNNING and run.format == 1, answer=False)


async def reclaim_run(tx: Tx, run_id: str, *, expected_epoch: int) -> Outcome[int | None]:
    """Take over a marked run from its dead owner: the new epoch, or None to whoever came too late.

    Ensures: exactly one caller is returned an epoch; the former owner's writes are refused from here on;
    `claimed_epoch` stays, so nobody can hand this claim back.
    Refuses: RunNotFoundError.
    """
    await tx.begin(run_id)
    guard = [runs.status == RUNNING, runs.claim_epoch == expected_epoch, runs.lease_expired_at.is_not(None)]
    assignments: OrderedAssignments = [
        (runs.claim_epoch, runs.claim_epoch + 1),
        (runs.reclaim_count, runs.reclaim_count + 1),
        *tx.renewal().items(),
    ]
    run = await tx.swap(run_id, guard, assignments, columns=(runs.reclaim_count,))
    if run is not None:
        data = {"claim_epoch": run.claim_epoch, "reclaim_count": run.reclaim_count}
        await _tell(tx, run, RUN_RECLAIMED, data)
        return int(run.claim_epoch)
    run = await tx.hold(run_id, UNSCOPED, runs.lease_expired_at)
    marked = run.status == RUNNING and run.lease_expired_at is not None
    return tx.lost(run, holds=marked and run.claim_epoch == expected_epoch, answer=None)


async def get_lease_expired(
    tx: Tx, *, limit: int = 100, after: str | None = None, tenant_id: TenantScope = UNSCOPED
) -> list[ExpiredLease]:
    """A page of the runs that wait for somebody to take them over, the oldest marks first.

    `after` is the `cursor` of the last lease of the page before.
    """
    statement = select(
        runs.id.label("run_id"), runs.claim_epoch, runs.lease_expired_at.label("expired_at"), runs.reclaim_count
    ).where(runs.lease_expired_at.is_not(None), runs.status == RUNNING)
    if after is not None:
        statement = statement.where(_beyond(runs.lease_expired_at, *lease_place(after)))
    statement = scoped(statement, tenant_id).order_by(runs.lease_expired_at, runs.id).limit(limit)
    return [ExpiredLease(**row._mapping) for row in await tx.rows(statement)]


def lease_place(after: str) -> tuple[datetime, str]:
    """The place that the cursor of a lease names. Refuses: ValueError for any other text."""
    moment, _, run_id = after.partition(" ")
    try:
        expired_at = datetime.fromisoformat(moment)
    except ValueError:
        expired_at = None
    if expired_at is None or expired_at.tzinfo is None or not run_id:
        raise ValueError("after is no cursor of an expired lease")
    return expired_at, run_id


# -- pages of runs whose clock stands still ---------------------------------------------------------------------------


class Queue(NamedTuple):
    """Runs that a sweep looks at: their statuses, their clock, and what counts where an older release set none."""

    statuses: tuple[str, ...]
    clock: Any
    without_clock: Any


OWNED: Final = Queue((RUNNING,), runs.last_progress_at, runs.created_at)
WAITING: Final = Queue(tuple(sorted(PAUSED_STATUSES)), runs.paused_at, runs.updated_at)


def _still(queue: Queue, cutoff: datetime) -> ColumnElement[bool]:
    """The clock of a run stood still since before the cutoff."""
    return or_(queue.clock < cutoff, and_(queue.clock.is_(None), queue.without_clock < cutoff))


def _beyond(clock: Any, moment: datetime, run_id: str) -> ColumnElement[bool]:
    """Behind a place in (clock, id) order. The first comparison is what an index serves."""
    return and_(clock >= moment, or_(clock > moment, runs.id > run_id))


class Page(NamedTuple):
    """What a page found: its rows in order, the cursor of the next page, and the cutoff that each row is held to."""

    rows: list[Any]
    next_after: str | None
    cutoff: datetime


async def _page(
    tx: Tx, queue: Queue, cutoff: datetime, limit: int, after: str | None, *columns: ColumnElement[Any]
) -> Page:
    """The next runs whose clock stood still, in one statement: status by status, each in (clock, id) order.

    Runs without a clock come before the others of their status. Each part is read in the order of its index.
    """
    segment, micros, last = (0, 0, "") if after is None else decoded("after", after, int, int, str)
    if not 0 <= segment < 2 * len(queue.statuses):
        raise ValueError("after is no cursor that this operation gave")
    parts: list[Any] = []
    for number in range(segment, 2 * len(queue.statuses)):
        status, timed = queue.statuses[number // 2], number % 2 == 1
        part = select(literal(number).label("segment"), runs.id, runs.status, queue.clock.label("clock"), *columns)
        part = part.where(runs.status == status)
        goes_on = after is not None and number == segment
        if timed:
            part = part.where(queue.clock < cutoff).order_by(queue.clock, runs.id)
            part = part.where(_beyond(queue.clock, _moment(micros), last)) if goes_on else part
        else:
            # As an expression, so that no index on the other clock is chosen: this one gives the order of ids.
            older = func.coalesce(queue.without_clock, literal(cutoff, queue.without_clock.type)) < cutoff
            part = part.where(queue.clock.is_(None), older).order_by(runs.id)
            part = part.where(runs.id > last) if goes_on else part
        parts.append(select(part.limit(limit).subquery()))
    found: Sequence[Any] = await tx.rows(union_all(*parts))
    # A union promises no order of its own; rows that tie here are in the database's order of ids.
    found = sorted(found, key=lambda row: (row.segment, 0 if row.clock is None else _micros(row.clock)))[:limit]
    return Page(found, _cursor(found[-1]) if len(found) == limit else None, cutoff)


def _cursor(row: Any) -> str:
    """The place of a row as a cursor."""
    return encoded(row.segment, 0 if row.clock is None else _micros(row.clock), row.id)


EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _moment(micros: int) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        pass
    raise ValueError("after is no cursor that this operation gave")


# -- what a sweep does to one run -------------------------------------------------------------------------------------


def _recoverable(store: Hooks) -> ColumnElement[bool]:
    """Whether another owner can go on with a run. The meta of a run of format 1 is not looked into."""
    kept = store.json_contains(runs.meta, (META_LOOP,), RECOVERABLE_LOOP)
    return case((runs.storage_format == 2, kept), else_=false())


async def _mark(tx: Tx, run_id: str, cutoff: datetime) -> Outcome[bool]:
    """Mark a run whose owner still did not write. False when it wrote meanwhile, or the run needs no mark."""
    await tx.begin(run_id)
    guard = [
        runs.status == RUNNING,
        _still(OWNED, cutoff),
        runs.lease_expired_at.is_(None),
        _recoverable(tx.store),
    ]
    run = await tx.swap(run_id, guard, [(runs.lease_expired_at, tx.now)])
    if run is None:
        return Unchanged(False)
    await _tell(tx, run, RUN_LEASE_EXPIRED, {"claim_epoch": run.claim_epoch})
    return True


class End(NamedTuple):
    """How a sweep ends a run: the event, and the reason, of which the database knows which one it is."""

    event_type: str
    reason: Any
    error: Any


def _said(reason: str) -> Any:
    return literal(f"Run swept as {reason}", runs.error.type)


STARTED: Final = exists(
    select(run_events.c.id)
    .where(run_events.c.agent_run_id == runs.id, run_events.c.event_type == RUN_STARTED)
    .correlate(agent_runs)
)
INTERRUPTED: Final = End(
    "run.interrupted",
    case((STARTED, literal(STALE_RUNNING, runs.failure_reason.type)), else_=NEVER_STARTED),
    case((STARTED, _said(STALE_RUNNING)), else_=_said(NEVER_STARTED)),
)
ABANDONED: Final = End("run.abandoned", literal(ABANDONED_WAITING, runs.failure_reason.type), _said(ABANDONED_WAITING))


async def _end(
    tx: Tx, run_id: str, status: str, guard: Sequence[ColumnElement[bool]], end: End
) -> Outcome[SweptRun | None]:
    """End a run that is still in this status and still satisfies the guard; None when it does not.

    One that was asked to cancel ends as cancelled. What depends on that is assigned before the request is cleared.
    """
    await tx.begin(run_id)
    cancelling = runs.cancel_requested == true()
    assignments: OrderedAssignments = [
        (runs.failure_reason, end.reason),
        (runs.error, case((cancelling, runs.error), else_=end.error)),
        (runs.status, case((cancelling, literal("cancelled", runs.status.type)), else_="error")),
        (runs.cancel_requested, false()),
        (runs.pause_requested, false()),
        (runs.pause_reason, None),
        (runs.pause_data, None),
        *cleared_submission(),
        (runs.lease_expired_at, None),
        (runs.updated_at, tx.now),
    ]
    shown = (runs.agent_name, runs.failure_reason, runs.last_progress_at)
    run = await tx.swap(run_id, [runs.status == status, *guard], assignments, columns=shown)
    if run is None:
        return Unchanged(None)
    cancelled = run.status == "cancelled"
    data: JsonObject = {"reason": "cancel_requested"} if cancelled else {}
    data["failure_reason"] = run.failure_reason
    await _tell(tx, run, "run.cancelled" if cancelled else end.event_type, data)
    return SweptRun(
        run_id=run_id,
        agent_name=run.agent_name,
        previous_status=status,
        failure_reason=run.failure_reason,
        last_progress_at=run.last_progress_at,
        swept_at=tx.now,
        status=run.status,
    )


async def _tell(tx: Tx, run: Any, event_type: str, data: JsonObject) -> None:
    """Log an event of the store's own, with the run's count."""
    digest = content_digest(tx.operation, event_type=event_type, event_data=data)
    await tx.append(event_entry(tx, run.id, new_id(), digest, event_type, data, run.iteration_count))


# -- sweeps -----------------------------------------------------------------------------------------------------------


async def mark_lease_expired(
    pages: Pages,
    *,
    cutoff: datetime,
    limit: int = 100,
    after: str | None = None,
    finalise_unrecoverable: bool = False,
) -> LeaseSweep:
    """Mark the recoverable running runs whose owner did not write since the cutoff, a page at a time.

    Each run is looked at again in a transaction of its own: one that was written to meanwhile is left. With
    `finalise_unrecoverable` the others end as in a sweep of stale runs.

    Ensures: a run that fails is named in `failed` and the page goes on; a page of runs that need nothing advances.
    """
    recoverable = _recoverable(pages.store).label("recoverable")
    marked = runs.lease_expired_at.is_not(None).label("marked")
    page = await pages.read(lambda tx: _page(tx, OWNED, cutoff, limit, after, recoverable, marked))
    leased: list[str] = []
    ended: list[SweptRun] = []
    failed: list[FailedRun] = []
    others = [_still(OWNED, cutoff), not_(_recoverable(pages.store))]
    for row in page.rows:
        became: Any = None
        if row.recoverable and not row.marked:
            became = await pages.one(row.id, lambda tx, run_id=row.id: _mark(tx, run_id, cutoff))  # type: ignore[misc]
        elif not row.recoverable and finalise_unrecoverable:
            became = await pages.one(row.id, lambda tx, run_id=row.id: _end(tx, run_id, RUNNING, others, INTERRUPTED))  # type: ignore[misc]
        if isinstance(became, FailedRun):
            failed.append(became)
        elif isinstance(became, SweptRun):
            ended.append(became)
        elif became:
            leased.append(row.id)
    return LeaseSweep(marked=tuple(leased), finalised=tuple(ended), failed=tuple(failed), next_after=page.next_after)


async def sweep_stale_runs(
    pages: Pages, *, older_than: timedelta, limit: int = 100, after: str | None = None
) -> SweepPage:
    """End the running runs whose owner did not write for that long, a page at a time, recoverable or not.

    Ensures: a run that was written to meanwhile is left; one that was asked to cancel ends as cancelled.
    """
    return await _sweep(pages, OWNED, INTERRUPTED, older_than, limit, after)


async def sweep_abandoned_runs(
    pages: Pages, *, older_than: timedelta, limit: int = 100, after: str | None = None
) -> SweepPage:
    """End the paused runs that nobody claimed for that long since they were paused, a page at a time.

    Ensures: a run that was claimed meanwhile is left; one that was asked to cancel ends as cancelled.
    """
    return await _sweep(pages, WAITING, ABANDONED, older_than, limit, after)


async def _sweep(
    pages: Pages, queue: Queue, end: End, older_than: timedelta, limit: int, after: str | None
) -> SweepPage:
    """One page of a sweep: each run in a transaction of its own that looks at its clock again."""
    page = await pages.read(lambda tx: _page(tx, queue, tx.now - older_than, limit, after))
    guard = [_still(queue, page.cutoff)]
    swept: list[SweptRun] = []
    failed: list[FailedRun] = []
    for row in page.rows:
        became: SweptRun | FailedRun | None = await pages.one(
            row.id,
            lambda tx, row=row: _end(tx, row.id, row.status, guard, end),  # type: ignore[misc]
        )
        if isinstance(became, FailedRun):
            failed.append(became)
        elif became is not None:
            swept.append(became)
    return SweepPage(swept=tuple(swept), failed=tuple(failed), next_after=page.next_after)
