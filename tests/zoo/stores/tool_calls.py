"""Broken tool calls: intent, result, observation and event, together or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.errors import ToolCallNotStartedError, WriteConflictError
from dendrux.runtime.values import ToolCallStart
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import any_epoch, commits_before, tampered


class IntentBeforeItsEvent(BrokenStore):
    breaks = "the intent of a tool call is committed before its event"
    killed_by = "atomic_completion.start_tool_call.cut_after_commit"

    start_tool_call = tampered("start_tool_call", commits_before("added"))


class AttemptBeforeItsEvent(BrokenStore):
    breaks = "the next attempt of a tool call is committed before its event"
    killed_by = "atomic_completion.start_tool_call.replay.cut_after_commit"

    async def start_tool_call(self, run_id: str, **given: Any) -> Any:
        held = [call for call in await self.get_tool_calls(run_id) if not call.completed]
        chosen = self.apart if held else super().start_tool_call
        return await chosen(run_id, **given)

    async def apart(self, run_id: str, **given: Any) -> Any:
        return await tampered("start_tool_call", commits_before("added")).method(self, run_id, **given)


class ResultBeforeTheRest(BrokenStore):
    breaks = "the result of a tool call is committed before its observation and its event"
    killed_by = "atomic_completion.complete_tool_call.cut_before_statement_4"

    complete_tool_call = tampered("complete_tool_call", commits_before("added"))


class ObservationBeforeItsEvent(BrokenStore):
    breaks = "the result of a tool call and its observation are committed before the event"
    killed_by = "atomic_completion.complete_tool_call.cut_after_commit"

    complete_tool_call = tampered("complete_tool_call", commits_before("added", turn=2))


class ReplayIsARetry(BrokenStore):
    breaks = "the next owner of an open tool call is told that this is its first attempt"
    killed_by = "atomic_completion.start_tool_call.handed_out_again_to_the_next_owner"

    async def start_tool_call(self, run_id: str, **given: Any) -> Any:
        return replace(await super().start_tool_call(run_id, **given), attempt=1, replayed=False)


class CompletedIsHandedOut(BrokenStore):
    breaks = "a completed tool call is handed out once more"
    killed_by = "atomic_completion.start_tool_call.completed_calls_are_not_handed_out"

    async def start_tool_call(self, run_id: str, **given: Any) -> Any:
        return replace(await super().start_tool_call(run_id, **given), completed=None)


class StartsForStrangers(BrokenStore):
    breaks = "start_tool_call hands out work to whoever comes with an epoch"
    killed_by = "atomic_completion.start_tool_call.only_by_the_owner_of_a_running_run"

    start_tool_call = tampered("start_tool_call", any_epoch)


class StartsUnderAnotherRow(BrokenStore):
    breaks = "a tool call that is open under another row is taken for this one"
    killed_by = "atomic_completion.start_tool_call.one_call_one_row"

    async def start_tool_call(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().start_tool_call(run_id, **given)
        except WriteConflictError:
            return ToolCallStart(attempt=1, replayed=False)


class CompletesForFormerOwners(BrokenStore):
    breaks = "a call that an earlier owner started is completed without being handed out again"
    killed_by = "atomic_completion.complete_tool_call.only_by_the_attempt_that_runs"

    async def complete_tool_call(self, run_id: str, *, row_id: str, claim_epoch: int, **given: Any) -> Any:
        await self.run_sql(
            "UPDATE tool_calls SET started_epoch = :epoch WHERE id = :row AND completed_at IS NULL",
            epoch=claim_epoch,
            row=row_id,
        )
        return await super().complete_tool_call(run_id, row_id=row_id, claim_epoch=claim_epoch, **given)


class CompletesWithoutIntent(BrokenStore):
    breaks = "completing a call that nobody started is a conflict like any other"
    killed_by = "atomic_completion.complete_tool_call.needs_an_intent"

    async def complete_tool_call(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().complete_tool_call(run_id, **given)
        except ToolCallNotStartedError:
            raise WriteConflictError(operation="complete_tool_call", run_id=run_id) from None


class SecondResultWins(BrokenStore):
    breaks = "another result of a completed call is answered as if it had been stored"
    killed_by = "atomic_completion.complete_tool_call.first_result_stays"

    async def complete_tool_call(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().complete_tool_call(run_id, **given)
        except WriteConflictError:
            return len(await self.get_run_events(run_id)) - 1


class CompletionKeepsTheMapping(BrokenStore):
    breaks = "complete_tool_call forgets the mapping it is given"
    killed_by = "atomic_completion.complete_tool_call.everything_together"

    async def complete_tool_call(self, run_id: str, *, pii_mapping: Any = None, **given: Any) -> Any:
        return await super().complete_tool_call(run_id, **given)


class ReplaysUnlisted(BrokenStore):
    breaks = "the second attempt of a tool call is not listed as a replay"
    killed_by = "recovery.get_replayed_tool_calls.after_a_reclaim"

    async def get_replayed_tool_calls(self, run_id: str, **given: Any) -> Any:
        page = await super().get_replayed_tool_calls(run_id, **given)
        return replace(page, calls=[call for call in page.calls if call.attempt > 2])


class ReplaysUntruncated(BrokenStore):
    breaks = "a list of replayed calls that ends at its limit says that it is whole"
    killed_by = "recovery.get_replayed_tool_calls.bounded"

    async def get_replayed_tool_calls(self, run_id: str, **given: Any) -> Any:
        return replace(await super().get_replayed_tool_calls(run_id, **given), truncated=False)


class ReplaysByName(BrokenStore):
    breaks = "replayed calls are listed by their ids"
    killed_by = "recovery.get_replayed_tool_calls.in_order"

    async def get_replayed_tool_calls(self, run_id: str, **given: Any) -> Any:
        page = await super().get_replayed_tool_calls(run_id, **given)
        return replace(page, calls=sorted(page.calls, key=lambda call: str(call.tool_call_id)))


class ToolCallsByName(BrokenStore):
    breaks = "tool calls are read by their ids, not in the order they came"
    killed_by = "basic.save_tool_call.read_in_the_order_they_came"

    async def get_tool_calls(self, run_id: str, **given: Any) -> Any:
        return sorted(await super().get_tool_calls(run_id, **given), key=lambda call: str(call.tool_call_id))


class OneCallTwoRows(BrokenStore):
    breaks = "two rows may hold one tool call"
    killed_by = "retry_ids.save_tool_call.one_row_per_tool_call"

    async def save_tool_call(self, run_id: str, **given: Any) -> None:
        try:
            await super().save_tool_call(run_id, **given)
        except WriteConflictError:
            await self.run_sql("UPDATE tool_calls SET position_key = NULL WHERE agent_run_id = :run", run=run_id)
            await super().save_tool_call(run_id, **given)


class ResultsComparedAsText(BrokenStore):
    breaks = "a result is compared as the text it came in"
    killed_by = "retry_ids.save_tool_call.result_is_compared_as_a_value"

    async def save_tool_call(self, run_id: str, *, result_payload: str, row_id: str | None = None, **given: Any) -> Any:
        texts = self.__dict__.setdefault("_texts", {})
        if row_id is not None and texts.setdefault(row_id, result_payload) != result_payload:
            raise WriteConflictError(operation="save_tool_call", run_id=run_id)
        return await super().save_tool_call(run_id, result_payload=result_payload, row_id=row_id, **given)


class CompletionUnsettled(BrokenStore):
    breaks = "a completion whose acknowledgement was lost is not settled by its identity"
    killed_by = "crash_recovery.complete_tool_call.after_commit_invalidated"

    complete_tool_call = tampered("complete_tool_call", lost="unknown")


# -- sizes -----------------------------------------------------------------------------------------------------------


class TwentyReplays(BrokenStore):
    breaks = "a list of replayed calls ends after twenty and says that it is whole"
    killed_by = "recovery.get_replayed_tool_calls.more_than_a_hundred"

    async def get_replayed_tool_calls(self, run_id: str, **given: Any) -> Any:
        page = await super().get_replayed_tool_calls(run_id, **given)
        return replace(page, calls=page.calls[:20])


class ThreeAttempts(BrokenStore):
    breaks = "an attempt after the third is said to be the third"
    killed_by = "atomic_completion.start_tool_call.more_than_ten_attempts"

    async def start_tool_call(self, run_id: str, **given: Any) -> Any:
        start = await super().start_tool_call(run_id, **given)
        return replace(start, attempt=min(start.attempt, 3))
