"""What rows of the earlier release need before they fit this one. Every repair may run again at any time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from sqlalchemy import JSON, Text, and_, bindparam, cast, column, exists, func, inspect, or_, select, table, update
from sqlalchemy.engine import Connection
from sqlalchemy.sql.expression import TableClause

from dendrux.db.types import encoded_document

PAGE: Final = 500
"""Rows of one statement."""
PAUSED: Final = ("waiting_client_tool", "waiting_human_input", "waiting_approval", "paused")

TEXTS: Final = (
    ("agent_runs", ("error",), ("input_data", "output_data", "meta", "pause_data", "pii_mapping")),
    ("react_traces", ("content",), ("meta",)),
    ("tool_calls", ("error_message",), ("params", "result", "meta")),
    ("token_usage", (), ("meta",)),
    (
        "llm_interactions",
        (),
        ("semantic_request", "semantic_response", "provider_request", "provider_response", "guardrail_findings"),
    ),
    ("run_events", (), ("data",)),
    ("run_inbox", ("text",), ("metadata",)),
)
"""Tables of the earlier release with their columns of free text, and of documents."""

_events = table("run_events", *(column(name) for name in ("id", "agent_run_id", "sequence_index", "created_at")))
_runs = table(
    "agent_runs",
    *(column(name) for name in ("id", "tenant_id", "status", "paused_status", "idempotency_scope", "idempotency_key")),
)


def event_positions(connection: Connection) -> int:
    """Give every event an index of its own in its run: how many moved.

    The first of several events at one index stays; the others follow the run's last event, in their order. So a
    follower's cursor keeps its meaning, and one that could see only the first of them reads the others now.
    """
    if not inspect(connection).has_table(_events.name):
        return 0
    events, moved = _events.c, 0
    doubled = (
        select(events.agent_run_id)
        .group_by(events.agent_run_id, events.sequence_index)
        .having(func.count() > 1)
        .distinct()
        .order_by(events.agent_run_id)
    )
    move = update(_events).where(events.id == bindparam("p_id")).values(sequence_index=bindparam("p_index"))
    for run_id in connection.scalars(doubled).all():
        log = connection.execute(
            select(events.id, events.sequence_index)
            .where(events.agent_run_id == run_id)
            .order_by(events.sequence_index, events.created_at, events.id)
        ).all()
        places: dict[int, list[str]] = defaultdict(list)
        for event_id, index in log:
            places[index].append(event_id)
        following = max(places) + 1
        late = [event_id for index in sorted(places) for event_id in places[index][1:]]
        changes = [{"p_id": event_id, "p_index": following + place} for place, event_id in enumerate(late)]
        connection.execute(move, changes)
        moved += len(changes)
    return moved


def rows_of_old_writers(connection: Connection) -> None:
    """Fill the columns that the earlier release does not write and this one reads.

    An idempotency key counts within its tenant, unless the tenant used the same key through this release meanwhile:
    then that run keeps it. A paused run knows the status to which an unused claim returns it.
    """
    runs, rival = _runs.c, _runs.alias("rival").c
    taken = exists(
        select(rival.id).where(rival.idempotency_scope == runs.tenant_id, rival.idempotency_key == runs.idempotency_key)
    )
    _page_by_page(
        connection,
        and_(runs.tenant_id != "", runs.idempotency_scope == "", ~taken),
        {"idempotency_scope": runs.tenant_id},
        still=runs.idempotency_scope == "",
    )
    _page_by_page(
        connection,
        and_(runs.status.in_(PAUSED), or_(runs.paused_status.is_(None), runs.paused_status != runs.status)),
        {"paused_status": runs.status},
        still=runs.status.in_(PAUSED),
    )


def marks(connection: Connection) -> None:
    """PostgreSQL: write U+0000 and U+001A of old rows as this release writes them, or it would read others.

    Needs: rows that this release has not written; those have their marks.
    """
    for name, prose, documents in TEXTS:
        rows = table(name, column("id"), *(column(each) for each in (*prose, *documents)))
        for each in prose:
            marked = func.replace(rows.c[each], "\x1a", "\x1aA")
            connection.execute(update(rows).where(func.strpos(rows.c[each], "\x1a") > 0).values({each: marked}))
        for each in documents:
            _mark_documents(connection, rows, rows.c[each])


def _mark_documents(connection: Connection, rows: TableClause[Any], document: Any) -> None:
    key = rows.c.id
    text, changed = cast(document, Text()), bindparam("p_text", type_=Text())
    write = update(rows).where(key == bindparam("p_id")).values({document.name: cast(changed, JSON())})
    after = ""
    suspect = or_(func.strpos(text, r"\u0000") > 0, func.strpos(text, r"\u001a") > 0)
    while found := connection.execute(select(key, text).where(suspect, key > after).order_by(key).limit(PAGE)).all():
        for row_id, stored in found:
            connection.execute(write, {"p_id": row_id, "p_text": encoded_document(stored)})
        after = found[-1][0]


def _page_by_page(connection: Connection, needy: Any, values: dict[str, Any], *, still: Any) -> None:
    """Select ids, then change those rows: no database has to change a table that the same statement asks about."""
    runs = _runs.c
    after = ""
    while ids := connection.scalars(select(runs.id).where(needy, runs.id > after).order_by(runs.id).limit(PAGE)).all():
        connection.execute(update(_runs).where(runs.id.in_(ids), still).values(values))
        after = ids[-1]
