"""A migration that stops after any of its statements is finished by the next one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from dendrux.db.migrate import migrate, read_state
from migrations import older
from migrations.databases import database, on
from migrations.introspection import schema

READS = ("SELECT", "PRAGMA", "SHOW", "BEGIN", "SET", "DO")


class Stopped(Exception):
    """Stands for the end of the work."""


@contextmanager
def stop_after(number: int | None) -> Iterator[list[str]]:
    """The statements that write, as they are done; after so many of them nothing more happens."""
    done: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().split(None, 1)[0].upper() in READS:
            return
        done.append(statement)
        if len(done) == number:
            raise Stopped

    event.listen(Engine, "after_cursor_execute", note)
    try:
        yield done
    finally:
        event.remove(Engine, "after_cursor_execute", note)


def expected(url: str) -> Any:
    rows = on(url, older.rows)
    for event_id, place in older.MOVED.items():
        rows["run_events"][event_id]["sequence_index"] = place
    return rows


@pytest.mark.parametrize("start", ["empty", "populated"])
def test_stopped_after_each_statement(family, tmp_path, fresh, budget, start):
    number = 0
    while True:
        number += 1
        with database(family, tmp_path) as url:
            rows = None
            if start == "populated":
                on(url, older.populate)
                rows = expected(url)
            with stop_after(number) as done:
                try:
                    asyncio.run(migrate(url))
                except Stopped:
                    pass
                else:
                    assert 20 < len(done) < number
                    break
            state = asyncio.run(read_state(url))
            assert state.state in {"empty", "behind", "current"}
            asyncio.run(migrate(url, wait_s=10))
            assert asyncio.run(read_state(url)).state == "current", done[-1]
            assert on(url, schema) == fresh, done[-1]
            if rows is not None:
                assert on(url, older.rows) == rows, done[-1]
        if budget == "quick":  # a full run stops after each
            number += 25 if family in {"mariadb", "mysql"} else 50


CHILD = """
import asyncio, os, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from dendrux.db.migrate import migrate

alters = []

@event.listens_for(Engine, "after_cursor_execute")
def note(connection, cursor, statement, *_):
    if "run_events" in statement and statement.startswith(("ALTER", "CREATE", "INSERT", "DROP")):
        alters.append(statement)
        if len(alters) == 2:
            os._exit(9)

asyncio.run(migrate(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_process_leaves_no_lock(url, fresh):
    on(url, older.populate)
    rows = expected(url)
    died = subprocess.run([sys.executable, "-c", CHILD, url], env=os.environ, timeout=120, check=False)
    assert died.returncode == 9
    asyncio.run(migrate(url, wait_s=30))
    assert on(url, schema) == fresh
    assert on(url, older.rows) == rows
