"""Reads of which the protocol says more than the model: filters by time, places in a list."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from dendrux.runtime.values import ExpiredLease, RunRecord
from dendrux.store.ops.leases import lease_place
from dendrux.testing.in_memory.answers import record
from dendrux.testing.in_memory.call import Call, Handler
from dendrux.testing.in_memory.data import instant_of
from dendrux_model.operations import ListRuns
from dendrux_model.operations.runs import shown
from dendrux_model.world import Run, find

ALL: Final = sys.maxsize


def before(kind: str) -> Callable[[Call], Any]:
    """A page of the rows that were stored before a time."""

    def answer(call: Call) -> Any:
        bound: datetime | None = call.given["before"]
        if bound is None:
            return call.plain()
        whole = call.operation(limit=ALL, **({"offset": 0} if "offset" in call.given else {}))
        found = [row for row in call.value(whole) if call.data.stored_at(kind, row["id"]) < bound]
        return call.answer(page(found, call))

    return answer


def page(rows: list[Any], call: Call) -> list[Any]:
    """The page of a list that a call asks for."""
    offset: int = call.given.get("offset", 0)
    return rows[offset : offset + call.given["limit"]]


def notes(call: Call) -> Any:
    """A page of the inbox after a note; nothing comes after one that is not there."""
    after: str | None = call.given["after"]
    if after is None:
        return call.plain()
    run = find(call.data.world, call.given["run_id"])
    places = {note.id: place for place, note in enumerate(run.notes if run is not None else ())}
    found = call.value(call.operation(limit=ALL))
    return call.answer(page([row for row in found if places[row["id"]] > places.get(after, ALL)], call))


# -- runs -------------------------------------------------------------------------------------------------------------


def matching(call: Call) -> list[Run]:
    """The runs that the filters of a list find, newest first."""
    filters = {name: call.given[name] for name in FILTERS}
    status = filters.pop("status")
    operation = ListRuns(**filters, status=None if status is None else tuple(status), limit=ALL)
    born = {run.id: run for run in call.data.world.runs}
    after, until = call.given["started_after"], call.given["started_before"]
    return [
        run
        for run in (born[run_id] for run_id in call.value(operation))
        if (after is None or run.created_at >= instant_of(after))
        and (until is None or run.created_at < instant_of(until))
    ]


FILTERS: Final = ("agent_name", "tenant_id", "status", "parent_run_id", "metadata_filter")


def leases(call: Call) -> list[ExpiredLease]:
    """A page of the runs that wait for somebody to take them over, the oldest marks first."""
    found = [record(ExpiredLease, lease, run_id=run_id) for run_id, lease in call.value(call.operation()).items()]
    found.sort(key=lambda lease: (lease.expired_at, lease.run_id))
    if call.given["after"] is not None:
        place = lease_place(call.given["after"])
        found = [lease for lease in found if (lease.expired_at, lease.run_id) > place]
    return page(found, call)


HANDLERS: Final[dict[str, Handler]] = {
    "get_run_events": before("events"),
    "get_tool_calls": before("tool_calls"),
    "get_llm_interactions": before("interactions"),
    "get_notes": notes,
    "count_runs": lambda call: len(matching(call)),
    "list_runs": lambda call: [record(RunRecord, shown(run)) for run in page(matching(call), call)],
    "get_lease_expired": leases,
}
