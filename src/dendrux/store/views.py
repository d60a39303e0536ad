"""What RunStore answers: records with the fields that readers see, made from those that cross the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from dendrux.runtime.values import (
    JsonObject,
    LLMInteractionRecord,
    NoteRecord,
    RunEventRecord,
    RunRecord,
    SubtreeRecord,
    ToolCallRecord,
    TraceRecord,
    UsageRollup,
)
from dendrux.vocabulary import META_ERROR_INFO, RUN_PAUSED, RUN_RESUMED


class RunNotFoundError(Exception):
    """The run does not exist, or is outside the given tenant scope. Raised by the reads of RunStore."""

    code: ClassVar[str] = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} does not exist or is outside the given tenant scope")
        self.run_id = run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in a list."""

    run_id: str
    agent_name: str
    status: str
    created_at: datetime
    updated_at: datetime
    iteration_count: int
    total_input_tokens: int
    total_output_tokens: int
    total_cache_read_tokens: int
    total_cache_creation_tokens: int
    total_cost_usd: float | None
    model: str | None
    parent_run_id: str | None
    delegation_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail(RunSummary):
    """One run with everything a reader may know of it."""

    strategy: str | None
    input_data: JsonObject | None
    answer: str | None
    error: str | None
    failure_reason: str | None
    cancel_requested: bool
    """True between a request to cancel and the end of the run."""
    pause_requested: bool
    """True between a request to pause and the pause."""
    error_info: Any
    """What the end of the run said of its error, for programs; None when it said nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One entry of a run's log."""

    sequence_index: int
    iteration_index: int
    event_type: str
    correlation_id: str | None
    data: JsonObject | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedEvent(StoredEvent):
    """An event as a follower sees it: with the run that it belongs to."""

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """A page of a run's log beside the run's status, which was read first."""

    run_id: str
    status: str
    events: list[StoredEvent]
    next_after: int | None
    """Where the next page begins: the index of the last event known; None while there is none."""
    ended: bool
    """The run is terminal and its log is read to the end. Final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMCall:
    """One call of a model."""

    iteration: int
    provider: str | None
    model: str | None
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_read_input_tokens: int | None
    cache_creation_input_tokens: int | None
    cost_usd: float | None
    duration_ms: int | None
    provider_request: JsonObject | None
    provider_response: JsonObject | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvocation:
    """One call of a tool."""

    iteration: int | None
    tool_name: str
    tool_call_id: str
    provider_tool_call_id: str | None
    target: str
    params: JsonObject | None
    result: Any
    success: bool
    error: str | None
    duration_ms: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """One message of a conversation."""

    role: str
    content: str
    order_index: int
    meta: JsonObject | None
    created_at: datetime
    phase: str | None
    """`commentary` before tool calls, `final_answer` for the answer; None for other roles and older rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePair:
    """A pause and the resume that followed it, if one did."""

    pause_sequence_index: int
    pause_at: datetime
    resume_sequence_index: int | None
    resume_at: datetime | None
    reason: str | None
    pending_tool_calls: Any
    submitted_results: Any
    user_input: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage:
    """Usage summed over recorded model calls."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float | None
    """The cost of all calls; None when one of them has no price."""
    known_cost_usd: float
    """The sum over the priced calls."""
    unpriced_calls: int
    llm_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtreeNode:
    """One run of a subtree, its depth below the root, and its own usage."""

    run: RunSummary
    depth: int
    usage: RunUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSubtree:
    """A run and everything below it, breadth first, with the usage of all."""

    root_run_id: str
    nodes: list[SubtreeNode]
    usage: RunUsage

    @property
    def root(self) -> SubtreeNode:
        """The run that the tree hangs below."""
        return self.nodes[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """One note of an inbox; `delivered_at` is None while the model has not seen it."""

    note_id: str
    run_id: str
    text: str
    metadata: Any
    created_at: datetime
    delivered_at: datetime | None
    delivered_iteration: int | None


# -- from the records of the protocol ---------------------------------------------------------------------------------

_SUMMARY = tuple(name for name in RunSummary.__dataclass_fields__ if name != "run_id")
_DETAIL = ("strategy", "input_data", "answer", "error", "failure_reason", "cancel_requested", "pause_requested")


def _taken(record: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def summary(run: RunRecord) -> RunSummary:
    """A run as lists show it."""
    return RunSummary(run_id=run.id, **_taken(run, _SUMMARY))


def detail(run: RunRecord) -> RunDetail:
    """A run as get_run shows it."""
    error_info = (run.meta or {}).get(META_ERROR_INFO)
    return RunDetail(run_id=run.id, error_info=error_info, **_taken(run, (*_SUMMARY, *_DETAIL)))


def event(record: RunEventRecord) -> StoredEvent:
    """An entry of a log."""
    return StoredEvent(**_taken(record, StoredEvent.__dataclass_fields__))


def followed(run_id: str, record: RunEventRecord) -> FollowedEvent:
    """The same, with its run."""
    return FollowedEvent(run_id=run_id, **_taken(record, StoredEvent.__dataclass_fields__))


def llm_call(record: LLMInteractionRecord) -> LLMCall:
    """A call of a model."""
    names = [name for name in LLMCall.__dataclass_fields__ if name != "iteration"]
    return LLMCall(iteration=record.iteration_index, **_taken(record, names))


def tool_invocation(record: ToolCallRecord) -> ToolInvocation:
    """A call of a tool."""
    names = [name for name in ToolInvocation.__dataclass_fields__ if name not in ("iteration", "error")]
    return ToolInvocation(iteration=record.iteration_index, error=record.error_message, **_taken(record, names))


def trace(record: TraceRecord) -> TraceEntry:
    """A message of a conversation."""
    phase = (record.meta or {}).get("phase")
    names = [name for name in TraceEntry.__dataclass_fields__ if name != "phase"]
    return TraceEntry(phase=phase if isinstance(phase, str) else None, **_taken(record, names))


def note(record: NoteRecord) -> RunNote:
    """A note of an inbox."""
    names = [name for name in RunNote.__dataclass_fields__ if name != "note_id"]
    return RunNote(note_id=record.id, **_taken(record, names))


def usage(rollup: UsageRollup) -> RunUsage:
    """Summed usage."""
    return RunUsage(**_taken(rollup, RunUsage.__dataclass_fields__))


def subtree(root_run_id: str, record: SubtreeRecord) -> RunSubtree:
    """A tree of runs."""
    nodes = [SubtreeNode(run=summary(n.run), depth=n.depth, usage=usage(n.usage)) for n in record.nodes]
    return RunSubtree(root_run_id=root_run_id, nodes=nodes, usage=usage(record.usage))


def pauses(events: Iterable[RunEventRecord]) -> list[PausePair]:
    """Pauses with their resumes. A resume names the pause that it answers; one of an older log follows its pause."""
    pairs: list[tuple[RunEventRecord, RunEventRecord | None]] = []
    for entry in events:
        if entry.event_type == RUN_PAUSED:
            pairs.append((entry, None))
        elif entry.event_type == RUN_RESUMED:
            place = _answered(pairs, (entry.data or {}).get("pause_id"))
            if place is not None:
                pairs[place] = (pairs[place][0], entry)
    return [_pair(pause, resume) for pause, resume in pairs]


def _answered(pairs: list[tuple[RunEventRecord, RunEventRecord | None]], pause_id: Any) -> int | None:
    """Which pause a resume answers; None when that has an answer already, or is not there."""
    open_pauses = [place for place, (_, resume) in enumerate(pairs) if resume is None]
    if pause_id is not None:
        named = [place for place in open_pauses if (pairs[place][0].data or {}).get("pause_id") == pause_id]
        return named[-1] if named else None
    last = len(pairs) - 1
    return last if last in open_pauses else None


def _pair(pause: RunEventRecord, resume: RunEventRecord | None) -> PausePair:
    said, answered = pause.data or {}, (resume.data if resume is not None else None) or {}
    return PausePair(
        pause_sequence_index=pause.sequence_index,
        pause_at=pause.created_at,
        resume_sequence_index=None if resume is None else resume.sequence_index,
        resume_at=None if resume is None else resume.created_at,
        reason=said.get("status"),
        pending_tool_calls=said.get("pending_tool_calls"),
        submitted_results=answered.get("submitted_results"),
        user_input=answered.get("user_input"),
    )
