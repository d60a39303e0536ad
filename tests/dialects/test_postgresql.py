"""PostgreSQL: what the store asks of a server, and how text and documents are kept and compared there."""

from __future__ import annotations

import contextlib
import json
import random
from decimal import Decimal

import pytest
import pytest_asyncio
from sqlalchemy import event, func, literal, select, text
from sqlalchemy.exc import DBAPIError

from dendrux.db.models import agent_runs
from dendrux.db.session import get_engine
from dendrux.db.types import Json, decoded_document, decoded_text, dumps, encoded_document, encoded_text
from dendrux.errors import PersistenceError, WriteConflictError
from dendrux.store import BlobEdge, PostgresStateStore, SeedTrace, SetFields, UsageStats, blob_scope, store_for_engine

NASTY = [
    "",
    "\0",
    "\x1a",
    "\x1aA",
    "\x1aB",
    "\x1a\x1a\0\0A",
    "a\0b\x1ac",
    "\\u0000",
    "\\u001aB",
    "\\\\u0000\0",
    '"\\"\0"',
    "\U0001f600\ufffe\u202e\r\n\t",
    "\x7f\x80\xa0",
]


@contextlib.asynccontextmanager
async def opened(url, **options):
    engine = get_engine(url, **options)
    try:
        yield store_for_engine(engine)
    finally:
        await engine.dispose()


@pytest_asyncio.fixture
async def store(postgres_url):
    async with opened(postgres_url) as store:
        yield store


# -- what is asked of a server ----------------------------------------------------------------------------------------


async def test_the_engine_of_the_url_gives_this_store(store):
    assert type(store) is PostgresStateStore
    assert store.capabilities.deployment == "multi_server"
    assert (await store.create_run("r", "agent")).format == 2


@pytest.mark.parametrize(
    ("level", "said"), [("AUTOCOMMIT", "AUTOCOMMIT"), ("REPEATABLE READ", "READ COMMITTED"), ("SERIALIZABLE", "READ")]
)
async def test_an_engine_without_read_committed_transactions_is_refused(postgres_url, level, said):
    async with opened(postgres_url, isolation_level=level) as store:
        for _ in range(2):
            with pytest.raises(ValueError, match=said):
                await store.create_run("r", "agent")
    async with opened(postgres_url) as store:
        assert await store.get_run("r") is None


async def test_the_default_of_the_server_does_not_decide(postgres_url):
    async with opened(postgres_url) as store:
        await execute(store, "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'")
    async with opened(postgres_url) as store:
        assert (await store.create_run("r", "agent")).outcome == "created"


