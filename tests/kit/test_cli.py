"""The command line: certify and replay, from their arguments to their exit codes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from dendrux.cli import main
from dendrux.cli.problems import Problem
from dendrux.cli.targets import target
from dendrux.store import SQLiteStateStore
from dendrux.testing import databases, progress, scratch
from dendrux.testing.databases import NotFound, Server
from dendrux.testing.store_kit import causes, plugin
from dendrux.testing.store_kit.contract import Contract
from dendrux.testing.workshop import Engines
from dendrux.vocabulary import CAPABILITIES
from kit import broken, tiny

SQLITE = "certifying SQLiteStateStore on temporary SQLite files"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugin, "catalogue", lambda: broken.CATALOGUE)
    monkeypatch.setattr(progress, "HEARTBEAT_S", 1e9)  # a slow machine prints more lines
    return tmp_path


def catalogue(monkeypatch: pytest.MonkeyPatch, *contracts: Contract) -> None:
    monkeypatch.setattr(plugin, "catalogue", lambda: [*broken.CATALOGUE, *contracts])


# -- certify ----------------------------------------------------------------------------------------------------------


def test_certify_sqlite(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert main(["certify", "sqlite"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        SQLITE,
        "  declaration        3/3",
        "  basic              1/1",
        "  fenced_writes      1/1",
        "  retry_ids          1/1",
        "  checkpointing      1/1",
    ]
    assert any("certification summary" in line for line in lines)
    assert f"SQLiteStateStore (deployment=single_host, capabilities={','.join(CAPABILITIES)})" in lines
    groups = ("declaration", "basic", *CAPABILITIES, "concurrency", "crash_recovery")
    assert lines[-2].startswith(f"  CERTIFIED with caveats: {', '.join(groups)} (caveats: ")
    assert lines[-1].startswith("11 contracts in ")
    assert list(here.iterdir()) == []


def test_certify_a_broken_store(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert main(["certify", "kit.broken:Unfenced"]) == 1
    out = capsys.readouterr().out
    assert "  fenced_writes      1/1, 1 failed" in out.splitlines()
    assert "  NOT CERTIFIED: fenced_writes: 1 failed" in out.splitlines()
    path = Path(".dendrux/failures/dendrux-failure-fenced_writes.save_trace.json")
    assert f"    dendrux replay {path} --store kit.broken:Unfenced" in out.splitlines()
    assert json.loads(path.read_text())["contract"] == "fenced_writes.save_trace"


def test_certify_on_a_database_that_keeps_what_it_has(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """Runs that were there stay, and none of the kit's do: they would slow down whoever pages over every run."""
    file = here / "mine.db"
    url = f"sqlite+aiosqlite:///{file}"
    assert main(["certify", "sqlite", "--url", url]) == 0
    assert "on the database of --url" in capsys.readouterr().out
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        assert connection.execute("SELECT count(*) FROM agent_runs").fetchone() == (0,)
        connection.execute(
            "INSERT INTO agent_runs (id, agent_name, status, created_at, updated_at) "
            "VALUES ('kept', 'mine', 'success', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')"
        )
        assert main(["certify", "sqlite", "--url", url]) == 0
        assert connection.execute("SELECT id FROM agent_runs").fetchall() == [("kept",)]


def test_certify_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "sqlite", "--url", "sqlite+aiosqlite:///:memory:"]) == 0
    out = capsys.readouterr().out
    assert "SQLiteStateStore (deployment=single_process, " in out
    assert "  recovery           1 passed" in out.splitlines()
    assert {"  concurrency        1 skipped", "  crash_recovery     1 skipped"} <= set(out.splitlines())
    assert "  crash recovery: not certified" in out.splitlines()


