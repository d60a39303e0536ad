"""Nothing is ever missed or repeated: several processes write, everything between them and the follower fails.

The connections that listen and send are killed or their server restarts, hints are dropped and doubled, and the follower
is cancelled and goes on from its last index.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from dendrux.live import PostgresUpdates, RedisUpdates
from dendrux.store import RunStore
from dendrux.testing.databases import NotFound
from live.conftest import cut_postgres

pytestmark = pytest.mark.slow

EVENTS = {"quick": 900, "full": 51_000}
"""Of all writers together."""
LONGEST_S = {"quick": 240, "full": 3000}
TROUBLES = {"quick": 8, "full": 60}
"""How often something is broken while the events come: the transport and the follower in turn."""
WRITERS = 3
RUNS = [f"run-{number}" for number in range(4)]


class Follower:
    """Follows every run, as often as it is cancelled; `seen` is all it remembers."""

    def __init__(self, reader: RunStore) -> None:
        self.reader = reader
        self.seen: dict[str, list[int]] = {run_id: [] for run_id in RUNS}
        self.names: list[str] = []
        self.more = asyncio.Event()
        self.cancelled = 0
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.follow())

    async def follow(self) -> None:
        after = {run_id: indexes[-1] for run_id, indexes in self.seen.items() if indexes}
        async with aclosing(self.reader.follow(RUNS, after=after, poll_interval_s=0.3)) as events:
            async for event in events:
                self.seen[event.run_id].append(event.sequence_index)
                if event.data is not None and "name" in event.data:
                    self.names.append(event.data["name"])
                self.more.set()

    async def until(self, count: int) -> None:
        """Wait until so many events were seen; a follow that fails fails the test."""
        while len(self.names) < count:
            self.more.clear()
            waiting = asyncio.create_task(self.more.wait())
            done, _ = await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self.task in done:
                self.task.result()
                raise AssertionError("the follow ended before the runs did")

    async def interrupt(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})
        assert self.task.cancelled()
        self.cancelled += 1
        self.start()


PATH = os.pathsep.join(
    [str(Path(__file__).resolve().parents[1]), *(str(Path(one).resolve()) for one in sys.path if one)]
)


async def started(told: dict[str, object]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "live.writer",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": PATH},
    )  # fmt: skip
    process.stdin.write(json.dumps(told).encode())
    process.stdin.close()
    return process


@pytest.mark.parametrize(
    ("name", "transport"), [("postgresql", "postgres"), ("postgresql", "redis"), ("mariadb", "redis")]
)
async def test_each_event_comes_once_and_in_order(name, transport, found, own_redis, budget, tmp_path):
    try:
        database = found.database(name)
    except NotFound as missing:
        pytest.skip(str(missing))
    channel = f"soak_{secrets.token_hex(6)}"
    live_url = own_redis.url if transport == "redis" else database.url.render_as_string(hide_password=False)
    live = (RedisUpdates if transport == "redis" else PostgresUpdates)(live_url, channel=channel)
    events = EVENTS[budget] // WRITERS
    async with asyncio.timeout(LONGEST_S[budget]), database.store(tmp_path, live_updates=live) as store:
        for run_id in RUNS:
            await store.create_run(run_id, "agent")
        follower = Follower(RunStore(store))
        follower.start()
        told = {
            "url": make_url(database.url).render_as_string(hide_password=False), "transport": transport,
            "live_url": live_url, "channel": channel, "runs": RUNS, "events": events,
        }  # fmt: skip
        writers = [await started({**told, "name": f"writer-{number}", "seed": number}) for number in range(WRITERS)]
        cuts = 0
        for number in range(TROUBLES[budget]):
            await follower.until((number + 1) * events * WRITERS // (TROUBLES[budget] + 2))
            if number % 2:
                await follower.interrupt()
            elif transport == "redis":
                await own_redis.restart()
                cuts += 1
            else:
                cuts += await cut_postgres(database.url) > 0
        for writer in writers:
            out, _ = await writer.communicate()
            assert (writer.returncode, int(out)) == (0, events)
        for run_id in RUNS:
            await store.finalize_with_event(
                run_id, status="success", allowed_current_statuses=["running"], event_type="run.completed"
            )
        await follower.task
        assert (cuts, follower.cancelled) == (TROUBLES[budget] // 2, TROUBLES[budget] // 2)
        for indexes in follower.seen.values():
            assert indexes == list(range(len(indexes)))
        wanted = {f"writer-{writer}-{number}" for writer in range(WRITERS) for number in range(events)}
        assert len(follower.names) == len(wanted)
        assert set(follower.names) == wanted
        await store.close()
