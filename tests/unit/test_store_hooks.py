"""Hooks: a missing one is named, flags can be found out at first use, and their SQL means what it says on SQLite."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import insert as plain_insert
from sqlalchemy import select
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.models import agent_runs, settings
from dendrux.errors import PersistenceError, WriteConflictError
from dendrux.store import (
    AppendArray,
    DialectFacts,
    InsertPlan,
    PatchLoopState,
    SelectSource,
    SetFields,
    SQLiteStateStore,
    SQLStateStore,
)
from dendrux.store.hookvalues import ConflictSpec
from unit.store_support import built_in, counted, plain_engine

runs = agent_runs.c

REQUIRED = {
    "insert_if_absent_stmt": lambda s: s.insert_if_absent_stmt(agent_runs, {}, conflict=ConflictSpec((runs.id,))),
    "upsert_setting": lambda s: s.upsert_setting(settings, key="k", value="v", updated_at=None),
    "json_get": lambda s: s.json_get(runs.meta, ("a",), "str"),
    "json_contains": lambda s: s.json_contains(runs.meta, ("a",), 1),
    "json_is_null": lambda s: s.json_is_null(runs.meta, ("a",)),
    "json_patch_expr": lambda s: s.json_patch_expr(runs.meta, SetFields({})),
}


@pytest.mark.parametrize("hook", REQUIRED)
async def test_a_required_hook_that_is_missing_is_named(hook):
    class Empty(SQLStateStore):
        pass

    store = Empty(create_async_engine("sqlite+aiosqlite://"))
    with pytest.raises(NotImplementedError, match=f"Empty must implement the hook {hook}"):
        REQUIRED[hook](store)


async def test_a_missing_hook_leaves_nothing_open(tmp_path):
    class Lacking(SQLiteStateStore):
        insert_if_absent_stmt = SQLStateStore.insert_if_absent_stmt

    async with built_in(tmp_path, Lacking) as store:
        with pytest.raises(NotImplementedError, match="insert_if_absent_stmt"):
            await store.create_run("r", "agent")
        assert store._engine.sync_engine.pool.checkedout() == 0
        assert await store.get_run("r") is None


def with_features(**features):
    class Found(SQLiteStateStore):
        async def connection_checks(self, conn):
            return DialectFacts(server_family="sqlite", features=features)

    return Found


class Raising(SQLiteStateStore):
    """A store whose database raises at any clash instead of absorbing one."""

    def insert_if_absent_stmt(self, table, source, *, conflict, returning=()):
        stmt = plain_insert(table)
        if isinstance(source, SelectSource):
            stmt = stmt.from_select(list(source.columns), source.select)
        elif source:
            stmt = stmt.values(source)
        return InsertPlan(stmt.returning(*returning) if returning else stmt, "raise_unique")


class Counting(SQLiteStateStore):
    """A store that reserves the writer by a statement, as a store author's would."""

    async def reserve_parent_writer(self, session, run_id):
        self.reserved = [*getattr(self, "reserved", []), run_id]
        await super().reserve_parent_writer(session, run_id)


VARIANTS = {
    "built in": SQLiteStateStore,
    "no UPDATE RETURNING": with_features(supports_update_returning=False),
    "no INSERT RETURNING": with_features(supports_insert_returning=False),
    "neither": with_features(supports_update_returning=False, supports_insert_returning=False),
    "raises": Raising,
}


@pytest.mark.parametrize("kind", VARIANTS.values(), ids=VARIANTS)
async def test_the_flags_choose_the_path_and_not_the_outcome(tmp_path, kind):
    async with built_in(tmp_path, kind) as store:
        result = await store.create_run("r", "agent", idempotency_key="k")
        assert (result.outcome, result.format) == ("created", 2)
        assert (await store.create_run("r2", "agent", idempotency_key="k")).outcome == "existing_active"
        for _ in range(2):
            assert await store.save_run_event("r", event_type="x", event_id="e", claim_epoch=1) == 0
            await store.save_trace("r", "user", "x", order_index=0, trace_id="t", claim_epoch=1)
        assert await store.save_run_event("r", event_type="x") == 1
        with pytest.raises(WriteConflictError):
            await store.save_trace("r", "user", "x", order_index=0, trace_id="other", claim_epoch=1)
        with pytest.raises(WriteConflictError):
            await store.save_run_event("r", event_type="y", event_id="e")
        for _ in range(2):
            paused = await store.pause_with_event(
                "r", status="paused", pause_data={}, event_id="p", iteration_count=4, claim_epoch=1
            )
            assert paused == 2
        assert (await store.get_run_events("r"))[2].iteration_index == 4
        assert await store.claim_paused_run("r", expected_status="paused") == 2
        assert await store.claim_paused_run("r", expected_status="paused") is None
        assert await store.add_note("r", note_id="n", text="x", claim_epoch=2) == "added"
        assert await store.add_note("r", note_id="n", text="x") == "duplicate"
        run = await store.get_run("r")
        assert (run.claim_epoch, run.claimed_epoch, run.status) == (2, 2, "running")


