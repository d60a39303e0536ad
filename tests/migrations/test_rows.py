"""Every row of an old database is kept, and readable through RunStore."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import insert

from dendrux.db.migrate import activate, migrate, read_state
from dendrux.db.session import get_engine
from dendrux.store import RunStore, store_for_engine
from migrations import older
from migrations.databases import on, statement


@asynccontextmanager
async def opened(url):
    """A RunStore on the store of the database's family, and that store."""
    engine = get_engine(url)
    try:
        store = store_for_engine(engine)
        yield RunStore(store), store
    finally:
        await engine.dispose()


@pytest.fixture
def old(url):
    on(url, older.populate)
    return url


def test_no_row_is_lost_or_changed(old):
    before = on(old, older.rows)
    asyncio.run(migrate(old))
    after = on(old, older.rows)
    for event_id, place in older.MOVED.items():
        before["run_events"][event_id]["sequence_index"] = place
    assert after == before


def test_what_old_writers_do_not_write_is_filled(old):
    asyncio.run(migrate(old))
    found = statement(
        old,
        "SELECT id, idempotency_scope, paused_status, storage_format, claim_epoch, content_digest FROM agent_runs "
        "ORDER BY id",
    )
    assert [tuple(row) for row in found] == [
        (older.CHILD, "", None, 1, 0, None),
        (older.FULL, "Acme ", None, 1, 0, None),
        (older.PAUSED, "acme", "waiting_approval", 1, 0, None),
        (older.RUNNING, "", None, 1, 0, None),
    ]


def test_every_row_is_readable_through_run_store_and_format_2_begins(old):
    asyncio.run(migrate(old))
    asyncio.run(activate(old))
    state = asyncio.run(read_state(old))
    assert (state.state, state.storage_format) == ("current", "2")
    asyncio.run(read_all(old))


@pytest.mark.parametrize("family", ["postgresql"], indirect=True)
def test_characters_that_postgresql_marks(url):
    """The earlier release stored U+0000 in documents and U+001A anywhere, which this one writes in another way."""
    nasty = {"a\0": ["\0", "\x1a", "\x1aA", "\x1aB", r"\u0000"]}

    def populate(connection):
        older.populate(connection)
        runs, traces = (older.earlier.metadata.tables[name] for name in ("agent_runs", "react_traces"))
        connection.execute(insert(runs).values(older.run("01NASTY", "error", meta=nasty, error="\x1aB")))
        connection.execute(
            insert(traces).values(
                older.row(
                    "01TRACEN",
                    "01NASTY",
                    role="user",
                    content="\x1aA",
                    order_index=0,
                    meta=nasty,
                    updated_at=older.at(1),
                )
            )
        )

    async def read():
        async with opened(url) as (reader, _):
            (trace,) = await reader.get_traces("01NASTY")
            run = await reader.get_run("01NASTY")
            return run.error, trace.content, trace.meta

    on(url, populate)
    asyncio.run(migrate(url))
    assert asyncio.run(read()) == ("\x1aB", "\x1aA", nasty)


async def read_all(url):
    async with opened(url) as (reader, store):
        runs = {run.run_id: run for run in await reader.list_runs()}
        assert set(runs) == {run["id"] for run in older.RUNS}
        full = await reader.get_run(older.FULL)
        assert (full.status, full.answer, full.input_data) == ("success", older.TEXT, {"input": older.TEXT})
        assert full.total_cost_usd == pytest.approx(1.234567)
        assert (full.created_at, full.updated_at) == (older.at(0), older.at(9))
        traces = await reader.get_traces(older.FULL)
        assert sorted(trace.order_index for trace in traces) == [0, 1, 1, 1, 2]
        assert all((trace.content, trace.meta) == (older.TEXT, older.DOCUMENT) for trace in traces)
        calls = await reader.get_tool_invocations(older.FULL)
        assert [call.result for call in calls] == [older.DOCUMENT, "text", 17, None]
        log = await reader.get_events(older.FULL)
        assert [(event.sequence_index, event.event_type) for event in log] == [
            (0, "run.started"),
            (1, "llm.completed"),
            (4, "run.completed"),
            (5, "run.interrupted"),
            (6, "tool.completed"),
        ]
        assert [event.sequence_index for event in await reader.get_events(older.CHILD)] == [0, 1]
        (call,) = await reader.get_llm_calls(older.FULL)
        assert (call.input_tokens, call.cost_usd, call.created_at) == (11, pytest.approx(9999.999999), older.at(1))
        notes = await reader.get_notes(older.RUNNING)
        assert [(note.note_id, note.text, note.metadata) for note in notes] == [
            ("01NOTE", older.TEXT, older.DOCUMENT),
            ("01NOTF", older.TEXT, None),
        ]
        assert await reader.get_pii_mapping(older.FULL) == {"<A>": "secret"}
        assert [node.run.run_id for node in (await reader.get_subtree(older.RUNNING)).nodes] == [
            older.RUNNING,
            older.CHILD,
        ]
        assert (await reader.get_pending(older.PAUSED)).status == "waiting_approval"
        assert await store.get_pause_state(older.FULL) is None
        assert await store.get_pause_state(older.PAUSED) == older.DOCUMENT
        scope = {"tenant_scope": "t:Acme ", "run_id": older.FULL, "blob_store": None}
        assert await store.read_blob(older.DIGEST, **scope) == older.BYTES
        await carry_on(store)


async def carry_on(store):
    """Old runs go on at format 1, new ones are of format 2."""
    epoch = await store.claim_paused_run(older.PAUSED, expected_status="waiting_approval")
    assert epoch == 1
    assert await store.release_run_claim(older.PAUSED, claim_epoch=epoch)
    assert await store.save_run_event(older.FULL, event_type="late") == 7
    again = await store.create_run(
        "new", "agent", tenant_id="Acme ", idempotency_key="key", idempotency_fingerprint="f" * 64
    )
    assert (again.run_id, again.outcome, again.format) == (older.FULL, "existing_terminal", 1)
    made = await store.create_run("new", "agent", tenant_id="acme", idempotency_key="key")
    assert (made.run_id, made.outcome, made.format) == ("new", "created", 2)


ORPHAN = """
INSERT INTO react_traces (id, agent_run_id, role, content, order_index, created_at, updated_at)
VALUES ('orphan', 'missing', 'user', 'x', 0, '2025-01-01 00:00:00.000000', '2025-01-01 00:00:00.000000')"""


def test_rows_of_missing_runs_and_columns_of_others_stay(tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path / 'old.db'}"
    on(url, older.populate)
    for sql in (
        ORPHAN,
        "ALTER TABLE agent_runs ADD COLUMN billed INTEGER",
        "UPDATE agent_runs SET billed = 7",
        "CREATE INDEX billing ON agent_runs (billed)",
        "CREATE TRIGGER audit AFTER DELETE ON agent_runs BEGIN SELECT 1; END",
    ):
        statement(url, sql)
    asyncio.run(migrate(url))
    assert statement(url, "SELECT content FROM react_traces WHERE id = 'orphan'") == [("x",)]
    assert statement(url, "SELECT sum(billed) FROM agent_runs") == [(7 * len(older.RUNS),)]
    assert statement(url, "SELECT name FROM sqlite_master WHERE name IN ('billing', 'audit') ORDER BY name") == [
        ("audit",),
        ("billing",),
    ]
