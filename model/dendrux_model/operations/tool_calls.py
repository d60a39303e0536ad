"""Tool calls of a run: stored in one piece, or as an intent that is completed later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from dendrux.runtime.values import BlobEdge, EventWrite, ToolCallWrite, TraceWrite
from dendrux.vocabulary import TOOL_COMPLETED, TOOL_STARTED, UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.operations.events import event_row
from dendrux_model.operations.traces import obstructed, trace_rows
from dendrux_model.outcomes import CONFLICT, INVALID, NOT_FOUND, NOT_STARTED, Refused, Returned
from dendrux_model.values import MINTED, decoded, json_text, rows
from dendrux_model.world import Run, ToolCall, World, find, put


def shown_call(call: ToolCall) -> dict[str, Any]:
    """A tool call as reads show it, but for its id."""
    return {
        **dict(call.shown),
        "attempt": call.attempt,
        "started_epoch": call.started_epoch,
        "trace_id": call.trace_id,
        "completed": call.completed,
    }


def with_call(run: Run, call: ToolCall) -> tuple[ToolCall, ...]:
    """The tool calls of a run with this one in the place of its former self, or behind the others."""
    if all(old.id != call.id for old in run.tool_calls):
        return (*run.tool_calls, call)
    return tuple(call if old.id == call.id else old for old in run.tool_calls)


@dataclass(frozen=True, kw_only=True)
class SaveToolCall(Operation, lost_ack="identity", identity="row_id"):
    """Store a tool call with its result. On format 2 one row holds a tool call id."""

    run_id: str
    tool_call_id: str
    tool_name: str
    provider_tool_call_id: str | None = None
    target: str = "server"
    params: dict[str, Any] | None = None
    result_payload: str = "null"
    success: bool = True
    duration_ms: int = 0
    iteration_index: int = 0
    error_message: str | None = None
    meta: dict[str, Any] | None = None
    row_id: str | None = None
    outcome: str | None = None
    claim_epoch: int | None = None
    blob_refs: tuple[BlobEdge, ...] | None = None
    blob_refs_scope: str | None = None

    @property
    def by_time(self) -> tuple[str | None, frozenset[str | None]]:
        return "tool_calls", frozenset([self.row_id])

    def step(self, world: World) -> Step:
        position = ("tool_call_id", self.tool_call_id)
        return rules.append(world, self, "tool_calls", self.row, final=True, position=position)

    @cached_property
    def row(self) -> ToolCall:
        """What is stored."""
        shown = {
            "tool_call_id": self.tool_call_id,
            "provider_tool_call_id": self.provider_tool_call_id,
            "tool_name": self.tool_name,
            "target": self.target,
            "params": json_text(self.params),
            "result": json_text(decoded(self.result_payload)),
            "success": self.success,
            "duration_ms": self.duration_ms,
            "iteration_index": self.iteration_index,
            "error_message": self.error_message,
            "meta": json_text(self.meta),
            "outcome": self.outcome,
        }
        return ToolCall(self.row_id, self.content, self.tool_call_id, tuple(shown.items()))

    def persisted(self) -> dict[str, Any]:
        return {**super().persisted(), "result_payload": decoded(self.result_payload)}


def tool_call_rows(writes: Sequence[ToolCallWrite]) -> tuple[ToolCall, ...]:
    """The rows that another operation stores together with its own change, each equal to the one of save_tool_call."""
    return tuple(SaveToolCall(run_id="", **{f.name: getattr(w, f.name) for f in fields(w)}).row for w in writes)


@dataclass(frozen=True, kw_only=True)
class StartToolCall(Operation, lost_ack="identity", identity="row_id"):
    """Store the intent of a call and its event before anybody executes it; fence first, because it hands out work.

    A call that an earlier owner left open is handed out again, as one more attempt with one more event. One that is
    completed is answered with its result and not handed out.
    """

    run_id: str
    row_id: str
    tool_call_id: str
    tool_name: str
    claim_epoch: int
    event: EventWrite
    provider_tool_call_id: str | None = None
    target: str = "server"
    params: dict[str, Any] | None = None
    iteration_index: int = 0
    trace_id: str | None = None

    fence_first = True

    @property
    def by_time(self) -> tuple[str | None, frozenset[str | None]]:
        return "tool_calls", frozenset([self.row_id])

    def step(self, world: World) -> Step:
        if self.event.event_type != TOOL_STARTED:
            return world, INVALID
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if run.format != 2:
            return world, INVALID
        refusal = rules.refused(run, self.claim_epoch, final=True)
        if refusal is not None:
            return world, refusal
        held = rules.holder(world, "tool_calls", self.row_id)
        if held is None:
            elsewhere = rules.holder(world, "events", self.event.event_id) is not None
            if elsewhere or rules.taken(run, "tool_calls", "tool_call_id", self.tool_call_id):
                return world, CONFLICT
            return self.begun(world, run, self.intent())
        owner, _, call = held
        if owner is not run or call.started != self.content:
            return world, CONFLICT
        if call.completed or call.started_epoch == self.claim_epoch:
            return world, self.answer(call)
        again = call._replace(attempt=call.attempt + 1, started_epoch=self.claim_epoch)
        return self.begun(world, run, again)

    def begun(self, world: World, run: Run, call: ToolCall) -> Step:
        """The run with this attempt and its event. Only the first attempt's event has the id that the caller gave."""
        write = self.event
        event = event_row(write, self.content, write.event_id if call.attempt == 1 else None)
        after = run._replace(
            tool_calls=with_call(run, call),
            events=rules.logged(run, event),
            progress_at=rules.renewed(run, self.claim_epoch, world.now),
            lease_expired_at=rules.mark(run, self.claim_epoch),
        )
        return put(world, after), self.answer(call)

    def intent(self) -> ToolCall:
        """The call as its first start stores it: without anything that only its result can tell."""
        shown = {
            "tool_call_id": self.tool_call_id,
            "provider_tool_call_id": self.provider_tool_call_id,
            "tool_name": self.tool_name,
            "target": self.target,
            "params": json_text(self.params),
            "result": None,
            "success": False,
            "duration_ms": None,
            "iteration_index": self.iteration_index,
            "error_message": None,
            "meta": None,
            "outcome": None,
        }
        return ToolCall(
            self.row_id,
            "",
            self.tool_call_id,
            tuple(shown.items()),
            started=self.content,
            started_epoch=self.claim_epoch,
            trace_id=self.trace_id,
            completed=False,
        )

    def answer(self, call: ToolCall) -> Returned:
        """What the caller may do: execute this attempt, or take the result."""
        stored = {"id": call.id, **shown_call(call)} if call.completed else None
        return Returned({"attempt": call.attempt, "replayed": call.attempt > 1, "completed": stored})


