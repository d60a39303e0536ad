"""Runs: how one begins, what it is, and its metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dendrux.runtime.values import BlobEdge, SeedTrace
from dendrux.vocabulary import META_PAUSE_REQUEST, RUNNING, TERMINAL_STATUSES, UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.operations.traces import seed_rows
from dendrux_model.outcomes import CLOSED, CONFLICT, INVALID, KEY_CONFLICT, NONE, NOT_FOUND, STALE, Refused, Returned
from dendrux_model.values import At, json_text, members, merged, object_text
from dendrux_model.world import Run, Totals, World, find, put


@dataclass(frozen=True, kw_only=True)
class CreateRun(Operation, lost_ack="identity", identity="run_id"):
    """Begin a run, once per run_id and once per idempotency key of a tenant."""

    run_id: str
    agent_name: str
    input_data: dict[str, Any] | None = None
    model: str | None = None
    strategy: str | None = None
    parent_run_id: str | None = None
    delegation_level: int = 0
    tenant_id: str | None = None
    meta: dict[str, Any] | None = None
    idempotency_key: str | None = None
    idempotency_fingerprint: str | None = None
    retry_of_run_id: str | None = None
    blob_refs: tuple[BlobEdge, ...] | None = None
    blob_refs_scope: str | None = None
    seed_traces: tuple[SeedTrace, ...] = ()
    pii_mapping: dict[str, str] | None = None
    parent_claim_epoch: int | None = None

    not_persisted = frozenset({"parent_claim_epoch"})

    @property
    def by_time(self) -> tuple[str | None, frozenset[str | None]]:
        return "runs", frozenset([self.run_id])

    def step(self, world: World) -> Step:
        parent = None
        for related in (self.parent_run_id, self.retry_of_run_id):
            run = None if related is None else find(world, related)
            if related is not None and (run is None or run.tenant_id != self.tenant_id):
                return world, NOT_FOUND
            parent = run if related == self.parent_run_id else parent
        if parent is not None and self.delegation_level != parent.delegation_level + 1:
            return world, INVALID
        same = find(world, self.run_id)
        if same is not None:
            return world, self.created(same) if same.content == self.content else CONFLICT
        rival = self.holder_of_key(world)
        if rival is not None:
            if rival.idempotency_fingerprint != (self.idempotency_fingerprint or ""):
                return world, KEY_CONFLICT
            return world, existing(rival)
        if parent is not None and rules.stale(parent, self.parent_claim_epoch):
            return world, STALE
        if parent is not None and (parent.status in TERMINAL_STATUSES or parent.cancel_requested):
            return world, CLOSED
        if parent is not None and self.parent_claim_epoch is not None and parent.status != RUNNING:
            return world, STALE
        if self.seed_traces and world.new_format == 1:
            return world, INVALID
        references = rules.referred(world, self, self.tenant_id)
        if isinstance(references, Refused):
            return world, references
        run = self.born(world)._replace(blob_refs=references)
        return world._replace(runs=(*world.runs, run)), self.created(run)

    def persisted(self) -> dict[str, Any]:
        return {**super().persisted(), "idempotency_fingerprint": self.idempotency_fingerprint or ""}

    def holder_of_key(self, world: World) -> Run | None:
        """The run that has this key in this tenant; an absent tenant and "" are one scope here."""
        if self.idempotency_key is None:
            return None
        for run in world.runs:
            if run.idempotency_key == self.idempotency_key and (run.tenant_id or "") == (self.tenant_id or ""):
                return run
        return None

    def created(self, run: Run) -> Returned:
        """The creator owns epoch 1, whatever became of the run since."""
        return Returned(
            {"run_id": run.id, "outcome": "created", "status": run.status, "format": run.format, "claim_epoch": 1}
        )

    def born(self, world: World) -> Run:
        """A fresh run: running under epoch 1 with a fresh lease."""
        return Run(
            id=self.run_id,
            status=RUNNING,
            claim_epoch=1,
            cancel_requested=False,
            pause_requested=False,
            pause_reason=None,
            pause_document=None,
            paused_status=None,
            claimed_epoch=None,
            submission=None,
            iteration_count=0,
            totals=Totals(),
            answer=None,
            error=None,
            failure_reason=None,
            meta=members(self.meta),
            pii_mapping=json_text(self.pii_mapping),
            events=(),
            traces=seed_rows(self.seed_traces),
            tool_calls=(),
            usage=(),
            interactions=(),
            notes=(),
            progress_at=world.now,
            paused_at=None,
            updated_at=world.now,
            format=world.new_format,
            created_at=world.now,
            content=self.content,
            tenant_id=self.tenant_id,
            agent_name=self.agent_name,
            input_data=json_text(self.input_data),
            model=self.model,
            strategy=self.strategy,
            parent_run_id=self.parent_run_id,
            delegation_level=self.delegation_level,
            retry_of_run_id=self.retry_of_run_id,
            idempotency_key=self.idempotency_key,
            idempotency_fingerprint=self.idempotency_fingerprint or "",
        )


def existing(run: Run) -> Returned:
    """Somebody else's run under the same key: the caller owns no epoch of it."""
    outcome = "existing_terminal" if run.status in TERMINAL_STATUSES else "existing_active"
    return Returned(
        {"run_id": run.id, "outcome": outcome, "status": run.status, "format": run.format, "claim_epoch": 0}
    )


