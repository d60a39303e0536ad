"""Values and records that cross the StateStore protocol. All frozen; all importable from `dendrux.runtime.state`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from dendrux.vocabulary import CreateOutcome, TraceKind

JsonObject = dict[str, Any]


# -- values that callers pass -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageStats:
    """Tokens and cost of one model call, or of a run. `input_tokens` counts fresh tokens only; cost in US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cost_usd: Decimal | float | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_source: str | None = None
    """Where the cost came from. Not persisted, and no part of retry equality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWrite:
    """An event that an operation writes together with the change it describes."""

    event_type: str
    data: JsonObject | None = None
    event_id: str | None = None
    iteration_index: int = 0
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWrite:
    """A message of the conversation that an operation writes together with the change it belongs to."""

    role: str
    content: str
    order_index: int
    meta: JsonObject | None = None
    trace_id: str | None = None
    trace_kind: TraceKind = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallWrite:
    """A tool call executed elsewhere, which an operation writes together with the change it belongs to."""

    tool_call_id: str
    tool_name: str
    result_payload: str
    success: bool
    provider_tool_call_id: str | None = None
    target: str = "client"
    params: JsonObject | None = None
    duration_ms: int = 0
    iteration_index: int = 0
    error_message: str | None = None
    meta: JsonObject | None = None
    row_id: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageWrite:
    """A usage row that a checkpoint writes together with the step it belongs to."""

    iteration_index: int
    usage: UsageStats
    model: str | None = None
    provider: str | None = None
    duration_ms: int | None = None
    meta: JsonObject | None = None
    usage_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMInteractionWrite:
    """A call of a model that a checkpoint writes together with the step it belongs to."""

    iteration_index: int
    usage: UsageStats
    model: str | None = None
    provider: str | None = None
    duration_ms: int | None = None
    semantic_request: JsonObject | None = None
    semantic_response: JsonObject | None = None
    provider_request: JsonObject | None = None
    provider_response: JsonObject | None = None
    guardrail_findings: JsonObject | None = None
    interaction_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTrace:
    """A message a run starts with. Seeds take the order indexes 0..k-1."""

    role: str
    content: str
    meta: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobEdge:
    """A reference from one row of a run to a stored blob."""

    tenant_scope: str
    sha256: str
    owner_kind: str
    owner_id: str
    ordinal: int


# -- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRunResult:
    """What create_run found or made. `claim_epoch` is the epoch the caller owns only when `outcome` is `created`."""

    run_id: str
    outcome: CreateOutcome
    status: str
    format: int
    claim_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What was submitted to a paused run, as handed to the owner that consumes it."""

    submission_id: str
    data: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class RunControl:
    """What an owner asks between two steps, read at once."""

    cancel_requested: bool = False
    pause_requested: bool = False
    has_pending_notes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStart:
    """What start_tool_call allows: execute the call, or take the result that is stored already."""

    attempt: int
    """1 for the first start; one more for every owner who starts a call that an earlier owner left open."""
    replayed: bool
    """An earlier attempt began and nobody knows how far it came: its side effects may have happened."""
    completed: ToolCallRecord | None = None
    """The stored call when it is completed: do not execute it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedToolCalls:
    """The tool calls of a run that were started more than once; `truncated` when there are more than the limit."""

    calls: list[ToolCallRecord]
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run that a paged operation could not finish, with the code of the error."""

    run_id: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRun:
    """A run that a sweep ended: what it was, why it was ended, and as what."""

    run_id: str
    agent_name: str
    previous_status: str
    failure_reason: str
    last_progress_at: datetime | None
    swept_at: datetime
    status: str = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPage:
    """What became of one page of a sweep. `next_after` is the cursor of the next page, None after the last."""

    swept: tuple[SweptRun, ...]
    failed: tuple[FailedRun, ...]
    next_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSweep:
    """What became of one page of expired leases: ids of runs marked, runs ended because nobody can take them over."""

    marked: tuple[str, ...]
    finalised: tuple[SweptRun, ...]
    failed: tuple[FailedRun, ...]
    next_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredLease:
    """A running run whose owner is thought dead: reclaim it under `claim_epoch`."""

    run_id: str
    claim_epoch: int
    expired_at: datetime
    reclaim_count: int

    @property
    def cursor(self) -> str:
        """Where the page after this lease begins; opaque, and the same on every instance of the store."""
        return f"{self.expired_at.isoformat()} {self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelPage:
    """What one page of cancel_subtree did, run by run in its order."""

    cancelled: list[str]
    """Paused runs that it ended."""
    requested: list[str]
    """Running runs whose owners are asked to stop, also those that were asked before."""
    already_terminal: list[str]
    failed: list[FailedRun]
    next_after: str | None
    """Where the next page begins; None after the last."""


