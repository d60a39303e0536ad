"""Families that are deep, broken or wide, and the statements that reading and cancelling them takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import update

from dendrux.db.models import agent_runs
from dendrux.runtime.values import UsageRollup, UsageStats
from dendrux.store import SQLStateStore
from unit.store_support import counted

DEEP = 1200


@pytest_asyncio.fixture
async def store(database: Any, tmp_path: Any) -> AsyncIterator[SQLStateStore]:
    async with database.store(tmp_path) as store:
        yield store


async def chain(store: SQLStateStore, length: int) -> list[str]:
    """Runs that each delegated to the next, written below the store."""
    await store.create_run("d0000", "agent")
    born = (await store.get_run("d0000")).created_at
    rows = [
        {
            "id": f"d{level:04}",
            "agent_name": "agent",
            "status": "running",
            "storage_format": 2,
            "claim_epoch": 1,
            "parent_run_id": f"d{level - 1:04}",
            "delegation_level": level,
            "created_at": born,
            "updated_at": born,
            "last_progress_at": born,
        }
        for level in range(1, length)
    ]
    async with store._engine.begin() as connection:
        await connection.execute(agent_runs.insert(), rows)
    return ["d0000", *(row["id"] for row in rows)]


async def test_a_deep_chain_reads_whole(store: SQLStateStore) -> None:
    ids = await chain(store, DEEP)
    await store.save_llm_interaction(ids[-1], iteration_index=0, usage=UsageStats(input_tokens=3, cost_usd=0.5))
    with counted(store._engine) as statements:
        tree = await store.get_subtree(ids[0])
    assert len(statements) == 2 * 3 + 2  # three parts of 500 levels, and the ends of the first two
    assert [node.run.id for node in tree.nodes] == ids
    assert [node.depth for node in tree.nodes] == list(range(DEEP))
    assert tree.usage == tree.nodes[-1].usage == UsageRollup(input_tokens=3, known_cost_usd=0.5, llm_calls=1)
    assert await store.subtree_usage(ids[0]) == tree.usage

    info = await store.get_delegation_info(ids[-1])
    assert [above.run_id for above in info.ancestry] == ids[:-1]
    assert info.ancestry_complete
    summary = (await store.get_delegation_info(ids[0])).subtree_summary
    assert (summary.descendant_count, summary.max_depth) == (DEEP - 1, DEEP - 1)


async def test_a_deep_chain_is_cancelled_to_its_end(store: SQLStateStore) -> None:
    ids = await chain(store, 620)
    asked, after = [], None
    for _ in range(10):
        page = await store.cancel_subtree(ids[0], limit=100, after=after)
        asked, after = asked + page.requested, page.next_after
        assert after is None or len(after) < 100
        if after is None:
            break
    assert asked == ids


async def test_a_tree_of_five_hundred_levels_takes_two_statements(store: SQLStateStore) -> None:
    ids = await chain(store, 500)
    with counted(store._engine) as statements:
        assert len((await store.get_subtree(ids[0])).nodes) == 500
    assert len(statements) == 2
    with counted(store._engine) as statements:
        await store.get_delegation_info(ids[0])
    assert len(statements) == 3


async def test_a_cycle_ends_the_branch(store: SQLStateStore) -> None:
    ids = await chain(store, 3)
    async with store._engine.begin() as connection:
        await connection.execute(update(agent_runs).where(agent_runs.c.id == ids[0]).values(parent_run_id=ids[2]))
    tree = await store.get_subtree(ids[1])
    assert [node.run.id for node in tree.nodes] == [ids[1], ids[2], ids[0]]
    info = await store.get_delegation_info(ids[1])
    assert not info.ancestry_complete
    assert [above.run_id for above in info.ancestry] == [ids[2], ids[0]]
    assert info.subtree_summary.descendant_count == 2
    page = await store.cancel_subtree(ids[1])
    assert page.requested == [ids[1], ids[2], ids[0]]


@pytest.mark.only("sqlite")
async def test_a_parent_that_is_gone_leaves_the_ancestry_incomplete(store: SQLStateStore) -> None:
    ids = await chain(store, 3)
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        other = {"tenant_id": "other"}
        await connection.execute(update(agent_runs).where(agent_runs.c.id == ids[0]).values(**other))
    info = await store.get_delegation_info(ids[2], tenant_id=None)
    assert [above.run_id for above in info.ancestry] == [ids[1]]
    assert not info.ancestry_complete
    parent = (await store.get_delegation_info(ids[1], tenant_id=None)).parent
    assert (parent.run_id, parent.resolved, parent.status) == (ids[0], False, None)


async def test_what_is_outside_the_scope_hides_what_is_below_it(store: SQLStateStore) -> None:
    ids = await chain(store, 4)
    async with store._engine.begin() as connection:
        await connection.execute(update(agent_runs).where(agent_runs.c.id == ids[1]).values(tenant_id="other"))
    assert [node.run.id for node in (await store.get_subtree(ids[0], tenant_id=None)).nodes] == [ids[0]]
    assert len((await store.get_subtree(ids[0])).nodes) == 4
    page = await store.cancel_subtree(ids[0], tenant_id=None)
    assert (page.requested, page.next_after) == ([ids[0]], None)
    assert not (await store.get_run(ids[2])).cancel_requested
    assert await store.child_runs_page(ids[0], tenant_id=None) == []


async def test_a_wide_family_is_cancelled_in_pages(store: SQLStateStore) -> None:
    await store.create_run("r", "agent")
    for n in range(12):
        await store.create_run(f"c{n:02}", "agent", parent_run_id="r", delegation_level=1)
        await store.create_run(f"g{n:02}", "agent", parent_run_id=f"c{n:02}", delegation_level=2)
    whole = ["r", *(f"c{n:02}" for n in range(12)), *(f"g{n:02}" for n in range(12))]
    for limit in (1, 2, 5, 24, 25, 26):
        reached, after, pages = [], None, 0
        while pages == 0 or after is not None:
            page = await store.cancel_subtree("r", limit=limit, after=after)
            assert len(page.requested) <= limit
            reached, after, pages = reached + page.requested, page.next_after, pages + 1
        assert reached == whole
        assert pages == -(-len(whole) // limit)


async def test_a_cursor_belongs_to_its_root(store: SQLStateStore) -> None:
    ids = await chain(store, 3)
    after = (await store.cancel_subtree(ids[0], limit=1)).next_after
    with pytest.raises(ValueError, match="after"):
        await store.cancel_subtree(ids[1], limit=1, after=after)


def test_a_rollup_has_no_cost_while_one_is_unknown() -> None:
    priced = UsageRollup(known_cost_usd=0.1, llm_calls=1)
    unpriced = UsageRollup(unpriced_calls=1, llm_calls=1)
    assert priced.cost_usd == 0.1
    assert UsageRollup.combine([priced, priced, priced]).cost_usd == 0.3
    assert UsageRollup.combine([priced, unpriced]).cost_usd is None
    assert UsageRollup.combine([]) == UsageRollup()
