"""The log of a run: events with gapless indexes, each taken inside its own insert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam

from dendrux.db.models import run_events
from dendrux.runtime.values import EventWrite, JsonObject, RunEventRecord
from dendrux.store import records
from dendrux.store.digest import content_digest
from dendrux.store.ops.evidence import store_once
from dendrux.store.statements import page
from dendrux.store.tx import Entry, Facts, Outcome, Tx, Unchanged
from dendrux.vocabulary import RESERVED_EVENTS

events = run_events.c

WRITTEN_BY = {
    "run.paused": "pause_with_event",
    "run.completed": "finalize_with_event",
    "run.error": "finalize_with_event",
    "run.cancelled": "finalize_with_event or cancel_subtree",
    "run.interrupted": "sweep_stale_runs",
    "run.abandoned": "sweep_abandoned_runs",
    "run.lease_expired": "mark_lease_expired",
    "run.reclaimed": "reclaim_run",
}
"""The operation that writes each reserved event, for the message of the refusal."""


def event_entry(
    tx: Tx,
    run_id: str,
    event_id: str | None,
    digest: str,
    event_type: str,
    data: JsonObject | None,
    iteration_index: int,
    correlation_id: str | None = None,
) -> Entry:
    """An event to append. Its index is not among the values: the insert takes it."""
    return Entry(
        table=run_events,
        values={
            "id": event_id,
            "agent_run_id": run_id,
            "event_type": event_type,
            "iteration_index": iteration_index,
            "correlation_id": correlation_id,
            "data": data,
            "content_digest": digest,
            "created_at": tx.now,
        },
    )


def written_event(tx: Tx, run_id: str, write: EventWrite, event_id: str, digest: str) -> Entry:
    """An event that an operation writes together with the change it describes."""
    return event_entry(
        tx, run_id, event_id, digest, write.event_type, write.data, write.iteration_index, write.correlation_id
    )


async def save_run_event(
    tx: Tx,
    run_id: str,
    *,
    event_type: str,
    iteration_index: int = 0,
    correlation_id: str | None = None,
    data: JsonObject | None = None,
    event_id: str | None = None,
    claim_epoch: int | None = None,
    sequence_index: int | None = None,
) -> Outcome[int]:
    """Append an event to the run's log: the index it took. A legacy `sequence_index` is accepted and ignored.

    Refuses: RunNotFoundError; on format 2 ValueError for an event that another operation writes; WriteConflictError
    when the id holds something else; StaleClaimError; RunAlreadyTerminalError.
    """
    del sequence_index
    digest = content_digest(
        "save_run_event",
        event_type=event_type,
        iteration_index=iteration_index,
        correlation_id=correlation_id,
        data=data,
    )

    def entry(_run: Facts) -> Entry:
        return event_entry(tx, run_id, event_id, digest, event_type, data, iteration_index, correlation_id)

    def own_operation(run: Facts) -> None:
        if run.format == 2 and event_type in RESERVED_EVENTS:
            raise ValueError(
                f"event_type {event_type!r} is not for save_run_event on format 2: use {WRITTEN_BY[event_type]}"
            )

    appended = await store_once(tx, run_id, claim_epoch, entry, final=True, rule=own_operation)
    return appended.place if appended.fresh else Unchanged(appended.place)


async def get_run_events(
    tx: Tx,
    run_id: str,
    *,
    after_sequence_index: int | None = None,
    limit: int = 1000,
    event_types: Sequence[str] | None = None,
    before: datetime | None = None,
) -> list[RunEventRecord]:
    """A page of the log in order, after a cursor. An empty list of types matches nothing."""
    values = {
        "p_run": run_id,
        "p_after": after_sequence_index,
        "p_types": event_types,
        "p_before": before,
        "p_limit": limit,
        "p_offset": 0,
    }
    shape = _of_run(after_sequence_index is not None, event_types is not None, before is not None)
    return [records.event(row) for row in await tx.rows(shape, values)]


@cache
def _of_run(after: bool, types: bool, before: bool) -> Select[Any]:
    statement = records.EVENT.where(events.agent_run_id == bindparam("p_run"))
    if after:
        statement = statement.where(events.sequence_index > bindparam("p_after"))
    if types:
        statement = statement.where(events.event_type.in_(bindparam("p_types", expanding=True)))
    if before:
        statement = statement.where(events.created_at < bindparam("p_before"))
    return page(statement, events.sequence_index)


async def get_events_for_runs(
    tx: Tx, heads: Mapping[str, int], *, limit_per_run: int
) -> dict[str, list[RunEventRecord]]:
    """The first events above each run's head, of at most 200 runs; a run without any is missing from the answer."""
    if not heads:
        return {}
    found: dict[str, list[RunEventRecord]] = {}
    statement = tx.store.events_for_runs_query(heads, limit_per_run=limit_per_run)
    for row in await tx.rows(statement):
        found.setdefault(row.agent_run_id, []).append(records.event(row))
    return {run_id: sorted(page, key=lambda event: event.sequence_index) for run_id, page in found.items()}
