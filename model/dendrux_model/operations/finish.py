"""The end of a run: a terminal status, which nothing leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dendrux.runtime.values import TraceWrite, UsageStats
from dendrux.vocabulary import FINALIZE_EVENTS, META_ERROR_INFO, OPEN_STATUSES, TERMINAL_EVENTS, TERMINAL_STATUSES
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.operations.pauses import progressed
from dendrux_model.operations.traces import obstructed, trace_rows
from dendrux_model.outcomes import CONFLICT, FALSE, INVALID, NONE, NOT_FOUND, STALE, TRUE, Returned
from dendrux_model.values import json_text, members, merged
from dendrux_model.world import Event, Run, World, find, put


def finished(run: Run, op: Any, now: int) -> Run:
    """The run as its end leaves it: no request, no document, no submission."""
    return progressed(run, op)._replace(
        status=op.status,
        cancel_requested=False,
        pause_requested=False,
        pause_reason=None,
        pause_document=None,
        submission=None,
        answer=run.answer if op.answer is None else op.answer,
        error=run.error if op.error is None else op.error,
        failure_reason=run.failure_reason if op.failure_reason is None else op.failure_reason,
        progress_at=rules.renewed(run, op.claim_epoch, now),
        lease_expired_at=None,
        updated_at=now,
    )


def guards(statuses: Sequence[str] | frozenset[str]) -> bool:
    """Whether a guard names at least one status, and none that a run cannot leave."""
    return bool(statuses) and OPEN_STATUSES.issuperset(statuses)


@dataclass(frozen=True, kw_only=True)
class FinalizeWithEvent(Operation, lost_ack="identity", identity="event_id"):
    """End an open run and log its terminal event, together. None to whoever came too late."""

    run_id: str
    status: str
    allowed_current_statuses: Sequence[str]
    event_type: str
    event_data: dict[str, Any] | None = None
    event_id: str | None = None
    answer: str | None = None
    error: str | None = None
    iteration_count: int | None = None
    total_usage: UsageStats | None = None
    pii_mapping: dict[str, str] | None = None
    failure_reason: str | None = None
    trace: TraceWrite | None = None
    claim_epoch: int | None = None

    not_persisted = frozenset({"allowed_current_statuses"})

    def step(self, world: World) -> Step:
        if self.event_type not in FINALIZE_EVENTS or self.status not in TERMINAL_EVENTS[self.event_type]:
            return world, INVALID
        if not guards(self.allowed_current_statuses):
            return world, INVALID
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if self.trace is not None and run.format != 2:
            return world, INVALID
        held = rules.holder(world, "events", self.event_id)
        if held is not None and held[0] is run:
            return world, rules.repeated(held, run.id, self.content, Returned(held[1]))
        if rules.stale(run, self.claim_epoch):
            return world, STALE
        if rules.ended(run) or run.status not in self.allowed_current_statuses:
            return world, NONE
        if held is not None or (self.trace is not None and obstructed(world, run, self.trace)):
            return world, CONFLICT
        after = finished(run, self, world.now)
        event = Event(
            self.event_id, self.content, self.event_type, after.iteration_count, None, json_text(self.event_data)
        )
        meta = after.meta
        if self.event_data is not None and "error_info" in self.event_data:
            meta = merged(meta, members({META_ERROR_INFO: self.event_data["error_info"]}) or ())
        traces = after.traces if self.trace is None else (*after.traces, *trace_rows((self.trace,)))
        after = after._replace(events=rules.logged(after, event), meta=meta, traces=traces)
        return put(world, after), Returned(len(run.events))


@dataclass(frozen=True, kw_only=True)
class FinalizeRunIfStatusIn(Operation, lost_ack="unknown"):
    """Format 1: end a run that has one of these statuses, without an event."""

    run_id: str
    status: str
    allowed_current_statuses: Sequence[str]
    answer: str | None = None
    error: str | None = None
    iteration_count: int | None = None
    total_usage: UsageStats | None = None
    pii_mapping: dict[str, str] | None = None
    failure_reason: str | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        return finalized(world, self, self.allowed_current_statuses)


@dataclass(frozen=True, kw_only=True)
class FinalizeRun(Operation, lost_ack="unknown"):
    """Format 1: end an open run, or one that has exactly the expected status, without an event."""

    run_id: str
    status: str
    answer: str | None = None
    error: str | None = None
    iteration_count: int | None = None
    total_usage: UsageStats | None = None
    expected_current_status: str | None = None
    pii_mapping: dict[str, str] | None = None
    failure_reason: str | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        allowed = OPEN_STATUSES if self.expected_current_status is None else (self.expected_current_status,)
        return finalized(world, self, allowed)


def finalized(world: World, op: FinalizeRun | FinalizeRunIfStatusIn, allowed: Sequence[str] | frozenset[str]) -> Step:
    """The legacy pair: one guard, no event."""
    if op.status not in TERMINAL_STATUSES or not guards(allowed):
        return world, INVALID
    run = find(world, op.run_id)
    if run is None:
        return world, NOT_FOUND
    if run.format == 2:
        return world, INVALID
    if rules.stale(run, op.claim_epoch):
        return world, STALE
    if rules.ended(run) or run.status not in allowed:
        return world, FALSE
    return put(world, finished(run, op, world.now)), TRUE