async def test_a_database_that_cannot_hold_every_character_is_refused(postgres_url):
    async with opened(postgres_url.set(database="postgres"), isolation_level="AUTOCOMMIT") as other:
        name = f"{postgres_url.database}_latin"
        await execute(other, f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        try:
            async with opened(postgres_url.set(database=name)) as store:
                with pytest.raises(ValueError, match=r"LATIN1.*UTF8"):
                    await store.get_run("r")
        finally:
            await execute(other, f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_server_that_is_too_old_is_refused(postgres_url):
    async with opened(postgres_url) as store:
        async with store._engine.connect():
            pass
        store._engine.dialect.server_version_info = (13, 22)
        with pytest.raises(ValueError, match=r"13\.22 is too old: 14"):
            await store.get_run("r")


async def execute(store, statement):
    async with store._engine.begin() as connection:
        await connection.execute(text(statement.format(store._engine.url.database)))


# -- text and documents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NASTY)
def test_the_encoding_is_undone_and_leaves_no_nul(value):
    assert decoded_text(encoded_text(value)) == value
    document = {value: [value, {value: 1}]}
    encoded = encoded_document(dumps(document))
    assert json.loads(decoded_document(encoded)) == document
    assert "\0" not in encoded_text(value)
    assert "\0" not in json.dumps(json.loads(encoded), ensure_ascii=False)
    assert json.loads(encoded) == {encoded_text(value): [encoded_text(value), {encoded_text(value): 1}]}


async def test_every_character_comes_back_and_is_found(store):
    for number, value in enumerate(NASTY):
        run_id = f"r{number}"
        await store.create_run(
            run_id,
            "agent",
            meta={"k": value, "in": {value: 1}, "of": {"x": [value]}},
            seed_traces=[SeedTrace(role="user", content=value)],
        )
        assert (await store.get_run(run_id)).meta == {"k": value, "in": {value: 1}, "of": {"x": [value]}}
        assert [trace.content for trace in await store.get_traces(run_id)] == [value]
        for wanted in ({"k": value}, {"of": {"x": [value]}}):
            assert [run.id for run in await store.list_runs(metadata_filter=wanted)] == [run_id], wanted


async def test_documents_are_kept_letter_by_letter(store):
    document = {"z": 1.0, "a": 1, "e": 1e16, "big": 10**40, "neg": -0.0, "t": True, "n": None, "f": 0.1, "u": "\u2028"}
    await store.create_run("r", "agent", meta=document)
    async with store._engine.connect() as connection:
        kept = await connection.scalar(text("SELECT meta::text FROM agent_runs"))
    assert kept == dumps(document)
    read = (await store.get_run("r")).meta
    assert dumps(read) == kept


async def test_the_serializers_of_the_engine_play_no_part(postgres_url):
    def refuse(_value):
        raise AssertionError("the store writes documents itself")

    def exactly(document):
        return json.loads(document, parse_float=Decimal)

    async with opened(postgres_url, json_deserializer=exactly, json_serializer=refuse) as store:
        await store.create_run("r", "agent", meta={"a": [1.5, "\0"]})
        meta = (await store.get_run("r")).meta
        assert meta == {"a": [1.5, "\0"]}
        assert type(meta["a"][0]) is float
        assert await store.save_run_event("r", event_type="x", data={"a": 1}) == 0
        found = await store.get_events_for_runs({"r": -1}, limit_per_run=1)
        assert found["r"][0].data == {"a": 1}


DOCUMENT = {
    "i": 1,
    "f": 1.0,
    "t": True,
    "s": "1",
    "n": None,
    "e": 1e16,
    "big": 10**16,
    "l": [1, "a", {"q": 2, "r": [True]}],
    "o": {"i": 1, "s": "x\0", "n": None},
    'quo"te': {"\0": 1},
}

CONTAINED = [
    *((("i",), 1), (("f",), 1.0), (("t",), True), (("s",), "1"), (("n",), None), (("e",), 1e16), (("big",), 10**16)),
    *((("l",), [1]), (("l",), ["a", 1]), (("l",), [{"q": 2}]), (("l",), [{"r": [True]}]), (("l",), [])),
    *((("l", 0), 1), (("l", -1), {"q": 2}), (("l", -1, "r", 0), True), (("l", 1), "a")),
    *((("o",), {"i": 1}), (("o",), {"n": None}), (("o",), {"s": "x\0"}), (("o",), {}), (("o", "s"), "x\0")),
    ((), {"i": 1, "o": {"i": 1}}),
    (('quo"te', "\0"), 1),
]
MISSING = [
    *((("i",), True), (("i",), 1.0), (("i",), "1"), (("f",), 1), (("t",), 1), (("t",), "true"), (("s",), 1)),
    *((("n",), False), (("x",), None), (("e",), 10**16), (("big",), 1e16), (("i", "x"), 1), (("s", 0), "1")),
    *((("l",), [1.0]), (("l",), [True]), (("l",), 1), (("l",), "a"), (("l",), [{"q": 2.0}]), (("l", 9), 1)),
    *((("o",), {"i": 1.0}), (("o",), {"x": None}), (("o",), []), (("o",), {"s": "x"}), (("l",), {})),
    ((), {"i": 1, "o": {"i": True}}),
]


async def test_containment_is_exact(store):
    await store.create_run("r", "agent", meta=DOCUMENT)
    async with store._engine.connect() as connection:
        for cases, wanted in ((CONTAINED, True), (MISSING, False)):
            for path, value in cases:
                found = await connection.scalar(select(store.json_contains(agent_runs.c.meta, path, value)))
                assert found is wanted, (path, value)
        for path, value in ((("a",), 1), ((), {"a": None})):
            nothing = select(store.json_contains(agent_runs.c.pause_data, path, value))
            assert await connection.scalar(nothing) is False


async def test_a_value_of_another_type_reads_as_null(store):
    await store.create_run("r", "agent", meta=DOCUMENT)
    kinds = {"int": int, "str": str, "bool": bool}
    async with store._engine.connect() as connection:
        for key, value in DOCUMENT.items():
            for name, kind in kinds.items():
                read = await connection.scalar(select(store.json_get(agent_runs.c.meta, (key,), name)))
                assert read == (value if type(value) is kind else None), (key, name)
                assert type(read) is (kind if type(value) is kind else type(None))
            assert dumps(await connection.scalar(select(store.json_get(agent_runs.c.meta, (key,), "json")))) == dumps(
                value
            )
            is_null = await connection.scalar(select(store.json_is_null(agent_runs.c.meta, (key,))))
            assert is_null is (value is None)
        assert await connection.scalar(select(store.json_is_null(agent_runs.c.meta, ("x",)))) is False
        assert await connection.scalar(select(store.json_get(agent_runs.c.meta, ("o", "s"), "str") == "x\0")) is True
        for number in (2**63 - 1, -(2**63), 10**18, 2**63, -(2**63) - 1, 10**30):
            read = await connection.scalar(select(store.json_get(literal({"a": number}, Json()), ("a",), "int")))
            assert read == (number if -(2**63) <= number < 2**63 else None)
    assert store.json_patch_expr(agent_runs.c.meta, SetFields({"a": 1})) is None


async def test_an_escape_of_the_earlier_release_is_read_from_the_whole_document(store):
    await store.create_run("r", "agent")
    await store.pause_with_event("r", status="paused", pause_data={"pause_reason": "x"}, claim_epoch=1)
    old = '{"pause_reason": "why", "other": "\\u0000", "pending_tool_calls": [{"id": "c", "name": "t\\u0000"}]}'
    async with store._engine.begin() as connection:
        await connection.execute(text("UPDATE agent_runs SET pause_data = CAST(:old AS json)"), {"old": old})
    pending = await store.get_pending("r")
    assert (pending.reason, pending.calls[0].name) == ("why", "t\0")


async def test_only_a_refused_conversion_is_one(store):
    async with store._engine.connect() as connection:
        for statement, wanted in (
            ("SELECT '{\"a\": \"\\u0000\"}'::json ->> 'a'", True),
            ("SELECT 'x'::json", True),
            ("SELECT 1 / 0", False),
        ):
            with pytest.raises(DBAPIError) as raised:
                await connection.execute(text(statement))
            assert store.json_conversion_error(raised.value) is wanted
            await connection.rollback()


async def test_identifiers_sort_by_code_point_whatever_the_database_says(postgres):
    async with opened(postgres) as store:
        for run_id in ("b", "B", "a-b", "ab", "a b", "\xe4"):
            await store.create_run(run_id, "agent")
        async with store._engine.connect() as connection:
            listed = (await connection.scalars(select(agent_runs.c.id).order_by(agent_runs.c.id))).all()
            collation = await connection.scalar(
                text(
                    "SELECT collname FROM pg_attribute JOIN pg_collation c ON c.oid = attcollation "
                    "WHERE attrelid = 'agent_runs'::regclass AND attname = 'id'"
                )
            )
        assert (listed, collation) == (sorted(listed), "C")


async def test_an_insert_that_was_absorbed_is_seen(store):
    """Both drivers: what a cursor says of its rows after it was closed is not the same."""
    await store.create_run("r", "agent")
    for _ in range(2):
        assert await store.save_usage("r", iteration_index=0, usage=UsageStats(), usage_id="u") is None
        await store.save_trace("r", "user", "x", order_index=0, trace_id="t", claim_epoch=1)
    with pytest.raises(WriteConflictError):
        await store.save_trace("r", "user", "y", order_index=0, trace_id="t", claim_epoch=1)
    assert [await store.add_note("r", note_id=note, text="x", max_pending=1) for note in "aab"] == [
        "added",
        "duplicate",
        "full",
    ]
    stored = await store.put_blob(b"x", tenant_scope="-")
    assert (await store.put_blob(b"x", tenant_scope="-")).generation == stored.generation


async def test_the_longest_identifiers_fit_every_index(store):
    """Characters of four bytes that do not repeat: PostgreSQL compresses what does."""
    made = random.Random(7)

    def longest(length):
        return "".join(chr(made.randrange(0x10000, 0x10FFFF)) for _ in range(length))

    run_id, tenant = longest(64), longest(255)
    scope = blob_scope(tenant)
    await store.create_run(run_id, longest(255), tenant_id=tenant, idempotency_key=longest(255), model=longest(255))
    blob = await store.put_blob(b"x", tenant_scope=scope)
    edge = {"tenant_scope": scope, "sha256": blob.sha256, "owner_kind": longest(100), "ordinal": 0}
    edges = [BlobEdge(owner_id=longest(255), **edge) for _ in range(3)]
    await store.save_trace(run_id, longest(100), "x", order_index=0, trace_id=longest(64), blob_refs=edges)
    listed = await store.blob_references(blob.sha256, tenant_scope=scope)
    assert [found.owner_id for found in listed] == sorted(one.owner_id for one in edges)
    assert await store.save_run_event(run_id, event_type=longest(100), correlation_id=longest(255)) == 0
    call = {"provider_tool_call_id": longest(255), "params": {}, "result_payload": "1", "duration_ms": 1}
    await store.save_tool_call(
        run_id, tool_call_id=longest(255), tool_name=longest(255), target="x", success=True, iteration_index=0, **call
    )
    await store.create_run("child", "agent", parent_run_id=run_id, delegation_level=1, tenant_id=tenant)


async def test_the_events_of_many_runs_are_one_statement_of_one_text(store):
    for run_id in ("a", "b", "c"):
        await store.create_run(run_id, "agent")
        for number in range(4):
            await store.save_run_event(run_id, event_type="x", event_id=f"{run_id}{number}")
    found = await store.get_events_for_runs({"a": -1, "b": 1, "nobody": -1, "c": 9}, limit_per_run=3)
    assert {run_id: [e.sequence_index for e in events] for run_id, events in found.items()} == {
        "a": [0, 1, 2],
        "b": [2, 3],
    }
    one, two = (store.events_for_runs_query(dict.fromkeys(ids, -1), limit_per_run=3) for ids in ("a", "ab"))
    assert str(one.compile(dialect=store._engine.dialect)) == str(two.compile(dialect=store._engine.dialect))


async def test_blobs_take_the_time_of_the_server(store):
    async with store._engine.connect() as connection:
        assert await connection.scalar(select(store.blob_now() == func.now()))
    stored = await store.put_blob(b"x", tenant_scope="-")
    assert stored.created_at.tzinfo is not None


async def test_a_read_is_one_round_trip(store):
    await store.create_run("r", "agent")
    open_transactions = []

    def look(connection, *_):
        driver = connection.connection.driver_connection
        asyncpg = hasattr(driver, "is_in_transaction")
        open_transactions.append(driver.is_in_transaction() if asyncpg else driver.info.transaction_status != 0)

    event.listen(store._engine.sync_engine, "after_cursor_execute", look)
    await store.get_run("r")
    assert open_transactions == [False]
    await store.request_cancel("r")
    assert open_transactions == [False, True]
    await store.get_run("r")
    assert open_transactions == [False, True, False]


async def test_a_missing_schema_is_said(postgres_url):
    async with opened(postgres_url) as store:
        await execute(store, "DROP TABLE agent_runs CASCADE")
        with pytest.raises(PersistenceError) as raised:
            await store.get_run("r")
    assert raised.value.code == "schema_not_initialized"
