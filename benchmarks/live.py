"""What live updates are worth and what they cost: `python benchmarks/live.py [--database NAME] [--quick]`.

Each number is a ratio of two things measured in the same run on the same database, side by side or in turn, so that a
slow machine makes both slow. Needs a server of the database, found as the tests find it; Redis where it is found.

1. From COMMIT to the follower: with hints, and polling every 0.5 s. Both followers watch the same run.
2. Statements that 1,000 idle followers send in a second: sharing their reads, and each on its own.
3. Writes in a second: with announcing, and without. Blocks of each take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import median, quantiles
from typing import Any

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import AsyncEngine

from dendrux.db.models import Base
from dendrux.db.session import get_engine
from dendrux.lab.seam import Seam, watching
from dendrux.live import PostgresUpdates, RedisUpdates
from dendrux.store import RunStore, SQLStateStore, store_for_engine
from dendrux.testing.databases import NotFound, find
from dendrux.testing.scratch import scratch

POLL_S = 0.5
WRITERS = 8


class Sizes:
    """How much is measured."""

    def __init__(self, *, quick: bool) -> None:
        self.events = 40 if quick else 600
        self.followers = 100 if quick else 1000
        self.alone = 20 if quick else 1000
        self.idle_s = 0.5 if quick else 10.0
        self.blocks = 2 if quick else 10
        self.block = 40 if quick else 400


@asynccontextmanager
async def opened(url: URL, live: Any = None) -> AsyncIterator[SQLStateStore]:
    """A store with an engine of its own."""
    engine = get_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    store = store_for_engine(engine, live_updates=live)
    try:
        yield store
    finally:
        await store.close()
        await engine.dispose()


# -- from COMMIT to the follower --------------------------------------------------------------------------------------


class CommitClock:
    """When the last COMMIT of a write was applied."""

    at = 0.0

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None: ...

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        if wrote:
            self.at = time.perf_counter()

    def on_error(self, seam: Seam, error: BaseException) -> None: ...


async def arrivals(reader: RunStore, run_id: str) -> dict[int, float]:
    """When each event of a run came."""
    return {event.sequence_index: time.perf_counter() async for event in reader.follow(run_id, poll_interval_s=POLL_S)}


async def latency(url: URL, live: Callable[[], Any], sizes: Sizes) -> None:
    """Two followers of one run, one with hints and one without."""
    async with opened(url, live()) as writer, opened(url, live()) as hinted, opened(url) as polling:
        run_id, committed, clock = secrets.token_hex(8), {}, CommitClock()
        await writer.create_run(run_id, "benchmark")
        follows = [asyncio.create_task(arrivals(RunStore(store), run_id)) for store in (hinted, polling)]
        await asyncio.sleep(2 * POLL_S)
        with watching(writer, clock):
            for _ in range(sizes.events):
                await asyncio.sleep(random.uniform(0.02, 0.08))  # noqa: S311  not in step with the polls
                index = await writer.save_run_event(run_id, event_type="step")
                committed[index] = clock.at
        await writer.finalize_with_event(
            run_id, status="success", allowed_current_statuses=["running"], event_type="run.completed"
        )
        found = []
        for follow in follows:
            came = await follow
            found.append([came[index] - at for index, at in committed.items()])
    for name, times in zip(("with hints", "polling"), found, strict=True):
        print(f"    {name:12} median {median(times) * 1000:8.2f} ms   p99 {p99(times) * 1000:8.2f} ms")
    halves, tails = median(found[1]) / median(found[0]), p99(found[1]) / p99(found[0])
    print(f"    polling takes {halves:.0f} times as long at the median, {tails:.0f} times at p99")


def p99(times: list[float]) -> float:
    """What one in a hundred is above."""
    return quantiles(times, n=100, method="inclusive")[98]


# -- idle followers ---------------------------------------------------------------------------------------------------


@contextmanager
def counted(engine: AsyncEngine) -> Iterator[list[str]]:
    """The statements that an engine runs."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine.sync_engine, "before_cursor_execute", note)


