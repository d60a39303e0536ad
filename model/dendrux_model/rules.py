"""The rules every write follows, in the order it checks them: scope, identity, fence, closed, guard, position, effect.

Each is one small function so that a mutant of the model can replace it.
"""

from __future__ import annotations

from typing import Any

from dendrux.vocabulary import OPEN_STATUSES, PAUSED_STATUSES, RUNNING, TERMINAL_STATUSES, UNSCOPED, TenantScope
from dendrux_model.outcomes import CONFLICT, NONE, NOT_FOUND, STALE, TERMINAL, Outcome, Refused, Returned
from dendrux_model.world import Event, Run, World, find, put


def in_scope(run: Run, tenant_id: TenantScope) -> bool:
    """Tenants are equal as written: no folding, no padding, no trimming; None is untenanted."""
    return tenant_id is UNSCOPED or run.tenant_id == tenant_id


def stale(run: Run, claim_epoch: int | None) -> bool:
    """Rule 3, the fence: the caller names an epoch, and it is not the run's."""
    return claim_epoch is not None and run.claim_epoch != claim_epoch


def refused(run: Run, claim_epoch: int | None, *, final: bool = False) -> Refused | None:
    """Rules 3 and 4 for a plain write: fence, then closed.

    `final` rows (events, traces, tool calls) are refused on a format-2 run that has ended, fenced or not. A fenced
    plain write needs a running run.
    """
    if stale(run, claim_epoch):
        return STALE
    if final and run.format == 2 and run.status in TERMINAL_STATUSES:
        return TERMINAL
    if claim_epoch is not None and run.status != RUNNING:
        return STALE
    return None


def holder(world: World, rows: str, row_id: str | None) -> tuple[Run, int, Any] | None:
    """Who has a row of this id among `rows`: the run, its place and the row. Ids are global."""
    if row_id is None:
        return None
    for run in world.runs:
        for place, row in enumerate(getattr(run, rows)):
            if row.id == row_id:
                return run, place, row
    return None


def repeated(held: tuple[Run, int, Any], run_id: str, content: str, answer: Outcome) -> Outcome:
    """Rule 2, identity: the same content in the same run is a repeat; anything else conflicts."""
    owner, _, row = held
    return answer if owner.id == run_id and row.content == content else CONFLICT


def taken(run: Run, rows: str, field: str, position: Any) -> bool:
    """Rule 6, position: on format 2 one row holds a place."""
    return run.format == 2 and any(getattr(row, field) == position for row in getattr(run, rows))


def renewed(run: Run, claim_epoch: int | None, now: int) -> int:
    """A fenced write that applies renews the lease; an unfenced one leaves its clock."""
    return run.progress_at if claim_epoch is None else now


def append(
    world: World,
    op: Any,
    rows: str,
    row: Any,
    *,
    final: bool = False,
    position: tuple[str, Any] | None = None,
) -> tuple[World, Outcome]:
    """Insert one row of evidence by identity, under the fence: the path that all evidence writers share.

    Answers the row's place for an event, None for the rest.
    """
    run = find(world, op.run_id)
    if run is None:
        return world, NOT_FOUND
    held = holder(world, rows, row.id)
    if held is not None:
        return world, repeated(held, run.id, row.content, Returned(held[1]) if rows == "events" else NONE)
    refusal = refused(run, op.claim_epoch, final=final)
    if refusal is not None:
        return world, refusal
    if position is not None and taken(run, rows, *position):
        return world, CONFLICT
    present = getattr(run, rows)
    changes: dict[str, Any] = {rows: (*present, row), "progress_at": renewed(run, op.claim_epoch, world.now)}
    after = run._replace(**changes)
    return put(world, after), Returned(len(present)) if rows == "events" else NONE


def logged(run: Run, event: Event) -> tuple[Event, ...]:
    """The log with one more entry: its index is its place, so indexes have no gaps."""
    return (*run.events, event)


def ended(run: Run) -> bool:
    """The run has a terminal status, which nothing changes."""
    return run.status in TERMINAL_STATUSES


def is_open(run: Run) -> bool:
    """The run is running or paused."""
    return run.status in OPEN_STATUSES


def claimable(run: Run, expected_status: str) -> bool:
    """The guard of a claim: exactly that paused status, and nobody asked for its cancellation."""
    return run.status == expected_status and run.status in PAUSED_STATUSES and not run.cancel_requested


def unconsumed(run: Run) -> bool:
    """A submission was stored and its content was not handed out yet."""
    return run.submission is not None and run.submission.consumption_id is None