async def test_features_override_one_instance_at_its_first_use(tmp_path):
    kind = with_features(supports_insert_returning=False)
    async with built_in(tmp_path, kind) as store:
        assert store.supports_insert_returning is True
        await store.create_run("r", "agent")
        assert store.supports_insert_returning is False
        assert kind.supports_insert_returning is True
        with counted(store._engine) as statements:
            await store.save_run_event("r", event_type="x", claim_epoch=1)
        assert not any("INSERT" in sql and "RETURNING" in sql for sql in statements)
    async with built_in(tmp_path, with_features(flies=True)) as store:
        with pytest.raises(ValueError, match="flies"):
            await store.get_run("r")


async def test_a_server_that_is_refused_is_refused_before_any_write(tmp_path):
    class Refusing(SQLiteStateStore):
        async def connection_checks(self, conn):
            raise ValueError("not this server")

    async with built_in(tmp_path, Refusing) as store:
        for _ in range(2):
            with pytest.raises(ValueError, match="not this server"):
                await store.create_run("r", "agent")
        assert await SQLiteStateStore(store._engine).get_run("r") is None


async def test_the_writer_is_reserved_first_in_every_write(tmp_path):
    async with built_in(tmp_path, Counting) as store:
        await store.create_run("r", "agent")
        await store.create_run("child", "agent", parent_run_id="r", delegation_level=1)
        await store.save_run_event("r", event_type="x")
        await store.get_run("r")
        assert store.reserved == ["r", "r", "r"]


VALUES = [1, 1.0, True, "1", "true", None, "", 0, False, 0.0, [], {}, [1, {"a": 2}], {"x": {"y": [1, 2]}, "z": None}]


async def test_a_metadata_filter_tells_values_of_different_types_apart(tmp_path):
    async with built_in(tmp_path) as store:
        for number, value in enumerate(VALUES):
            await store.create_run(f"r{number}", "agent", meta={"v": value, "o": 1})
        await store.create_run("none", "agent", meta={"o": 1})
        await store.create_run("null", "agent")
        scalars = [v for v in VALUES if not isinstance(v, (list, dict))]
        for wanted in scalars:
            found = {r.id for r in await store.list_runs(metadata_filter={"v": wanted})}
            expected = {f"r{n}" for n, value in enumerate(VALUES) if type(value) is type(wanted) and value == wanted}
            assert found == expected, wanted
        assert await store.count_runs(metadata_filter={}) == len(VALUES) + 2
        assert await store.count_runs(metadata_filter={"v": 1, "o": 1}) == 1
        assert await store.count_runs(metadata_filter={"v": 1, "o": 2}) == 0


async def test_strings_compare_whole(tmp_path):
    values = ["a", "a\0", "a\0b", "A", "a ", "é", "e\u0301", "\\u0000", "a\\u0000", "😀", '"', "%", "\x1a"]
    async with built_in(tmp_path) as store:
        for number, value in enumerate(values):
            await store.create_run(f"r{number}", "agent", meta={"v": value})
        for number, value in enumerate(values):
            assert [r.id for r in await store.list_runs(metadata_filter={"v": value})] == [f"r{number}"], value


async def test_containers_match_by_containment(tmp_path):
    async with built_in(tmp_path) as store:
        await store.create_run("r", "agent", meta={"v": {"x": {"y": [1, 2, {"k": "a"}]}, "z": None}})
        contained = [{}, {"z": None}, {"x": {}}, {"x": {"y": []}}, {"x": {"y": [2]}}, {"x": {"y": [{"k": "a"}]}}]
        for wanted in contained:
            assert await store.count_runs(metadata_filter={"v": wanted}) == 1, wanted
        for wanted in [
            [],
            {"q": 1},
            {"x": {"y": [3]}},
            {"x": {"y": {}}},
            {"z": 0},
            {"x": {"y": [{"k": "b"}]}},
            {"x": {"y": [1.0]}},
        ]:
            assert await store.count_runs(metadata_filter={"v": wanted}) == 0, wanted


