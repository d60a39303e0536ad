"""MySQL and MariaDB: what the store asks of a session, and how keys, text and documents are kept and compared there."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.models import STORAGE_FORMAT_KEY, agent_runs, metadata, settings
from dendrux.db.session import get_engine
from dendrux.db.types import Json, Word
from dendrux.errors import PersistenceError
from dendrux.store import MySQLStateStore, SeedTrace, SetFields, store_for_engine
from dendrux.store.dialects.mysql import size
from dialects.mysql_support import opened, other
from unit.store_support import built_in, counted
from unit.test_store_statements import BUDGET, prepare

UTC_SESSION = "SET time_zone = '+00:00'"


@pytest_asyncio.fixture
async def store(mysql_url):
    async with opened(mysql_url) as store:
        yield store


# -- what is asked of a session ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mysql", "mariadb"])
async def test_either_name_of_the_engine_gives_this_store(mysql_url, name):
    url = mysql_url.set(drivername=f"{name}+asyncmy")
    async with other(mysql_url) as connection:
        is_mariadb = "MariaDB" in await connection.scalar(text("SELECT version()"))
    if name == "mariadb" and not is_mariadb:
        pytest.skip("SQLAlchemy refuses a mariadb URL on MySQL")
    engine = get_engine(url)
    try:
        store = store_for_engine(engine)
        assert type(store) is MySQLStateStore
        assert store.capabilities.deployment == "multi_server"
        assert (await store.create_run("r", "agent")).format == 2
        assert store.supports_insert_returning is is_mariadb
        assert store.server.family == ("mariadb" if is_mariadb else "mysql")
    finally:
        await engine.dispose()


REFUSED = {
    "isolation_level='READ COMMITTED'": {"isolation_level": "REPEATABLE READ"},
    "default_time_zone": {"connect_args": {"init_command": "SET time_zone = '+05:30'"}},
    "STRICT_TRANS_TABLES": {"connect_args": {"init_command": f"{UTC_SESSION}, sql_mode = ''"}},
    "charset=utf8mb4": {"connect_args": {"init_command": UTC_SESSION, "charset": "latin1"}},
    "FOUND_ROWS": {"connect_args": {"init_command": UTC_SESSION, "client_flag": 0}},
    "AUTOCOMMIT": {"isolation_level": "AUTOCOMMIT"},
}


@pytest.mark.parametrize("setting", REFUSED)
async def test_a_session_that_breaks_a_promise_is_refused_with_the_setting(mysql_url, setting):
    async with opened(mysql_url, **REFUSED[setting]) as store:
        for _ in range(2):  # and not the first time only
            with pytest.raises(ValueError, match=setting):
                await store.create_run("r", "agent")
    async with opened(mysql_url) as store:
        assert await store.get_run("r") is None


async def test_a_plain_engine_of_the_application_is_refused_and_not_repaired(mysql_url):
    engine = create_async_engine(mysql_url)
    try:
        async with engine.connect() as connection:
            level = await connection.get_isolation_level()
        if level == "READ COMMITTED":
            pytest.skip("this server's default is what the store needs")
        with pytest.raises(ValueError, match="READ COMMITTED"):
            await MySQLStateStore(engine).get_run("r")
        async with engine.connect() as connection:
            assert await connection.get_isolation_level() == level
    finally:
        await engine.dispose()


ALTERED = {
    "run_inbox is MyISAM": (
        "ALTER TABLE run_inbox DROP FOREIGN KEY fk_run_inbox_run_id",
        "ALTER TABLE run_inbox ENGINE=MyISAM",
    ),
    "token_usage.model has the collation utf8mb4_bin": (
        "ALTER TABLE token_usage MODIFY model VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    ),
}


@pytest.mark.parametrize("problem", ALTERED)
async def test_a_table_that_breaks_a_promise_is_refused(mysql_url, problem):
    name = f"{mysql_url.database}_altered"
    altered = mysql_url.set(database=name)
    async with other(mysql_url) as connection:
        await connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            async with opened(altered) as store:
                async with store.engine.begin() as schema:
                    await schema.run_sync(metadata.create_all)
                    for statement in ALTERED[problem]:
                        await schema.execute(text(statement))
                with pytest.raises(ValueError, match=problem):
                    await store.get_run("r")
        finally:
            await connection.execute(text(f"DROP DATABASE {name}"))


async def test_the_capacity_is_the_packet(store):
    async with store.engine.connect() as connection:
        assert await store.statement_capacity() == await connection.scalar(text("SELECT @@max_allowed_packet"))


# -- the schema -------------------------------------------------------------------------------------------------------


async def test_the_schema_is_made_for_these_servers(store):
    await store.get_run("r")
    exact = store.server.collation
    async with store.engine.connect() as connection:
        columns = {
            (row.place, row.name): row
            for row in await connection.execute(
                text(
                    "SELECT table_name AS place, column_name AS name, column_type AS kind, collation_name AS collation "
                    "FROM information_schema.columns WHERE table_schema = DATABASE()"
                )
            )
        }
    for table in metadata.sorted_tables:
        for column in table.columns:
            found = columns[table.name, column.name]
            if isinstance(column.type, Word):
                assert (found.kind, found.collation) == (f"varchar({column.type.length})", exact)
            elif isinstance(column.type, Json):
                assert found.kind == "longtext"
    assert columns["agent_runs", "created_at"].kind == "datetime(6)"
    assert columns["agent_runs", "total_cost_usd"].kind == "decimal(18,6)"
    assert columns["dendrux_blobs", "data"].kind == "longblob"
    assert columns["react_traces", "content"].kind == "longtext"


async def test_mysql_checks_documents(store):
    await store.create_run("r", "agent")
    async with store.engine.connect() as connection:
        broken = text("UPDATE agent_runs SET meta = '{' WHERE id = 'r'")
        if store.server.family == "mysql":
            with pytest.raises(Exception, match="ck_agent_runs_meta"):
                await connection.execute(broken)
        else:
            await connection.execute(broken)  # json_valid takes 31 levels there, a document may have 100


# -- keys, counts and times -------------------------------------------------------------------------------------------

KEYS = [
    "abc",
    "ABC",
    "abc ",
    " abc",
    "abc\t",
    "é",
    "e\u0301",
    "e",
    "ß",
    "ss",
    "\uff21",
    "A",
    "\u0131",
    "i",
    "\U0001f600",
]


async def test_keys_that_differ_at_all_are_different_keys(store):
    for key in KEYS:
        assert (await store.create_run(key, "agent", tenant_id=key, idempotency_key="k")).outcome == "created"
    for key in KEYS:
        assert (await store.get_run(key, tenant_id=key)).tenant_id == key
        assert [run.id for run in await store.list_runs(tenant_id=key)] == [key]
        again = await store.create_run("x", "agent", tenant_id=key, idempotency_key="k")
        assert (again.outcome, again.run_id) == ("existing_active", key)


async def test_an_update_that_changes_nothing_is_an_update(store):
    await store.create_run("r", "agent")
    async with store.engine.begin() as connection:
        same = agent_runs.update().values(updated_at=agent_runs.c.updated_at)
        assert (await connection.execute(same)).rowcount == 1
    async with store.engine.begin() as connection:  # a clock that is ahead: each renewal writes what is there
        ahead = datetime.now(UTC) + timedelta(hours=1)
        await connection.execute(agent_runs.update().values(last_progress_at=ahead))
    for _ in range(2):
        await store.touch_progress("r", claim_epoch=1)
    assert (await store.get_run("r")).last_progress_at == ahead


@pytest.mark.parametrize("micros", [0, 1, 499999, 500000, 999999])
async def test_a_time_keeps_its_microseconds(store, micros):
    await store.create_run("r", "agent")
    moment = datetime(2026, 3, 29, 1, 30, 59, micros, tzinfo=UTC)
    async with store.engine.begin() as connection:
        await connection.execute(agent_runs.update().values(created_at=moment))
    assert (await store.get_run("r")).created_at == moment
    assert [run.id for run in await store.list_runs(started_after=moment)] == ["r"]
    assert await store.list_runs(started_after=moment + timedelta(microseconds=1)) == []


async def test_a_read_after_a_lock_sees_what_was_committed_meanwhile(store, mysql_url):
    """A snapshot of REPEATABLE READ would have been taken by the first read."""
    await store.create_run("r", "agent")
    async with store.engine.connect() as connection, other(mysql_url) as rival:
        assert await connection.scalar(text("SELECT COUNT(*) FROM agent_runs")) == 1
        await rival.execute(text("UPDATE agent_runs SET error = 'x' WHERE id = 'r'"))
        await rival.commit()
        await connection.execute(text("SELECT id FROM agent_runs WHERE id = 'r' FOR UPDATE"))
        assert await connection.scalar(text("SELECT error FROM agent_runs WHERE id = 'r'")) == "x"


async def test_settings_are_overwritten(store):
    async with store.engine.begin() as connection:
        for value in ("1", "2"):
            now = datetime.now(UTC)
            statement = store.upsert_setting(settings, key=STORAGE_FORMAT_KEY, value=value, updated_at=now)
            await connection.execute(statement)
        assert (await connection.execute(settings.select())).one().value == "2"


# -- text and documents -----------------------------------------------------------------------------------------------


def deep(levels):
    return json.loads("[" * levels + "0" + "]" * levels)


VALUES = [
    *(True, False, 1, 1.0, 0, 0.0, -0.0, "1", "true", None, "", "a", "A", "a ", "é", "e\u0301"),
    *("x\0y", "x\\u0000y", 'q"uote', "back\\slash", "\U0001f600", "\x1a", "line\n", "%s", "{", "["),
    *(2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**18, 1e16, 1.5, 1e-7, 0.1, 5e-324, 1.7976931348623157e308),
    *([], {}, [1], [1.0], [True], ["a"], [[1]], [None], [{"k": 1}], [1, 2, "a"]),
    *({"k": 1}, {"k": 1.0}, {"k": True}, {"k": None}, {"k": [1, 2]}, {"k": {"z": "x\0"}}),
]


async def matches(store):
    """Which documents each value finds: plain ones, and ones that nest as deep as they may."""
    for number, value in enumerate(VALUES):
        await store.create_run(f"{number}", "agent", meta={"v": value})
        await store.create_run(f"{number} deep", "agent", meta={"p": "x", "v": value, "deep": deep(99)})
    await store.create_run("other", "agent", meta={"w": 1})
    await store.create_run("none", "agent")
    found = {}
    for number, value in enumerate(VALUES):
        found[number] = {run.id for run in await store.list_runs(metadata_filter={"v": value}, limit=1000)}
    return found


async def test_filters_find_what_they_find_on_sqlite(store, tmp_path):
    async with built_in(tmp_path) as sqlite:
        expected = await matches(sqlite)
    assert await matches(store) == expected
    for number, value in enumerate(VALUES):
        assert f"{number} deep" in expected[number]
        assert json.dumps((await store.get_run(f"{number}")).meta) == json.dumps({"v": value})


@pytest.mark.parametrize("levels", [0, 99])
async def test_one_value_of_a_document(store, levels):
    document = {
        "p": "x",
        "s": "text\0\U0001f600",
        "i": 2**53 + 1,
        "b": True,
        "n": None,
        "l": [{"a": 1}, {"b": [1, 2]}],
        'odd "key"\\': 7,
        "deep": deep(levels),
    }
    await store.create_run("r", "agent", meta=document)
    meta = agent_runs.c.meta
    wanted = {
        "text": (store.json_get(meta, ("s",), "str"), "text\0\U0001f600"),
        "no text": (store.json_get(meta, ("i",), "str"), None),
        "integer": (store.json_get(meta, ("i",), "int"), 2**53 + 1),
        "no integer": (store.json_get(meta, ("b",), "int"), None),
        "truth": (store.json_get(meta, ("b",), "bool"), True),
        "no truth": (store.json_get(meta, ("i",), "bool"), None),
        "odd key": (store.json_get(meta, ('odd "key"\\',), "int"), 7),
        "element": (store.json_get(meta, ("l", 0, "a"), "int"), 1),
        "last": (store.json_get(meta, ("l", -1), "json"), {"b": [1, 2]}),
        "last but one": (store.json_get(meta, ("l", -2), "json"), {"a": 1}),
        "missing": (store.json_get(meta, ("l", 5), "json"), None),
        "null": (store.json_is_null(meta, ("n",)), True),
        "no null": (store.json_is_null(meta, ("missing",)), False),
    }
    async with store.engine.connect() as connection:
        row = (await connection.execute(select(*(column for column, _ in wanted.values())))).one()
    for (name, (_, value)), found in zip(wanted.items(), row, strict=True):
        assert found == value, name
    with pytest.raises(ValueError, match="float"):
        store.json_get(meta, ("a",), "float")


async def test_no_patch_keeps_the_rest_of_a_document(store):
    """Why json_patch_expr is None: what the servers write instead of this document."""
    document = '{"bb":1.0,"a":{"z":1e16,"y":-0.0},"l":[1,2]}'
    async with store.engine.connect() as connection:
        changed = await connection.scalar(text("SELECT JSON_SET(:d, '$.new', 1)"), {"d": document})
    assert changed != document[:-1] + ',"new":1}'
    assert store.json_patch_expr(agent_runs.c.meta, SetFields({"new": 1})) is None


async def test_text_comes_back_as_it_was(store):
    nasty = "\0\x1a\\'\"%s%%:x\r\n\t\x7f\x80\U0001f600\ufffe" * 1000
    await store.create_run("r", "agent", seed_traces=[SeedTrace(role="user", content=nasty)])
    assert [trace.content for trace in await store.get_traces("r")] == [nasty]
    assert [len(t.content) for t in (await store.conversation_traces("r", limit=5, max_bytes=10)).traces] == [
        len(nasty)
    ]


async def test_a_pause_is_summed_up_as_it_was_stored(store):
    call = {"id": "c", "name": "n", "params": {"zz": 10**30, "a": [1.0, {"y": 1, "b": -0.0}], "deep": deep(90)}}
    await store.create_run("r", "agent")
    await store.pause_with_event("r", status="paused", pause_data={"pending_tool_calls": [call]})
    (pending,) = (await store.get_pending("r")).calls
    assert json.dumps(pending.params) == json.dumps(call["params"])


# -- what things cost -------------------------------------------------------------------------------------------------

READ_AND_WRITTEN = {"update_run_meta", "finalize_with_event", "checkpoint_step"}
"""Operations that patch a document: it is read, and written."""
SERIALIZED = {"add_note"}
"""Operations that take the run's row once more, to count under it."""


