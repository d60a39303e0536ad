"""`dendrux runs`, `dendrux sweep` and `dendrux reclaim`: what they print and do, and their exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from dendrux.cli import main
from dendrux.cli.output import duration, shown
from dendrux.db.models import agent_runs
from dendrux.db.session import get_engine
from dendrux.runtime import recovery
from dendrux.runtime.state import EventWrite, FailedRun, TraceWrite, UsageStats
from dendrux.store import store_for_engine

REACT = {"dendrux.loop": "react"}


@pytest.fixture
def url(tmp_path):
    return f"sqlite+aiosqlite:///{tmp_path / 'a.db'}"


@pytest.fixture
def on(url):
    """Run this on a store of the database."""

    def run(work):
        async def inside():
            engine = get_engine(url)
            try:
                return await work(store_for_engine(engine))
            finally:
                await engine.dispose()

        return asyncio.run(inside())

    return run


@pytest.fixture
def said(capsys, url):
    def run(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, "--url", url])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


async def some(store):
    """One run that ended with a tool call, one that waits, one of a tenant that runs."""
    await store.create_run("ended", "writer", input_data={"q": "hi"}, meta=REACT)
    await store.save_run_event("ended", event_type="run.started", claim_epoch=1, data={"agent_name": "writer"})
    await store.start_tool_call(
        "ended", row_id="row", tool_call_id="call", provider_tool_call_id=None, tool_name="search", target="server",
        params={"x": 1}, iteration_index=1, claim_epoch=1, event=EventWrite(event_type="tool.started"),
    )  # fmt: skip
    await store.complete_tool_call(
        "ended", row_id="row", result_payload='{"found": 3}', success=True, outcome="completed", duration_ms=12,
        claim_epoch=1, trace=TraceWrite(role="tool", content="3", order_index=0),
        event=EventWrite(event_type="tool.completed"),
    )  # fmt: skip
    await store.finalize_with_event(
        "ended", status="success", allowed_current_statuses=["running"], event_type="run.completed", answer="done",
        total_usage=UsageStats(input_tokens=5, output_tokens=7, total_tokens=12, cost_usd=0.25), claim_epoch=1,
    )  # fmt: skip
    await store.create_run("waits", "asker")
    await store.pause_with_event(
        "waits", status="waiting_client_tool", claim_epoch=1,
        pause_data={"pending_tool_calls": [{"id": "c", "name": "pick", "params": {"of": [1]}}], "iteration": 2},
    )  # fmt: skip
    await store.create_run("runs", "worker", tenant_id="t", meta=REACT)


async def aged(store, *run_ids):
    """Nobody wrote to these runs for a day."""
    past = datetime.now(UTC) - timedelta(days=1)
    async with store._engine.begin() as connection:
        for clock in (agent_runs.c.last_progress_at, agent_runs.c.paused_at):
            await connection.execute(
                update(agent_runs).where(agent_runs.c.id.in_(run_ids), clock.is_not(None)).values({clock: past})
            )


def rows(text):
    return [line.split() for line in text.splitlines()]


# -- list -------------------------------------------------------------------------------------------------------------


def test_list_shows_the_newest_first(on, said):
    on(some)
    code, text = said("runs", "list")
    assert code == 0
    assert rows(text)[0] == ["RUN", "STATUS", "AGENT", "TENANT", "STEPS", "TOKENS", "COST", "BEGAN", "(UTC)"]
    assert [(row[0], row[1], row[3], row[6]) for row in rows(text)[1:]] == [
        ("runs", "running", "t", "-"),
        ("waits", "waiting_client_tool", "-", "-"),
        ("ended", "success", "-", "$0.2500"),
    ]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--status", "running", "--status", "success"], ["runs", "ended"]),
        (["--agent", "asker"], ["waits"]),
        (["--tenant", "t"], ["runs"]),
        (["--no-tenant"], ["waits", "ended"]),
        (["--before", "2020-01-01"], []),
        (["--since", "2020-01-01T00:00:00+02:00", "--limit", "1"], ["runs"]),
    ],
)
def test_list_filters(on, said, options, ids):
    on(some)
    code, text = said("runs", "list", "--json", *options)
    found = json.loads(text)
    assert (code, found["exit_code"], [run["id"] for run in found["runs"]]) == (0, 0, ids)
    assert all(run["created_at"].endswith("Z") for run in found["runs"])


def test_list_says_how_to_go_on(on, said):
    on(some)
    assert said("runs", "list", "--limit", "2")[1].splitlines()[-1] == "2 of 3; go on with --offset 2"
    assert "go on" not in said("runs", "list", "--limit", "2", "--offset", "2")[1]
    assert said("runs", "list", "--agent", "nobody") == (0, "no runs\n")


# -- show, events, follow ---------------------------------------------------------------------------------------------


def test_show_tells_what_a_run_called_and_waits_for(on, said):
    on(some)
    code, text = said("runs", "show", "ended")
    assert code == 0
    assert "status    success" in text
    assert 'input     {"q": "hi"}' in text
    assert ["1", "search", "call", "well", "1", "12", "ms", '{"found":', "3}"] in rows(text)
    code, text = said("runs", "show", "waits")
    assert "waits in waiting_client_tool" in text
    assert ["c", "pick", "-", '{"of":', "[1]}"] in rows(text)
    shown_as_json = json.loads(said("runs", "show", "waits", "--json")[1])
    assert shown_as_json["pending"]["calls"] == [{"id": "c", "name": "pick", "params": {"of": [1]}, "target": None}]


@pytest.mark.parametrize("command", ["show", "events", "follow", "cancel"])
@pytest.mark.parametrize("missing", [["absent"], ["runs", "--tenant", "T"], ["runs", "--no-tenant"]])
def test_a_run_outside_the_scope_does_not_exist(on, said, command, missing):
    on(some)
    code, text = said("runs", command, *missing)
    assert code == 1
    assert text == f"dendrux: run {missing[0]!r} does not exist or is outside the given tenant scope\n"
    assert json.loads(said("runs", command, *missing, "--json")[1])["code"] == "run_not_found"
    assert not on(lambda store: store.get_run_control("runs")).cancel_requested


def test_events_are_paged(on, said):
    on(some)
    code, text = said("runs", "events", "ended", "--limit", "2")
    assert (code, [row[4] for row in rows(text)[1:3]]) == (0, ["run.started", "tool.started"])
    assert text.splitlines()[-1] == "there may be more; go on with --after 1"
    page = json.loads(said("runs", "events", "ended", "--after", "1", "--json")[1])
    assert [event["event_type"] for event in page["events"]] == ["tool.completed", "run.completed"]
    assert page["next_after"] == 3
    only = json.loads(said("runs", "events", "ended", "--type", "tool.started", "--json")[1])
    assert [event["sequence_index"] for event in only["events"]] == [1]


def test_follow_ends_with_the_run(on, said):
    on(some)
    code, text = said("runs", "follow", "ended", "--after", "0", "--json")
    assert code == 0
    assert [json.loads(line)["sequence_index"] for line in text.splitlines()] == [1, 2, 3]
    code, text = said("runs", "follow", "ended", "waits", "--idle", "1")
    assert {(row[1], row[3]) for row in rows(text)} >= {("waits", "run.paused"), ("ended", "run.completed")}


def test_what_a_run_stored_does_not_steer_the_terminal(on, said):
    async def nasty(store):
        await store.create_run("r", "a\x1b[2J", input_data={"x": "\x1b]0;owned\x07\u202e"})
        await store.save_run_event("r", event_type="custom", data={"\x1b": "\n"}, claim_epoch=1)

    on(nasty)
    for command in (["list"], ["show", "r", "--full"], ["events", "r"], ["list", "--json"]):
        code, text = said("runs", *command)
        assert code == 0
        assert {"\x1b", "\x07", "\u202e"}.isdisjoint(text)


# -- cancel -----------------------------------------------------------------------------------------------------------


def test_cancel_ends_what_waits_and_asks_what_runs(on, said):
    on(some)
    assert said("runs", "cancel", "waits") == (0, "waits  cancelled\n")
    assert said("runs", "cancel", "waits") == (0, "waits  has ended already\n")
    assert said("runs", "cancel", "runs") == (0, "runs  asked to stop: its owner does so at its next step\n")
    assert on(lambda store: store.get_run("waits")).status == "cancelled"
    assert on(lambda store: store.get_run_control("runs")).cancel_requested
    assert on(lambda store: store.get_run_events("waits"))[-1].event_type == "run.cancelled"


def test_cancel_alone_leaves_what_is_below_and_cascade_does_not(on, said):
    async def family(store):
        await store.create_run("root", "a")
        await store.create_run("child", "a", parent_run_id="root", delegation_level=1)

    on(family)
    said("runs", "cancel", "root")
    assert not on(lambda store: store.get_run_control("child")).cancel_requested
    code, text = said("runs", "cancel", "root", "--cascade", "--json")
    assert (code, json.loads(text)["outcome"]["requested"]) == (0, ["root", "child"])
    assert on(lambda store: store.get_run_control("child")).cancel_requested


# -- sweep and reclaim ------------------------------------------------------------------------------------------------


def test_sweep_ends_what_is_silent_and_what_nobody_answers(on, said):
    on(some)
    on(lambda store: aged(store, "runs", "waits"))
    code, text = said("sweep", "--stale-running", "2h", "--abandoned-waiting", "1h30m")
    assert code == 0
    assert rows(text)[1:3] == [
        ["runs", "worker", "running", "error", "never_started"],
        ["waits", "asker", "waiting_client_tool", "error", "abandoned_waiting"],
    ]
    assert text.splitlines()[-1] == "1 silent and 1 waiting runs ended, 0 marked, 0 failed"


def test_sweep_stops_and_goes_on(on, said):
    async def many(store):
        for number in range(3):
            await store.create_run(f"r{number}", "a")
        await aged(store, "r0", "r1", "r2")

    on(many)
    arguments = ["sweep", "--stale-running", "1h", "--limit", "2", "--json"]
    first = json.loads(said(*arguments, "--pages", "1")[1])["result"]
    assert len(first["stale_running"]) == 2
    rest = json.loads(said(*arguments, "--after", first["next_after"])[1])["result"]
    assert (len(rest["stale_running"]), rest["next_after"]) == (1, None)


def test_a_marked_run_is_taken_over_and_a_poison_run_is_not(on, said):
    on(some)
    on(lambda store: aged(store, "runs"))
    code, text = said("sweep", "--stale-running", "1h", "--on-stale", "mark")
    assert (code, text.splitlines()[0]) == (0, "runs  lease marked expired")
    code, text = said("reclaim", "--dry-run")
    assert rows(text)[1][:2] == ["runs", "1"]
    assert said("reclaim", "--agent", "other")[1] == "0 taken over, 0 set aside, 0 failed\n"
    assert said("reclaim", "--no-tenant")[1] == "0 taken over, 0 set aside, 0 failed\n"
    code, text = said("reclaim", "--agent", "worker", "--max-reclaims", "0")
    assert text.splitlines()[0] == "runs  set aside: taken over 0 times without an end"
    code, text = said("reclaim", "--json")
    assert json.loads(text)["result"]["reclaimed"] == [
        {"run_id": "runs", "agent_name": "worker", "tenant_id": "t", "claim_epoch": 2, "reclaim_count": 1}
    ]
    assert said("reclaim", "--dry-run") == (0, "no expired leases\n")


def test_a_run_that_could_not_be_treated_is_a_finding(on, said, monkeypatch):
    on(some)
    failed = FailedRun(run_id="runs", code="store_busy")

    async def swept(**arguments):
        return recovery.SweepResult(failed=[failed], next_after="stale x")

    async def reclaimed(store, **arguments):
        return recovery.ReclaimResult(reclaimed=(), set_aside=(), lost=("waits",), failed=(failed,), next_after="c")

    monkeypatch.setattr(recovery, "sweep", swept)
    monkeypatch.setattr(recovery, "reclaim", reclaimed)
    code, text = said("sweep", "--stale-running", "1h")
    assert (code, text.splitlines()) == (
        1,
        [
            "runs  failed (store_busy); the next one meets it again",
            "0 silent and 0 waiting runs ended, 0 marked, 1 failed",
            "stopped; go on with --after 'stale x'",
        ],
    )
    code, text = said("reclaim")
    assert code == 1
    assert text.splitlines()[0] == "waits  its owner or somebody else was faster"
    assert text.splitlines()[-1] == "there may be more; go on with --after 'c'"


# -- input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "list"], "which database? give its SQLAlchemy URL with --url"),
        (["runs", "list", "--url", "nonsense"], "--url is no SQLAlchemy URL"),
        (["runs", "list", "--url", "sqlite+aiosqlite:///absent.db"], "--url names a SQLite file that does not exist"),
        (["runs", "list", "--url", "sqlite+aiosqlite://"], "--url names a database in memory"),
        (["runs", "list", "--url", "oracle+oracledb_async://u:geheim@h/d"], "--url is for oracle, and built-in stores"),
        (["sweep", "--url", "postgresql+asyncpg://u:geheim@127.0.0.1:1/d"], "the database of --url cannot be opened"),
    ],
)
def test_unusable_input(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.delenv("DENDRUX_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dendrux: {message}")
    assert "geheim" not in line
    assert list(tmp_path.iterdir()) == []


def test_unusable_cursors_and_nothing_to_sweep(on, said):
    on(some)
    for arguments in (
        ["sweep"],
        ["sweep", "--stale-running", "1h", "--after", "no"],
        ["reclaim", "--after", "no"],
        ["runs", "follow", "runs", "waits", "--after", "1"],
    ):
        code, text = said(*arguments)
        assert (code, text[:9], text.count("\n")) == (2, "dendrux: ", 1)


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1.5h", "1h 2m", "366000d"])
def test_what_is_no_length_of_time(said, text):
    with pytest.raises(SystemExit) as stopped:
        said("sweep", f"--stale-running={text}")
    assert stopped.value.code == 2


def test_lengths_of_time():
    assert duration("1h30m") == timedelta(minutes=90)
    assert duration("2d5s") == timedelta(days=2, seconds=5)


def test_texts_are_cut_and_escaped():
    assert shown("abcdef", 5) == "ab..."
    assert shown("a\nb\t\x00") == r"a\nb\t\x00"
    assert shown({"é": None}) == '{"é": null}'


def test_a_store_without_its_tables_says_what_to_do(capsys, tmp_path):
    (tmp_path / "a.db").touch()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE agent_runs (id TEXT PRIMARY KEY)")
    connection.close()
    assert main(["runs", "list", "--url", f"sqlite+aiosqlite:///{tmp_path / 'a.db'}"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "dendrux db migrate" in line
    assert "SELECT" not in line


@pytest.fixture
def interruptible():
    """A suite that runs in the background of a script ignores interrupts, and so would every process it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_a_follow_is_interrupted_without_a_trace_of_it(on, url):
    on(some)
    command = [sys.executable, "-m", "dendrux", "runs", "follow", "runs", "waits", "--json", "--url", url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as started:
        try:
            first = json.loads(started.stdout.readline())
            started.send_signal(signal.SIGINT)
            rest, complaints = started.communicate(timeout=60)
        finally:
            started.kill()  # nothing once it has ended
    assert (first["run_id"], first["event_type"]) == ("waits", "run.paused")
    assert (rest, complaints, started.returncode) == ("", "", 130)


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(on, url):
    async def long(store):
        await store.create_run("long", "a")
        for number in range(300):
            await store.save_run_event("long", event_type="custom", data={"text": "x" * 1000, "n": number})

    on(long)
    command = f"{sys.executable} -m dendrux runs events long --limit 1000 --full --url {url} | head -n 1"
    done = subprocess.run(command, check=False, shell=True, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (done.stdout[:5], done.stderr, done.returncode) == ("INDEX", "", 0)
