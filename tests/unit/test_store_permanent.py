"""Errors of a database that trying again does not help: one transaction, and what to do."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dendrux.db.session import get_engine
from dendrux.errors import PersistenceError
from dendrux.store import store_for_engine
from dendrux.store.dberrors import classify
from dendrux.store.dialects import sqlite
from dendrux.store.remedies import remedy_of
from dialects.found import Database


async def met(url: str) -> PersistenceError:
    """What a store on this URL meets."""
    engine = get_engine(url)
    store = store_for_engine(engine)
    try:
        with pytest.raises(PersistenceError) as raised:
            await store.create_run("r", "agent")
    finally:
        await engine.dispose()
        # The thread of aiosqlite outlives a connection that fails, and would not find its loop.
        while any("_connection_worker_thread" in thread.name for thread in threading.enumerate()):  # noqa: ASYNC110  no event
            await asyncio.sleep(0.01)
    assert raised.value.__context__ is None
    return raised.value


async def test_a_file_that_may_only_be_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    error = await met(f"sqlite+aiosqlite:///file:{tmp_path / 'a.db'}?mode=ro&uri=true")
    assert (error.code, error.db_code, error.attempts) == ("persistence_error", "SQLITE_READONLY", 1)
    assert str(error).startswith("create_run: The database cannot be written to: check the rights of file and folder")


@pytest.mark.parametrize("name", ["", "no/a.db", "file/a.db"])
async def test_a_path_that_cannot_be_one_of_a_database(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    error = await met(f"sqlite+aiosqlite:///{tmp_path / name}")
    assert (error.code, error.db_code, error.attempts) == ("persistence_error", "unusable_path", 1)
    assert "check that its folder exists" in str(error)
    assert str(tmp_path) not in str(error)


async def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("no database, " * 100)
    error = await met(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
    assert (error.db_code, error.attempts) == ("SQLITE_NOTADB", 1)
    assert "no SQLite database, or is damaged" in str(error)


async def test_a_file_that_could_be_opened_may_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many open files SQLite says the same of a path that is well."""
    monkeypatch.setattr(sqlite, "can_be_opened", lambda file: True)
    error = await met(f"sqlite+aiosqlite:///{tmp_path / 'no' / 'a.db'}")
    assert (error.code, error.db_code, error.attempts) == ("store_unavailable", "SQLITE_CANTOPEN", 6)


@pytest.mark.parametrize(
    ("attributes", "remedy"),
    [
        ({"sqlstate": "28P01"}, "refuses the login"),
        ({"sqlstate": "28000"}, "refuses the login"),
        ({"sqlstate": "3D000"}, "no database of this name"),
        ({"sqlstate": "42501"}, "grant it rights"),
        ({"args": (1045, "x")}, "refuses the login"),
        ({"args": (1698, "x")}, "refuses the login"),
        ({"args": (1044, "x")}, "grant it rights"),
        ({"args": (1049, "x")}, "no database of this name"),
        ({"sqlite_errorcode": 1032, "sqlite_errorname": "SQLITE_READONLY_DBMOVED"}, "cannot be written to"),
        ({"sqlite_errorcode": 267, "sqlite_errorname": "SQLITE_CORRUPT_VTAB"}, "is damaged"),
        ({"sqlstate": "53300"}, None),
        ({"sqlstate": "25006"}, None),
        ({"args": (1040, "x")}, None),
        ({"sqlite_errorcode": 5, "sqlite_errorname": "SQLITE_BUSY"}, None),
    ],
)
def test_codes_that_stay(attributes: dict[str, object], remedy: str | None) -> None:
    error = Exception()
    for name, value in attributes.items():
        setattr(error, name, value)
    found = remedy_of(classify(error).code)
    assert found is None if remedy is None else remedy in str(found)


async def test_a_refused_login_and_a_missing_database_are_tried_once(database: Database, tmp_path: Path) -> None:
    """As the drivers report them."""
    async with database.engine(tmp_path) as engine:
        url = engine.url
    if url.get_backend_name() == "sqlite":
        pytest.skip("a file has no login")
    for changed in (url.set(username="dendrux_nobody", password="geheim"), url.set(database="dendrux_nothing")):
        error = await met(changed.render_as_string(hide_password=False))
        assert (error.code, error.attempts) == ("persistence_error", 1)
        assert str(remedy_of(error.db_code)) in str(error)
        assert "geheim" not in str(error)
