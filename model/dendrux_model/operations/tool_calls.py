"""Tool calls of a run, each stored in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from dendrux.runtime.values import ToolCallWrite
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import Returned
from dendrux_model.values import decoded, json_text, rows
from dendrux_model.world import ToolCall, World, find


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
class GetToolCalls(Operation, lost_ack="read"):
    """Read the tool calls of a run in the order they were stored."""

    run_id: str
    iteration_index: int | None = None
    limit: int = 1000
    offset: int = 0

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        found = [
            (call.id, dict(call.shown))
            for call in (run.tool_calls if run else ())
            if self.iteration_index is None or dict(call.shown)["iteration_index"] == self.iteration_index
        ]
        return world, Returned(rows(found, self.offset, self.limit))
