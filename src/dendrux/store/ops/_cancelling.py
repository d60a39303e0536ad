"""The walk of a cancellation, breadth first by (depth, parent, id), and what it does to each run.

A run is reached before its children are read. From then on it begins no child: creating one locks its parent and
refuses one that has ended or is asked to cancel. So nothing appears behind the walk, however long it takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from sqlalchemy import false, select, true

from dendrux.db.models import agent_runs
from dendrux.errors import RunNotFoundError
from dendrux.store.digest import content_digest
from dendrux.store.hookvalues import RunParentCursor
from dendrux.store.ids import new_id
from dendrux.store.ops._trees import CHUNK, level
from dendrux.store.ops.claims import cleared_submission
from dendrux.store.ops.events import event_entry
from dendrux.store.paging import Pages
from dendrux.store.statements import scoped
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import PAUSED_STATUSES, RUNNING, TERMINAL_STATUSES, UNSCOPED, TenantScope

runs = agent_runs.c

DATA: Final = {"reason": "cancel_requested"}
"""What the event of a run says that ends because somebody cancelled its family."""


class Node(NamedTuple):
    """A run of the family as the page's read saw it."""

    depth: int
    parent: str
    id: str
    status: str


class Place(NamedTuple):
    """Where a page ended: the root, and the run it reached last."""

    root: str
    depth: int
    parent: str
    id: str


async def walk(pages: Pages, root: str, scope: TenantScope, place: Place | None, size: int) -> AsyncIterator[Node]:
    """The runs of the family after `place`. The caller has reached a run before it asks for the next.

    Refuses: RunNotFoundError for a root that is missing or outside the scope.
    """
    first = await pages.read(lambda tx: tx.row(scoped(select(runs.id, runs.status).where(runs.id == root), scope)))
    if first is None:
        raise RunNotFoundError(root)
    depth, resumed = 1, None
    above: list[str] | None = None
    """The runs one level higher, when this walk met all of them and they are few."""
    if place is None:
        above = [root]
        yield Node(0, "", root, first.status)
    elif place.depth > 0:
        depth, resumed = place.depth, RunParentCursor(place.parent, place.id)
    while True:
        met: list[str] = []
        whole = resumed is None
        parents = above if above is not None else await _level(pages, root, depth - 1, scope, resumed)
        if not parents:
            return
        while parents:
            async for node in _children(pages, root, depth, scope, parents, resumed, size):
                met.append(node.id)
                yield node
            resumed = None
            more = above is None and len(parents) == CHUNK
            parents = await _level(pages, root, depth - 1, scope, None, parents[-1]) if more else []
        above = met if whole and len(met) <= CHUNK else None
        depth += 1


async def _level(
    pages: Pages, root: str, depth: int, scope: TenantScope, resumed: RunParentCursor | None, beyond: str | None = None
) -> list[str]:
    """The next runs at a depth, in order: from the parent where a page goes on, or beyond a run."""
    least = None if resumed is None else resumed.parent_run_id
    return await pages.read(lambda tx: level(tx, root, depth, scope, least=least, beyond=beyond))


async def _children(
    pages: Pages,
    root: str,
    depth: int,
    scope: TenantScope,
    parents: list[str],
    resumed: RunParentCursor | None,
    size: int,
) -> AsyncIterator[Node]:
    """The children of these runs, a page of the hook at a time, in the database's order of (parent, id)."""
    left = {one: RunParentCursor(one) for one in parents}
    if resumed is not None:
        left[resumed.parent_run_id] = resumed
    while left:
        query = pages.store.child_page_query(
            runs=agent_runs, parents=list(left.values()), tenant_scope=scope, page_size=size
        )
        narrow = query.with_only_columns(runs.parent_run_id, runs.id, runs.status, maintain_column_froms=True)
        rows = await pages.read(lambda tx, narrow=narrow: tx.rows(narrow))  # type: ignore[misc]
        for row in rows:
            if row.id != root:
                yield Node(depth, row.parent_run_id, row.id, row.status)
        if len(rows) < size:
            return
        for row in rows:
            left.pop(row.parent_run_id, None)
        left[rows[-1].parent_run_id] = RunParentCursor(rows[-1].parent_run_id, rows[-1].id)


async def reach(tx: Tx, run_id: str, status: str, event_id: str) -> Outcome[str]:
    """Cancel one run: the name of the list it belongs to. `status` is what to try first."""
    await tx.begin(run_id)
    for _ in range(2):
        paused = status in PAUSED_STATUSES
        done = await (_end(tx, run_id, event_id) if paused else _ask(tx, run_id))
        if done:
            return done
        status = RUNNING if paused else "paused"
    run = await tx.hold(run_id, UNSCOPED, runs.cancel_requested)
    if run.status in TERMINAL_STATUSES:
        return Unchanged("already_terminal")
    if run.status == RUNNING and run.cancel_requested:
        return Unchanged("requested")
    raise tx.again()


async def _ask(tx: Tx, run_id: str) -> str | None:
    guard = [runs.status == RUNNING, runs.cancel_requested == false()]
    asked = await tx.swap(run_id, guard, [(runs.cancel_requested, true()), (runs.updated_at, tx.now)])
    return None if asked is None else "requested"


async def _end(tx: Tx, run_id: str, event_id: str) -> str | None:
    ended = await tx.swap(
        run_id,
        [runs.status.in_(sorted(PAUSED_STATUSES))],
        [
            (runs.status, "cancelled"),
            (runs.cancel_requested, false()),
            (runs.pause_requested, false()),
            (runs.pause_reason, None),
            (runs.pause_data, None),
            *cleared_submission(),
            (runs.lease_expired_at, None),
            (runs.updated_at, tx.now),
        ],
    )
    if ended is None:
        return None
    digest = content_digest("cancel_subtree", event_data=DATA)
    await tx.append(event_entry(tx, run_id, event_id, digest, "run.cancelled", DATA, ended.iteration_count))
    return "cancelled"


async def reached(pages: Pages, node: Node) -> Any:
    """What became of a run: the name of its list, or its failure. An end that the read saw already is final."""
    if node.status in TERMINAL_STATUSES:
        return "already_terminal"
    event_id = new_id()
    return await pages.one(node.id, lambda tx: reach(tx, node.id, node.status, event_id))
