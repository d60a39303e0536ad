"""Several processes on one SQLite file: no lost update, no busy error, and each ends by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

WORKER = """
import asyncio, sys
from sqlalchemy.ext.asyncio import create_async_engine
from dendrux.db.session import get_engine
from dendrux.store import SQLiteStateStore

async def main(url, name, number):
    make = get_engine if "#prepared" in url else create_async_engine
    store = SQLiteStateStore(make(url.removesuffix("#prepared")))
    for i in range(number // 2):
        # Both read before they write: the log for its next index, the meta for what it holds.
        await store.save_run_event("r", event_type=name, data={"i": i})
        await store.update_run_meta("r", {f"{name}{i}": i, "patched by a key with a blank": name})
    # No close: the process must end by itself.

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""

READER = """
import asyncio, json, sys
from sqlalchemy.ext.asyncio import create_async_engine
from dendrux.db.models import Base
from dendrux.store import SQLiteStateStore

async def main(url, action):
    engine = create_async_engine(url)
    store = SQLiteStateStore(engine)
    if action == "create":
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        await store.create_run("r", "agent", meta={})
    else:
        events, after = [], -1
        while page := await store.get_run_events("r", after_sequence_index=after):
            events += page
            after = page[-1].sequence_index
        run = await store.get_run("r")
        print(json.dumps({"indexes": [e.sequence_index for e in events], "types": [e.event_type for e in events],
                          "meta": sorted(run.meta)}))
    await engine.dispose()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""

CREATOR = """
import asyncio, sys
from dendrux.db.session import get_engine
from dendrux.store import SQLiteStateStore

async def main(url, name):
    store = SQLiteStateStore(get_engine(url))
    await store.create_run(name, "agent")
    print((await store.create_run("shared", "agent", idempotency_key="k")).outcome)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def start(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Error" not in err
    return out


@pytest.mark.parametrize(("engine", "operations"), [("", 1000), ("#prepared", 200)], ids=["untouched", "get_engine"])
def test_no_update_is_lost_and_nobody_is_told_busy(tmp_path, engine, operations):
    """`operations` of each of two processes; none closes its store, and each must end by itself."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'shared.db'}"
    finish(start(READER, url, "create"))
    workers = [start(WORKER, url + engine, name, str(operations)) for name in ("a", "b")]
    for worker in workers:
        finish(worker)
    found = json.loads(finish(start(READER, url, "read")))
    assert found["indexes"] == list(range(operations))
    assert sorted(found["types"]) == ["a"] * (operations // 2) + ["b"] * (operations // 2)
    assert len(found["meta"]) == operations + 1


def test_processes_that_start_together_prepare_one_schema(tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path / 'fresh.db'}"
    outcomes = [finish(process).strip() for process in [start(CREATOR, url, f"r{n}") for n in range(4)]]
    assert sorted(outcomes) == ["created"] * 4, "one run_id and content is one caller"
