"""The StateStore protocol: every operation of a store, in the order a run lives.

What each one means is written once, as a step of the reference model (`dendrux_model.operations`), and explained in
`docs/operations/<noun>.md`. Parameters that recur:

- `tenant_id`: UNSCOPED applies no predicate, None matches untenanted runs only, a string exactly that tenant.
- `claim_epoch`: the caller owns the run under this epoch; any other epoch is refused with StaleClaimError.
- `..._id` of a row or event: minted by the caller, makes the write repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from dendrux.runtime.blobs import BlobInfo, BlobKey, BlobReference, BlobStore, FailedBlob, GcResult
from dendrux.runtime.pending import PendingCall, PendingWork
from dendrux.runtime.values import (
    BlobEdge,
    CancelPage,
    ConversationPage,
    CreateRunResult,
    DelegationInfo,
    EventWrite,
    ExpiredLease,
    FailedRun,
    JsonObject,
    LeaseSweep,
    LLMInteractionRecord,
    LLMInteractionWrite,
    NoteRecord,
    ParentRef,
    ReplayedToolCalls,
    RunBrief,
    RunControl,
    RunEventRecord,
    RunRecord,
    SeedTrace,
    Submission,
    SubtreeNodeRecord,
    SubtreeRecord,
    SubtreeSummary,
    SweepPage,
    SweptRun,
    ToolCallRecord,
    ToolCallStart,
    ToolCallWrite,
    TraceRecord,
    TraceWrite,
    UsageRollup,
    UsageStats,
    UsageWrite,
)
from dendrux.vocabulary import UNSCOPED, NoteOutcome, TenantScope, TraceKind

__all__ = [
    "UNSCOPED",
    "BlobEdge",
    "BlobInfo",
    "BlobKey",
    "BlobReference",
    "BlobStore",
    "CancelPage",
    "ConversationPage",
    "CreateRunResult",
    "DelegationInfo",
    "EventWrite",
    "ExpiredLease",
    "FailedBlob",
    "FailedRun",
    "GcResult",
    "LLMInteractionRecord",
    "LLMInteractionWrite",
    "LeaseSweep",
    "NoteRecord",
    "ParentRef",
    "PendingCall",
    "PendingWork",
    "ReplayedToolCalls",
    "RunBrief",
    "RunControl",
    "RunEventRecord",
    "RunRecord",
    "SeedTrace",
    "StateStore",
    "Submission",
    "SubtreeNodeRecord",
    "SubtreeRecord",
    "SubtreeSummary",
    "SweepPage",
    "SweptRun",
    "TenantScope",
    "ToolCallRecord",
    "ToolCallStart",
    "ToolCallWrite",
    "TraceRecord",
    "TraceWrite",
    "UsageRollup",
    "UsageStats",
    "UsageWrite",
]


class StateStore(Protocol):
    """What the runtime and the certification kit ask of any store."""

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def create_run(
        self,
        run_id: str,
        agent_name: str,
        *,
        input_data: JsonObject | None = None,
        model: str | None = None,
        strategy: str | None = None,
        parent_run_id: str | None = None,
        delegation_level: int = 0,
        tenant_id: str | None = None,
        meta: JsonObject | None = None,
        idempotency_key: str | None = None,
        idempotency_fingerprint: str | None = None,
        retry_of_run_id: str | None = None,
        blob_refs: Sequence[BlobEdge] | None = None,
        blob_refs_scope: str | None = None,
        seed_traces: Sequence[SeedTrace] = (),
        pii_mapping: dict[str, str] | None = None,
        parent_claim_epoch: int | None = None,
    ) -> CreateRunResult: ...

    async def get_run(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> RunRecord | None: ...

    async def update_run_meta(self, run_id: str, patch: JsonObject, *, claim_epoch: int | None = None) -> None: ...

    async def get_pii_mapping(self, run_id: str) -> dict[str, str] | None: ...

    async def checkpoint_step(
        self,
        run_id: str,
        *,
        step_id: str,
        claim_epoch: int,
        iteration_count: int,
        loop_state: JsonObject | None = None,
        traces: Sequence[TraceWrite] = (),
        interaction: LLMInteractionWrite | None = None,
        usage: UsageWrite | None = None,
        total_usage: UsageStats | None = None,
    ) -> None: ...

    async def get_loop_state(self, run_id: str) -> JsonObject | None: ...

    # -- claims -------------------------------------------------------------------------------------------------------

    async def claim_paused_run(
        self, run_id: str, *, expected_status: str, tenant_id: TenantScope = UNSCOPED
    ) -> int | None: ...

    async def submit_and_claim(
        self,
        run_id: str,
        *,
        expected_status: str,
        submitted_data: JsonObject,
        submission_id: str | None = None,
        validate: Callable[[JsonObject], None] | None = None,
        tenant_id: TenantScope = UNSCOPED,
        blob_refs: Sequence[BlobEdge] | None = None,
        blob_refs_scope: str | None = None,
    ) -> int | None: ...

    async def consume_submission(
        self,
        run_id: str,
        *,
        claim_epoch: int,
        consumption_id: str,
        traces: Sequence[TraceWrite] = (),
        tool_calls: Sequence[ToolCallWrite] = (),
        pii_mapping: dict[str, str] | None = None,
    ) -> Submission | None: ...

    async def release_run_claim(self, run_id: str, *, claim_epoch: int) -> bool: ...

    # -- control ------------------------------------------------------------------------------------------------------

    async def request_cancel(self, run_id: str) -> bool: ...

    async def request_pause(self, run_id: str, *, reason: str | None = None) -> bool: ...

    async def get_run_control(self, run_id: str) -> RunControl: ...

    # -- pauses -------------------------------------------------------------------------------------------------------

    async def pause_with_event(
        self,
        run_id: str,
        *,
        status: str,
        pause_data: JsonObject,
        event_data: JsonObject | None = None,
        event_id: str | None = None,
        iteration_count: int | None = None,
        pii_mapping: dict[str, str] | None = None,
        total_usage: UsageStats | None = None,
        claim_epoch: int | None = None,
    ) -> int | None: ...

    async def try_pause_run(
        self,
        run_id: str,
        *,
        status: str,
        pause_data: JsonObject,
        iteration_count: int | None = None,
        pii_mapping: dict[str, str] | None = None,
        total_usage: UsageStats | None = None,
        claim_epoch: int | None = None,
    ) -> bool: ...

    async def pause_run(
        self,
        run_id: str,
        *,
        status: str,
        pause_data: JsonObject,
        iteration_count: int | None = None,
        pii_mapping: dict[str, str] | None = None,
        total_usage: UsageStats | None = None,
        claim_epoch: int | None = None,
    ) -> None: ...

    async def get_pause_state(self, run_id: str) -> JsonObject | None: ...

    async def get_pending(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> PendingWork | None: ...

    # -- finish -------------------------------------------------------------------------------------------------------

    async def finalize_with_event(
        self,
        run_id: str,
        *,
        status: str,
        allowed_current_statuses: Sequence[str],
        event_type: str,
        event_data: JsonObject | None = None,
        event_id: str | None = None,
        answer: str | None = None,
        error: str | None = None,
        iteration_count: int | None = None,
        total_usage: UsageStats | None = None,
        pii_mapping: dict[str, str] | None = None,
        failure_reason: str | None = None,
        trace: TraceWrite | None = None,
        claim_epoch: int | None = None,
    ) -> int | None: ...

    async def finalize_run(
        self,
        run_id: str,
        *,
        status: str,
        answer: str | None = None,
        error: str | None = None,
        iteration_count: int | None = None,
        total_usage: UsageStats | None = None,
        expected_current_status: str | None = None,
        pii_mapping: dict[str, str] | None = None,
        failure_reason: str | None = None,
        claim_epoch: int | None = None,
    ) -> bool: ...

    async def finalize_run_if_status_in(
        self,
        run_id: str,
        *,
        status: str,
        allowed_current_statuses: Sequence[str],
        answer: str | None = None,
        error: str | None = None,
        iteration_count: int | None = None,
        total_usage: UsageStats | None = None,
        pii_mapping: dict[str, str] | None = None,
        failure_reason: str | None = None,
        claim_epoch: int | None = None,
    ) -> bool: ...

    # -- leases -------------------------------------------------------------------------------------------------------

    async def touch_progress(self, run_id: str, *, claim_epoch: int | None = None) -> bool: ...

    async def mark_lease_expired(
        self, *, cutoff: datetime, limit: int = 100, after: str | None = None, finalise_unrecoverable: bool = False
    ) -> LeaseSweep: ...

    async def get_lease_expired(
        self, *, limit: int = 100, after: str | None = None, tenant_id: TenantScope = UNSCOPED
    ) -> list[ExpiredLease]: ...

    async def reclaim_run(self, run_id: str, *, expected_epoch: int) -> int | None: ...

    async def sweep_stale_runs(
        self, *, older_than: timedelta, limit: int = 100, after: str | None = None
    ) -> SweepPage: ...

    async def sweep_abandoned_runs(
        self, *, older_than: timedelta, limit: int = 100, after: str | None = None
    ) -> SweepPage: ...

    # -- events -------------------------------------------------------------------------------------------------------

    async def save_run_event(
        self,
        run_id: str,
        *,
        event_type: str,
        iteration_index: int = 0,
        correlation_id: str | None = None,
        data: JsonObject | None = None,
        event_id: str | None = None,
        claim_epoch: int | None = None,
        sequence_index: int | None = None,
    ) -> int: ...

    async def get_run_events(
        self,
        run_id: str,
        *,
        after_sequence_index: int | None = None,
        limit: int = 1000,
        event_types: Sequence[str] | None = None,
        before: datetime | None = None,
    ) -> list[RunEventRecord]: ...

    async def get_events_for_runs(
        self, heads: Mapping[str, int], *, limit_per_run: int
    ) -> dict[str, list[RunEventRecord]]: ...

    # -- traces -------------------------------------------------------------------------------------------------------

    async def save_trace(
        self,
        run_id: str,
        role: str,
        content: str,
        *,
        order_index: int,
        meta: JsonObject | None = None,
        trace_id: str | None = None,
        trace_kind: TraceKind = "message",
        claim_epoch: int | None = None,
        blob_refs: Sequence[BlobEdge] | None = None,
        blob_refs_scope: str | None = None,
    ) -> None: ...

    async def get_traces(self, run_id: str, *, limit: int = 1000, offset: int = 0) -> list[TraceRecord]: ...

    async def get_traces_after(self, run_id: str, *, order_index: int, limit: int) -> list[TraceRecord]: ...

    async def conversation_traces(
        self, run_id: str, *, after_order_index: int | None = None, limit: int, max_bytes: int | None = None
    ) -> ConversationPage: ...

    # -- tool calls ---------------------------------------------------------------------------------------------------

    async def save_tool_call(
        self,
        run_id: str,
        *,
        tool_call_id: str,
        provider_tool_call_id: str | None,
        tool_name: str,
        target: str,
        params: JsonObject | None,
        result_payload: str,
        success: bool,
        duration_ms: int,
        iteration_index: int,
        error_message: str | None = None,
        meta: JsonObject | None = None,
        row_id: str | None = None,
        outcome: str | None = None,
        claim_epoch: int | None = None,
        blob_refs: Sequence[BlobEdge] | None = None,
        blob_refs_scope: str | None = None,
    ) -> None: ...

    async def start_tool_call(
        self,
        run_id: str,
        *,
        row_id: str,
        tool_call_id: str,
        provider_tool_call_id: str | None,
        tool_name: str,
        target: str,
        params: JsonObject | None,
        iteration_index: int,
        claim_epoch: int,
        event: EventWrite,
        trace_id: str | None = None,
    ) -> ToolCallStart: ...

    async def complete_tool_call(
        self,
        run_id: str,
        *,
        row_id: str,
        result_payload: str,
        success: bool,
        outcome: str | None,
        duration_ms: int | None,
        error_message: str | None = None,
        meta: JsonObject | None = None,
        claim_epoch: int,
        trace: TraceWrite,
        event: EventWrite,
        pii_mapping: dict[str, str] | None = None,
        blob_refs: Sequence[BlobEdge] | None = None,
        blob_refs_scope: str | None = None,
    ) -> int: ...

    async def get_replayed_tool_calls(
        self, run_id: str, *, limit: int = 100, tenant_id: TenantScope = UNSCOPED
    ) -> ReplayedToolCalls: ...

    async def get_tool_calls(
        self,
        run_id: str,
        *,
        iteration_index: int | None = None,
        limit: int = 1000,
        offset: int = 0,
        before: datetime | None = None,
    ) -> list[ToolCallRecord]: ...

    # -- usage --------------------------------------------------------------------------------------------------------

    async def save_usage(
        self,
        run_id: str,
        *,
        iteration_index: int,
        usage: UsageStats,
        model: str | None = None,
        provider: str | None = None,
        duration_ms: int | None = None,
        meta: JsonObject | None = None,
        usage_id: str | None = None,
        claim_epoch: int | None = None,
    ) -> None: ...

    async def save_llm_interaction(
        self,
        run_id: str,
        *,
        iteration_index: int,
        usage: UsageStats,
        model: str | None = None,
        provider: str | None = None,
        duration_ms: int | None = None,
        semantic_request: JsonObject | None = None,
        semantic_response: JsonObject | None = None,
        provider_request: JsonObject | None = None,
        provider_response: JsonObject | None = None,
        guardrail_findings: JsonObject | None = None,
        interaction_id: str | None = None,
        claim_epoch: int | None = None,
    ) -> None: ...

    async def get_llm_interactions(
        self,
        run_id: str,
        *,
        iteration_index: int | None = None,
        limit: int = 1000,
        offset: int = 0,
        before: datetime | None = None,
    ) -> list[LLMInteractionRecord]: ...

    # -- notes --------------------------------------------------------------------------------------------------------

    async def add_note(
        self,
        run_id: str,
        *,
        note_id: str,
        text: str,
        metadata: Any = None,
        max_pending: int = 100,
        tenant_id: TenantScope = UNSCOPED,
        claim_epoch: int | None = None,
    ) -> NoteOutcome: ...

    async def get_notes(
        self,
        run_id: str,
        *,
        undelivered_only: bool = False,
        limit: int = 1000,
        after: str | None = None,
        tenant_id: TenantScope = UNSCOPED,
    ) -> list[NoteRecord]: ...

    async def mark_notes_delivered(
        self, run_id: str, note_ids: Sequence[str], *, iteration: int, claim_epoch: int | None = None
    ) -> int: ...

    # -- blobs --------------------------------------------------------------------------------------------------------

    async def put_blob(
        self,
        data: bytes,
        *,
        tenant_scope: str,
        media_type: str = "application/octet-stream",
        width: int = 0,
        height: int = 0,
        frame_count: int = 1,
        ingest_transform: str | None = None,
        blob_store: BlobStore | None = None,
    ) -> BlobInfo: ...

    async def read_blob(
        self, sha256: str, *, tenant_scope: str, run_id: str | None = None, blob_store: BlobStore | None = None
    ) -> bytes: ...

    async def blob_info(self, sha256: str, *, tenant_scope: str) -> BlobInfo | None: ...

    async def blob_references(
        self, sha256: str, *, tenant_scope: str, limit: int = 1000, offset: int = 0
    ) -> list[BlobReference]: ...

    async def purge_blob(
        self, sha256: str, *, tenant_scope: str, reason: str | None = None, blob_store: BlobStore | None = None
    ) -> BlobInfo: ...

    async def collect_garbage(
        self,
        *,
        older_than: timedelta = timedelta(hours=24),
        limit: int = 1000,
        after: str | None = None,
        tenant_scope: str | None = None,
        blob_store: BlobStore | None = None,
    ) -> GcResult: ...

    # -- listing ------------------------------------------------------------------------------------------------------

    async def list_runs(
        self,
        *,
        limit: int = 50,
        offset: int = 0,
        tenant_id: TenantScope = UNSCOPED,
        status: str | Sequence[str] | None = None,
        agent_name: str | None = None,
        parent_run_id: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        metadata_filter: JsonObject | None = None,
    ) -> list[RunRecord]: ...

    async def count_runs(
        self,
        *,
        tenant_id: TenantScope = UNSCOPED,
        status: str | Sequence[str] | None = None,
        agent_name: str | None = None,
        parent_run_id: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        metadata_filter: JsonObject | None = None,
    ) -> int: ...

    async def get_run_statuses(self, run_ids: Sequence[str]) -> dict[str, str]: ...

    # -- delegation ---------------------------------------------------------------------------------------------------

    async def cancel_subtree(
        self, root_run_id: str, *, limit: int = 100, after: str | None = None, tenant_id: TenantScope = UNSCOPED
    ) -> CancelPage: ...

    async def get_delegation_info(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> DelegationInfo | None: ...

    async def child_runs_page(
        self, run_id: str, *, limit: int = 100, after: str | None = None, tenant_id: TenantScope = UNSCOPED
    ) -> list[RunBrief]: ...

    async def get_subtree(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> SubtreeRecord | None: ...

    async def run_usage(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> UsageRollup: ...

    async def subtree_usage(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> UsageRollup: ...

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def close(self) -> None: ...
