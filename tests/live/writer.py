"""A process that appends events and announces them badly: `python -m live.writer`, told what to do on its input.

Some hints are dropped and some are sent twice. It writes how many events it stored.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterable
from typing import Any

from dendrux.db.session import get_engine
from dendrux.live import PostgresUpdates, RedisUpdates
from dendrux.store import SQLStateStore, store_for_engine

AT_ONCE = 8


def unreliable(kind: type[Any], seed: int) -> type[Any]:
    """The transport, with hints that are lost or come twice."""

    class Unreliable(kind):  # type: ignore[misc]  # one of two classes
        chance = random.Random(seed)
        late: list[str] = []

        def enqueue(self, run_ids: Iterable[str]) -> None:
            ids = list(run_ids)
            fate = self.chance.random()
            if fate < 0.3:
                return
            again, self.late = self.late, ids if fate > 0.7 else []
            super().enqueue([*ids, *again])

    return Unreliable


async def append(store: SQLStateStore, told: dict[str, Any], numbers: Iterable[int]) -> int:
    stored = 0
    for number in numbers:
        run_id = told["runs"][number % len(told["runs"])]
        name = f"{told['name']}-{number}"
        await store.save_run_event(run_id, event_type="step", event_id=name, data={"name": name})
        stored += 1
    return stored


async def main() -> None:
    told = json.loads(sys.stdin.read())
    engine = get_engine(told["url"])
    kind = RedisUpdates if told["transport"] == "redis" else PostgresUpdates
    live = unreliable(kind, told["seed"])(told["live_url"], channel=told["channel"])
    store = store_for_engine(engine, live_updates=live)
    numbers = iter(range(told["events"]))
    done = await asyncio.gather(*(append(store, told, numbers) for _ in range(AT_ONCE)))
    await store.close()
    await engine.dispose()
    sys.stdout.write(str(sum(done)))


if __name__ == "__main__":
    asyncio.run(main())
