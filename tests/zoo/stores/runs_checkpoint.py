"""Broken checkpoints: steps, seeds, and the conversation that they leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.db.models import agent_runs
from dendrux.errors import WriteConflictError
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import commits_before, tampered, with_assignment, without_assignment

runs = agent_runs.c


class StepBeforeItsRows(BrokenStore):
    breaks = "the count and the loop state of a step are committed before its messages"
    killed_by = "checkpointing.checkpoint_step.cut_at_statement_4"

    checkpoint_step = tampered("checkpoint_step", commits_before("result", turn=3))


class ForgetsTheLastStep(BrokenStore):
    breaks = "a run does not keep the id of its last step, so a repeat meets its own rows"
    killed_by = "checkpointing.checkpoint_step.last_step_can_be_repeated"

    checkpoint_step = tampered("checkpoint_step", without_assignment("last_step_id"))


class StateReplaced(BrokenStore):
    breaks = "a step's state replaces the one before instead of being merged into it"
    killed_by = "checkpointing.checkpoint_step.merges_the_loop_state"

    async def checkpoint_step(self, run_id: str, *, loop_state: Any = None, **given: Any) -> None:
        old = await self.get_loop_state(run_id)
        if loop_state:
            loop_state = {**dict.fromkeys(old or {}), **loop_state}
        await super().checkpoint_step(run_id, loop_state=loop_state, **given)


class StateWithoutBound(BrokenStore):
    breaks = "only what a step adds to the loop state is bounded"
    killed_by = "checkpointing.checkpoint_step.state_is_bounded"

    async def checkpoint_step(self, run_id: str, *, loop_state: Any = None, **given: Any) -> None:
        try:
            await super().checkpoint_step(run_id, loop_state=loop_state, **given)
        except ValueError:
            await super().checkpoint_step(run_id, loop_state={}, **given)


class StepKeepsTheClock(BrokenStore):
    breaks = "a step does not renew the lease of its owner"
    killed_by = "checkpointing.checkpoint_step.renews_the_lease"

    checkpoint_step = tampered("checkpoint_step", without_assignment("last_progress_at", "lease_expired_at"))


class StepGoesBack(BrokenStore):
    breaks = "a step with a lower count than the last one is stored"
    killed_by = "concurrency.checkpoint_step.two_steps_at_once"

    async def checkpoint_step(self, run_id: str, *, iteration_count: int, **given: Any) -> None:
        run = await self.get_run(run_id)
        least = run.iteration_count if run is not None else 0
        await super().checkpoint_step(run_id, iteration_count=max(iteration_count, least), **given)


class StepOfItsOwnerOnly(BrokenStore):
    breaks = "the next owner cannot repeat the last step of the one before"
    killed_by = "checkpointing.checkpoint_step.next_owner_repeats_the_last_step"

    async def checkpoint_step(self, run_id: str, *, step_id: str, claim_epoch: int, **given: Any) -> None:
        own = f"{step_id}-{claim_epoch}"[-64:]
        await super().checkpoint_step(run_id, step_id=own, claim_epoch=claim_epoch, **given)


class LatestStepWins(BrokenStore):
    breaks = "of two steps at once, the one that was refused is answered as stored"
    killed_by = "checkpointing.checkpoint_step.taken_ids_and_positions_conflict"

    async def checkpoint_step(self, run_id: str, **given: Any) -> None:
        try:
            await super().checkpoint_step(run_id, **given)
        except WriteConflictError:
            await super().checkpoint_step(run_id, **{**given, "traces": (), "interaction": None, "usage": None})


class StepUndoesThePause(BrokenStore):
    breaks = "a step writes back the status that it read in an earlier transaction"
    killed_by = "concurrency.checkpoint_step.step_and_pause"

    async def checkpoint_step(self, run_id: str, **given: Any) -> None:
        run = await self.get_run(run_id)
        await super().checkpoint_step(run_id, **given)
        if run is not None:
            await self.run_sql("UPDATE agent_runs SET status = :status WHERE id = :run", status=run.status, run=run_id)


class SeedsBackwards(BrokenStore):
    breaks = "what a run starts with is stored in the wrong order"
    killed_by = "checkpointing.create_run.seeds_are_the_first_messages"

    async def create_run(self, run_id: str, agent_name: str, *, seed_traces: Any = (), **given: Any) -> Any:
        return await super().create_run(run_id, agent_name, seed_traces=tuple(reversed(seed_traces)), **given)


class SeedsAreNoContent(BrokenStore):
    breaks = "a repeat of create_run with other seeds is the same request"
    killed_by = "checkpointing.create_run.seeds_are_stored_once"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except WriteConflictError:
            kept = await self.get_traces(run_id)
            seeds = tuple(
                replace(given["seed_traces"][0], role=row.role, content=row.content, meta=row.meta)
                for row in kept
                if row.trace_kind == "seed" and given.get("seed_traces")
            )
            return await super().create_run(run_id, agent_name, **{**given, "seed_traces": seeds})


class EverythingIsTheConversation(BrokenStore):
    breaks = "a rewrite does not stand for what was before it"
    killed_by = "checkpointing.conversation_traces.last_rewrite_stands_for_all_before"

    async def conversation_traces(self, run_id: str, *, after_order_index: int | None = None, **given: Any) -> Any:
        page = await super().conversation_traces(run_id, after_order_index=after_order_index, **given)
        after = -1 if after_order_index is None else after_order_index
        return replace(page, traces=await self.get_traces_after(run_id, order_index=after, limit=given["limit"]))


class PagesWithoutAnEnd(BrokenStore):
    breaks = "the last page of a conversation names another one"
    killed_by = "checkpointing.conversation_traces.pages_meet"

    async def conversation_traces(self, run_id: str, **given: Any) -> Any:
        page = await super().conversation_traces(run_id, **given)
        return replace(page, next_after=page.traces[-1].order_index) if page.traces else page


class PagesOfAnySize(BrokenStore):
    breaks = "a page of a conversation counts characters where it should count bytes"
    killed_by = "checkpointing.conversation_traces.pages_are_bounded_in_bytes"

    async def conversation_traces(self, run_id: str, *, max_bytes: int | None = None, **given: Any) -> Any:
        return await super().conversation_traces(run_id, max_bytes=max_bytes and 4 * max_bytes, **given)


class AfterMeansFrom(BrokenStore):
    breaks = "get_traces_after begins with the message it should begin after"
    killed_by = "checkpointing.get_traces_after.goes_on_after_an_index"

    async def get_traces_after(self, run_id: str, *, order_index: int, limit: int) -> Any:
        return await super().get_traces_after(run_id, order_index=max(order_index - 1, 0), limit=limit)


class CountStays(BrokenStore):
    breaks = "a step without a state does not move the count"
    killed_by = "checkpointing.checkpoint_step.rows_are_those_of_their_own_operations"

    checkpoint_step = tampered("checkpoint_step", with_assignment(runs.iteration_count, runs.iteration_count))


class HundredCallsOfASubmission(BrokenStore):
    breaks = "of the tool calls that come with a submission a hundred are stored"
    killed_by = "checkpointing.consume_submission.more_than_a_hundred"

    async def consume_submission(self, run_id: str, *, tool_calls: Any = (), **given: Any) -> Any:
        some = tool_calls[:100] if isinstance(tool_calls, (list, tuple)) else tool_calls
        return await super().consume_submission(run_id, tool_calls=some, **given)
