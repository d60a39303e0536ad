"""Asking runs to stop: from outside, whoever works on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from dendrux.runtime import cancelling
from dendrux.runtime.results import PauseOutcome, RunResult
from dendrux.runtime.runner import found, result_of
from dendrux.vocabulary import LIMIT_MAX, PAUSED, RUNNING, TERMINAL_STATUSES, UNSCOPED, TenantScope


async def cancel(store: Any, run_id: str, *, cascade: bool, tenant_id: TenantScope) -> RunResult:
    """Cancel a run, and with `cascade` all below it. Refuses: RunNotFoundError."""
    if not cascade:
        await cancelling.cancel(store, run_id, tenant_id=tenant_id)
        return await result_of(store, run_id, tenant_id)
    done = await cancelling.cancel_tree(store, run_id, tenant_id=tenant_id)
    outcomes = {
        **dict.fromkeys(done.cancelled, "cancelled"),
        **dict.fromkeys(done.requested, "cancel_requested"),
        **dict.fromkeys(done.already_terminal, "terminal"),
        **{failed.run_id: f"failed: {failed.code}" for failed in done.failed},
    }
    return replace(await result_of(store, run_id, tenant_id), meta={"cascade": outcomes})


async def pause(store: Any, run_id: str, *, reason: str | None, cascade: bool, tenant_id: TenantScope) -> PauseOutcome:
    """Ask a run to pause, and with `cascade` all below it, level by level. Refuses: RunNotFoundError."""
    before = await found(store, run_id, tenant_id)
    affected: dict[str, str] = {run_id: await _asked(store, run_id, before.status, reason)}
    if cascade:
        async for child, status in _below(store, run_id, tenant_id, affected):
            affected[child] = await _asked(store, child, status, reason)
    after = await found(store, run_id, tenant_id)
    return PauseOutcome(run_id=run_id, status_before=before.status, status_after=after.status, affected=affected)


async def _asked(store: Any, run_id: str, status: str, reason: str | None) -> str:
    if status == RUNNING and await store.request_pause(run_id, reason=reason):
        return "requested"
    if status == RUNNING:
        status = (await found(store, run_id, UNSCOPED)).status  # it was let go of meanwhile
    if status in TERMINAL_STATUSES:
        return "terminal"
    return "already_paused" if status == PAUSED else "already_waiting"


async def _below(store: Any, root: str, tenant_id: TenantScope, seen: dict[str, str]) -> AsyncIterator[tuple[str, str]]:
    """Every run under a root with its status, parents first."""
    parents = [root]
    while parents:
        parent = parents.pop(0)
        after: str | None = None
        while True:
            page = await store.child_runs_page(parent, limit=LIMIT_MAX, after=after, tenant_id=tenant_id)
            for child in page:
                if child.run_id not in seen:
                    parents.append(child.run_id)
                    yield child.run_id, child.status
            if len(page) < LIMIT_MAX:
                break
            after = page[-1].run_id
