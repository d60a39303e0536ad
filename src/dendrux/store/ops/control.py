"""What somebody else may ask of a run: that it stop, or pause."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, exists, false, or_, select, true

from dendrux.db.models import agent_runs, run_inbox
from dendrux.runtime.values import RunControl
from dendrux.store.statements import of_run
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import OPEN_STATUSES, RUNNING, UNSCOPED

runs, notes = agent_runs.c, run_inbox.c
OPEN = sorted(OPEN_STATUSES)


async def request_cancel(tx: Tx, run_id: str) -> Outcome[bool]:
    """Ask an open run to end as cancelled: True, also when somebody asked before; False once it has ended.

    Refuses: RunNotFoundError.
    """
    await tx.begin(run_id)
    guard = [runs.status.in_(OPEN), runs.cancel_requested == false()]
    if await tx.swap(run_id, guard, [(runs.cancel_requested, true()), (runs.updated_at, tx.now)]) is not None:
        return True
    run = await tx.hold(run_id, UNSCOPED, runs.cancel_requested)
    is_open = run.status in OPEN_STATUSES
    return tx.lost(run, holds=is_open and not run.cancel_requested, answer=is_open)


async def request_pause(tx: Tx, run_id: str, *, reason: str | None = None) -> Outcome[bool]:
    """Ask a running run to pause: True, also when somebody asked before; False on any other status.

    Ensures: a later reason replaces an earlier one; a request without a reason keeps it.
    Refuses: RunNotFoundError.
    """
    await tx.begin(run_id)
    new = [runs.pause_requested == false()]
    assignments = [(runs.pause_requested, true()), (runs.updated_at, tx.now)]
    if reason is not None:
        new += [runs.pause_reason.is_(None), runs.pause_reason != reason]
        assignments.append((runs.pause_reason, reason))
    if await tx.swap(run_id, [runs.status == RUNNING, or_(*new)], assignments) is not None:
        return True
    run = await tx.hold(run_id, UNSCOPED, runs.pause_requested, runs.pause_reason)
    if run.status != RUNNING:
        return Unchanged(False)
    asked = run.pause_requested and (reason is None or run.pause_reason == reason)
    return tx.lost(run, holds=not asked, answer=True)


async def get_run_control(tx: Tx, run_id: str) -> RunControl:
    """Both requests and whether notes wait, read at once; all False for a missing run."""
    found = await tx.row(_control(), {"p_run": run_id})
    if found is None:
        return RunControl()
    return RunControl(
        cancel_requested=found.cancel_requested,
        pause_requested=found.pause_requested,
        has_pending_notes=bool(found.waiting),
    )


@cache
def _control() -> Select[Any]:
    waiting = exists(select(notes.id).where(notes.run_id == runs.id, notes.delivered_at.is_(None)))
    return of_run(runs.cancel_requested, runs.pause_requested, waiting.label("waiting"))
