"""What grows with the database: no operation on one run and no first page may. The plans of the statements decide."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event, text

from dendrux.db.models import (
    agent_runs,
    llm_interactions,
    metadata,
    react_traces,
    run_events,
    run_inbox,
    token_usage,
    tool_calls,
)
from dendrux.store import SQLiteStateStore, SQLStateStore
from dendrux.store.binding import Operation
from unit.store_support import built_in
from unit.test_store_statements import BUDGET, END, prepare

AGENTS = 20
HOUR = timedelta(hours=1)
SCOPE, BYTES = "t:growth", b"growth"
SHA = sha256(BYTES).hexdigest()

SAMPLES: dict[str, dict[str, Any]] = {
    **{name: arguments for name, (_, arguments) in BUDGET.items()},
    "list_runs": {"limit": 50},
    "list_runs of a tenant": {"limit": 50, "tenant_id": "t1"},
    "list_runs of nobody": {"limit": 50, "tenant_id": None},
    "list_runs of an agent": {"limit": 50, "agent_name": "a1"},
    "list_runs of a status": {"limit": 50, "status": "success"},
    "list_runs of several statuses": {"limit": 50, "status": ["success", "paused"]},
    "list_runs of a parent": {"limit": 50, "parent_run_id": "r"},
    "list_runs since": {"limit": 50, "started_after": "now"},
    "get_run_events after": {"run_id": "r", "after_sequence_index": 900, "limit": 10},
    "get_run_events of a type": {"run_id": "r", "event_types": ["x"], "limit": 10},
    "get_tool_calls of an iteration": {"run_id": "r", "iteration_index": 1, "limit": 10},
    "child_runs_page after": {"run_id": "r", "after": "c5", "limit": 10},
    "checkpoint_step": {"run_id": "r", "step_id": "s", "claim_epoch": 1, "iteration_count": 1, "loop_state": {"a": 1}},
    "consume_submission": {"run_id": "r", "claim_epoch": 1, "consumption_id": "c"},
    "conversation_traces": {"run_id": "r", "limit": 10},
    "get_traces_after": {"run_id": "r", "order_index": 0, "limit": 10},
    "get_loop_state": {"run_id": "r"},
    "get_pending": {"run_id": "paused"},
    "reclaim_run": {"run_id": "r", "expected_epoch": 1},
    "get_lease_expired": {"limit": 10},
    "mark_lease_expired": {"cutoff": "now", "limit": 10},
    "sweep_stale_runs": {"older_than": HOUR, "limit": 10},
    "sweep_abandoned_runs": {"older_than": HOUR, "limit": 10},
    "put_blob": {"data": b"other", "tenant_scope": SCOPE},
    "read_blob": {"sha256": SHA, "tenant_scope": SCOPE},
    "blob_info": {"sha256": SHA, "tenant_scope": SCOPE},
    "blob_references": {"sha256": SHA, "tenant_scope": SCOPE, "limit": 10},
    "purge_blob": {"sha256": SHA, "tenant_scope": SCOPE},
    "collect_garbage": {"limit": 10},
}
"""Calls by name; the first word is the operation. Those with a statement budget come with their arguments from there."""

NOT_PLANNED = {
    "count_runs": "counts every run that matches, which is what it is asked for",
    "try_pause_run": "the swap of pause_with_event without its event, on format 1 only",
    "pause_run": "the swap of pause_with_event without its event, on format 1 only",
    "finalize_run": "the swap of finalize_with_event without its event, on format 1 only",
    "finalize_run_if_status_in": "the swap of finalize_with_event without its event, on format 1 only",
}
"""Operations without a sample, and why."""

BOUNDED_SORTS = {
    "get_delegation_info": "groups the runs of one subtree by depth and status",
    "get_subtree": "groups the calls of one subtree by run",
}
"""Operations that sort rows of one family, never a table."""


MERGED = {"list_runs of several statuses"}
"""Samples that sort the first rows of each of a few ordered reads."""


def operations() -> set[str]:
    """Every operation that the base binds."""
    return {name for name, value in vars(SQLStateStore).items() if isinstance(value, Operation)}


def test_every_operation_has_a_sample_or_a_reason() -> None:
    sampled = {operation_of(name) for name in SAMPLES}
    assert operations() <= sampled | set(NOT_PLANNED)
    assert set(NOT_PLANNED) <= operations()
    assert set(BOUNDED_SORTS) <= operations()
    assert all(reason and not reason.endswith(".") for reason in (NOT_PLANNED | BOUNDED_SORTS).values())


# -- databases --------------------------------------------------------------------------------------------------------


def rows_of_runs(number: int) -> Iterator[dict[str, Any]]:
    for n in range(number):
        yield {
            "id": f"bulk{n:07}",
            "agent_name": f"a{n % AGENTS}",
            "tenant_id": None if n % 3 == 0 else f"t{n % 7}",
            "status": ("success", "running", "paused", "error")[n % 4],
            "storage_format": 2,
            "claim_epoch": 1,
            "pause_data": {"a": 1} if n % 4 == 2 else None,
            "idempotency_scope": "",
            "parent_run_id": None,
        }


def evidence(runs: int, number: int, now: Any) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Rows of every table of evidence, all of other runs than `r`: what a call on `r` must not read."""
    common = {"created_at": now, "updated_at": now}
    tables: dict[Any, dict[str, Any]] = {
        run_events: {"event_type": "x"},
        react_traces: {"role": "user", "content": "x"},
        tool_calls: {"tool_name": "t", "target": "server", "success": True},
        token_usage: {"iteration_index": 1},
        llm_interactions: {"iteration_index": 1},
        run_inbox: {"text": "x"},
    }
    places = {run_events: "sequence_index", react_traces: "order_index", tool_calls: "tool_call_id"}
    for table, values in tables.items():
        rows = []
        for n in range(number):
            run = "run_id" if table is run_inbox else "agent_run_id"
            row = {"id": f"bulk{n:07}", run: f"bulk{n % runs:07}", **values}
            if table in places:
                row[places[table]] = n // runs if table is not tool_calls else f"c{n}"
            rows.append(row | {name: value for name, value in common.items() if name in table.c})
        yield table, rows


