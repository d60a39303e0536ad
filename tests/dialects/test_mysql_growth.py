"""MySQL and MariaDB: no operation on one run and no first page reads or sorts a table. The plans decide."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest_asyncio
from sqlalchemy import event, text

from dendrux.db.models import metadata
from dendrux.errors import PersistenceError
from dendrux.store import SQLStateStore
from dialects.mysql_support import opened
from unit.test_store_growth import (
    BOUNDED_SORTS,
    BYTES,
    MERGED,
    NOT_PLANNED,
    SAMPLES,
    SCOPE,
    arguments_of,
    fill,
    operation_of,
)
from unit.test_store_statements import prepare

Plan = list[dict[str, Any]]
HANDFUL = 100
RUNS, EVENTS, OTHERS = 6000, 50, 1500


@pytest_asyncio.fixture
async def store(mysql_url):
    async with opened(mysql_url) as store:
        await prepare(store)
        await store.put_blob(BYTES, tenant_scope=SCOPE)
        await fill(store, RUNS, EVENTS, OTHERS)
        async with store.engine.connect() as connection:
            for table in metadata.tables:
                await connection.execute(text(f"ANALYZE TABLE {table}"))
        yield store


async def plans(store: SQLStateStore, sample: str) -> list[tuple[str, Plan]]:
    """The statements of a call, each with the rows of its plan as the server sees it before the call."""
    found: list[tuple[str, Plan]] = []
    words = "EXPLAIN FORMAT=TRADITIONAL" if store.server.family == "mysql" else "EXPLAIN"

    def explain(conn: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "WITH", "INSERT")) and isinstance(parameters, tuple):
            look = conn.connection.cursor()
            look.execute(f"{words} {statement}", parameters)
            names = [column[0] for column in look.description]
            found.append((statement, [dict(zip(names, row, strict=True)) for row in look.fetchall()]))
            look.close()

    now = (await store.get_run("r")).created_at
    store.retry_limit = 0
    event.listen(store.engine.sync_engine, "before_cursor_execute", explain)
    event.listen(store.engine.sync_engine, "commit", refuse)
    try:
        with suppress(PersistenceError):
            await getattr(store, operation_of(sample))(**arguments_of(sample, now))
    finally:
        event.remove(store.engine.sync_engine, "before_cursor_execute", explain)
        event.remove(store.engine.sync_engine, "commit", refuse)
    return found


def refuse(_connection: Any) -> None:
    """So that every call finds the runs as they were."""
    raise RuntimeError("not committed")


def faults(sample: str, plan: Plan) -> list[str]:
    """What makes a plan grow with the database: a table read whole, or rows sorted that an index could give.

    The planner goes by cost: what it expects to be a handful of rows, it may read or sort as it likes.
    """
    found = []
    for step in plan:
        ours = step["table"] in {*metadata.tables, "child", "parent"} and step["select_type"] != "INSERT"
        if not ours or int(step["rows"] or 0) <= HANDFUL:
            continue
        if step["type"] == "ALL":
            found.append(f"all of {step['table']}")
        if "filesort" in (step["Extra"] or "") and not (sample in MERGED or operation_of(sample) in BOUNDED_SORTS):
            found.append(f"{step['table']}: {step['Extra']}")
    return found


PLANNED = [name for name in SAMPLES if operation_of(name) not in NOT_PLANNED]


async def test_no_plan_grows_with_the_database(store):
    wrong = {}
    for sample in PLANNED:
        for statement, plan in await plans(store, sample):
            if faults(sample, plan):
                wrong[sample] = (statement, plan)
    assert not wrong, "\n".join(f"{name}: {statement}\n{plan}" for name, (statement, plan) in wrong.items())


async def test_a_scan_of_evidence_is_seen(store):
    """The check bites on every table: without its indexes, what one run has is looked for among what all have."""
    hide, show = HIDDEN[store.server.family]
    indexes = {
        "run_inbox": ("ix_run_inbox_run_pending", "ix_run_inbox_order"),
        "llm_interactions": ("ix_llm_interactions_agent_run_id",),
    }
    for table, names in indexes.items():
        alter = [f"ALTER TABLE {table} ALTER INDEX {name} {{}}" for name in names]
        async with store.engine.connect() as connection:
            for statement in alter:
                await connection.execute(text(statement.format(hide)))
            try:
                found = await plans(
                    store, {"run_inbox": "get_notes", "llm_interactions": "get_llm_interactions"}[table]
                )
            finally:
                for statement in alter:
                    await connection.execute(text(statement.format(show)))
        assert any(faults("", plan) for _, plan in found), (table, found)


HIDDEN = {"mysql": ("INVISIBLE", "VISIBLE"), "mariadb": ("IGNORED", "NOT IGNORED")}


async def test_a_scan_and_a_sort_are_seen(store):
    """The check bites: without its index a page sorts the table."""
    alter = "ALTER TABLE agent_runs ALTER INDEX ix_agent_runs_created_at {}"
    hide, show = HIDDEN[store.server.family]
    async with store.engine.connect() as connection:
        await connection.execute(text(alter.format(hide)))
        try:
            ((_, plan),) = await plans(store, "list_runs")
        finally:
            await connection.execute(text(alter.format(show)))
    assert len(faults("list_runs", plan)) == 2