async def per_second(store: SQLStateStore, readers: list[RunStore], ids: list[str], seconds: float) -> float:
    """Statements in a second while each run has a follower of one of the readers, each in its turn."""

    async def follow(reader: RunStore, run_id: str) -> None:
        async for _ in reader.follow(run_id, poll_interval_s=POLL_S):
            pass

    follows = [asyncio.create_task(follow(readers[n % len(readers)], run_id)) for n, run_id in enumerate(ids)]
    await asyncio.sleep(3 * POLL_S)
    with counted(store._engine) as statements:
        begun = time.perf_counter()
        await asyncio.sleep(seconds)
        rate = len(statements) / (time.perf_counter() - begun)
    for one in follows:
        one.cancel()
    await asyncio.wait(follows)
    return rate


async def idle(url: URL, sizes: Sizes) -> None:
    """Followers of one reader, and as many readers with one follower each."""
    async with opened(url) as store:
        ids = [f"idle-{number}-{secrets.token_hex(4)}" for number in range(sizes.followers)]
        for run_id in ids:
            await store.create_run(run_id, "benchmark")
        shared = await per_second(store, [RunStore(store)], ids, sizes.idle_s)
        alone = ids[: sizes.alone]
        apart = await per_second(store, [RunStore(store) for _ in alone], alone, sizes.idle_s)
    print(f"    {len(ids)} followers of one reader: {shared:.1f} statements/s")
    print(f"    {len(alone)} readers with one each:  {apart:.1f} statements/s")
    print(f"    a follower that shares costs {shared / len(ids) / (apart / len(alone)):.4f} of one that does not")


# -- writing ----------------------------------------------------------------------------------------------------------


async def writes(store: SQLStateStore, run_ids: list[str], count: int) -> float:
    """Seconds that so many events take, several writers at once."""
    numbers = iter(range(count))

    async def write(run_id: str) -> None:
        for _ in numbers:
            await store.save_run_event(run_id, event_type="step")

    begun = time.perf_counter()
    await asyncio.gather(*(write(run_id) for run_id in run_ids))
    return time.perf_counter() - begun


async def announcing(url: URL, live: Callable[[], Any], sizes: Sizes) -> None:
    """The same writes through a store that announces and one that does not, block by block."""
    async with opened(url, live()) as on, opened(url) as off, opened(url, live()) as hears:
        hears.live_updates.listen(lambda run_ids: None)
        run_ids = [secrets.token_hex(8) for _ in range(WRITERS)]
        for run_id in run_ids:
            await on.create_run(run_id, "benchmark")
        await writes(on, run_ids, sizes.block)
        await writes(off, run_ids, sizes.block)
        pairs = [
            (await writes(on, run_ids, sizes.block), await writes(off, run_ids, sizes.block))
            for _ in range(sizes.blocks)
        ]
    told, silent = (sizes.block / median(times) for times in zip(*pairs, strict=True))
    ratio = median(with_ / without for with_, without in pairs)
    print(f"    announcing {told:.0f} writes/s, silent {silent:.0f} writes/s: a write takes {ratio:.2f} times as long")


# -- all of it --------------------------------------------------------------------------------------------------------


def transports(url: URL) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each transport that can be used here, on a channel of its own."""
    channel = f"benchmark_{secrets.token_hex(4)}"
    if url.get_backend_name() == "postgresql":
        dsn = url.render_as_string(hide_password=False)
        yield "PostgresUpdates", lambda: PostgresUpdates(dsn, channel=channel)
    try:
        redis = find("redis").url.render_as_string(hide_password=False)
    except NotFound:
        return
    yield "RedisUpdates", lambda: RedisUpdates(redis, channel=channel)


async def measure(url: URL, name: str, *, quick: bool) -> None:
    """Everything, on one database."""
    sizes = Sizes(quick=quick)
    for transport, live in transports(url):
        print(f"{name}, {transport}\n  from COMMIT to the follower, {sizes.events} events")
        await latency(url, live, sizes)
        print(f"  writes, {sizes.blocks} pairs of blocks of {sizes.block}, {WRITERS} at once")
        await announcing(url, live, sizes)
    print(f"{name}\n  idle followers that poll every {POLL_S} s")
    await idle(url, sizes)


def main() -> None:
    """Measure on a scratch database."""
    parser = argparse.ArgumentParser(description="Measure live updates, as ratios within one run.")
    parser.add_argument("--database", default="postgresql", choices=("postgresql", "mysql", "mariadb"))
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    given = parser.parse_args()
    server = find(given.database)
    print(f"on {server.name} {server.version}")
    try:
        with scratch(server) as url:
            asyncio.run(measure(url, server.name, quick=given.quick))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
