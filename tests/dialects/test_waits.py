"""A server is asked whether one of its connections waits for a lock, and the gate goes on at once when it does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from dendrux.lab import gate, waits
from dendrux.lab.gate import park
from dendrux.lab.sessions import session_of
from dendrux.lab.waits import forget, waits_in_innodb, waits_of
from dendrux.testing.driver import Driver
from dendrux_model.operations import CreateRun, GetRun, SaveRunEvent
from dendrux_model.outcomes import Returned
from dendrux_model.programs import Do
from dialects.found import Database

HOLD = "UPDATE agent_runs SET cancel_requested = cancel_requested WHERE id = 'r'"
EVENT = SaveRunEvent(run_id="r", event_type="seen", event_id="one")
OTHER = SaveRunEvent(run_id="r", event_type="seen", event_id="two")


async def until(condition: Any) -> None:
    """Wait until an awaitable answers True."""
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110  # a server sets no event
            await asyncio.sleep(0.005)


@pytest.mark.requires("supports_row_locks")
async def test_a_server_says_which_connection_waits(database: Database, tmp_path: Path) -> None:
    async with database.store(tmp_path) as store:
        await store.create_run("r", "agent")
        asking = waits_of(store)
        assert asking is not None
        async with store._engine.connect() as holder, store._engine.connect() as waiter:
            here, there = [session_of(await one.get_raw_connection()) for one in (holder, waiter)]
            assert here != there
            for _ in range(3):  # an answer is about now, also when it was asked for a moment ago
                await holder.execute(text(HOLD))
                assert await asking.blocked(there) is False
                waiting = asyncio.ensure_future(waiter.execute(text(HOLD)))
                await until(lambda: asking.blocked(there))
                assert await asking.blocked(here) is False
                await holder.commit()
                await waiting
                assert await asking.blocked(there) is False
                await waiter.commit()
        await forget(store)
        assert waits_of(store) is not asking
        await forget(store)


@pytest.mark.requires("supports_row_locks")
async def test_a_call_that_waits_for_the_parked_one_is_seen_at_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock alone would let it pass after `DOUBT_S`, which nothing reaches here."""
    monkeypatch.setattr(gate, "DOUBT_S", 30.0)
    async with database.store(tmp_path) as one, database.engine_beside() as engine:
        two, driver = database.kind(engine), Driver()
        await driver.call(one, CreateRun(run_id="r", agent_name="agent"))
        await driver.call(two, GetRun(run_id="r"))  # its first use asks the server a few things
        began = time.monotonic()
        parked = await park(driver, (Do(EVENT, yield_at=1), Do(OTHER, 1)), (one, two))
        assert time.monotonic() - began < 20
        assert parked.reached
        assert parked.following > 2, "it meets that lock until COMMIT, so the places before it are one place"
        assert sorted(call.observed.value for call in parked.history if isinstance(call.observed, Returned)) == [0, 1]
        await forget(two)


@pytest.mark.requires("supports_row_locks")
async def test_a_call_that_waits_for_nothing_runs_to_its_end(database: Database, tmp_path: Path) -> None:
    async with database.store(tmp_path) as one, database.engine_beside() as engine:
        two, driver = database.kind(engine), Driver()
        await driver.call(one, CreateRun(run_id="r", agent_name="agent"))
        parked = await park(driver, (Do(EVENT, yield_at=2), Do(GetRun(run_id="r"), 1)), (one, two))
        assert parked.reached
        assert parked.following == 3
        assert parked.history[1].returned < parked.history[0].returned
        await forget(two)


async def test_no_server_no_question(tmp_path: Path) -> None:
    async with Database("sqlite", None).store(tmp_path) as store:
        assert waits_of(store) is None
        await forget(store)
    assert waits_of(object()) is None


@pytest.mark.parametrize(
    ("driver", "session"),
    [
        (SimpleNamespace(get_server_pid=lambda: 7), 7),
        (SimpleNamespace(thread_id=lambda: 8), 8),
        (SimpleNamespace(info=SimpleNamespace(backend_pid=9)), 9),
        (SimpleNamespace(), None),
        (None, None),
    ],
)
def test_how_a_server_knows_a_connection(driver: Any, session: int | None) -> None:
    assert session_of(SimpleNamespace(driver_connection=driver)) == session


MONITOR = """
*** (1) TRANSACTION:
LOCK WAIT 2 lock struct(s)
MariaDB thread id 5, OS thread handle 1
---TRANSACTION 11, ACTIVE 0 sec starting index read
LOCK WAIT 2 lock struct(s), heap size 1128, 1 row lock(s)
MySQL thread id 42, OS thread handle 1, query id 9 127.0.0.1 root Updating
---TRANSACTION 12, ACTIVE 0 sec
2 lock struct(s), heap size 1128, 1 row lock(s)
MySQL thread id 4, OS thread handle 2, query id 8 127.0.0.1 root
"""


class Monitor:
    """A connection whose server shows one text."""

    async def exec_driver_sql(self, statement: str) -> Any:
        row = {"Type": "InnoDB", "Name": "", "Status": MONITOR}
        return SimpleNamespace(mappings=lambda: SimpleNamespace(one=lambda: row))


@pytest.mark.parametrize(("session", "waiting"), [(42, True), (4, False), (2, False), (5, False)])
async def test_the_monitor_is_read_transaction_by_transaction(session: int, waiting: bool) -> None:
    connection: Any = Monitor()
    assert await waits_in_innodb(connection, session) is waiting


@pytest.mark.requires("supports_row_locks")
async def test_an_account_that_may_not_look_is_asked_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def refused(connection: Any, session: int) -> bool:
        asked.append(session)
        raise OperationalError("SELECT", {}, Exception("denied"))

    async with database.store(tmp_path) as store:
        monkeypatch.setattr(waits, "QUESTIONS", dict.fromkeys(waits.QUESTIONS, refused))
        asking = waits_of(store)
        assert asking is not None
        assert [await asking.blocked(1), await asking.blocked(None), await asking.blocked(1)] == [None, None, None]
        assert asked == [1]
        await forget(store)
