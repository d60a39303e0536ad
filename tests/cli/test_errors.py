"""What commands say when they cannot use their input or their database: plainly, as JSON too, and without secrets."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from dendrux.cli import main

SECRET = "geheim"
BROKEN = (
    f"postgresql+asyncpg://u:{SECRET}/none",
    f"postgresql+asyncpg://u:{SECRET}@host:abc/",
    f"postgresql+asyncpg://u:{SECRET}@[::1/",
    f"postgresql+asyncpg://u@h/d?port={SECRET}",
    f"sqlite+aiosqlite:///a.db?timeout={SECRET}",
)
COMMANDS = (
    ["runs", "list"],
    ["runs", "show", "r"],
    ["sweep", "--stale-running", "1h"],
    ["reclaim"],
    ["db", "check"],
    ["db", "status"],
    ["db", "migrate"],
    ["db", "activate"],
)


@pytest.fixture
def said(capsys):
    def run(*arguments):
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


# -- a URL that cannot be used ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", BROKEN)
@pytest.mark.parametrize("command", [*COMMANDS, ["certify", "sqlite"]], ids=" ".join)
def test_no_part_of_a_broken_url_is_printed(said, command, url):
    code, out, err = said(*command, "--url", url)
    assert (code, out) == (2, "")
    assert "--url" in err
    assert SECRET not in err


def test_nor_of_one_in_the_variable(said, monkeypatch):
    monkeypatch.setenv("DENDRUX_DATABASE_URL", BROKEN[0])
    code, _, err = said("db", "check")
    assert code == 2
    assert err.startswith("dendrux: DENDRUX_DATABASE_URL is no SQLAlchemy URL; one looks like")
    assert SECRET not in err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql+pymysql://u@h/d", "must name an async driver (mysql+asyncmy)"),
        ("mariadb+pymysql://u@h/d", "must name an async driver (mariadb+asyncmy)"),
        ("postgresql+psycopg2://u@h/d", "must name an async driver (postgresql+asyncpg or postgresql+psycopg)"),
        ("sqlite+aiosqlite:///a.db?foo=x", "has an option after ? that its driver does not take"),
        ("sqlite+aiosqlite://a.db", "has a host, and SQLite has none"),
    ],
)
def test_what_a_url_must_be_is_said(said, url, message):
    code, _, err = said("db", "status", "--url", url)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


# -- a database that cannot be used -----------------------------------------------------------------------------------


def unusable(folder):
    """URLs of SQLite databases on which trying again does not help, with what is said of them."""
    (folder / "none.db").write_text("no database, " * 100)
    (folder / "folder").mkdir()
    with closing(sqlite3.connect(folder / "read.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    return {
        f"sqlite+aiosqlite:///{folder / 'none.db'}": "no SQLite database, or is damaged",
        f"sqlite+aiosqlite:///file:{folder / 'read.db'}?mode=ro&uri=true": "cannot be written to",
    }


def test_a_permanent_error_is_input_that_cannot_be_used(said, tmp_path):
    for url, message in unusable(tmp_path).items():
        for command in (["runs", "list"], ["sweep", "--stale-running", "1h"], ["db", "migrate"]):
            code, out, err = said(*command, "--url", url)
            assert (code, out) == (2, "")
            assert message in err
            assert "run the command again" not in err
            assert str(tmp_path) not in err


def test_a_file_that_cannot_be_made_is_said(said, tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("folder", "no/a.db"):
        code, _, err = said("db", "migrate", "--url", f"sqlite+aiosqlite:///{tmp_path / name}")
        assert code == 2
        assert "check that its folder exists" in err


def test_activate_makes_no_file(said, tmp_path):
    for url in (f"sqlite+aiosqlite:///{tmp_path / 'a.db'}", f"sqlite+aiosqlite:///file:{tmp_path / 'a.db'}?uri=true"):
        code, _, err = said("db", "activate", "--url", url)
        assert (code, "dendrux db migrate" in err) == (1, True)
        assert said("runs", "list", "--url", url)[0] == 2
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_unusable_input_is_json_where_json_was_asked_for(said, command, tmp_path):
    for url in ("postgresql+asyncpg://u@127.0.0.1:1/d", BROKEN[0], f"sqlite+aiosqlite:///{tmp_path / 'no' / 'a.db'}"):
        code, out, err = said(*command, "--json", "--url", url)
        if command[0] == "db" and code != 2:
            continue  # of a file that is not there, `db` says where it stands
        found = json.loads(out)
        assert (code, found["exit_code"], err) == (2, 2, "")
        assert found["error"]
        assert found.get("command") == (command[1] if command[0] == "db" else None)


def test_a_sweep_of_nothing_names_the_options(said, tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path / 'a.db'}"
    assert said("db", "migrate", "--url", url)[0] == 0
    code, _, err = said("sweep", "--url", url)
    assert code == 2
    assert "--stale-running" in err
    assert "stale_running" not in err


def test_examples_are_bounded(said):
    code, out, err = said("certify", "sqlite", "--examples", "9" * 26)
    assert (code, out, err) == (2, "", "dendrux: --examples must be at most 1000000\n")


# -- servers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def wrong(database, tmp_path):
    """The URL of a server, altered."""

    async def found():
        async with database.engine(tmp_path) as engine:
            return engine.url

    url = asyncio.run(found())
    if url.get_backend_name() == "sqlite":
        pytest.skip("a file has no login")

    def altered(**changes):
        return url.set(**changes).render_as_string(hide_password=False)

    return altered


def test_a_refused_login_and_a_missing_database_say_so(said, wrong):
    for changes, message in (
        ({"username": "dendrux_nobody", "password": SECRET}, "the database refuses the login: check user, password"),
        ({"database": "dendrux_nothing"}, "the server has no database of this name"),
        ({"query": {"geheimoption": SECRET}}, "does not take an option after ?"),
    ):
        for command in (["db", "migrate"], ["runs", "list"]):
            code, _, err = said(*command, "--url", wrong(**changes))
            assert code == 2
            assert message in err
            assert SECRET not in err