# -- records ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as stored. Times are aware UTC with microseconds."""

    id: str
    tenant_id: str | None
    agent_name: str
    status: str
    format: int
    claim_epoch: int
    claimed_epoch: int | None
    paused_status: str | None
    iteration_count: int
    input_data: JsonObject | None
    answer: str | None
    error: str | None
    failure_reason: str | None
    model: str | None
    strategy: str | None
    meta: JsonObject | None
    parent_run_id: str | None
    delegation_level: int
    retry_of_run_id: str | None
    idempotency_key: str | None
    cancel_requested: bool
    pause_requested: bool
    reclaim_count: int
    total_input_tokens: int
    total_output_tokens: int
    total_cache_read_tokens: int
    total_cache_creation_tokens: int
    total_reasoning_tokens: int
    total_cost_usd: float | None
    lease_expired_at: datetime | None
    last_progress_at: datetime | None
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEventRecord:
    """One entry of a run's log. `sequence_index` counts from 0 without gaps."""

    id: str
    run_id: str
    event_type: str
    sequence_index: int
    iteration_index: int
    correlation_id: str | None
    data: JsonObject | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One message of a run's conversation."""

    id: str
    role: str
    content: str
    order_index: int
    meta: JsonObject | None
    trace_kind: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPage:
    """A part of the conversation as a model has to see it. The next page goes on after `next_after`; None: no more."""

    traces: list[TraceRecord]
    next_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRecord:
    """One tool call of a run. `result` is the decoded payload; undecodable text is kept as `{"raw": text}`.

    An open call (`completed` False) has no result yet and no success. `trace_id` names the message that asked for it,
    and from its completion on the observation. A call saved in one piece has attempt 1 and no `started_epoch`.
    """

    id: str
    tool_call_id: str
    provider_tool_call_id: str | None
    tool_name: str
    target: str
    params: JsonObject | None
    result: Any
    success: bool
    duration_ms: int | None
    iteration_index: int | None
    error_message: str | None
    meta: JsonObject | None
    outcome: str | None
    attempt: int
    started_epoch: int | None
    trace_id: str | None
    completed: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMInteractionRecord:
    """One call of a model. Cost in US dollars, rounded to six decimal places."""

    id: str
    iteration_index: int
    model: str | None
    provider: str | None
    semantic_request: JsonObject | None
    semantic_response: JsonObject | None
    provider_request: JsonObject | None
    provider_response: JsonObject | None
    guardrail_findings: JsonObject | None
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cost_usd: float | None
    duration_ms: int | None
    cache_read_input_tokens: int | None
    cache_creation_input_tokens: int | None
    reasoning_tokens: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRecord:
    """One note in a run's inbox; `delivered_at` is None until the owner marked it delivered."""

    id: str
    run_id: str
    text: str
    metadata: Any
    created_at: datetime
    delivered_at: datetime | None
    delivered_iteration: int | None


# -- families ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBrief:
    """A run as its relatives see it."""

    run_id: str
    agent_name: str
    status: str
    delegation_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentRef:
    """The run that delegated; not resolved when it does not exist any more or is outside the scope."""

    run_id: str
    resolved: bool
    agent_name: str | None = None
    status: str | None = None
    delegation_level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtreeSummary:
    """A run and everything below it in numbers, from the totals that the runs themselves persisted.

    `direct_child_count` and `descendant_count` leave the run out, everything else counts it.
    """

    direct_child_count: int
    descendant_count: int
    max_depth: int
    subtree_input_tokens: int
    subtree_output_tokens: int
    subtree_cost_usd: float | None
    """The sum of the known totals; None when no run has one."""
    unknown_cost_count: int
    """Runs without a total cost."""
    status_counts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationInfo:
    """Where a run stands in its family."""

    parent: ParentRef | None
    children: list[RunBrief]
    """The first 1000 by (created_at, id); `child_runs_page` reads on."""
    ancestry: list[RunBrief]
    """The runs above it, root first."""
    subtree_summary: SubtreeSummary
    ancestry_complete: bool
    """False when a run above is missing, outside the scope, or its own ancestor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRollup:
    """Usage summed over recorded model calls."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    known_cost_usd: float = 0.0
    """The sum over the priced calls."""
    unpriced_calls: int = 0
    llm_calls: int = 0

    @property
    def cost_usd(self) -> float | None:
        """The cost of all calls; None when one of them has no price: an unknown cost is never zero."""
        return None if self.unpriced_calls else self.known_cost_usd

    @classmethod
    def combine(cls, parts: Iterable[UsageRollup]) -> UsageRollup:
        """The sum of several."""
        several = list(parts)
        counts = [f.name for f in fields(cls) if f.name != "known_cost_usd"]
        total: dict[str, Any] = {name: sum(getattr(part, name) for part in several) for name in counts}
        cost = sum((Decimal(str(part.known_cost_usd)) for part in several), Decimal(0))
        return cls(**total, known_cost_usd=float(round(cost, 6)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtreeNodeRecord:
    """One run of a subtree, its depth below the root, and its own usage."""

    run: RunRecord
    depth: int
    usage: UsageRollup


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtreeRecord:
    """A run and everything below it, breadth first, with the usage of all."""

    nodes: list[SubtreeNodeRecord]
    usage: UsageRollup