@dataclass(frozen=True, kw_only=True)
class UpdateRunMeta(Operation, lost_ack="unknown"):
    """Lay a patch over the run's meta, one top-level member at a time."""

    run_id: str
    patch: dict[str, Any]
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        refusal = rules.refused(run, self.claim_epoch)
        if refusal is not None:
            return world, refusal
        if not self.patch:
            return world, NONE
        after = run._replace(
            meta=merged(run.meta, members(self.patch) or ()),
            updated_at=world.now,
            progress_at=rules.renewed(run, self.claim_epoch, world.now),
            lease_expired_at=rules.mark(run, self.claim_epoch),
        )
        if not rules.recoverable(after):
            after = after._replace(lease_expired_at=None)  # nobody could take it over any more
        return put(world, after), NONE


@dataclass(frozen=True, kw_only=True)
class GetRun(Operation, lost_ack="read"):
    """Read one run."""

    run_id: str
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None or not rules.in_scope(run, self.tenant_id):
            return world, NONE
        return world, Returned(shown(run))


def shown(run: Run) -> dict[str, Any]:
    """A run as its record shows it."""
    meta = run.meta
    if run.pause_reason is not None:
        meta = merged(meta, members({META_PAUSE_REQUEST: {"reason": run.pause_reason}}) or ())
    return {
        "id": run.id,
        "tenant_id": run.tenant_id,
        "agent_name": run.agent_name,
        "status": run.status,
        "format": run.format,
        "claim_epoch": run.claim_epoch,
        "claimed_epoch": run.claimed_epoch,
        "paused_status": run.paused_status,
        "iteration_count": run.iteration_count,
        "input_data": run.input_data,
        "answer": run.answer,
        "error": run.error,
        "failure_reason": run.failure_reason,
        "model": run.model,
        "strategy": run.strategy,
        "meta": object_text(meta),
        "parent_run_id": run.parent_run_id,
        "delegation_level": run.delegation_level,
        "retry_of_run_id": run.retry_of_run_id,
        "idempotency_key": run.idempotency_key,
        "cancel_requested": run.cancel_requested,
        "pause_requested": run.pause_requested,
        "reclaim_count": run.reclaim_count,
        "total_input_tokens": run.totals.input_tokens,
        "total_output_tokens": run.totals.output_tokens,
        "total_cache_read_tokens": run.totals.cache_read_tokens,
        "total_cache_creation_tokens": run.totals.cache_creation_tokens,
        "total_reasoning_tokens": run.totals.reasoning_tokens,
        "total_cost_usd": run.totals.cost_usd,
        "lease_expired_at": None if run.lease_expired_at is None else At(run.lease_expired_at),
        "last_progress_at": At(run.progress_at),
        "paused_at": None if run.paused_at is None else At(run.paused_at),
        "created_at": At(run.created_at),
        "updated_at": At(run.updated_at),
    }


@dataclass(frozen=True, kw_only=True)
class GetPiiMapping(Operation, lost_ack="read"):
    """Read the mapping of placeholders to what they stand for."""

    run_id: str

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        return world, Returned(run.pii_mapping if run else None)
