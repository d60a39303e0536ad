"""Every kind of cut that the injector knows, at every point, on every database that has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dendrux.db.session import get_engine
from dendrux.lab.detour import PROXY, endpoint, target_of
from dendrux.lab.seam import SEAMS
from dendrux.testing.bench import Bench
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.cuts import FORMS
from dendrux.testing.store_kit.sql import SqlFaultInjector
from dendrux_model.operations import AddNote, ClaimPausedRun, CreateRun, PauseWithEvent, RequestCancel, SaveRunEvent
from dendrux_model.outcomes import Cancelled, Returned, Unavailable, Unknown
from dendrux_model.programs import Do, Fault, Look, Point, Program
from dendrux_model.world import World
from dialects.found import Database, Found

BORN = Do(CreateRun(run_id="r", agent_name="agent"))
EVENT = SaveRunEvent(run_id="r", event_type="seen", event_id="e")
CANCEL = RequestCancel(run_id="r")
PAUSE = Do(PauseWithEvent(run_id="r", status="paused", pause_data={}))
CLAIM = ClaimPausedRun(run_id="r", expected_status="paused")
OTHER = Do(AddNote(run_id="r", note_id="n", text="from elsewhere"), 1)

CELLS: tuple[tuple[str, Point], ...] = tuple(
    (kind, point)
    for kind in ("error", "cancel", *FORMS)
    for point in ("statement", "before_commit", "after_commit")
    if (kind, point) != ("commit_delayed", "statement")
)


@asynccontextmanager
async def bench_on(database: Database, folder: Path) -> AsyncIterator[Bench]:
    """Two instances of the built-in store with engines of their own, and an injector."""
    async with database.engine(folder) as engine:
        url = engine.url if database.url is None else database.url
        second = get_engine(url)
        await ready(database, engine)
        bench = Bench(
            lambda: database.kind(engine), second=lambda _: database.kind(second), injector=SqlFaultInjector()
        )
        try:
            yield bench
        finally:
            bench.injector.close()
            await bench.close()
            await second.dispose()


async def ready(database: Database, engine: AsyncEngine) -> None:
    """The schema, on a database that has none yet."""
    if database.url is None:
        await database.empty(engine)
        database.has_schema = False


async def cut(bench: Bench, *program: Any) -> Execution:
    """Run a program, in which something must have been cut."""
    execution = Execution(bench, World(new_format=2))
    await execution.run(program)
    assert execution.fired == sum(isinstance(step, Fault) for step in program)
    return execution


@pytest.mark.parametrize(("kind", "point"), CELLS, ids="-".join)
async def test_a_write_is_settled_whatever_cuts_it(database: Database, tmp_path: Path, kind: str, point: Point) -> None:
    async with bench_on(database, tmp_path) as bench:
        if kind in FORMS and kind not in bench.injector.disconnect_forms(await bench.instance()):
            pytest.skip(f"{database.name} has no {kind}")
        program: Program = (
            BORN,
            Fault(Do(EVENT), point, kind),
            OTHER,
            Look(),
            Do(EVENT),
            Fault(Do(CANCEL), point, kind),
        )
        execution = await cut(bench, *program)
        answers = {line.call: line.observed for line in execution.lines if line.step in (2, 6)}.values()
        if kind == "cancel":
            assert set(answers) == {Cancelled()}
        elif kind == "error" and point == "statement":
            assert set(answers) == {Unavailable("persistence_error")}
        else:
            assert list(answers) == [Returned(0), Returned(True)]  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(("kind", "point"), [cell for cell in CELLS if cell[0] in FORMS], ids="-".join)
async def test_a_claim_says_that_nobody_knows(database: Database, tmp_path: Path, kind: str, point: Point) -> None:
    async with bench_on(database, tmp_path) as bench:
        if kind not in bench.injector.disconnect_forms(await bench.instance()):
            pytest.skip(f"{database.name} has no {kind}")
        execution = await cut(bench, BORN, PAUSE, Fault(Do(CLAIM), point, kind))
        claimed = next(line.observed for line in execution.lines if line.step == 3)
        assert isinstance(claimed, Returned if point == "statement" else Unknown)
        runs = [possible.world.runs[0].status for possible in execution.worlds.possible]
        expected = {"before_commit": "paused", "after_commit": "running", "statement": "running"}[point]
        assert runs == ["running" if kind == "commit_delayed" else expected], "a look decides"


async def test_what_a_database_has(database: Database, tmp_path: Path) -> None:
    async with bench_on(database, tmp_path) as bench:
        store = await bench.instance()
        expected = FORMS[:1] if database.name == "sqlite" else FORMS
        assert tuple(bench.injector.disconnect_forms(store)) == expected
        if database.name == "sqlite":
            with pytest.raises(ValueError, match=r"no stream_cut for SQLiteStateStore; its database has invalidated"):
                bench.injector.arm(store, "before_commit", kind="stream_cut")
        else:
            with pytest.raises(ValueError, match="arm it at before_commit or after_commit"):
                bench.injector.arm(store, "statement", kind="commit_delayed")


@pytest.mark.requires("supports_row_locks")
async def test_a_sticky_cut_goes_on_and_after_lets_some_pass(database: Database, tmp_path: Path) -> None:
    async with bench_on(database, tmp_path) as bench:
        store = await bench.instance()
        await store.create_run("r", "agent")
        store.retry_backoff_s = 0.001
        for kind in FORMS[1:3]:
            bench.injector.arm(store, "before_commit", kind=kind, after=1, sticky=True)
            await store.save_run_event("r", event_type="x", event_id=f"before {kind}")
            assert bench.injector.fired(store) == 0
            with pytest.raises(Exception, match="cannot prove whether the write happened"):
                await store.save_run_event("r", event_type="x", event_id=f"of {kind}")
            assert bench.injector.fired(store) == 1 + store.retry_limit
            bench.injector.disarm(store)
            assert await store.save_run_event("r", event_type="x", event_id=f"of {kind}") is not None


async def test_a_connection_that_was_lost_can_still_be_closed(tmp_path: Path) -> None:
    """Whoever takes a connection of the engine himself closes it as without the kit."""
    async with Database("sqlite", None).store(tmp_path) as store:
        await store.create_run("r", "agent")
        injector = SqlFaultInjector()
        injector.arm(store, "after_commit", kind="invalidated")
        connection = await store._engine.connect()
        await connection.exec_driver_sql("UPDATE agent_runs SET model = 'm'")
        with pytest.raises(DBAPIError):
            await connection.commit()
        await connection.close()
        assert injector.fired(store) == 1
        injector.close()


def watched(engine: AsyncEngine) -> list[Any]:
    """Everything that listens to an engine, and what was set on its dialect."""
    made = engine.sync_engine
    found: list[Any] = [
        list(getattr(made.dispatch, at)) for at in ("before_cursor_execute", "rollback", "engine_connect")
    ]
    found += [list(getattr(made.dialect.dispatch, at)) for at in ("handle_error", "do_connect")]
    found.append({name for name in ("do_commit", "is_disconnect") if name in vars(made.dialect)})
    return found


async def test_an_engine_is_left_as_it_was_made(database: Database, tmp_path: Path) -> None:
    async with database.engine(tmp_path) as engine:
        await ready(database, engine)
        store = database.kind(engine)
        await store.create_run("r", "agent")
        before = watched(engine)
        injector = SqlFaultInjector()
        bench = Bench(lambda: store, injector=injector)
        await bench.instance()
        for form in injector.disconnect_forms(store):
            await cut(bench, BORN, Fault(Do(EVENT), "before_commit", form))
            injector.arm(store, "after_commit", kind=form)
        await bench.close()
        injector.close()
        assert watched(engine) == before
        assert engine not in SEAMS
        await store.create_run("s", "agent")  # with what is left in the pool


@pytest.mark.requires("supports_row_locks")
async def test_no_more_detours_than_asked_for(database: Database, tmp_path: Path) -> None:
    async with bench_on(database, tmp_path) as bench:
        store = await bench.instance()
        await store.create_run("r", "agent")

        async def behind() -> bool:
            async with store._engine.connect() as connection:
                return PROXY in (await connection.get_raw_connection()).info

        assert not await behind()
        bench.injector.arm(store, "before_commit", kind="session_ended")
        assert not await behind()
        bench.injector.arm(store, "before_commit", kind="stream_cut")
        assert await behind(), "a connection of the pool is replaced"
        bench.injector.disarm(store)
        await store._engine.dispose()
        assert not await behind()


@pytest.mark.requires("supports_row_locks")
async def test_the_connection_in_whose_place_the_pool_gives_another(database: Database, tmp_path: Path) -> None:
    """A pool that has several gives another straight one for the one that was replaced."""
    async with bench_on(database, tmp_path) as bench:
        store = await bench.instance()
        await store.create_run("r", "agent")

        async def behind(together: asyncio.Barrier) -> bool:
            async with store._engine.connect() as connection, together:
                return PROXY in (await connection.get_raw_connection()).info

        three = asyncio.Barrier(3)
        assert not any(await asyncio.gather(*(behind(three) for _ in range(3)))), "the pool has three straight ones"
        for _ in range(3):
            bench.injector.arm(store, "before_commit", kind="stream_cut")
            assert await behind(asyncio.Barrier(1))
            bench.injector.disarm(store)


# -- whose arguments are known ----------------------------------------------------------------------------------------


class Strict:
    """A TLS context that checks the name of its host."""

    check_hostname = True


@pytest.mark.parametrize(
    ("url", "arguments", "expected"),
    [
        ("postgresql+asyncpg://u:p@db.example/x", {}, ("db.example", 5432)),
        ("postgresql+psycopg://u:p@db.example:6000/x", {}, ("db.example", 6000)),
        ("mysql+asyncmy://u:p@127.0.0.1:33306/x", {}, ("127.0.0.1", 33306)),
        ("mariadb+asyncmy://u:p@db.example/x", {}, ("db.example", 3306)),
        ("postgresql+asyncpg://u@/x?host=/run/postgresql", {}, None),
        ("postgresql+asyncpg://u@/x", {}, None),
        ("postgresql+asyncpg://u@/x?host=one.example:1&host=two.example:2", {}, None),
        ("postgresql+psycopg://u@db.example/x?sslmode=verify-full", {}, None),
        ("postgresql+psycopg://u@db.example/x?sslmode=require", {}, ("db.example", 5432)),
        ("postgresql+asyncpg://u@db.example/x", {"ssl": Strict()}, None),
        ("mysql+asyncmy://u@db.example/x", {"unix_socket": "/run/mysqld.sock"}, None),
        ("sqlite+aiosqlite:///x.db", {}, None),
    ],
)
def test_where_a_driver_connects_to(url: str, arguments: dict[str, Any], expected: tuple[str, int] | None) -> None:
    assert target_of(create_async_engine(url, connect_args=arguments)) == expected


def test_an_unknown_driver_has_no_detour() -> None:
    dialect = create_engine("sqlite://").dialect
    assert endpoint(dialect, [], {"host": "db.example", "port": 1}) is None


@pytest.fixture
def server(found: Found) -> URL:
    """PostgreSQL, with asyncpg."""
    return found.server("postgresql").url.set(drivername="postgresql+asyncpg")


async def test_an_engine_with_a_connector_of_its_authors_has_sessions_only(server: URL) -> None:
    import asyncpg

    async def connect() -> Any:
        return await asyncpg.connect(host=server.host, port=server.port, user=server.username, database="postgres")

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    assert target_of(engine) is None

    listening = create_async_engine(server)

    @event.listens_for(listening.sync_engine, "do_connect")
    def elsewhere(dialect: Any, record: Any, positional: Any, named: dict[str, Any]) -> None:
        named["host"], named["port"] = "other.example", 7

    assert target_of(listening) == ("other.example", 7), "arguments as the engine's author changes them"
    await asyncio.gather(engine.dispose(), listening.dispose())
