"""Every write of an agent to its store: under the claim's epoch, and with an identity of its own, so that each may be
repeated when its answer is lost. Which of these a store takes is what it declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dendrux.errors import StoreBusyError, StoreOutcomeUnknown, StoreUnavailableError
from dendrux.llm.protocol import Message, ToolCall
from dendrux.runtime.conversation import Turn, as_trace, meta_of, observation
from dendrux.runtime.lease import Lease
from dendrux.runtime.results import ToolResult
from dendrux.runtime.values import (
    EventWrite,
    JsonObject,
    LLMInteractionWrite,
    RunControl,
    Submission,
    ToolCallStart,
    ToolCallWrite,
    TraceWrite,
    UsageStats,
    UsageWrite,
)
from dendrux.store.capabilities import StoreCapabilities
from dendrux.store.ids import derived_id
from dendrux.vocabulary import RUN_PAUSED, RUNNING, TOOL_COMPLETED, TOOL_STARTED

T = TypeVar("T")
PAUSES_S: Final = (0.05, 0.2, 0.8)
"""How long a write waits before it is tried again; the store has its own retries below these."""


async def sure(write: Callable[[], Awaitable[T]], *, repeatable: bool) -> T:
    """A write that is tried again when the store was away or busy; after an unknown outcome only if it is repeatable:
    it has an identity, or repeating it is harmless.
    """
    for pause_s in (*PAUSES_S, None):
        try:
            return await write()
        except (StoreUnavailableError, StoreBusyError):
            if pause_s is None:
                raise
        except StoreOutcomeUnknown:
            if pause_s is None or not repeatable:
                raise
        await asyncio.sleep(pause_s)
    raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A run and the epoch under which this process holds it."""

    run_id: str
    claim_epoch: int
    format: int