async def test_json_reads_answer_null_for_another_type(tmp_path):
    async with plain_engine(tmp_path) as engine:
        store = SQLiteStateStore(engine)
        document = {"s": "x", "i": 7, "b": True, "f": False, "n": None, "a": [1, {"deep": "é\x1a"}], "r": 1.5}
        await store.create_run("r", "agent", meta=document)
        read = {
            kind: {key: store.json_get(runs.meta, (key,), kind) for key in [*document, "missing"]}
            for kind in ("str", "int", "bool", "json")
        }
        columns = [read[kind][key].label(f"{kind}_{key}") for kind in read for key in read[kind]]
        columns += [store.json_is_null(runs.meta, (key,)).label(f"null_{key}") for key in ("n", "s", "missing")]
        columns.append(store.json_get(runs.meta, ("a", -1, "deep"), "str").label("deep"))
        async with engine.connect() as connection:
            row = (await connection.execute(select(*columns))).one()._mapping
        for kind, key in itertools.product(("str", "int", "bool"), [*document, "missing"]):
            value = document.get(key)
            fits = type(value) is {"str": str, "int": int, "bool": bool}[kind]
            assert row[f"{kind}_{key}"] == (value if fits else None), (kind, key)
        assert {key: row[f"json_{key}"] for key in document} == document
        assert (row["null_n"], row["null_s"], row["null_missing"]) == (True, False, False)
        assert row["deep"] == "é\x1a"
        for key in ('quo"te',):
            with pytest.raises(ValueError, match="double quote"):
                store.json_get(runs.meta, (key,), "str")


async def test_patches_leave_the_rest_of_a_document_as_it_is(tmp_path):
    async with plain_engine(tmp_path) as engine:
        store = SQLiteStateStore(engine)
        document = {
            "f": 1.0,
            "e": 1e16,
            "z": -0.0,
            "big": 10**40,
            "u": "é\0\x1a😀",
            "n": None,
            "a": [1],
            "o": {"b": 1, "a": 2},
        }
        await store.create_run("r", "agent", meta=document)
        await store.update_run_meta("r", {"new": {"x": [1, 2.0, "\0"]}, "f": True})
        meta = (await store.get_run("r")).meta
        expected = {**document, "f": True, "new": {"x": [1, 2.0, "\0"]}}
        assert repr(meta) == repr(expected)
        appended = store.json_patch_expr(runs.meta, AppendArray(("a",), {"k": None}))
        async with engine.begin() as connection:
            await connection.execute(agent_runs.update().values(meta=appended))
        assert (await store.get_run("r")).meta["a"] == [1, {"k": None}]
        assert store.json_patch_expr(runs.loop_state, PatchLoopState({"a": 1})) is None


async def test_a_patch_that_no_expression_carries_is_merged_under_the_lock(tmp_path):
    async with built_in(tmp_path) as store:
        await store.create_run("r", "agent", meta={"a": 1})
        await store.update_run_meta("r", {"a key": 1, 'quo"te': 2, "é": None})
        await store.update_run_meta("r", {f"k{n}": n for n in range(200)}, claim_epoch=1)
        meta = (await store.get_run("r")).meta
        assert list(meta)[:4] == ["a", "a key", 'quo"te', "é"]
        assert len(meta) == 204


async def test_settings_are_written_over(tmp_path):
    from datetime import UTC, datetime

    async with plain_engine(tmp_path) as engine:
        store = SQLiteStateStore(engine)
        for value in ("1", "2"):
            async with engine.begin() as connection:
                await connection.execute(
                    store.upsert_setting(settings, key="k", value=value, updated_at=datetime.now(UTC))
                )
        async with engine.connect() as connection:
            rows = (await connection.execute(select(settings).where(settings.c.key == "k"))).all()
        assert [row.value for row in rows] == ["2"]


async def test_pages_of_children_and_events(tmp_path):
    from dendrux.store import RunParentCursor

    async with built_in(tmp_path) as store:
        await store.create_run("p", "agent", tenant_id="t")
        for name in ("a", "b", "c"):
            await store.create_run(name, "agent", parent_run_id="p", delegation_level=1, tenant_id="t")
            for _ in range(3):
                await store.save_run_event(name, event_type="x")
        query = store.child_page_query(
            runs=agent_runs, parents=[RunParentCursor("p", after="a")], tenant_scope="t", page_size=5
        )
        async with store._engine.connect() as connection:
            assert [row.id for row in (await connection.execute(query)).all()] == ["b", "c"]
        found = await store.get_events_for_runs({"a": -1, "b": 1, "c": 2, "missing": 0}, limit_per_run=2)
        assert {k: [e.sequence_index for e in v] for k, v in found.items()} == {"a": [0, 1], "b": [2]}
        assert await store.get_events_for_runs({}, limit_per_run=1) == {}
        with pytest.raises((ValueError, PersistenceError)):
            await store.get_events_for_runs({"a": -1}, limit_per_run=101)


@pytest.mark.parametrize("beside", ["text", "{", 1, None, {"a": 1}])
async def test_a_list_is_looked_for_beside_values_that_are_none(tmp_path, beside):
    """json_each makes an error of a scalar, whatever the terms beside it say."""
    async with built_in(tmp_path) as store:
        await store.create_run("list", "agent", meta={"v": ["x", 1]})
        await store.create_run("beside", "agent", meta={"v": beside})
        for wanted in (["x"], [1], ["x", 1]):
            assert [run.id for run in await store.list_runs(metadata_filter={"v": wanted})] == ["list"]
        assert await store.list_runs(metadata_filter={"v": ["y"]}) == []
