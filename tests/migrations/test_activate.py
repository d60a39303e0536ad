"""Writers of the earlier release at work while the schema changes and format 2 begins."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import DBAPIError, NotSupportedError, OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

from dendrux.db.migrate import activate, migrate
from dendrux.db.session import get_engine
from dendrux.store import store_for_engine
from dendrux_migrations.shapes import earlier
from migrations import older
from migrations.databases import on, statement

RUNS, EVENTS, TRACES = (earlier.metadata.tables[name] for name in ("agent_runs", "run_events", "react_traces"))


async def old_writer(url: str, name: str, stop: asyncio.Event, wrote: list[str]) -> None:
    """What a worker of the earlier release does for a run: create, trace, event, end. It retries a busy database."""
    engine = create_async_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {})
    try:
        for number in count():
            run_id = f"{name}{number}"
            while True:
                try:
                    async with engine.begin() as connection:
                        values = older.run(
                            run_id, "running", tenant_id=name, idempotency_key=run_id, meta=older.DOCUMENT
                        )
                        await connection.execute(insert(RUNS).values(values))
                        for index in (0, 0):  # the position that the earlier release lets two traces have
                            await connection.execute(insert(TRACES).values(_trace(run_id, index)))
                        await connection.execute(insert(EVENTS).values(_event(run_id)))
                        await connection.execute(
                            update(RUNS).where(RUNS.c.id == run_id, RUNS.c.status == "running").values(status="success")
                        )
                        read = select(RUNS.c.status, RUNS.c.meta).where(RUNS.c.id == run_id)
                        assert tuple((await connection.execute(read)).one()) == ("success", older.DOCUMENT)
                    break
                except (OperationalError, NotSupportedError):
                    # A busy database; or, once for a connection, asyncpg's plan for the tables as they were.
                    await asyncio.sleep(0.01)
            wrote.append(run_id)
            if stop.is_set():
                return
            await asyncio.sleep(0)
    finally:
        await engine.dispose()


_NUMBERS = count()


def _trace(run_id: str, index: int) -> dict[str, Any]:
    return older.row(
        f"t{next(_NUMBERS)}", run_id, role="user", content=older.TEXT, order_index=index, updated_at=older.at(1)
    )


def _event(run_id: str) -> dict[str, Any]:
    return older.row(f"e{next(_NUMBERS)}", run_id, event_type="run.started", sequence_index=0, iteration_index=0)


@asynccontextmanager
async def at_work(url: str):
    """Two old writers, and what they wrote so far."""
    stop, wrote = asyncio.Event(), []
    writers = [asyncio.create_task(old_writer(url, name, stop, wrote)) for name in ("a", "b")]
    try:
        yield wrote
    finally:
        stop.set()
        await asyncio.gather(*writers)


async def more(wrote: list[str], number: int) -> None:
    wanted = len(wrote) + number
    async with asyncio.timeout(60):
        while len(wrote) < wanted:  # noqa: ASYNC110  # the writers count, and wait for nobody
            await asyncio.sleep(0.02)


def test_old_writers_go_on_and_lose_nothing(url):
    on(url, older.populate)

    async def story() -> list[str]:
        async with at_work(url) as wrote:
            await more(wrote, 4)
            await migrate(url)
            await more(wrote, 4)
            await activate(url)
            await more(wrote, 4)
        await activate(url)  # the last of them has stopped
        return wrote

    wrote = asyncio.run(story())
    assert len(set(wrote)) == len(wrote) >= 12
    names = "', '".join(wrote)
    runs = f"SELECT count(*) FROM agent_runs WHERE id IN ('{names}') AND storage_format = 1 AND status = 'success'"
    assert statement(url, f"{runs} AND idempotency_scope = tenant_id") == [(len(wrote),)]
    for table, each in (("react_traces", 2), ("run_events", 1)):
        found = statement(url, f"SELECT count(*) FROM {table} WHERE agent_run_id IN ('{names}')")
        assert found == [(each * len(wrote),)]
    asyncio.run(both_formats(url, wrote[0]))


async def both_formats(url: str, old: str) -> None:
    engine = get_engine(url)
    try:
        store = store_for_engine(engine)
        new = await store.create_run("new", "agent", tenant_id=old[0], idempotency_key="new")
        again = await store.create_run("again", "agent", tenant_id=old[0], idempotency_key=old)
        assert (new.format, again.run_id, again.format) == (2, old, 1)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("family", ["postgresql"], indirect=True)
def test_two_characters_of_old_writers_mean_something_else_between_the_two(url):
    """What the guide says is less: metadata with U+0000 is refused, and a new U+001A is the sign of this release."""
    before, after = older.run("before", "success"), older.run("after", "success")
    traces = [_trace(values["id"], 0) | {"content": "\x1aB"} for values in (before, after)]
    on(url, older.populate)
    on(url, lambda connection: connection.execute(insert(RUNS).values(before)))
    on(url, lambda connection: connection.execute(insert(TRACES).values(traces[0])))
    asyncio.run(migrate(url))
    refused = older.run("refused", "running", meta={"a": "\0"})
    with pytest.raises(DBAPIError):
        on(url, lambda connection: connection.execute(insert(RUNS).values(refused)))
    on(url, lambda connection: connection.execute(insert(RUNS).values(after)))
    on(url, lambda connection: connection.execute(insert(TRACES).values(traces[1])))

    async def shown() -> list[str]:
        engine = get_engine(url)
        try:
            store = store_for_engine(engine)
            return [(await store.get_traces(run_id))[0].content for run_id in ("before", "after")]
        finally:
            await engine.dispose()

    assert asyncio.run(shown()) == ["\x1aB", "\0"]
    asyncio.run(activate(url))
    assert asyncio.run(shown()) == ["\x1aB", "\0"]


def test_a_key_that_was_used_again_meanwhile_belongs_to_the_later_run(url):
    on(url, older.populate)
    asyncio.run(migrate(url))
    values = older.run("old", "success", tenant_id="t", idempotency_key="k")
    on(url, lambda connection: connection.execute(insert(RUNS).values(values)))

    async def use_again() -> tuple[str, str]:
        engine = get_engine(url)
        try:
            store = store_for_engine(engine)
            made = await store.create_run("mine", "agent", tenant_id="t", idempotency_key="k")
            await activate(url)
            return made.outcome, (await store.create_run("next", "agent", tenant_id="t", idempotency_key="k")).run_id
        finally:
            await engine.dispose()

    assert asyncio.run(use_again()) == ("created", "mine")
    assert statement(url, "SELECT idempotency_scope FROM agent_runs WHERE id = 'old'") == [("",)]


@pytest.mark.parametrize("family", ["mariadb", "mysql"], indirect=True)
def test_events_doubled_while_the_key_is_made_are_moved_again(url, monkeypatch):
    from dendrux_migrations import servers

    on(url, older.populate)
    add, doubled = servers._add_unique, []

    def another_event_first(connection, table):
        if table.name == "run_events" and not doubled:
            doubled.append(_event(older.CHILD))
            connection.execute(insert(EVENTS).values(doubled[0]))
            connection.commit()
        add(connection, table)

    monkeypatch.setattr(servers, "_add_unique", another_event_first)
    asyncio.run(migrate(url))
    found = statement(url, f"SELECT sequence_index FROM run_events WHERE agent_run_id = '{older.CHILD}' ORDER BY 1")
    assert found == [(0,), (1,), (2,)]