def test_certify_takes_no_settings_of_the_users_own_tests(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    (here / "conftest.py").write_text("raise RuntimeError")
    (here / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    assert main(["certify", "sqlite"]) == 0


def test_certify_hands_on_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(situation: object) -> None:
        settings = situation.settings  # type: ignore[attr-defined]
        assert (settings.examples, settings.seed, settings.matrix) == (7, 3, "all")

    catalogue(monkeypatch, tiny.tiny("basic.look", check=look))
    assert main(["certify", "sqlite", "--examples", "7", "--seed", "3", "--matrix", "all"]) == 0
    assert main(["certify", "sqlite"]) == 1


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "declaration (3)"
    assert lines[1:3] == ["  declaration.deployment", "      The store says how many processes may share its data."]
    assert sum(not line.startswith(" ") for line in lines) >= 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["certify"], "which store? dendrux certify sqlite, or dendrux certify module:Class"),
        (
            ["certify", "my_store"],
            "'my_store' names no store; use sqlite, postgresql, mysql, mariadb, or module:Class such",
        ),
        (["certify", "my_store.py:Mine"], "my_store.py is a file; name its module: my_store:Mine"),
        (
            ["certify", "sqlite", "--url", "sqlite+aiosqlite:////no/such/folder/x.db"],
            "the database of --url cannot be opened (OperationalError): check that it is a SQLite file, or that its folder",
        ),
        (
            ["certify", "kit.broken:NeedsMore"],
            "kit.broken:NeedsMore cannot be made as NeedsMore(engine, live_updates=None): TypeError: ",
        ),
        (["certify", "no.such:Store"], "cannot import no.such: ModuleNotFoundError: No module named 'no'"),
        (
            ["certify", "kit.broken:Store"],
            "kit.broken has no Store; its stores are NeedsMore, SQLiteStateStore, Unfenced",
        ),
        (["certify", "kit.tiny:Fake"], "kit.tiny:Fake is no subclass of SQLStateStore; certify other stores with"),
        (["certify", "sqlite", "--url", "nonsense"], "--url is no SQLAlchemy URL; one looks like"),
        (
            ["certify", "sqlite", "--url", "postgresql://host/db"],
            "SQLiteStateStore is for sqlite, and --url is for post",
        ),
        (["certify", "sqlite", "--url", "sqlite:///x.db"], "--url must name an async driver (sqlite+aiosqlite)"),
        (["replay", "no-such-file", "--store", "sqlite"], "cannot read no-such-file: No such file or directory"),
    ],
)
def test_unusable_input(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dendrux: {message}")


@pytest.mark.parametrize("arguments", [[], ["certify", "--examples", "0", "sqlite"], ["replay", "x"], ["nonsense"]])
def test_unusable_arguments(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


# -- replay -----------------------------------------------------------------------------------------------------------


def test_replay_reproduces_what_certify_found(capsys: pytest.CaptureFixture[str]) -> None:
    main(["certify", "kit.broken:Unfenced"])
    capsys.readouterr()
    file = ".dendrux/failures/dendrux-failure-fenced_writes.save_trace.json"
    assert main(["replay", file, "--store", "kit.broken:Unfenced"]) == 1
    assert capsys.readouterr().out.splitlines()[:15] == [
        "fenced_writes.save_trace: The promise of fenced_writes.save_trace.",
        "",
        "   1  create_run(run_id='r', agent_name='a')",
        "      -> {'run_id': 'r', 'outcome': 'created', 'status': 'running', 'format': 2, 'claim_epoch': 1}",
        "   2  pause_with_event(run_id='r', status='waiting_approval', pause_data={'n': [1, 2]})",
        "      -> 0",
        "   3  claim_paused_run(run_id='r', expected_status='waiting_approval')",
        "      -> 2",
        "   4  save_trace(run_id='r', role='user', content_text='late', order_index=0, claim_epoch=1)",
        "      the model allows    -> refused stale_claim",
        "      the store answered  -> None",
        "",
        "what is wrong     save_trace: the store answered -> None; the model allows -> refused stale_claim",
        f"{'likely cause':<18}{causes.SWALLOWED}",
        "SQL of this step",
    ]


def test_replay_on_a_sound_store(capsys: pytest.CaptureFixture[str]) -> None:
    main(["certify", "kit.broken:Unfenced"])
    capsys.readouterr()
    assert main(["replay", ".dendrux/failures/dendrux-failure-fenced_writes.save_trace.json", "--store", "sqlite"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "      -> refused stale_claim" in lines
    assert lines[-1] == "model and store agree at every step"


@pytest.mark.parametrize("text", ["", "[]", '{"version": 99, "steps": []}', '{"version": 1, "steps": [{"is": "No"}]}'])
def test_replay_of_no_program(capsys: pytest.CaptureFixture[str], here: Path, text: str) -> None:
    (here / "file.json").write_text(text)
    assert main(["replay", "file.json", "--store", "sqlite"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dendrux: file.json holds no program: ")


# -- the command ------------------------------------------------------------------------------------------------------


def test_help_and_version_teach(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in ((["--help"], "dendrux certify sqlite"), (["--version"], "dendrux 0.")):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0
        assert words in capsys.readouterr().out


def test_the_command_is_light() -> None:
    heavy = "{'pytest', 'sqlalchemy', 'hypothesis', 'dendrux_model'}"
    program = f"import dendrux.cli, sys; assert {heavy}.isdisjoint(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# -- where a command works ----------------------------------------------------------------------------------------------


class Elsewhere(SQLiteStateStore):
    dialect_names = ("postgresql",)


def nowhere(name: str) -> Server:
    raise NotFound(name, ["nothing listens"])


@pytest.mark.parametrize("name", ["postgresql", "mariadb", "mysql"])
def test_a_server_that_is_not_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(databases, "find", nowhere)
    assert main(["certify", name]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"dendrux: {name} was not found: nothing listens. Give a database with --url"


def test_a_store_of_ones_own_looks_for_the_servers_of_its_dialects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "find", nowhere)
    with (
        pytest.raises(Problem, match=r"^postgresql was not found: nothing listens\. Give"),
        target(Elsewhere, "a:B", None),
    ):
        pass


def test_a_new_database_is_made_and_dropped_and_its_server_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    @contextmanager
    def fake(server: Server) -> Iterator[URL]:
        done.append("made")
        yield server.url.set(database="dendrux_test_1")
        done.append("dropped")

    server = Server(
        "postgresql", make_url("postgresql+asyncpg://me@host/x"), "17.1", "given", lambda: done.append("stopped")
    )
    monkeypatch.setattr(databases, "find", lambda name: server)
    monkeypatch.setattr(scratch, "scratch", fake)
    with target(Elsewhere, "postgresql", None) as found:
        assert found.url is not None
        assert (found.url.database, found.ours) == ("dendrux_test_1", True)
        assert found.where == "a new database of postgresql 17.1 (given)"
        assert done == ["made"]
    assert done == ["made", "dropped", "stopped"]


def test_a_missing_driver_names_its_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    assert main(["certify", "postgresql", "--url", "postgresql+asyncpg://me:secret@127.0.0.1:1/x"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said == 'dendrux: the driver of --url is not installed: asyncpg; pip install "dendrux[postgres]" brings it'


def test_a_file_that_cannot_be_opened_is_said_in_one_line(here: Path) -> None:
    """The thread of the async driver would outlive the loop and print a traceback."""
    url = "sqlite+aiosqlite:////no/such/folder/x.db"
    program = f"import sys; from dendrux.cli import main; sys.exit(main(['certify', 'sqlite', '--url', {url!r}]))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1


def test_a_database_that_may_not_be_written_to_is_said_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite+aiosqlite:///{here / 'mine.db'}"
    assert main(["certify", "sqlite", "--url", url]) == 0
    with closing(sqlite3.connect(here / "mine.db")) as connection:
        connection.execute("CREATE TRIGGER never BEFORE INSERT ON agent_runs BEGIN SELECT RAISE(ABORT, 'secret'); END")
    capsys.readouterr()
    assert main(["certify", "sqlite", "--url", url]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith(
        "dendrux: nothing can be written to the database of --url (IntegrityError): check the rights"
    )
    assert "certifying" not in said.out


def test_tables_that_cannot_be_made_are_said_once(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class NotAllowed(Exception): ...

    async def refused(self: Engines, engine: object) -> None:
        raise NotAllowed("secret")

    monkeypatch.setattr(Engines, "prepare", refused)
    assert main(["certify", "sqlite", "--url", f"sqlite+aiosqlite:///{here / 'mine.db'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dendrux: the tables cannot be made on the database of --url (NotAllowed): use an account")


def test_a_server_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "x", "--store", "postgresql"]) == 2
    assert main(["certify", "postgresql", "--url", "postgresql+asyncpg://me:secret@127.0.0.1:1/x"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("dendrux: the database of --url cannot be opened (ConnectionRefusedError)")
    assert "secret" not in said
