"""What an agent hands back: the result of a run, the events of a stream, what became of a request to pause."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dendrux.llm.protocol import ToolCall
from dendrux.runtime.pending import PendingCall
from dendrux.runtime.values import UsageStats
from dendrux.vocabulary import PAUSED_STATUSES, TERMINAL_STATUSES

CUT_SHORT = frozenset({"length", "max_tokens"})
"""What vendors call it when a model reached its limit of length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool call came to. `payload` is JSON text; a failure's payload is `{"error": ...}`."""

    name: str
    call_id: str
    payload: str
    success: bool = True
    error: str | None = None
    duration_ms: int = 0
    outcome: str = "completed"
    """`completed`, `failed`, `timeout`, `invalid` (never executed), `rejected` (by an approver) or `limited`."""
    replayed: bool = False
    """An earlier owner had begun this call, and nobody knows how far it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn of the model: what it said, and what came of the calls it asked for."""

    iteration: int
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Where a run stands when the agent lets go of it: ended, or waiting for somebody."""

    run_id: str
    status: str
    answer: str | None = None
    error: str | None = None
    failure_reason: str | None = None
    steps: tuple[Step, ...] = ()
    """The turns of this process's own work; empty in a result that was read back."""
    iteration_count: int = 0
    usage: UsageStats = field(default_factory=UsageStats)
    pause_id: str | None = None
    """Names the pause; a submission may be bound to it."""
    pending_tool_calls: tuple[PendingCall, ...] = ()
    """What the run waits for, when it waits for tool calls or for their approval."""
    stop_reason: str | None = None
    """The model's word for why it stopped."""
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        """Whether the answer may not be whole: the model reached its own limit of length, or the run its turns."""
        return truncated(self.status, self.stop_reason)

    @property
    def commentary(self) -> tuple[str, ...]:
        """What the model said beside its calls of tools, turn by turn."""
        return tuple(step.text for step in self.steps if step.tool_calls and step.text)

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.status in TERMINAL_STATUSES

    @property
    def paused(self) -> bool:
        """Whether the run waits for somebody."""
        return self.status in PAUSED_STATUSES


def truncated(status: str, stop_reason: str | None) -> bool:
    """Whether an end came before the model was done."""
    return status == "max_iterations" or stop_reason in CUT_SHORT


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOutcome:
    """What became of a request to pause. `affected` has an entry for each run that was asked, by run id.

    Entries: `requested` (it pauses before its next turn), `already_waiting`, `already_paused`, `terminal`.
    """

    run_id: str
    status_before: str
    status_after: str
    affected: dict[str, str]


class RunEventType(StrEnum):
    """What a stream tells of."""

    RUN_STARTED = "run_started"
    RUN_RESUMED = "run_resumed"
    TEXT_DELTA = "text_delta"
    TOOL_USE_START = "tool_use_start"
    TOOL_RESULT = "tool_result"
    RUN_PAUSED = "run_paused"
    RUN_COMPLETED = "run_completed"
    RUN_CANCELLED = "run_cancelled"
    RUN_ERROR = "run_error"


LAST_EVENTS = frozenset(
    {RunEventType.RUN_PAUSED, RunEventType.RUN_COMPLETED, RunEventType.RUN_CANCELLED, RunEventType.RUN_ERROR}
)
"""A stream ends with one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One thing that a stream tells. Fields that do not belong to the type are None."""

    type: RunEventType
    run_id: str
    iteration: int = 0
    text: str | None = None
    tool_call: ToolCall | None = None
    tool_result: ToolResult | None = None
    run_result: RunResult | None = None
    error: BaseException | None = None

    @property
    def tool_name(self) -> str | None:
        """The tool that the event is about."""
        about = self.tool_call or self.tool_result
        return None if about is None else about.name

    @property
    def tool_call_id(self) -> str | None:
        """The call that the event is about."""
        return self.tool_call.id if self.tool_call else self.tool_result.call_id if self.tool_result else None


def last_event(result: RunResult) -> RunEvent:
    """The event with which a stream says where the run stands."""
    kinds = {"cancelled": RunEventType.RUN_CANCELLED, "error": RunEventType.RUN_ERROR}
    kind = RunEventType.RUN_PAUSED if result.paused else kinds.get(result.status, RunEventType.RUN_COMPLETED)
    return RunEvent(type=kind, run_id=result.run_id, iteration=result.iteration_count, run_result=result)