@pytest.mark.parametrize("operation", BUDGET)
async def test_the_first_call_keeps_its_budget(store, operation):
    await prepare(store)
    budget, arguments = BUDGET[operation]
    with counted(store.engine) as statements:
        await getattr(store, operation)(**arguments)
    allowed = budget + 1 + (operation in READ_AND_WRITTEN | SERIALIZED)
    assert len(statements) <= allowed, statements


async def test_an_event_is_one_insert(store):
    """Its index comes with the answer: by LAST_INSERT_ID, or RETURNING."""
    await store.create_run("r", "agent")
    for index in range(3):
        with counted(store.engine) as statements:
            assert await store.save_run_event("r", event_type="x", claim_epoch=1) == index
        assert len(statements) == 3
        assert ("RETURNING" in statements[-1]) is (store.server.family == "mariadb")


# -- a statement's size -----------------------------------------------------------------------------------------------


def test_the_size_of_a_statement_counts_what_is_escaped():
    assert size("INSERT %s", ("é",)) == 9 + 2
    assert size("x", {"a": "\0'\"\\\n\r\x1a"}) == 1 + 14
    assert size("x", [("aa",), ("a",)]) == 1 + 2
    assert size("x", (b"\0\xff", 1, None)) == 1 + 3
    assert size(None, None) == 0


async def test_a_refused_error_shows_nothing(store):
    await store.create_run("r", "agent")
    with pytest.raises(PersistenceError) as caught:
        await store.create_run("r", "another secret agent")
    assert "secret" not in str(caught.value)
