"""Broken families: trees, walls inside them, and cancelling all of one."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, ClassVar

from zoo.stores.base import BrokenStore


class ShallowTrees(BrokenStore):
    breaks = "a tree ends at the children of its root"
    killed_by = "basic.get_subtree.breadth_first_with_usage"

    async def get_subtree(self, run_id: str, **given: Any) -> Any:
        tree = await super().get_subtree(run_id, **given)
        return tree and replace(tree, nodes=[node for node in tree.nodes if node.depth < 2])


class FamiliesWithoutWalls(BrokenStore):
    breaks = "get_delegation_info does not look at the tenant"
    killed_by = "basic.get_delegation_info.other_tenants_are_hidden"

    async def get_delegation_info(self, run_id: str, **given: Any) -> Any:
        return await super().get_delegation_info(run_id)


class ParentsUnresolved(BrokenStore):
    breaks = "an ancestry begins with the parent instead of the root"
    killed_by = "basic.get_delegation_info.place_in_the_family"

    async def get_delegation_info(self, run_id: str, **given: Any) -> Any:
        info = await super().get_delegation_info(run_id, **given)
        return info and replace(info, ancestry=list(reversed(info.ancestry)))


class SummaryOfChildren(BrokenStore):
    breaks = "the summary of a family counts its children and nobody below them"
    killed_by = "basic.get_delegation_info.summary"

    async def get_delegation_info(self, run_id: str, **given: Any) -> Any:
        info = await super().get_delegation_info(run_id, **given)
        if info is None:
            return None
        summary = info.subtree_summary
        return replace(info, subtree_summary=replace(summary, descendant_count=summary.direct_child_count))


class ChildrenFromTheCursor(BrokenStore):
    breaks = "a page of children begins with the child it should begin after"
    killed_by = "basic.child_runs_page.pages_by_id"

    async def child_runs_page(self, run_id: str, *, after: str | None = None, **given: Any) -> Any:
        page = await super().child_runs_page(run_id, after=after, **given)
        last = None if after is None else await self.get_run(after)
        if last is None or not page:
            return page
        first = replace(page[0], run_id=last.id, status=last.status, agent_name=last.agent_name)
        return [first, *page][: given.get("limit", 100)]


class TreesOfForeigners(BrokenStore):
    breaks = "get_subtree compares the tenant of the root without regard to case"
    killed_by = "basic.get_subtree.tenants_are_equal_as_written"

    async def get_subtree(self, run_id: str, **given: Any) -> Any:
        run = await self.get_run(run_id)
        wanted = given.get("tenant_id")
        if isinstance(wanted, str) and run is not None and (run.tenant_id or "").casefold() == wanted.casefold():
            given["tenant_id"] = run.tenant_id
        return await super().get_subtree(run_id, **given)


# -- cancelling -------------------------------------------------------------------------------------------------------


class CancelsTheRootOnly(BrokenStore):
    breaks = "cancel_subtree does not look below a run that has ended"
    killed_by = "recovery.cancel_subtree.whole_family"

    def child_page_query(self, *, runs: Any, parents: Any, **given: Any) -> Any:
        query = super().child_page_query(runs=runs, parents=parents, **given)
        above = runs.alias("above")
        return query.where(
            runs.c.parent_run_id.in_(
                above.select().with_only_columns(above.c.id).where(above.c.status.in_(["running", "paused"]))
            )
        )


class CursorsInMemory(BrokenStore):
    breaks = "where a cancellation goes on is kept in the memory of one instance"
    killed_by = "recovery.cancel_subtree.cursor_survives_a_restart"

    places: ClassVar[int] = 0

    async def cancel_subtree(self, root_run_id: str, *, after: str | None = None, **given: Any) -> Any:
        known = self.__dict__.setdefault("_cursors", {})
        if after is not None and after not in known:
            raise ValueError("after is no cursor that this operation gave")
        page = await super().cancel_subtree(root_run_id, after=after, **given)
        known[page.next_after] = True
        return page


class CursorsOfAnybody(BrokenStore):
    breaks = "a cursor that no call gave begins at the root"
    killed_by = "recovery.cancel_subtree.foreign_cursors"

    async def cancel_subtree(self, root_run_id: str, *, after: str | None = None, **given: Any) -> Any:
        try:
            return await super().cancel_subtree(root_run_id, after=after, **given)
        except ValueError:
            return await super().cancel_subtree(root_run_id, **given)


class LastPageIsNotKnown(BrokenStore):
    breaks = "the last page of a cancellation that is full names another one"
    killed_by = "recovery.cancel_subtree.in_pages"

    async def cancel_subtree(self, root_run_id: str, *, limit: int = 100, **given: Any) -> Any:
        page = await super().cancel_subtree(root_run_id, limit=limit, **given)
        last = page.next_after or given.get("after")
        return replace(page, next_after=last)


class AskedOnce(BrokenStore):
    breaks = "a run that was asked to cancel before is not named again"
    killed_by = "recovery.cancel_subtree.repeated"

    async def cancel_subtree(self, root_run_id: str, **given: Any) -> Any:
        tree = await self.get_subtree(root_run_id)
        asked = {node.run.id for node in tree.nodes if node.run.cancel_requested} if tree else set()
        page = await super().cancel_subtree(root_run_id, **given)
        return replace(page, requested=[run for run in page.requested if run not in asked])


class CancelFailsAsAWhole(BrokenStore):
    breaks = "a cancellation says nothing of the run it failed at"
    killed_by = "crash_recovery.cancel_subtree.one_run_of_a_page_fails"

    async def cancel_subtree(self, root_run_id: str, **given: Any) -> Any:
        return replace(await super().cancel_subtree(root_run_id, **given), failed=[])


# -- sizes -----------------------------------------------------------------------------------------------------------


class ShortChildren(BrokenStore):
    breaks = "no page of children has more than a hundred"
    killed_by = "basic.child_runs_page.more_than_a_hundred"

    async def child_runs_page(self, run_id: str, *, limit: int = 100, **given: Any) -> Any:
        return await super().child_runs_page(run_id, limit=min(limit, 100) if 0 < limit <= 1000 else limit, **given)


class FiftyAreCancelled(BrokenStore):
    breaks = "a cancellation ends after fifty runs and says that nothing is left"
    killed_by = "recovery.cancel_subtree.more_than_a_hundred"

    async def cancel_subtree(self, root_run_id: str, *, limit: int = 100, **given: Any) -> Any:
        if not 50 < limit <= 1000:
            return await super().cancel_subtree(root_run_id, limit=limit, **given)
        return replace(await super().cancel_subtree(root_run_id, limit=50, **given), next_after=None)


class DeepRunsUntold(BrokenStore):
    breaks = "a cancellation does not tell of runs more than ten levels below"
    killed_by = "recovery.cancel_subtree.deeper_than_ten"

    async def cancel_subtree(self, root_run_id: str, **given: Any) -> Any:
        page = await super().cancel_subtree(root_run_id, **given)
        tree = await self.get_subtree(root_run_id)
        deep = {node.run.id for node in tree.nodes if node.depth > 10} if tree else set()
        return replace(page, requested=[run for run in page.requested if run not in deep])


class TreesOfTenLevels(BrokenStore):
    breaks = "a tree ends at the tenth level"
    killed_by = "basic.get_subtree.deeper_than_ten"

    async def get_subtree(self, run_id: str, **given: Any) -> Any:
        tree = await super().get_subtree(run_id, **given)
        return tree and replace(tree, nodes=[node for node in tree.nodes if node.depth <= 10])


class EightAncestors(BrokenStore):
    breaks = "an ancestry has the eight runs above and nobody higher"
    killed_by = "basic.get_delegation_info.deeper_than_ten"

    async def get_delegation_info(self, run_id: str, **given: Any) -> Any:
        info = await super().get_delegation_info(run_id, **given)
        return info and replace(info, ancestry=info.ancestry[-8:])


class TotalsOf32Bits(BrokenStore):
    breaks = "the cost of a family is a float of 32 bits"
    killed_by = "basic.get_delegation_info.large_totals"

    async def get_delegation_info(self, run_id: str, **given: Any) -> Any:
        info = await super().get_delegation_info(run_id, **given)
        if info is None or not info.subtree_summary.subtree_cost_usd:
            return info
        (cost,) = struct.unpack("f", struct.pack("f", info.subtree_summary.subtree_cost_usd))
        return replace(info, subtree_summary=replace(info.subtree_summary, subtree_cost_usd=cost))
