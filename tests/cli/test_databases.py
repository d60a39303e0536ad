"""The commands on runs, once on each database."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from dendrux.cli import main
from dendrux.testing.store_kit.sql import SqlClock


@pytest.fixture
def url(database, tmp_path):
    """A database with a tree of two runs that fell silent, and one that waits."""

    async def made():
        async with database.engine(tmp_path) as engine:
            store = database.kind(engine)
            await store.create_run("root", "a", meta={"dendrux.loop": "react"})
            await store.create_run(
                "child", "a", meta={"dendrux.loop": "react"}, parent_run_id="root", delegation_level=1
            )
            await store.create_run("waits", "b")
            await store.pause_with_event("waits", status="paused", pause_data={})
            await SqlClock(lambda: engine).advance(timedelta(hours=2))
            return engine.url.render_as_string(hide_password=False)

    return asyncio.run(made())


def test_the_commands_on_each_database(url, capsys):
    def said(*arguments):
        code = main([*arguments, "--url", url, "--json"])
        text = capsys.readouterr().out
        assert code == 0, text
        return json.loads(text)

    assert {run["id"] for run in said("runs", "list")["runs"]} == {"root", "child", "waits"}
    assert said("runs", "show", "root")["below"]["descendant_count"] == 1
    assert sorted(said("sweep", "--stale-running", "1h", "--on-stale", "mark")["result"]["marked"]) == ["child", "root"]
    assert len(said("reclaim", "--limit", "1")["result"]["reclaimed"]) == 1
    assert len(said("reclaim")["result"]["reclaimed"]) == 1
    assert sorted(said("runs", "cancel", "root", "--cascade")["outcome"]["requested"]) == ["child", "root"]
    assert said("sweep", "--abandoned-waiting", "1h")["result"]["abandoned_waiting"][0]["run_id"] == "waits"
    events = said("runs", "events", "root")["events"]
    assert [event["event_type"] for event in events] == ["run.lease_expired", "run.reclaimed"]
    assert main(["runs", "follow", "waits", "--url", url]) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["run.paused", "run.abandoned"]
