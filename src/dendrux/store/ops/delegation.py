"""Families of runs: who delegated to whom, what it cost together, and cancelling all of it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import CTE, Select, exists, func, select

from dendrux.db.models import agent_runs, llm_interactions
from dendrux.errors import PersistenceError, RunNotFoundError
from dendrux.runtime.values import (
    CancelPage,
    DelegationInfo,
    FailedRun,
    ParentRef,
    RunBrief,
    SubtreeNodeRecord,
    SubtreeRecord,
    SubtreeSummary,
    UsageRollup,
)
from dendrux.store import records
from dendrux.store.hookvalues import RunParentCursor
from dendrux.store.ops._cancelling import Place, reached, walk
from dendrux.store.ops._trees import LEVELS, SUMS, above, rollup, subtree
from dendrux.store.paging import Pages, decoded, encoded
from dendrux.store.statements import scoped
from dendrux.store.tx import Tx
from dendrux.vocabulary import LIMIT_MAX, UNSCOPED, TenantScope

runs = agent_runs.c
calls = llm_interactions.c

BRIEF: Final = (runs.id, runs.agent_name, runs.status, runs.delegation_level)
"""What a relative sees of a run."""


def brief(row: Any) -> RunBrief:
    """A run as its relatives see it."""
    return RunBrief(run_id=row.id, agent_name=row.agent_name, status=row.status, delegation_level=row.delegation_level)


# -- where a run stands -----------------------------------------------------------------------------------------------


async def get_delegation_info(tx: Tx, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> DelegationInfo | None:
    """Where a run stands in its family, or None when it does not exist or is outside the scope.

    Three statements, up to 500 levels above the run and 500 below it.
    """
    found, complete = await _ancestry(tx, run_id, tenant_id)
    if not found:
        return None
    own, ancestry = found[0], found[1:]
    direct = scoped(select(*BRIEF).where(runs.parent_run_id == run_id, runs.id != run_id), tenant_id)
    children = await tx.rows(direct.order_by(runs.created_at, runs.id).limit(LIMIT_MAX))
    return DelegationInfo(
        parent=_parent(own, ancestry),
        children=[brief(row) for row in children],
        ancestry=[brief(row) for row in reversed(ancestry)],
        subtree_summary=await _summary(tx, run_id, tenant_id),
        ancestry_complete=complete,
    )


async def _ancestry(tx: Tx, run_id: str, scope: TenantScope) -> tuple[list[Any], bool]:
    """The run and those above it, and whether the last of them is a root."""
    found: list[Any] = []
    seen: set[str] = set()
    bottom: str | None = run_id
    while bottom is not None:
        chain = above(bottom, scope)
        rows = await tx.rows(select(*BRIEF, runs.parent_run_id, chain.c.distance).where(runs.id == chain.c.id))
        bottom = None
        for row in sorted(rows, key=lambda row: int(row.distance)):
            if row.id in seen:
                return found, False
            seen.add(row.id)
            found.append(row)
            bottom = row.parent_run_id if row.distance == LEVELS else None
    return found, bool(found) and found[-1].parent_run_id is None


def _parent(own: Any, ancestry: Sequence[Any]) -> ParentRef | None:
    """The run that delegated, as far as it can be seen."""
    if own.parent_run_id is None:
        return None
    if not ancestry:
        return ParentRef(run_id=own.parent_run_id, resolved=False)
    seen = brief(ancestry[0])
    return ParentRef(
        run_id=seen.run_id,
        resolved=True,
        agent_name=seen.agent_name,
        status=seen.status,
        delegation_level=seen.delegation_level,
    )


def _counted(tree: CTE) -> Select[Any]:
    """A tree in numbers: counted by the database, depth by depth and status by status."""
    return (
        select(
            tree.c.depth,
            runs.status,
            func.count().label("found"),
            func.count(runs.total_cost_usd).label("priced"),
            func.sum(runs.total_input_tokens).label("tokens_in"),
            func.sum(runs.total_output_tokens).label("tokens_out"),
            func.sum(runs.total_cost_usd).label("cost"),
        )
        .where(runs.id == tree.c.id)
        .group_by(tree.c.depth, runs.status)
    )


async def _summary(tx: Tx, run_id: str, scope: TenantScope) -> SubtreeSummary:
    counts: dict[str, int] = {}
    depths: dict[int, int] = {}
    tokens_in, tokens_out, priced, cost = 0, 0, 0, Decimal(0)
    async for depth, (rows,) in subtree(tx, run_id, scope, _counted):
        for row in rows:
            counts[row.status] = counts.get(row.status, 0) + row.found
            depths[depth + row.depth] = depths.get(depth + row.depth, 0) + row.found
            tokens_in += int(row.tokens_in)
            tokens_out += int(row.tokens_out)
            priced += row.priced
            cost += Decimal(str(row.cost or 0))
    total = sum(depths.values())
    return SubtreeSummary(
        direct_child_count=depths.get(1, 0),
        descendant_count=max(total - 1, 0),
        max_depth=max(depths, default=0),
        subtree_input_tokens=tokens_in,
        subtree_output_tokens=tokens_out,
        subtree_cost_usd=float(round(cost, 6)) if priced else None,
        unknown_cost_count=total - priced,
        status_counts=counts,
    )


async def cancel_subtree(
    pages: Pages,
    root_run_id: str,
    *,
    limit: int = 100,
    after: str | None = None,
    tenant_id: TenantScope = UNSCOPED,
) -> CancelPage:
    """Cancel a run and everything below it, `limit` runs of it, breadth first by (depth, parent, id).

    Each run in a transaction of its own: a running one is asked to stop, a paused one ends, one that has ended is
    passed. After the last page no run below the root is open without a request, also not one begun meanwhile, unless
    it is below a run in `failed`. A read that fails after runs were reached ends the page there.

    Refuses: RunNotFoundError for a root that is missing or outside the scope; ValueError for a cursor of another call.
    """
    place = None
    if after is not None:
        place = Place(*decoded("after", after, str, int, str, str))
        if place.root != root_run_id:
            raise ValueError("after is a cursor of another root")
    lists: dict[str, list[str]] = {"cancelled": [], "requested": [], "already_terminal": []}
    failed: list[FailedRun] = []
    seen, last = 0, None
    more = False
    try:
        async for node in walk(pages, root_run_id, tenant_id, place, limit + 1):
            if more := seen == limit:
                break
            result = await reached(pages, node)
            if isinstance(result, FailedRun):
                failed.append(result)
            else:
                lists[result].append(node.id)
            seen, last = seen + 1, node
    except PersistenceError:
        # Its errors promise that nothing was written, which is not so any more: the next page meets what lasts.
        if last is None:
            raise
        more = True
    ended = encoded(root_run_id, last.depth, last.parent, last.id) if more and last is not None else None
    return CancelPage(**lists, failed=failed, next_after=ended)


async def child_runs_page(
    tx: Tx, run_id: str, *, limit: int = 100, after: str | None = None, tenant_id: TenantScope = UNSCOPED
) -> list[RunBrief]:
    """A page of a run's children by id, after the child `after`.

    Refuses: RunNotFoundError when a scope is given that the run is not in.
    """
    query = tx.store.child_page_query(
        runs=agent_runs, parents=[RunParentCursor(run_id, after)], tenant_scope=tenant_id, page_size=limit
    )
    if tenant_id is not UNSCOPED:  # a run outside the scope hides what is below it
        own_row = agent_runs.alias("own")
        inside = own_row.c.tenant_id == tenant_id
        query = query.where(exists(select(own_row.c.id).where(own_row.c.id == run_id, inside)))
    found = await tx.rows(query.with_only_columns(*BRIEF, maintain_column_froms=True))
    if tenant_id is not UNSCOPED and not found:
        own = await tx.row(scoped(select(runs.id).where(runs.id == run_id), tenant_id))
        if own is None:
            raise RunNotFoundError(run_id)
    return [brief(row) for row in found if row.id != run_id]


# -- subtrees and usage -----------------------------------------------------------------------------------------------


def _nodes(tree: CTE) -> Select[Any]:
    return records.RUN.add_columns(tree.c.depth).where(runs.id == tree.c.id)


def _usage_by_run(tree: CTE) -> Select[Any]:
    # The outer join makes every database begin with the tree: the calls of all other runs are not looked at.
    outer = tree.outerjoin(llm_interactions, calls.agent_run_id == tree.c.id)
    return select(tree.c.id, *SUMS).select_from(outer).group_by(tree.c.id)


async def get_subtree(tx: Tx, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> SubtreeRecord | None:
    """A run and everything below it, breadth first by (depth, created_at, id), each with its recorded usage.

    The whole tree, in two statements up to 500 levels and two (and one more for the ends) for every 500 more.
    """
    nodes: list[tuple[int, Any]] = []
    used: dict[str, UsageRollup] = {}
    async for depth, (rows, sums) in subtree(tx, run_id, tenant_id, _nodes, _usage_by_run):
        for row in rows:
            fields = dict(row._mapping)
            nodes.append((depth + fields.pop("depth"), records.run_of(fields)))
        used |= {row.id: rollup(row) for row in sums}
    if not nodes:
        return None
    nodes.sort(key=lambda node: (node[0], node[1].created_at, node[1].id))
    nothing = UsageRollup()
    return SubtreeRecord(
        nodes=[SubtreeNodeRecord(run=run, depth=depth, usage=used.get(run.id, nothing)) for depth, run in nodes],
        usage=UsageRollup.combine(used.values()),
    )


async def run_usage(tx: Tx, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> UsageRollup:
    """What a run's recorded model calls add up to now; zero for a missing run, or one outside the scope."""
    own = select(*SUMS).where(calls.agent_run_id == run_id)
    if tenant_id is not UNSCOPED:
        own = scoped(own.where(runs.id == calls.agent_run_id), tenant_id)
    row = await tx.row(own)
    return UsageRollup() if row is None else rollup(row)


def _usage(tree: CTE) -> Select[Any]:
    """One row, also for a tree without a call: the deepest level of its runs, and the sums."""
    outer = tree.outerjoin(llm_interactions, calls.agent_run_id == tree.c.id)
    columns: tuple[Any, ...] = (func.max(tree.c.depth).label("depth"), *SUMS)
    return select(*columns).select_from(outer)


async def subtree_usage(tx: Tx, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> UsageRollup:
    """What the recorded model calls of a run and everything below it add up to now; zero for a missing run."""
    parts: list[UsageRollup] = []
    async for _, (rows,) in subtree(tx, run_id, tenant_id, _usage):
        parts += [rollup(row) for row in rows]
    return UsageRollup.combine(parts)
