"""Broken costs: money, counts, and what a family used."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from dendrux.errors import WriteConflictError
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import tampered


class CentsOnly(BrokenStore):
    breaks = "costs are kept to four places"
    killed_by = "basic.save_llm_interaction.cost_has_six_places"

    async def save_llm_interaction(self, run_id: str, *, usage: Any, **given: Any) -> None:
        cost = None if usage.cost_usd is None else round(Decimal(str(usage.cost_usd)), 4)
        await super().save_llm_interaction(run_id, usage=replace(usage, cost_usd=cost), **given)


class MissingIsZero(BrokenStore):
    breaks = "counts that were not given come back as zero"
    killed_by = "basic.save_llm_interaction.counts_that_were_not_given"

    async def get_llm_interactions(self, run_id: str, **given: Any) -> Any:
        rows = await super().get_llm_interactions(run_id, **given)
        return [replace(row, reasoning_tokens=row.reasoning_tokens or 0) for row in rows]


class IdentityWithoutContent(BrokenStore):
    breaks = "save_llm_interaction takes any content under a known id for a repeat"
    killed_by = "retry_ids.save_llm_interaction.other_content_conflicts"

    async def save_llm_interaction(self, run_id: str, **given: Any) -> None:
        try:
            await super().save_llm_interaction(run_id, **given)
        except WriteConflictError:
            return


class CostComparedBeforeRounding(BrokenStore):
    breaks = "a cost that differs in its seventh place is another content"
    killed_by = "retry_ids.save_usage.cost_is_compared_after_rounding"

    async def save_usage(self, run_id: str, *, usage: Any, usage_id: str | None = None, **given: Any) -> None:
        costs = self.__dict__.setdefault("_costs", {})
        if usage_id is not None and costs.setdefault(usage_id, str(usage.cost_usd)) != str(usage.cost_usd):
            raise WriteConflictError(operation="save_usage", run_id=run_id)
        await super().save_usage(run_id, usage=usage, usage_id=usage_id, **given)


class NoLateBookkeeping(BrokenStore):
    breaks = "usage that comes after the end is refused"
    killed_by = "basic.save_usage.late_bookkeeping"

    async def save_usage(self, run_id: str, **given: Any) -> None:
        run = await self.get_run(run_id)
        if run is not None and run.status == "success":
            raise WriteConflictError(operation="save_usage", run_id=run_id)
        await super().save_usage(run_id, **given)


class InteractionsByAge(BrokenStore):
    breaks = "interactions are read newest iteration first"
    killed_by = "basic.save_llm_interaction.read_by_iteration"

    async def get_llm_interactions(self, run_id: str, **given: Any) -> Any:
        return sorted(await super().get_llm_interactions(run_id, **given), key=lambda row: -row.iteration_index)


class UnsettledInteractions(BrokenStore):
    breaks = "an interaction whose acknowledgement was lost is not settled by its identity"
    killed_by = "crash_recovery.save_llm_interaction.after_commit_invalidated"

    save_llm_interaction = tampered("save_llm_interaction", lost="unknown")


# -- families ---------------------------------------------------------------------------------------------------------


class OwnCallsOnly(BrokenStore):
    breaks = "subtree_usage adds up the calls of the run alone"
    killed_by = "basic.subtree_usage.unpriced_calls"

    async def subtree_usage(self, run_id: str, **given: Any) -> Any:
        return await self.run_usage(run_id, **given)


class FamilyCalls(BrokenStore):
    breaks = "run_usage adds up what the children used, too"
    killed_by = "basic.run_usage.own_calls_only"

    async def run_usage(self, run_id: str, **given: Any) -> Any:
        return await self.subtree_usage(run_id, **given)


# -- sizes -----------------------------------------------------------------------------------------------------------


class SumsOf32Bits(BrokenStore):
    breaks = "the sum of a run's tokens ends at 2^31 - 1"
    killed_by = "basic.run_usage.large_sums"

    async def run_usage(self, run_id: str, **given: Any) -> Any:
        usage = await super().run_usage(run_id, **given)
        return replace(usage, input_tokens=min(usage.input_tokens, 2**31 - 1))


class UsageOfFiveLevels(BrokenStore):
    breaks = "the usage of a family leaves out the runs more than five levels below"
    killed_by = "basic.subtree_usage.deeper_than_ten"

    async def subtree_usage(self, run_id: str, **given: Any) -> Any:
        usage = await super().subtree_usage(run_id, **given)
        tree = await self.get_subtree(run_id, **given)
        deep = sum(node.usage.input_tokens for node in tree.nodes if node.depth > 5) if tree else 0
        return replace(usage, input_tokens=usage.input_tokens - deep)