@dataclass(frozen=True, kw_only=True)
class CompleteToolCall(Operation, lost_ack="identity", identity="row_id"):
    """Store what a started call came to: result, observation, event and mapping, together. Answers its index."""

    run_id: str
    row_id: str
    claim_epoch: int
    trace: TraceWrite
    event: EventWrite
    result_payload: str = "null"
    success: bool = True
    outcome: str | None = None
    duration_ms: int | None = 0
    error_message: str | None = None
    meta: dict[str, Any] | None = None
    pii_mapping: dict[str, str] | None = None
    blob_refs: tuple[BlobEdge, ...] | None = None
    blob_refs_scope: str | None = None

    def step(self, world: World) -> Step:
        if self.event.event_type != TOOL_COMPLETED:
            return world, INVALID
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if run.format != 2:
            return world, INVALID
        held = rules.holder(world, "tool_calls", self.row_id)
        if held is not None and (held[0] is not run or held[2].completed):
            return world, rules.repeated(held, run.id, self.content, Returned(self.place(held[0])))
        refusal = rules.refused(run, self.claim_epoch, final=True)
        if refusal is not None:
            return world, refusal
        if held is None:
            return world, NOT_STARTED
        if held[2].started_epoch != self.claim_epoch or self.obstructed(world, run):
            return world, CONFLICT
        references = rules.referred(world, self, run.tenant_id, run.blob_refs)
        if isinstance(references, Refused):
            return world, references
        after = self.completed(run, held[2], world.now)._replace(blob_refs=references)
        return put(world, after), Returned(len(run.events))

    def place(self, run: Run) -> int | None:
        """The index of this completion's event."""
        return next((index for index, event in enumerate(run.events) if event.content == self.content), None)

    def obstructed(self, world: World, run: Run) -> bool:
        """Whether the event or the observation cannot be stored: its id or its position is taken."""
        return rules.holder(world, "events", self.event.event_id) is not None or obstructed(world, run, self.trace)

    def completed(self, run: Run, call: ToolCall, now: int) -> Run:
        """The run with all that the completion stores."""
        result = {
            "result": json_text(decoded(self.result_payload)),
            "success": self.success,
            "duration_ms": self.duration_ms,
            "error_message": self.error_message,
            "meta": json_text(self.meta),
            "outcome": self.outcome,
        }
        done = call._replace(
            content=self.content,
            shown=tuple((dict(call.shown) | result).items()),
            trace_id=self.trace.trace_id or MINTED,
            completed=True,
        )
        return run._replace(
            tool_calls=with_call(run, done),
            traces=(*run.traces, *trace_rows((self.trace,))),
            events=rules.logged(run, event_row(self.event, self.content, self.event.event_id)),
            pii_mapping=run.pii_mapping if self.pii_mapping is None else json_text(self.pii_mapping),
            progress_at=rules.renewed(run, self.claim_epoch, now),
            lease_expired_at=rules.mark(run, self.claim_epoch),
        )

    def persisted(self) -> dict[str, Any]:
        return {**super().persisted(), "result_payload": decoded(self.result_payload)}


@dataclass(frozen=True, kw_only=True)
class GetToolCalls(Operation, lost_ack="read"):
    """Read the tool calls of a run in the order they were stored."""

    run_id: str
    iteration_index: int | None = None
    limit: int = 1000
    offset: int = 0

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        found = [
            (call.id, shown_call(call))
            for call in (run.tool_calls if run else ())
            if self.iteration_index is None or dict(call.shown)["iteration_index"] == self.iteration_index
        ]
        return world, Returned(rows(found, self.offset, self.limit))


@dataclass(frozen=True, kw_only=True)
class GetReplayedToolCalls(Operation, lost_ack="read"):
    """Read the calls that were started more than once: by iteration, and there in the order of their first start."""

    run_id: str
    limit: int = 100
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if self.tenant_id is not UNSCOPED and (run is None or not rules.in_scope(run, self.tenant_id)):
            return world, NOT_FOUND
        replayed = [call for call in (run.tool_calls if run else ()) if call.attempt > 1]
        replayed.sort(key=lambda call: dict(call.shown)["iteration_index"])
        found = [(call.id, shown_call(call)) for call in replayed]
        return world, Returned({"calls": rows(found, 0, self.limit), "truncated": len(found) > self.limit})
