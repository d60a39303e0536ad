"""A database as the earlier release left it: its tables, and rows of every kind with what it let pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any

from sqlalchemy import null, select
from sqlalchemy.engine import Connection

from dendrux_migrations.shapes import earlier

BYTES = b"\x00\xff'"
DIGEST = sha256(BYTES).hexdigest()
START = datetime(2025, 3, 4, 5, 6, 7, 89012, tzinfo=UTC)
TEXT = 'é 漢字 😀 trailing  "quotes" \\ %s :name'
DOCUMENT = {"a": [1, 1.5, True, None, {"é": TEXT}], "dendrux.stop_reason": "end"}


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def run(id: str, status: str, **values: Any) -> dict[str, Any]:
    return {
        "id": id,
        "tenant_id": None,
        "agent_name": "agent",
        "status": status,
        "iteration_count": 2,
        "delegation_level": 0,
        "total_input_tokens": 11,
        "total_output_tokens": 7,
        "total_cache_read_tokens": 0,
        "total_cache_creation_tokens": 0,
        "total_reasoning_tokens": 0,
        "cancel_requested": False,
        "pause_requested": False,
        "created_at": at(0),
        "updated_at": at(9),
        **values,
    }


RUNS = [
    run(
        "01RUNFULL0000000000000000A",
        "success",
        tenant_id="Acme ",
        input_data={"input": TEXT},
        output_data={"answer": TEXT, "usage": {"input_tokens": 11}},
        model="m",
        strategy="NativeToolCalling",
        total_cost_usd=Decimal("1.234567"),
        meta=DOCUMENT,
        pause_data=None,  # a JSON null, as that release left it
        pii_mapping={"<A>": "secret"},
        last_progress_at=at(8),
        idempotency_key="key",
        idempotency_fingerprint="f" * 64,
    ),
    run(
        "01RUNPAUSED00000000000000B", "waiting_approval", tenant_id="acme", pause_data=DOCUMENT, idempotency_key="other"
    ),
    run("01RUNRUNNING0000000000000C", "running", meta=null(), last_progress_at=at(3), cancel_requested=True),
    run(
        "01RUNCHILD000000000000000D",
        "error",
        parent_run_id="01RUNRUNNING0000000000000C",
        retry_of_run_id="01RUNFULL0000000000000000A",
        delegation_level=1,
        error=TEXT,
        failure_reason="stale_running",
    ),
]
FULL, PAUSED, RUNNING, CHILD = (each["id"] for each in RUNS)


def row(id: str, run_id: str = FULL, /, second: int = 1, **values: Any) -> dict[str, Any]:
    return {"id": id, "agent_run_id": run_id, "created_at": at(second), **values}


TRACES = [
    row(f"01TRACE{number}", role="assistant", content=TEXT, order_index=index, meta=DOCUMENT, updated_at=at(2))
    for number, index in enumerate((0, 1, 1, 1, 2))
]
TOOL_CALLS = [
    row(
        f"01TOOL{number}",
        tool_call_id="01CALL",
        tool_name="search",
        target="server",
        params=DOCUMENT,
        result=result,
        success=True,
        duration_ms=5,
        iteration_index=1,
        updated_at=at(2),
    )
    for number, result in enumerate((DOCUMENT, "text", 17, None))
]
EVENTS = [
    row(f"01EVENT{number}", run_id, second, event_type=kind, sequence_index=index, iteration_index=0, data=DOCUMENT)
    for number, (run_id, second, kind, index) in enumerate(
        [
            (FULL, 1, "run.started", 0),
            (FULL, 2, "llm.completed", 1),
            (FULL, 4, "tool.completed", 1),
            (FULL, 3, "run.interrupted", 1),
            (FULL, 5, "run.completed", 4),
            (CHILD, 1, "run.started", 0),
            (CHILD, 1, "mcp.connected", 0),
        ]
    )
]
MOVED = {"01EVENT3": 5, "01EVENT2": 6, "01EVENT6": 1}
"""The events of an index that another one has, with the places that they get: in the order of their times."""
USAGE = {
    "model": "m",
    "provider": "p",
    "input_tokens": 11,
    "output_tokens": 7,
    "cost_usd": Decimal("9999.999999"),
    "reasoning_tokens": 3,
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "agent_runs": RUNS,
    "react_traces": TRACES,
    "tool_calls": TOOL_CALLS,
    "run_events": EVENTS,
    "token_usage": [row("01USAGE", iteration_index=0, meta=DOCUMENT, **USAGE)],
    "llm_interactions": [row("01CALL", iteration_index=0, semantic_request=DOCUMENT, **USAGE)],
    "run_inbox": [
        {"id": "01NOTE", "run_id": RUNNING, "text": TEXT, "metadata": DOCUMENT, "created_at": at(4)},
        {"id": "01NOTF", "run_id": RUNNING, "text": TEXT, "created_at": at(4), "delivered_at": at(5)},
    ],
    "dendrux_blobs": [
        {
            "tenant_scope": "t:Acme ",
            "sha256": DIGEST,
            "generation": "01GENERATION",
            "state": "live",
            "media_type": "image/png",
            "byte_length": 3,
            "width": 1,
            "height": 1,
            "storage": "db",
            "data": BYTES,
            "created_at": at(1),
            "last_used_at": at(1),
            "state_changed_at": at(1),
        }
    ],
    "dendrux_blob_refs": [
        {
            "id": "01EDGE",
            "tenant_scope": "t:Acme ",
            "sha256": DIGEST,
            "run_id": FULL,
            "owner_kind": "tool_call",
            "owner_id": "01CALL",
            "ordinal": 0,
            "created_at": at(1),
        }
    ],
}


def populate(connection: Connection) -> None:
    """Make the tables as the earlier release made them, and every row."""
    earlier.metadata.create_all(connection)
    for table, rows in ROWS.items():
        for values in rows:
            connection.execute(earlier.metadata.tables[table].insert().values(values))


def rows(connection: Connection) -> dict[str, dict[str, dict[str, Any]]]:
    """What the columns of the earlier release hold, as it would read them: by table and id."""
    return {
        table.name: {
            "/".join(str(record[column.name]) for column in table.primary_key): _read(record)
            for record in connection.execute(select(table)).mappings()
        }
        for table in earlier.metadata.sorted_tables
    }


def _read(record: Any) -> dict[str, Any]:
    aware = {
        name: value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
        for name, value in record.items()
    }
    return {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in aware.items()}
