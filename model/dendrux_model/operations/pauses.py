"""Pausing: a run waits for somebody, with a document that says for what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dendrux.runtime.values import UsageStats
from dendrux.vocabulary import PAUSED_STATUSES, RUN_PAUSED, RUNNING, UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import CONFLICT, FALSE, INVALID, NONE, NOT_FOUND, STALE, TERMINAL, TRUE, Returned
from dendrux_model.values import MINTED, At, json_text, members, merged, money, object_text
from dendrux_model.world import Event, Members, Run, Totals, World, find, put


def totals(before: Totals, usage: UsageStats | None) -> Totals:
    """`total_usage` sets absolute values; None leaves the old ones."""
    if usage is None:
        return before
    return Totals(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_input_tokens or 0,
        usage.cache_creation_input_tokens or 0,
        usage.reasoning_tokens or 0,
        money(usage.cost_usd),
    )


def progressed(run: Run, op: Any) -> Run:
    """What pause and finalize carry along: the count, the totals and the mapping, each left alone when None."""
    return run._replace(
        iteration_count=run.iteration_count if op.iteration_count is None else op.iteration_count,
        totals=totals(run.totals, op.total_usage),
        pii_mapping=run.pii_mapping if op.pii_mapping is None else json_text(op.pii_mapping),
    )


def paused(run: Run, op: Any, now: int) -> Run:
    """The run as the pause leaves it: a document and no requests; a submission of the last pause goes."""
    return progressed(run, op)._replace(
        status=op.status,
        paused_status=op.status,
        pause_requested=False,
        pause_reason=None,
        pause_document=op.document,
        submission=None,
        progress_at=rules.renewed(run, op.claim_epoch, now),
        lease_expired_at=None,
        paused_at=now,
        updated_at=now,
    )


class WithDocument:
    """An operation that stores a pause document."""

    pause_data: dict[str, Any]

    @cached_property
    def document(self) -> Members:
        """The document as it is stored."""
        return members(self.pause_data) or ()


@dataclass(frozen=True, kw_only=True)
class PauseWithEvent(WithDocument, Operation, lost_ack="identity", identity="event_id"):
    """Pause a running run that nobody asked to cancel, and log `run.paused`, together."""

    run_id: str
    status: str
    pause_data: dict[str, Any]
    event_data: dict[str, Any] | None = None
    event_id: str | None = None
    iteration_count: int | None = None
    pii_mapping: dict[str, str] | None = None
    total_usage: UsageStats | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        if self.status not in PAUSED_STATUSES:
            return world, INVALID
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        held = rules.holder(world, "events", self.event_id)
        if held is not None and held[0] is run:
            return world, rules.repeated(held, run.id, self.content, Returned(held[1]))
        if rules.stale(run, self.claim_epoch):
            return world, STALE
        if run.status != RUNNING or run.cancel_requested:
            return world, NONE
        if held is not None or (run.format == 2 and rules.unconsumed(run)):
            return world, CONFLICT
        after = paused(run, self, world.now)
        event = Event(self.event_id, self.content, RUN_PAUSED, after.iteration_count, None, json_text(self.event_data))
        return put(world, after._replace(events=rules.logged(after, event))), Returned(len(run.events))


@dataclass(frozen=True, kw_only=True)
class TryPauseRun(WithDocument, Operation, lost_ack="unknown"):
    """Format 1: pause a running run that nobody asked to cancel, without an event."""

    run_id: str
    status: str
    pause_data: dict[str, Any]
    iteration_count: int | None = None
    pii_mapping: dict[str, str] | None = None
    total_usage: UsageStats | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        if self.status not in PAUSED_STATUSES:
            return world, INVALID
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if run.format == 2:
            return world, INVALID
        if rules.stale(run, self.claim_epoch):
            return world, STALE
        if run.status != RUNNING or run.cancel_requested:
            return world, FALSE
        return put(world, paused(run, self, world.now)), TRUE


@dataclass(frozen=True, kw_only=True)
class PauseRun(WithDocument, Operation, lost_ack="unknown"):
    """Format 1, legacy: pause a running run, cancel-requested or not."""

    run_id: str
    status: str
    pause_data: dict[str, Any]
    iteration_count: int | None = None
    pii_mapping: dict[str, str] | None = None
    total_usage: UsageStats | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        if self.status not in PAUSED_STATUSES:
            return world, INVALID
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if run.format == 2:
            return world, INVALID
        if rules.stale(run, self.claim_epoch):
            return world, STALE
        if run.status != RUNNING:
            return world, TERMINAL if rules.ended(run) else CONFLICT
        return put(world, paused(run, self, world.now)), NONE


@dataclass(frozen=True, kw_only=True)
class GetPauseState(Operation, lost_ack="read"):
    """Read the pause document, with the submission's members laid over it; None where there is none."""

    run_id: str

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None or run.pause_document is None:
            return world, NONE
        if run.submission is None:
            return world, Returned({"document": object_text(run.pause_document), "submission_id": None})
        document = merged(run.pause_document, run.submission.members)
        return world, Returned({"document": object_text(document), "submission_id": run.submission.id or MINTED})


@dataclass(frozen=True, kw_only=True)
class GetPending(Operation, lost_ack="read"):
    """Read what a paused run waits for: a summary of its document; None where nothing is waited for."""

    run_id: str
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None or not rules.in_scope(run, self.tenant_id) or run.status not in PAUSED_STATUSES:
            return world, NONE
        document = {name: json.loads(value.text) for name, value in run.pause_document or ()}
        reason, iteration = document.get("pause_reason"), document.get("iteration")
        return world, Returned(
            {
                "status": run.status,
                "reason": reason if isinstance(reason, str) else None,
                "iteration": iteration if type(iteration) is int else None,
                "calls": awaited(document.get("pending_tool_calls"), document.get("pending_targets")),
                "paused_at": None if run.paused_at is None else At(run.paused_at),
            }
        )


def awaited(calls: Any, targets: Any) -> list[dict[str, Any]]:
    """The calls that a document names; its targets say where those go that do not say it themselves."""
    known = targets if isinstance(targets, dict) else {}
    return [
        {
            "id": call["id"],
            "name": call["name"],
            "params": json_text(call.get("params")),
            "target": call.get("target") or known.get(call["id"]),
        }
        for call in (calls if isinstance(calls, list) else ())
        if isinstance(call, dict) and isinstance(call.get("id"), str) and isinstance(call.get("name"), str)
    ]