async def fill(store: SQLStateStore, runs: int, events: int, others: int = 0) -> None:
    """Rows below the store: many runs, one run `r` with a long log, and in each table so many rows of other runs."""
    now = (await store.get_run("r")).created_at
    stamps = {"created_at": now, "updated_at": now, "last_progress_at": now}
    async with store._engine.begin() as connection:
        some = [{**row, **stamps} for row in rows_of_runs(runs)]
        for start in range(0, len(some), 5000):
            await connection.execute(agent_runs.insert(), some[start : start + 5000])
        log = [
            {"id": f"e{n:07}", "agent_run_id": "r", "event_type": "x", "sequence_index": n, "created_at": now}
            for n in range(events)
        ]
        for start in range(0, len(log), 5000):
            await connection.execute(run_events.insert(), log[start : start + 5000])
        for table, rows in evidence(runs, others, now):
            for start in range(0, len(rows), 5000):
                await connection.execute(table.insert(), rows[start : start + 5000])


@pytest_asyncio.fixture
async def store(tmp_path: Any) -> AsyncIterator[SQLStateStore]:
    async with built_in(tmp_path, SQLiteStateStore) as store:
        await prepare(store)
        await store.put_blob(BYTES, tenant_scope=SCOPE)
        await fill(store, 300, 1000, 1000)
        yield store


def arguments_of(sample: str, now: Any) -> dict[str, Any]:
    return {name: now if value == "now" else value for name, value in SAMPLES[sample].items()}


def operation_of(sample: str) -> str:
    """The operation that a sample calls."""
    return sample.partition(" ")[0]


