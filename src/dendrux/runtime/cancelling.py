"""Cancelling a run from outside: one that waits ends, one that runs is asked to."""

from __future__ import annotations

from dataclasses import dataclass

from dendrux.errors import RunNotFoundError
from dendrux.runtime.state import StateStore
from dendrux.runtime.values import FailedRun
from dendrux.vocabulary import LIMIT_MAX, PAUSED_STATUSES, UNSCOPED, TenantScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """What became of each run that a cancellation reached."""

    cancelled: tuple[str, ...] = ()
    """Runs that waited and have ended."""
    requested: tuple[str, ...] = ()
    """Runs at work: their owners see the request at their next step."""
    already_terminal: tuple[str, ...] = ()
    failed: tuple[FailedRun, ...] = ()
    """Runs that could not be treated: cancel them again."""


async def cancel(store: StateStore, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> Cancelled:
    """Cancel one run and leave those below it alone.

    Ensures: a run that waits when it is asked has ended when this returns; nobody claims it in between, since a run
    that is asked to cancel is not claimed.
    Refuses: RunNotFoundError for a run that is missing or outside the scope.
    """
    if await store.get_run(run_id, tenant_id=tenant_id) is None:
        raise RunNotFoundError(run_id)
    if not await store.request_cancel(run_id):
        return Cancelled(already_terminal=(run_id,))
    index = await store.finalize_with_event(
        run_id,
        status="cancelled",
        allowed_current_statuses=sorted(PAUSED_STATUSES),
        event_type="run.cancelled",
        event_data={"reason": "cancel_requested"},
    )
    return Cancelled(requested=(run_id,)) if index is None else Cancelled(cancelled=(run_id,))


async def cancel_tree(store: StateStore, root_run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> Cancelled:
    """Cancel a run and everything below it, page by page to the last.

    Ensures: unless runs failed, no run under the root is open without a request to cancel, also none created meanwhile.
    Refuses: RunNotFoundError for a root that is missing or outside the scope.
    """
    cancelled: list[str] = []
    requested: list[str] = []
    terminal: list[str] = []
    failed: list[FailedRun] = []
    after: str | None = None
    while True:
        page = await store.cancel_subtree(root_run_id, limit=LIMIT_MAX, after=after, tenant_id=tenant_id)
        cancelled += page.cancelled
        requested += page.requested
        terminal += page.already_terminal
        failed += page.failed
        after = page.next_after
        if after is None:
            return Cancelled(
                cancelled=tuple(cancelled),
                requested=tuple(requested),
                already_terminal=tuple(terminal),
                failed=tuple(failed),
            )