class Recorder:
    """The writes of one run's owner."""

    def __init__(self, store: Any, run: Owned, capabilities: StoreCapabilities, lease: Lease | None = None) -> None:
        self.store = store
        self.run = run
        self.run_id = run.run_id
        self.format_2 = run.format == 2
        self.capabilities = capabilities
        self.lease = lease
        self._fence: dict[str, Any] = {"claim_epoch": run.claim_epoch} if capabilities.fenced_writes else {}

    def _id(self, name: str, value: str) -> dict[str, Any]:
        return {name: value} if self.capabilities.retry_ids else {}

    async def _sure(self, write: Callable[[], Awaitable[T]], *, natural: bool = False) -> T:
        return await sure(write, repeatable=natural or self.capabilities.retry_ids)

    # -- between two turns --------------------------------------------------------------------------------------------

    async def control(self) -> RunControl:
        """What was asked of the run."""
        return await self._sure(lambda: self.store.get_run_control(self.run_id), natural=True)

    async def touch(self) -> bool:
        """Renew the lease."""
        return bool(await self.store.touch_progress(self.run_id, **self._fence))

    async def event(
        self,
        event_type: str,
        *,
        event_id: str,
        iteration: int,
        correlation_id: str | None = None,
        data: JsonObject | None = None,
    ) -> None:
        """An event of the log that is no part of a larger write."""
        await self._sure(
            lambda: self.store.save_run_event(
                self.run_id,
                event_type=event_type,
                iteration_index=iteration,
                correlation_id=correlation_id,
                data=data,
                **self._id("event_id", event_id),
                **self._fence,
            )
        )

    async def trace(self, message: Message, order_index: int, trace_id: str, kind: Any = "message") -> None:
        """A message that is no part of a larger write."""
        kinds = {"trace_kind": kind} if self.capabilities.checkpointing else {}
        await self._sure(
            lambda: self.store.save_trace(
                self.run_id,
                message.role,
                message.content,
                order_index=order_index,
                meta=meta_of(message),
                **self._id("trace_id", trace_id),
                **kinds,
                **self._fence,
            )
        )

    async def notes_delivered(self, note_ids: Sequence[str], iteration: int) -> None:
        """Notes that are part of the conversation now. Repeating it marks what is left, so it needs no identity."""
        await self._sure(
            lambda: self.store.mark_notes_delivered(self.run_id, list(note_ids), iteration=iteration, **self._fence),
            natural=True,
        )

    # -- a turn -------------------------------------------------------------------------------------------------------

    async def step(
        self,
        *,
        step_id: str,
        iteration: int,
        message: TraceWrite | None,
        interaction: LLMInteractionWrite,
        total: UsageStats,
        loop_state: JsonObject,
    ) -> None:
        """What one response of a model produced: in one transaction where runs of format 2 exist."""
        usage = UsageWrite(
            iteration_index=iteration,
            usage=interaction.usage,
            model=interaction.model,
            provider=interaction.provider,
            duration_ms=interaction.duration_ms,
            usage_id=derived_id(step_id, "usage"),
        )
        if self.format_2:
            await self._sure(
                lambda: self.store.checkpoint_step(
                    self.run_id,
                    step_id=step_id,
                    claim_epoch=self.run.claim_epoch,
                    iteration_count=iteration,
                    loop_state=loop_state,
                    traces=[] if message is None else [message],
                    interaction=interaction,
                    usage=usage,
                    total_usage=total,
                )
            )
            return
        await self._interaction(interaction)
        await self._usage(usage)
        if message is not None:
            await self._plain_trace(message)

    async def _interaction(self, row: LLMInteractionWrite) -> None:
        await self._sure(
            lambda: self.store.save_llm_interaction(
                self.run_id,
                iteration_index=row.iteration_index,
                usage=row.usage,
                model=row.model,
                provider=row.provider,
                duration_ms=row.duration_ms,
                semantic_request=row.semantic_request,
                semantic_response=row.semantic_response,
                provider_response=row.provider_response,
                interaction_id=row.interaction_id,  # older stores take this one too
                **self._fence,
            )
        )

    async def _usage(self, row: UsageWrite) -> None:
        assert row.usage_id is not None
        await self._sure(
            lambda: self.store.save_usage(
                self.run_id,
                iteration_index=row.iteration_index,
                usage=row.usage,
                model=row.model,
                provider=row.provider,
                duration_ms=row.duration_ms,
                **self._id("usage_id", row.usage_id or ""),
                **self._fence,
            )
        )

    async def _plain_trace(self, row: TraceWrite) -> None:
        message = Message(role=row.role, content=row.content, meta=row.meta or {})  # type: ignore[arg-type]
        await self.trace(message, row.order_index, row.trace_id or "", row.trace_kind)

    # -- tools --------------------------------------------------------------------------------------------------------

    async def start_call(self, call: ToolCall, turn: Turn) -> ToolCallStart:
        """The intent of a call of this process, durable before the call runs."""
        if not self.format_2:
            await self.announce_call(call, turn.iteration, "server")
            return ToolCallStart(attempt=1, replayed=False)
        data = {"tool_name": call.name, "target": "server"}
        return await self._sure(
            lambda: self.store.start_tool_call(
                self.run_id,
                row_id=row_of(self.run_id, call),
                tool_call_id=call.id,
                provider_tool_call_id=call.provider_tool_call_id,
                tool_name=call.name,
                target="server",
                params=call.params,
                iteration_index=turn.iteration,
                claim_epoch=self.run.claim_epoch,
                event=EventWrite(
                    event_type=TOOL_STARTED, data=data, iteration_index=turn.iteration, correlation_id=call.id
                ),
                trace_id=turn.trace_id,
            )
        )

    async def announce_call(self, call: ToolCall, iteration: int, target: str) -> None:
        """A call that begins and has no row yet: one that somebody else executes, or any call on format 1."""
        await self.event(
            TOOL_STARTED,
            event_id=derived_id(call.id, TOOL_STARTED),
            iteration=iteration,
            correlation_id=call.id,
            data={"tool_name": call.name, "target": target},
        )

    async def complete_call(self, call: ToolCall, result: ToolResult, turn: Turn) -> None:
        """What a call of this process came to: result, observation and event, in one transaction on format 2."""
        if not self.format_2:
            await self.answered_call(call, result, turn, "server")
            return
        said = observation(call, result, turn.iteration)
        place = turn.place(call)
        await self._sure(
            lambda: self.store.complete_tool_call(
                self.run_id,
                row_id=row_of(self.run_id, call),
                result_payload=result.payload,
                success=result.success,
                outcome=result.outcome,
                duration_ms=result.duration_ms,
                error_message=result.error,
                claim_epoch=self.run.claim_epoch,
                trace=as_trace(said, place, "observation", observation_of(call)),
                event=EventWrite(
                    event_type=TOOL_COMPLETED,
                    data=completed(result, "server"),
                    iteration_index=turn.iteration,
                    correlation_id=call.id,
                ),
            )
        )

    async def answered_call(self, call: ToolCall, result: ToolResult, turn: Turn, target: str) -> None:
        """Format 1: the row, the message and the event of a call, one after the other."""
        outcomes = {"outcome": result.outcome} if self.capabilities.checkpointing else {}
        await self._sure(
            lambda: self.store.save_tool_call(
                self.run_id,
                tool_call_id=call.id,
                provider_tool_call_id=call.provider_tool_call_id,
                tool_name=call.name,
                target=target,
                params=call.params,
                result_payload=result.payload,
                success=result.success,
                duration_ms=result.duration_ms,
                iteration_index=turn.iteration,
                error_message=result.error,
                **self._id("row_id", row_of(self.run_id, call)),
                **outcomes,
                **self._fence,
            )
        )
        said = observation(call, result, turn.iteration)
        await self.trace(said, turn.place(call), observation_of(call), "observation")
        await self.completed_call(result, turn.iteration, target)

    async def completed_call(self, result: ToolResult, iteration: int, target: str) -> None:
        """The event of a call whose row and message are stored."""
        await self.event(
            TOOL_COMPLETED,
            event_id=derived_id(result.call_id, TOOL_COMPLETED),
            iteration=iteration,
            correlation_id=result.call_id,
            data=completed(result, target),
        )

    async def consume(
        self, submission_id: str, answers: Sequence[tuple[ToolCall, ToolResult]], turn: Turn | None, targets: Any
    ) -> Submission | None:
        """Format 2: take the submission, and store what it answers. Its id makes the taking repeatable by any owner."""
        assert turn is not None or not answers
        traces = [
            as_trace(observation(call, result, turn.iteration), turn.place(call), "observation", observation_of(call))
            for call, result in answers
            if turn is not None
        ]
        rows = [
            ToolCallWrite(
                tool_call_id=call.id,
                provider_tool_call_id=call.provider_tool_call_id,
                tool_name=call.name,
                target=targets.get(call.id, "client"),
                params=call.params,
                result_payload=result.payload,
                success=result.success,
                duration_ms=result.duration_ms,
                iteration_index=turn.iteration,
                error_message=result.error,
                row_id=row_of(self.run_id, call),
                outcome=result.outcome,
            )
            for call, result in answers
            if turn is not None
        ]
        return await self._sure(
            lambda: self.store.consume_submission(
                self.run_id,
                claim_epoch=self.run.claim_epoch,
                consumption_id=derived_id(submission_id, "consumed"),
                traces=traces,
                tool_calls=rows,
            )
        )

    # -- letting go ---------------------------------------------------------------------------------------------------

    async def pause(
        self, *, status: str, document: JsonObject, event_data: JsonObject, iteration: int, total: UsageStats
    ) -> bool:
        """Let the run wait. False when it was asked to cancel meanwhile, or is not running."""
        event_id = derived_id(document["pause_id"], RUN_PAUSED)
        return await self._let_go(
            lambda: self.store.pause_with_event(
                self.run_id,
                status=status,
                pause_data=document,
                event_data=event_data,
                iteration_count=iteration,
                total_usage=total,
                **self._id("event_id", event_id),
                **self._fence,
            )
        )

    async def finish(
        self,
        *,
        status: str,
        event_type: str,
        event_data: JsonObject,
        iteration: int,
        total: UsageStats,
        answer: str | None = None,
        error: str | None = None,
        failure_reason: str | None = None,
        trace: TraceWrite | None = None,
    ) -> bool:
        """End the run: status, event and last message together. False when it had ended before."""
        if trace is not None and not self.format_2:
            await self._plain_trace(trace)
        messages = {"trace": trace} if self.format_2 and trace is not None else {}
        event_id = derived_id(self.run_id, self.run.claim_epoch, event_type)
        return await self._let_go(
            lambda: self.store.finalize_with_event(
                self.run_id,
                status=status,
                allowed_current_statuses=[RUNNING],
                event_type=event_type,
                event_data=event_data,
                answer=answer,
                error=error,
                iteration_count=iteration,
                total_usage=total,
                failure_reason=failure_reason,
                **self._id("event_id", event_id),
                **messages,
                **self._fence,
            )
        )

    async def _let_go(self, write: Callable[[], Awaitable[int | None]]) -> bool:
        """A write after which the run is not ours. A heartbeat that comes too late meanwhile is no loss."""
        if self.lease is not None:
            self.lease.let_go()
        index = None
        try:
            index = await self._sure(write)
        finally:
            if index is None and self.lease is not None:
                self.lease.keep()
        return index is not None


def row_of(run_id: str, call: ToolCall) -> str:
    """The id of a call's row: the same for every owner of the run."""
    return derived_id(run_id, call.id, "row")


def observation_of(call: ToolCall) -> str:
    """The id of the message that answers a call."""
    return derived_id(call.id, "observation")


def completed(result: ToolResult, target: str) -> JsonObject:
    """What `tool.completed` says: nothing of the result itself."""
    return {
        "tool_name": result.name,
        "target": target,
        "success": result.success,
        "outcome": result.outcome,
        "duration_ms": result.duration_ms,
    }
