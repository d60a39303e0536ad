"""`dendrux db`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from dendrux.cli import main
from dendrux.db.models import Base
from dendrux_migrations import VERSION_TABLE
from migrations import older
from migrations.databases import on, statement
from migrations.introspection import schema


@pytest.fixture
def lite(tmp_path):
    return f"sqlite+aiosqlite:///{tmp_path / 'a.db'}"


@pytest.fixture
def db(capsys):
    def run(*arguments: str) -> tuple[int, str]:
        code = main(["db", *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


DAMAGED = """\
database        sqlite
schema          behind
revision        0002 (this release: 0002)
pending         0002
storage format  2
missing         agent_runs.ix_agent_runs_lease
"""


def asked(db, *arguments):
    code, said = db(*arguments, "--json")
    facts = json.loads(said)
    assert facts["exit_code"] == code
    return facts


def test_from_an_old_database_to_format_2(url, family, db):
    on(url, older.populate)
    before = asked(db, "status", "--url", url)
    assert (before["state"], before["revision"], before["pending"]) == ("behind", None, ["0002"])
    assert (before["database"], before["storage_format"], before["exit_code"]) == (family, "1", 0)
    assert "dendrux_settings" in before["missing"]
    assert asked(db, "check", "--url", url)["exit_code"] == 1
    refused = asked(db, "activate", "--url", url)
    assert (refused["exit_code"], refused["error"][:29]) == (1, "The schema is older than this")
    done = asked(db, "migrate", "--url", url)
    assert (done["exit_code"], done["applied"], done["state"]) == (0, ["0002"], "current")
    assert asked(db, "migrate", "--url", url)["applied"] == []
    assert asked(db, "check", "--url", url)["exit_code"] == 0
    assert asked(db, "activate", "--url", url)["activated"] is True
    assert asked(db, "activate", "--url", url)["activated"] is False
    assert asked(db, "status", "--url", url)["storage_format"] == "2"


@pytest.mark.parametrize("family", ["postgresql"], indirect=True)
def test_psycopg_is_as_good_a_driver(url, db):
    pytest.importorskip("psycopg")
    on(url, older.populate)
    other = url.replace("+asyncpg", "+psycopg")
    assert asked(db, "migrate", "--url", other)["applied"] == ["0002"]
    assert asked(db, "activate", "--url", other)["storage_format"] == "2"
    assert asked(db, "check", "--url", url)["exit_code"] == 0


def test_plain_output(lite, db, monkeypatch):
    monkeypatch.setenv("DENDRUX_DATABASE_URL", lite)
    assert db("check") == (1, "the database has no dendrux tables: run `dendrux db migrate`\n")
    assert db("migrate") == (
        0,
        "migrated sqlite to 0002 (0001, 0002)\nnew runs stay of storage format 1 until `dendrux db activate`\n",
    )
    assert db("activate") == (0, "new runs start at storage format 2\n")
    assert db("migrate") == (0, "sqlite is at 0002: nothing to do\n")
    assert db("activate") == (0, "new runs already start at storage format 2\n")
    assert db("check") == (0, "the schema is the one of this release\n")
    statement(lite, "DROP INDEX ix_agent_runs_lease")
    assert db("status") == (0, DAMAGED)
    assert db("check")[0] == 1
    assert db("migrate")[0] == 0
    assert db("check")[0] == 0


def test_status_makes_no_file(tmp_path, db):
    assert db("status", "--url", f"sqlite+aiosqlite:///{tmp_path / 'missing.db'}")[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_schema_that_create_all_made_is_current(url, db):
    on(url, Base.metadata.create_all)
    facts = asked(db, "check", "--url", url)
    assert (facts["exit_code"], facts["revision"], facts["storage_format"]) == (0, None, "2")
    assert asked(db, "migrate", "--url", url)["revision"] == facts["head"]


@pytest.mark.parametrize(
    "sql", [f"UPDATE {VERSION_TABLE} SET version_num = '9999'", "UPDATE dendrux_settings SET value = '3'"]
)
def test_ahead_is_told_from_behind(url, db, sql):
    for command in ("migrate", "activate"):
        db(command, "--url", url)
    statement(url, sql)
    before = on(url, schema)
    assert asked(db, "status", "--url", url)["state"] == "ahead"
    for command in ("check", "migrate", "activate"):
        assert db(command, "--url", url)[0] == 3
    assert on(url, schema) == before


LOCKS = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "LOCK TABLE agent_runs IN ACCESS SHARE MODE",
    "mysql": "SELECT count(*) FROM agent_runs",
    "mariadb": "SELECT count(*) FROM agent_runs",
}


def test_a_lock_that_somebody_holds_ends_the_wait(url, family, db):
    on(url, older.populate)
    found = []

    def while_held(connection):
        connection.exec_driver_sql(LOCKS[family])
        with ThreadPoolExecutor(1) as thread:
            found.append(thread.submit(db, "migrate", "--url", url, "--wait", "1").result())

    on(url, while_held)
    ((code, said),) = found
    assert code == 4
    assert said.startswith("dendrux: Somebody else holds the schema")
    assert db("migrate", "--url", url)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which database?"),
        (["--url", "nonsense"], "is no SQLAlchemy URL"),
        (["--url", "sqlite:///a.db"], "must name an async driver"),
        (["--url", "oracle+oracledb://u:geheim@h/d"], "there are revisions for"),
        (["--url", "sqlite+aiosqlite://"], "in memory"),
        (["--url", "postgresql+asyncpg://u:geheim@127.0.0.1:1/d"], "cannot be opened"),
    ],
)
def test_unusable_input(db, monkeypatch, arguments, said):
    monkeypatch.delenv("DENDRUX_DATABASE_URL", raising=False)
    code, output = db("migrate", *arguments)
    assert code == 2
    assert said in output
    assert "geheim" not in output


def test_a_failing_statement_is_named_without_its_text(lite, db):
    statement(lite, "CREATE TABLE agent_runs (id INTEGER PRIMARY KEY)")
    statement(lite, "CREATE VIEW seen AS SELECT gone FROM missing_table")
    code, said = db("migrate", "--url", lite)
    assert code == 4
    assert said.startswith("dendrux: a statement failed (OperationalError SQLITE_ERROR)")
    assert "missing_table" not in said


def test_a_migration_says_nothing_beside_its_result(url, db, caplog):
    """MariaDB has a note for each primary key, and whoever has no handler sees warnings of loggers."""
    assert db("migrate", "--url", url)[0] == 0
    assert [record.getMessage() for record in caplog.records if record.name == "asyncmy"] == []


@pytest.mark.slow
def test_of_eight_at_once_one_works_and_the_others_wait(url):
    on(url, older.populate)
    command = [sys.executable, "-m", "dendrux", "db", "migrate", "--json", "--url", url]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(8)]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in started]
    assert [answer["exit_code"] for answer in answers] == [0] * 8
    assert sorted(answer["applied"] for answer in answers) == [[]] * 7 + [["0002"]]
    assert {answer["state"] for answer in answers} == {"current"}