async def plans(store: SQLStateStore, sample: str) -> list[tuple[str, list[str]]]:
    """The statements of a call, each with the steps of its plan."""
    seen: list[tuple[str, Any]] = []

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.startswith(("BEGIN", "EXPLAIN", "PRAGMA")):
            seen.append((statement, parameters))

    now = (await store.get_run("r")).created_at
    event.listen(store._engine.sync_engine, "before_cursor_execute", note)
    try:
        await getattr(store, operation_of(sample))(**arguments_of(sample, now))
    finally:
        event.remove(store._engine.sync_engine, "before_cursor_execute", note)
    found = []
    async with store._engine.connect() as connection:
        for statement, parameters in seen:
            rows = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)).all()
            found.append((statement, [row[3] for row in rows]))
    return found


def faults(sample: str, steps: list[str]) -> list[str]:
    """What makes a plan grow with the database: a table read whole, or rows sorted that an index could give."""
    found = []
    for step in steps:
        words = step.split()
        if step.startswith("SCAN") and words[1] in metadata.tables:
            # An index that is read in its order stops at the limit of the page; a table that is scanned does not.
            ordered = sample.startswith("list_runs") and "USING INDEX ix_agent_runs_" in step
            found += [] if ordered else [step]
        elif sample in MERGED and step == "USE TEMP B-TREE FOR ORDER BY":
            assert any(other.startswith("SEARCH agent_runs USING INDEX sqlite_autoindex") for other in steps)
        elif "TEMP B-TREE" in step and not ("FOR GROUP BY" in step and operation_of(sample) in BOUNDED_SORTS):
            found.append(step)
    return found


@pytest.mark.parametrize("sample", [name for name in SAMPLES if operation_of(name) not in NOT_PLANNED])
async def test_no_plan_grows_with_the_database(store: SQLStateStore, sample: str) -> None:
    found = await plans(store, sample)
    if sample != "get_events_for_runs":
        assert found
    for statement, steps in found:
        assert not faults(sample, steps), (statement, steps)


async def test_a_scan_and_a_sort_are_seen(store: SQLStateStore) -> None:
    """The check bites: without its index a page sorts the table, and without a key a run is looked for everywhere."""
    async with store._engine.begin() as connection:
        await connection.execute(text("DROP INDEX ix_agent_runs_created_at"))
    ((_, steps),) = await plans(store, "list_runs")
    assert len(faults("list_runs", steps)) == 2
    async with store._engine.connect() as connection:
        rows = await connection.exec_driver_sql("EXPLAIN QUERY PLAN SELECT id FROM run_events WHERE data = 'x'")
        assert faults("get_run_events", [row[3] for row in rows])


MEASURED = (
    "get_run",
    "save_run_event",
    "get_run_control",
    "get_run_events after",
    "list_runs",
    "list_runs of a tenant",
)


async def median(store: SQLStateStore, sample: str) -> float:
    """Seconds of one call, the median of some."""
    now, taken = (await store.get_run("r")).created_at, []
    for _ in range(30):
        began = time.perf_counter()
        await getattr(store, operation_of(sample))(**arguments_of(sample, now))
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


LARGE = {"quick": 20_000, "full": 100_000}
"""Runs of a large database, and events of its one long run."""


@pytest.mark.slow
async def test_a_large_database_costs_what_a_small_one_costs(tmp_path: Any, capsys: Any, budget: str) -> None:
    """Many runs, and a run of many events. The ratio of the times is printed; the plans decide."""
    seen: list[dict[str, list[tuple[str, list[str]]]]] = []
    cost: list[dict[str, float]] = []
    for name, many in (("small", 100), ("large", LARGE[budget])):
        (tmp_path / name).mkdir()
        async with built_in(tmp_path / name, SQLiteStateStore) as store:
            await prepare(store)
            await fill(store, many, many)
            cost.append({sample: await median(store, sample) for sample in MEASURED})
            seen.append({sample: await plans(store, sample) for sample in MEASURED})
            assert await store.finalize_with_event("r", **END) is not None
    assert seen[0] == seen[1]
    with capsys.disabled():
        ratios = (f"{sample}: {cost[1][sample] / cost[0][sample]:.2f}" for sample in MEASURED)
        sys.stdout.write("\ntimes the cost of a small database: " + ", ".join(ratios) + "\n")
