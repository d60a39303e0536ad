"""How many statements each operation takes on PostgreSQL, and that none of their plans grows with the database."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
import pytest_asyncio
from sqlalchemy import event, text

from dendrux.db.models import Base
from dendrux.db.session import get_engine
from dendrux.store import PostgresStateStore
from dendrux.testing.scratch import scratch
from dialects.conftest import create
from unit.store_support import counted
from unit.test_store_growth import BYTES, NOT_PLANNED, SAMPLES, SCOPE, arguments_of, fill, operation_of
from unit.test_store_statements import BUDGET, prepare

ONE_MORE = {
    "add_note": "where rows lock, counting takes the run's lock by a statement of its own",
    "checkpoint_step": "the loop state is read, merged and written whole",
    "collect_garbage": "the page asks for the server's clock",
    "finalize_with_event": "its error_info is laid over metadata that is read and written whole",
    "update_run_meta": "the metadata is read, merged and written whole",
}
"""Operations that take one statement more than on SQLite, and why."""


@pytest.fixture(scope="module")
def small(postgres_server):
    """A database for every call in turn."""
    with scratch(postgres_server) as url:
        asyncio.run(create(url))
        yield url


@pytest_asyncio.fixture
async def store(small):
    """The runs that the calls are about, and nothing else."""
    engine = get_engine(small)
    tables = ", ".join(name for name in Base.metadata.tables if name != "dendrux_settings")
    async with engine.begin() as connection:
        await connection.execute(text(f"TRUNCATE {tables}"))
    store = PostgresStateStore(engine)
    await prepare(store)
    yield store
    await engine.dispose()


@pytest.mark.parametrize("operation", BUDGET)
async def test_the_first_call_keeps_its_budget(store, operation):
    budget, arguments = BUDGET[operation]
    with counted(store._engine) as statements:
        await getattr(store, operation)(**arguments)
    assert len(statements) == budget + (operation in ONE_MORE), statements


RUNS = EVENTS = 100_000 if os.environ.get("DENDRUX_BUDGET") == "full" else 20_000
OTHERS = 5_000


@pytest.fixture(scope="module")
def large(postgres_server):
    """A database of many runs, one of them with a long log, whose statistics are known."""
    with scratch(postgres_server) as url:
        asyncio.run(filled(url))
        yield url


async def filled(url):
    await create(url)
    engine = get_engine(url)
    store = PostgresStateStore(engine)
    await prepare(store)
    await store.put_blob(BYTES, tenant_scope=SCOPE)
    await fill(store, RUNS, EVENTS, OTHERS)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE agent_runs SET meta = '{\"a\": 1}' WHERE id LIKE 'bulk%7'"))
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("VACUUM ANALYZE"))
    await engine.dispose()


async def statements_of(store, sample, **more):
    """The statements of a call with their parameters."""
    seen = []

    def note(_connection, _cursor, statement, parameters, *_):
        seen.append((statement, parameters))

    now = (await store.get_run("r")).created_at
    event.listen(store._engine.sync_engine, "before_cursor_execute", note)
    try:
        await getattr(store, operation_of(sample))(**arguments_of(sample, now), **more)
    finally:
        event.remove(store._engine.sync_engine, "before_cursor_execute", note)
    return seen


async def plan_of(url, statements):
    """The plan that the database has for each statement, a line for each step."""
    engine = get_engine(url)
    found = []
    async with engine.connect() as connection:
        for statement, parameters in statements:
            given = tuple(parameters[0]) if isinstance(parameters, list) else parameters
            rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", given)
            found.append((statement, [row[0].strip() for row in rows]))
    await engine.dispose()
    return found


BIG = ("agent_runs", "run_events", "react_traces", "tool_calls", "token_usage", "llm_interactions", "run_inbox")


def faults(sample, steps):
    """What makes a plan grow with the database: a big table read whole, or many rows sorted."""
    found = []
    for step in steps:
        if re.search(rf"Seq Scan on ({'|'.join(BIG)})\b", step):
            found.append(step)
        if re.search(r"(?<!Incremental )Sort  \(", step) and rows_of(step) > 5000:
            found.append(step)
    return found


def rows_of(step):
    return int(re.search(r"rows=(\d+)", step)[1])


@pytest.mark.slow
@pytest.mark.parametrize("sample", [name for name in SAMPLES if operation_of(name) not in NOT_PLANNED])
async def test_no_plan_grows_with_the_database(store, large, sample):
    if sample in ("put_blob", "purge_blob", "read_blob", "blob_info", "blob_references"):
        await store.put_blob(BYTES, tenant_scope=SCOPE)
    statements = await statements_of(store, sample)
    assert statements
    for statement, steps in await plan_of(large, statements):
        assert not faults(sample, steps), (statement, steps)


@pytest.mark.slow
async def test_metadata_is_looked_up_in_its_index(store, large):
    for wanted in ({"conversation": "c"}, {"conversation": 1, "a": True}):
        ((_, steps),) = await plan_of(large, await statements_of(store, "list_runs", metadata_filter=wanted))
        assert any("ix_agent_runs_meta" in step for step in steps), steps


@pytest.mark.slow
async def test_a_scan_and_a_sort_are_seen(store, large):
    ((_, steps),) = await plan_of(
        large, [("SELECT id FROM run_events WHERE correlation_id = 'x' ORDER BY data::text", ())]
    )
    assert faults("", steps)
    ((_, steps),) = await plan_of(large, [("SELECT id FROM agent_runs ORDER BY agent_name || id", ())])
    assert len(faults("", steps)) == 2, steps
