"""Who owns a run: claims of paused runs, each under a new epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from dendrux.runtime.values import BlobEdge, ToolCallWrite, TraceWrite
from dendrux.vocabulary import RUNNING, UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.operations.tool_calls import tool_call_rows
from dendrux_model.operations.traces import trace_rows
from dendrux_model.outcomes import (
    CONFLICT,
    FALSE,
    INVALID,
    NONE,
    NOT_FOUND,
    OUTCOME_UNKNOWN,
    STALE,
    TRUE,
    VALIDATION,
    Refused,
    Returned,
)
from dendrux_model.values import MINTED, json_text, members, object_text
from dendrux_model.world import Run, Submission, World, find, put


def claimed(run: Run, now: int, submission: Submission | None) -> Run:
    """The run under its next owner: running, epoch + 1, a fresh lease; the pause document stays."""
    epoch = run.claim_epoch + 1
    return run._replace(
        status=RUNNING,
        claim_epoch=epoch,
        claimed_epoch=epoch,
        submission=submission,
        progress_at=now,
        updated_at=now,
    )


@dataclass(frozen=True, kw_only=True)
class ClaimPausedRun(Operation, lost_ack="claim"):
    """Take a paused run. Answers the new epoch, or None to whoever came too late."""

    run_id: str
    expected_status: str
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None or not rules.in_scope(run, self.tenant_id):
            return world, NOT_FOUND
        if not rules.claimable(run, self.expected_status):
            return world, NONE
        after = claimed(run, world.now, None)
        return put(world, after), Returned(after.claim_epoch)


@dataclass(frozen=True, kw_only=True)
class SubmitAndClaim(Operation, lost_ack="claim"):
    """Take a paused run and leave a submission beside its document.

    `validate` names how the caller judges it: agreeing, refusing, or as a function that has to be awaited, which is
    refused as an argument, or when what it returned does.
    """

    run_id: str
    expected_status: str
    submitted_data: dict[str, Any]
    submission_id: str | None = None
    validate: Literal["accept", "refuse", "async", "awaitable"] | None = None
    tenant_id: TenantScope = UNSCOPED
    blob_refs: tuple[BlobEdge, ...] | None = None
    blob_refs_scope: str | None = None

    not_persisted = frozenset({"expected_status", "submission_id", "validate", "tenant_id"})

    def step(self, world: World) -> Step:
        if self.validate == "async":
            return world, INVALID
        run = find(world, self.run_id)
        if run is None or not rules.in_scope(run, self.tenant_id):
            return world, NOT_FOUND
        held = run.submission
        if held is not None and self.submission_id is not None and held.id == self.submission_id:
            if held.content != self.content:
                return world, CONFLICT
            return world, OUTCOME_UNKNOWN if rules.unconsumed(run) else NONE
        if not rules.claimable(run, self.expected_status):
            return world, NONE
        if self.validate in ("refuse", "awaitable"):
            return world, VALIDATION if self.validate == "refuse" else INVALID
        references = rules.referred(world, self, run.tenant_id, run.blob_refs)
        if isinstance(references, Refused):
            return world, references
        after = claimed(run, world.now, self.submission)._replace(blob_refs=references)
        return put(world, after), Returned(after.claim_epoch)

    @cached_property
    def submission(self) -> Submission:
        """What is stored beside the document, not yet consumed."""
        return Submission(self.submission_id, self.content, members(self.submitted_data) or ())


@dataclass(frozen=True, kw_only=True)
class ConsumeSubmission(Operation, lost_ack="identity", identity="consumption_id"):
    """Format 2: hand the submission to its owner, once, and store what is made of it. None where there is none."""

    run_id: str
    claim_epoch: int
    consumption_id: str
    traces: tuple[TraceWrite, ...] = ()
    tool_calls: tuple[ToolCallWrite, ...] = ()
    pii_mapping: dict[str, str] | None = None

    fence_first = True
    identity_of_run = True
    not_persisted = frozenset({"traces", "tool_calls", "pii_mapping"})

    @property
    def by_time(self) -> tuple[str | None, frozenset[str | None]]:
        return "tool_calls", frozenset(call.row_id for call in self.tool_calls)

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if run.format == 1:
            return world, INVALID
        refusal = rules.refused(run, self.claim_epoch, final=True)
        if refusal is not None:
            return world, refusal
        held = run.submission
        if held is None or held.consumption_id not in (None, self.consumption_id):
            return world, NONE
        handed = Returned({"submission_id": held.id or MINTED, "data": object_text(held.members)})
        if held.consumption_id is not None:
            return world, handed
        if not rules.free(world, run, self.rows):
            return world, CONFLICT
        after = rules.with_rows(run, self.rows)._replace(
            submission=held._replace(consumption_id=self.consumption_id),
            pii_mapping=run.pii_mapping if self.pii_mapping is None else json_text(self.pii_mapping),
            progress_at=world.now,
            lease_expired_at=None,
        )
        return put(world, after), handed

    @cached_property
    def rows(self) -> Mapping[str, tuple[Any, ...]]:
        """The rows made of the submission."""
        return {"traces": trace_rows(self.traces), "tool_calls": tool_call_rows(self.tool_calls)}


@dataclass(frozen=True, kw_only=True)
class ReleaseRunClaim(Operation, lost_ack="unknown"):
    """Hand a claim back unused. The epoch stays, so the next claim gets a new one."""

    run_id: str
    claim_epoch: int

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if rules.stale(run, self.claim_epoch):
            return world, STALE
        consumed = run.submission is not None and not rules.unconsumed(run)
        if run.status != RUNNING or run.claimed_epoch != self.claim_epoch or run.paused_status is None or consumed:
            return world, FALSE
        after = run._replace(
            status=run.paused_status,
            pause_requested=False,
            pause_reason=None,
            submission=None,
            progress_at=world.now,
            lease_expired_at=None,
            paused_at=world.now,
            updated_at=world.now,
        )
        return put(world, after), TRUE
