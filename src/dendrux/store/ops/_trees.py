"""Families as the database follows them: statements that recurse up to the root of a run, or down to its last child.

One statement follows LEVELS levels, because databases bound a recursion; deeper families are read on from there. Every
run has one parent, so a recursion downwards can only meet a run twice through its root, which it therefore leaves out:
a cycle ends the branch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from sqlalchemy import CTE, Select, func, literal, select

from dendrux.db.models import agent_runs, llm_interactions
from dendrux.runtime.values import UsageRollup
from dendrux.store.hooks import Hooks
from dendrux.store.statements import scoped
from dendrux.store.tx import Tx
from dendrux.vocabulary import UNSCOPED, TenantScope

runs = agent_runs.c
calls = llm_interactions.c

LEVELS: Final = 500
"""Levels that one statement follows."""
CHUNK: Final = 500
"""Ids in one list."""


def above(run_id: str, scope: TenantScope) -> CTE:
    """A run (distance 0) and those above it, as (id, parent_run_id, distance)."""
    base = scoped(select(runs.id, runs.parent_run_id, literal(0).label("distance")).where(runs.id == run_id), scope)
    chain: CTE = base.cte("above", recursive=True)
    parent = agent_runs.alias("parent")
    step = select(parent.c.id, parent.c.parent_run_id, chain.c.distance + 1).where(
        parent.c.id == chain.c.parent_run_id, chain.c.distance < LEVELS
    )
    return chain.union_all(step if scope is UNSCOPED else step.where(parent.c.tenant_id == scope))


def below(store: Hooks, starts: Sequence[str], root: str, scope: TenantScope) -> CTE:
    """These runs (depth 0) and everything below them, as (id, depth)."""
    base = scoped(select(runs.id, literal(0).label("depth")).where(runs.id.in_(starts)), scope)
    tree: CTE = base.cte("below", recursive=True)
    child = agent_runs.alias("child")
    step = select(child.c.id, tree.c.depth + 1).where(
        child.c.parent_run_id == tree.c.id, child.c.id != root, tree.c.depth < LEVELS
    )
    step = store.by_parent(step, child)
    return tree.union_all(step if scope is UNSCOPED else step.where(child.c.tenant_id == scope))


async def subtree(
    tx: Tx, root: str, scope: TenantScope, *selects: Callable[[CTE], Select[Any]]
) -> AsyncIterator[tuple[int, list[Sequence[Any]]]]:
    """The rows of each of these statements over a subtree, LEVELS levels at a time, with the depth they begin at.

    The first statement must show the `depth` of its rows, or the greatest: that is how the bottom is noticed.
    """
    starts, depth = [root], 0
    while starts:
        deeper: list[str] = []
        for first in range(0, len(starts), CHUNK):
            tree = below(tx.store, starts[first : first + CHUNK], root, scope)
            # The runs that a later part begins with were the last ones of the part before.
            part = [select_(tree).where(tree.c.depth > (0 if depth else -1)) for select_ in selects]
            found = [await tx.rows(statement) for statement in part]
            yield depth, found
            if any(row.depth == LEVELS for row in found[0]):
                ends = select(tree.c.id).where(tree.c.depth == LEVELS)
                deeper += [row.id for row in await tx.rows(ends)]
        starts, depth = deeper, depth + LEVELS


SUMS: Final = (
    func.sum(calls.input_tokens).label("input_tokens"),
    func.sum(calls.output_tokens).label("output_tokens"),
    func.sum(calls.cache_read_input_tokens).label("cache_read_tokens"),
    func.sum(calls.cache_creation_input_tokens).label("cache_write_tokens"),
    func.sum(calls.reasoning_tokens).label("reasoning_tokens"),
    func.sum(calls.cost_usd).label("known_cost_usd"),
    func.count(calls.cost_usd).label("priced_calls"),
    func.count(calls.id).label("llm_calls"),
)
"""What recorded model calls add up to; a sum over none is NULL."""


def rollup(row: Any) -> UsageRollup:
    """The sums of a row."""
    return UsageRollup(
        input_tokens=int(row.input_tokens or 0),
        output_tokens=int(row.output_tokens or 0),
        cache_read_tokens=int(row.cache_read_tokens or 0),
        cache_write_tokens=int(row.cache_write_tokens or 0),
        reasoning_tokens=int(row.reasoning_tokens or 0),
        known_cost_usd=round(float(row.known_cost_usd or 0), 6),
        unpriced_calls=row.llm_calls - row.priced_calls,
        llm_calls=row.llm_calls,
    )


async def level(
    tx: Tx, root: str, depth: int, scope: TenantScope, *, least: str | None = None, beyond: str | None = None
) -> list[str]:
    """Ids of the runs at a depth below the root in order, from `least` on or beyond an id, at most CHUNK of them."""
    starts = [root]
    while depth > LEVELS:
        starts = await _at(tx, starts, root, LEVELS, scope)
        depth -= LEVELS
    ids = await _at(tx, starts, root, depth, scope, least, beyond, CHUNK)
    return sorted(ids)[:CHUNK] if len(starts) > CHUNK else ids


async def _at(
    tx: Tx,
    starts: Sequence[str],
    root: str,
    depth: int,
    scope: TenantScope,
    least: str | None = None,
    beyond: str | None = None,
    limit: int | None = None,
) -> list[str]:
    found: list[str] = []
    for first in range(0, len(starts), CHUNK):
        tree = below(tx.store, starts[first : first + CHUNK], root, scope)
        statement = select(tree.c.id).where(tree.c.depth == depth)
        if least is not None:
            statement = statement.where(tree.c.id >= least)
        if beyond is not None:
            statement = statement.where(tree.c.id > beyond)
        found += [row.id for row in await tx.rows(statement.order_by(tree.c.id).limit(limit))]
    return found
