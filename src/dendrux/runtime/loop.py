"""The loop of an agent: ask the model, run what it calls, look at what was asked of the run, and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dendrux.errors import ModelError, PersistenceError, RunAlreadyTerminalError, StaleClaimError
from dendrux.llm.protocol import LLMProvider, LLMResponse, Message, TextDelta, ToolCall
from dendrux.runtime.batch import Batch
from dendrux.runtime.context import Delegation, store_identity
from dendrux.runtime.conversation import COMMENTARY, FINAL_ANSWER, Turn, as_trace, stored_calls
from dendrux.runtime.limits import Budget, Limits, added, rollup
from dendrux.runtime.pauses import Pause
from dendrux.runtime.pending import PendingCall
from dendrux.runtime.recorder import Recorder
from dendrux.runtime.results import RunEvent, RunEventType, RunResult, Step, truncated
from dendrux.runtime.tools import Tool, storable
from dendrux.runtime.validation import size_of
from dendrux.runtime.values import JsonObject, LLMInteractionWrite, UsageRollup
from dendrux.runtime.work import StoredAnswer, Work, log_step
from dendrux.store.ids import derived_id, new_id
from dendrux.vocabulary import META_PAUSE_REQUEST, NAME_LENGTH, PAUSED, TERMINAL_STATUSES

RUN_COMPLETED: Final = "run.completed"
LLM_STARTED: Final = "llm.started"
INBOX_DELIVERED: Final = "inbox.delivered"
NOTE_PREFIX: Final = "NOTE FROM USER:\n"
ERROR_MAX: Final = 500
"""Characters of an error that the log and the row keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What an agent is: the same for all of its runs."""

    name: str
    prompt: str
    tools: dict[str, Tool]
    provider: LLMProvider
    max_iterations: int
    limits: Limits
    require_approval: frozenset[str]
    budget: Budget | None


class ReActLoop:
    """Works on one run under one claim until it ends or waits."""

    def __init__(
        self,
        agent: Behaviour,
        work: Work,
        recorder: Recorder,
        *,
        emit: Callable[[RunEvent], None],
        streaming: bool = False,
    ) -> None:
        self.agent = agent
        self.work = work
        self.recorder = recorder
        self.emit = emit
        self.streaming = streaming
        self.said = ""
        """What a stream was told so far of the text of the turn that is asked for."""

    async def run(self) -> RunResult:
        """Turn after turn. Raises StaleClaimError or RunAlreadyTerminalError when the run is not ours any more."""
        while True:
            turn = self.work.conversation.turn
            if turn is not None and self.work.conversation.outstanding():
                pause = await self._batch().run(turn)
                if pause is not None:
                    return await self._paused(pause)
            if self.work.final is not None:
                return await self._answered(self.work.final)
            stopped = await self._between()
            if stopped is not None:
                return stopped
            if self.work.iteration >= self.agent.max_iterations:
                return await self.ended("max_iterations", event={"status": "max_iterations"})
            refused = await self._turn()
            if refused is not None:
                return await self.failed(refused)

    def _batch(self) -> Batch:
        return Batch(
            tools=self.agent.tools,
            require_approval=self.agent.require_approval,
            result_max=self.agent.limits.max_tool_result_bytes,
            parallel_max=self.agent.limits.max_parallel_tools,
            delegation=Delegation(
                run_id=self.work.run_id,
                level=self.work.level,
                tenant_id=self.work.tenant_id,
                store_identity=store_identity(self.recorder.store),
                claim_epoch=self.recorder.run.claim_epoch if self.recorder.capabilities.fenced_writes else None,
                max_depth=self.work.max_depth,
            ),
            emit=self.emit,
            work=self.work,
            recorder=self.recorder,
        )

    # -- between two turns --------------------------------------------------------------------------------------------

    async def _between(self) -> RunResult | None:
        """What was asked of the run, in this order: to cancel, to pause, to stay within a budget, to hear notes."""
        control = await self.recorder.control()
        if control.cancel_requested:
            return await self.cancelled("cancel_requested")
        if control.pause_requested:
            run = await self.recorder.store.get_run(self.work.run_id)
            asked = ((run.meta if run is not None else None) or {}).get(META_PAUSE_REQUEST) or {}
            pause = Pause(status=PAUSED, pause_id=new_id(), reason="requested", message=asked.get("reason"))
            return await self._paused(pause)
        if self.agent.budget is not None and self.work.iteration > 0:
            stopped = await self._budget(self.agent.budget)
            if stopped is not None:
                return stopped
        if control.has_pending_notes:
            await self._notes()
        return None

    async def _budget(self, budget: Budget) -> RunResult | None:
        """Act on a maximum that is reached."""
        exceeded = budget.exceeded(await self._used(budget))
        if exceeded is None or budget.on_exceed == "warn":
            return None
        if budget.on_exceed == "pause":
            return await self._paused(Pause(status=PAUSED, pause_id=new_id(), reason="budget", exceeded=exceeded))
        return await self.cancelled("budget_exceeded", failure_reason="budget_exceeded", exceeded=exceeded)

    async def _used(self, budget: Budget) -> UsageRollup:
        """What the run has used: with its children, as the store sums it up."""
        if budget.include_children:
            found: UsageRollup = await self.recorder.store.subtree_usage(self.work.run_id)
            return found
        return rollup(self.work.usage, self.work.iteration)

    async def _notes(self) -> None:
        """Put waiting notes into the conversation, then mark them. A note that is in it is not put there again."""
        limit = min(1000, self.agent.limits.max_pending_notes)
        notes = await self.recorder.store.get_notes(self.work.run_id, undelivered_only=True, limit=limit)
        iteration = self.work.iteration + 1
        conversation = self.work.conversation
        for note in notes:
            if note.id not in conversation.notes:
                meta = {"iteration": iteration, "note_id": note.id, "source": "run_inbox"}
                message = Message(role="user", content=NOTE_PREFIX + note.text, meta=meta)
                place = conversation.next_order
                await self.recorder.trace(message, place, derived_id(self.work.run_id, note.id, "note"))
                conversation.add(message, place)
        await self.recorder.notes_delivered([note.id for note in notes], iteration)
        for note in notes:
            await self.recorder.event(
                INBOX_DELIVERED,
                event_id=derived_id(self.work.run_id, note.id, INBOX_DELIVERED),
                iteration=iteration,
                correlation_id=note.id,
                data={"note_id": note.id},
            )

    # -- a turn -------------------------------------------------------------------------------------------------------

    async def _turn(self) -> str | None:
        """Ask the model once and store what it answered as one step. Answers why, when it gave no answer."""
        iteration = self.work.iteration + 1
        model = self.work.model or self.agent.provider.model
        await self.recorder.event(
            LLM_STARTED,
            event_id=derived_id(self.work.run_id, self.recorder.run.claim_epoch, iteration, LLM_STARTED),
            iteration=iteration,
            data={"model": model},
        )
        began = time.monotonic()
        response = self._checked(await self._ask(iteration))
        calls = tuple(replace(call, id=new_id()) for call in response.tool_calls)
        interaction = LLMInteractionWrite(
            iteration_index=iteration,
            usage=response.usage,
            model=response.model or model,
            provider=self.agent.provider.vendor,
            duration_ms=round((time.monotonic() - began) * 1000),
            semantic_request={
                "messages": len(self.work.conversation.messages) + 1,
                "tools": sorted(self.agent.tools),
            },
            semantic_response={
                "text": response.text,
                "tool_calls": stored_calls(calls),
                "stop_reason": response.stop_reason,
                "error": response.error,
            },
            provider_response=response.provider_response,
            interaction_id=new_id(),
        )
        await self._store(response, calls, interaction)
        return response.error

    async def _ask(self, iteration: int) -> LLMResponse:
        """One response. Only a stream is told of its pieces."""
        work, provider = self.work, self.agent.provider
        messages = [Message(role="system", content=self.agent.prompt), *work.conversation.messages]
        asked: dict[str, Any] = {
            "tools": [tool.definition() for tool in self.agent.tools.values()],
            "model": work.model,
            **work.options,
        }
        if not self.streaming:
            return await provider.complete(messages, **asked)
        self.said = ""
        async for item in provider.complete_stream(messages, **asked):
            if isinstance(item, LLMResponse):
                return item
            if isinstance(item, TextDelta):
                self.said += item.text
                told = RunEvent(type=RunEventType.TEXT_DELTA, run_id=work.run_id, iteration=iteration, text=item.text)
                self.emit(told)
        raise ModelError("the provider's stream ended without a response")

    def _checked(self, response: LLMResponse) -> LLMResponse:
        """A response that can be stored. Refuses: ModelError for one over the limits, or that is no JSON."""
        limits = self.agent.limits
        if len(response.tool_calls) > limits.max_tool_calls_per_turn:
            raise ModelError(
                f"the model asked for {len(response.tool_calls)} calls at once, and at most "
                f"{limits.max_tool_calls_per_turn} are allowed"
            )
        for call in response.tool_calls:
            if not 0 < len(call.name) <= NAME_LENGTH:
                raise ModelError(f"the model called a tool by a name of {len(call.name)} characters")
        said = [response.text, response.stop_reason, response.error, stored_calls(response.tool_calls)]
        try:
            size = size_of(said, "the model's response")
        except ValueError as wrong:
            raise ModelError(str(wrong)) from None
        if size > limits.max_response_bytes:
            raise ModelError(
                f"the model's response has {size} bytes, and at most {limits.max_response_bytes} are allowed"
            )
        return replace(response, provider_response=self._kept(response.provider_response))

    def _kept(self, answer: JsonObject | None) -> JsonObject | None:
        """The vendor's answer, for the record; None when it is too large or cannot be stored."""
        try:
            fits = size_of(answer, "the vendor's answer") <= self.agent.limits.max_response_bytes
        except ValueError:
            return None
        return answer if fits else None

    async def _store(self, response: LLMResponse, calls: tuple[ToolCall, ...], row: LLMInteractionWrite) -> None:
        """One step: message, interaction, usage, count, totals and loop state; then what the log says of it."""
        work, iteration, step_id = self.work, row.iteration_index, new_id()
        total = added(work.usage, response.usage, first=work.iteration == 0)
        marks = await self._marks(row, iteration)
        final = not calls and response.error is None
        state: JsonObject = {
            "iteration": iteration,
            "step_id": step_id,
            "interaction_id": row.interaction_id,
            "llm": _completed(row, COMMENTARY if calls else FINAL_ANSWER, response.stop_reason),
            "final": True if final else None,
            "stop_reason": response.stop_reason,
            "marks": [*work.marks, *marks] or None,
        }
        turn = None
        if calls:
            said = Message(
                role="assistant",
                content=response.text,
                tool_calls=calls,
                meta={"iteration": iteration, "phase": COMMENTARY},
            )
            turn = Turn(said, derived_id(step_id, "message"), work.conversation.next_order, iteration)
        message = None if turn is None else as_trace(turn.message, turn.order_index, "message", turn.trace_id)
        await self.recorder.step(
            step_id=step_id, iteration=iteration, message=message, interaction=row, total=total, loop_state=state
        )
        work.iteration, work.usage, work.stop_reason = iteration, total, response.stop_reason
        work.marks += marks
        work.steps.append(Step(iteration=iteration, text=response.text, tool_calls=calls))
        if turn is not None:
            work.conversation.begin(turn)
            self.said = ""
        if final:
            work.final = StoredAnswer(text=response.text, step_id=step_id)
        await log_step(self.recorder, {**state, "marks": marks})

    async def _marks(self, row: LLMInteractionWrite, iteration: int) -> list[JsonObject]:
        """The marks of the budget that this response reaches, each once in a run's life."""
        if self.agent.budget is None:
            return []
        used = UsageRollup.combine([await self._used(self.agent.budget), rollup(row.usage)])
        told = {(mark["metric"], mark["fraction"]) for mark in self.work.marks}
        crossed = self.agent.budget.crossed(used)
        return [{**mark, "iteration": iteration} for mark in crossed if (mark["metric"], mark["fraction"]) not in told]

    # -- letting go ---------------------------------------------------------------------------------------------------

    async def _answered(self, final: StoredAnswer) -> RunResult:
        """The last message and the end of the run, together."""
        meta = {"iteration": self.work.iteration, "phase": FINAL_ANSWER}
        said = Message(role="assistant", content=final.text, meta=meta)
        trace = as_trace(said, self.work.conversation.next_order, "final", derived_id(final.step_id, "final"))
        return await self.ended("success", event={"status": "success"}, answer=final.text, trace=trace)

    async def ended(
        self,
        status: str,
        *,
        event: JsonObject,
        event_type: str = RUN_COMPLETED,
        answer: str | None = None,
        error: str | None = None,
        failure_reason: str | None = None,
        trace: Any = None,
    ) -> RunResult:
        """End the run in one transaction. Raises what tells that it was not ours to end."""
        work = self.work
        if event_type == RUN_COMPLETED:
            event = {**event, "stop_reason": work.stop_reason, "truncated": truncated(status, work.stop_reason)}
        won = await self.recorder.finish(
            status=status,
            event_type=event_type,
            event_data=event,
            iteration=work.iteration,
            total=work.usage,
            answer=answer,
            error=error,
            failure_reason=failure_reason,
            trace=trace,
        )
        if not won:
            raise await self._lost("finalize_with_event")
        left = await self._notes_left()
        return self._result(status, left, answer=answer, error=error, failure_reason=failure_reason)

    async def _notes_left(self) -> list[str]:
        """Ids of notes that came too late to be delivered. The run has ended, whether they can be read or not."""
        try:
            return [note.id for note in await self.recorder.store.get_notes(self.work.run_id, undelivered_only=True)]
        except PersistenceError:
            return []

    async def cancelled(
        self,
        reason: str,
        *,
        answer: str | None = None,
        failure_reason: str | None = None,
        exceeded: JsonObject | None = None,
    ) -> RunResult:
        """End the run as cancelled."""
        event: JsonObject = {"reason": reason}
        if exceeded is not None:
            event["exceeded"] = exceeded
        return await self.ended(
            "cancelled", event_type="run.cancelled", event=event, answer=answer, failure_reason=failure_reason
        )

    async def failed(self, said: str) -> RunResult:
        """End the run with an error, whether it was raised or returned: the row has its text, the log a `run.error`."""
        text = storable(said)[:ERROR_MAX]
        return await self.ended("error", event_type="run.error", event={"error": text}, error=text)

    async def _paused(self, pause: Pause) -> RunResult:
        """Let the run wait, unless somebody asked to cancel it meanwhile."""
        work = self.work
        document = pause.document(self.agent.name, work.iteration, work.conversation, work.usage)
        if work.marks and not self.recorder.format_2:
            document["budget_marks"] = work.marks  # no loop state on format 1
        won = await self.recorder.pause(
            status=pause.status,
            document=document,
            event_data=pause.event_data(),
            iteration=work.iteration,
            total=work.usage,
        )
        if not won:
            if (await self.recorder.control()).cancel_requested:
                return await self.cancelled("cancel_requested")
            raise await self._lost("pause_with_event")
        targets = pause.targets or {}
        waiting = tuple(
            PendingCall(id=call.id, name=call.name, params=call.params, target=targets.get(call.id))
            for call in pause.calls
        )
        return self._result(pause.status, pause_id=pause.pause_id, pending_tool_calls=waiting)

    async def _lost(self, operation: str) -> Exception:
        """Why a pause or an end did not happen: somebody else ended the run, or owns it."""
        run = await self.recorder.store.get_run(self.work.run_id)
        if run is not None and run.status in TERMINAL_STATUSES:
            return RunAlreadyTerminalError(self.work.run_id, run.status)
        return StaleClaimError(operation=operation, run_id=self.work.run_id)

    def _result(self, status: str, undelivered: Sequence[str] = (), **more: Any) -> RunResult:
        told = {"replayed_tool_calls": list(self.work.replayed), "undelivered_notes": undelivered}
        meta = {name: ids for name, ids in told.items() if ids}
        return RunResult(
            run_id=self.work.run_id,
            status=status,
            steps=tuple(self.work.steps),
            iteration_count=self.work.iteration,
            usage=self.work.usage,
            stop_reason=self.work.stop_reason,
            meta=meta,
            **more,
        )


def _completed(row: LLMInteractionWrite, phase: str, stop_reason: str | None) -> JsonObject:
    """What `llm.completed` says."""
    usage = row.usage
    return {
        "model": row.model,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": None if usage.cost_usd is None else float(usage.cost_usd),
        "cost_source": usage.cost_source,
        "duration_ms": row.duration_ms,
        "has_tool_calls": phase == COMMENTARY,
        "phase": phase,
        "stop_reason": stop_reason,
    }
