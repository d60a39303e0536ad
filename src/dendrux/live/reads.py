"""The reads that all followers of one RunStore share: in batches, within a budget of queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from dendrux.runtime.values import RunEventRecord
from dendrux.vocabulary import STATUSES_MAX

PAGE: Final = 100
"""Events of one run in one read, the most that a store gives."""

DRAINED_TOGETHER: Final = 20
"""Runs of which pages of a backlog are read in one batch: a batch is then as large as a page of any other read."""

QUERIES_OF_A_READ: Final = 2
"""The statuses, then the events: what is terminal before its events are read has no more than these."""


class Why(IntEnum):
    """Why a run is read, the most urgent first. Pages of a backlog are read beside the others and cost no budget."""

    BACKLOG = 0
    HINT = 1
    POLL = 2


class Seen(NamedTuple):
    """What one read showed of one run."""

    status: str | None
    """None when the run does not exist."""
    events: list[RunEventRecord]

    @property
    def full(self) -> bool:
        """Whether there may be more events."""
        return len(self.events) >= PAGE


Answer = Callable[[str, "Seen | Exception"], None]
Key = tuple[str, int]


@dataclass(slots=True)
class Budget:
    """At most `per_s` queries in a second, of which a second's worth may be spent at once."""

    per_s: float
    left: float = 0.0
    at: float = field(default=float("-inf"))

    async def spend(self, queries: int) -> None:
        """Wait until these queries may be sent."""
        loop = asyncio.get_running_loop()
        most = max(self.per_s, float(queries))
        while True:
            now = loop.time()
            self.left, self.at = min(most, self.left + (now - self.at) * self.per_s), now
            if self.left >= queries:
                self.left -= queries
                return
            await asyncio.sleep((queries - self.left) / self.per_s)


class SharedReads:
    """Runs that followers want to be read. What is wanted while a batch is read goes into the next one.

    Two followers that have read as far share one read. A store without the two batched reads is asked for one run at a
    time, out of the same budget.
    """

    def __init__(self, store: Any, queries_per_s: float) -> None:
        self._store = store
        self._batched = all(
            callable(getattr(store, name, None)) for name in ("get_events_for_runs", "get_run_statuses")
        )
        self._budget = Budget(queries_per_s)
        self._wanted: dict[Why, dict[Key, list[Answer]]] = {why: {} for why in Why}
        self._workers: dict[bool, asyncio.Task[None]] = {}

    def want(self, run_id: str, head: int, why: Why, answer: Answer) -> None:
        """Read this run from above its head, and call `answer` with what was seen, or with the error."""
        self._wanted[why].setdefault((run_id, head), []).append(answer)
        backlog = why is Why.BACKLOG
        worker = self._workers.get(backlog)
        if worker is None or worker.done():
            name = "dendrux followers, backlog" if backlog else "dendrux followers"
            self._workers[backlog] = asyncio.get_running_loop().create_task(self._work(backlog=backlog), name=name)

    def hurry(self, run_ids: Iterable[str]) -> None:
        """Something was heard of these runs: those that wait for their poll are read first."""
        polls, hinted = self._wanted[Why.POLL], set(run_ids)
        for key in [key for key in polls if key[0] in hinted]:
            self._wanted[Why.HINT].setdefault(key, []).extend(polls.pop(key))

    async def settle(self) -> None:
        """Nobody follows anything: want nothing, and wait until no read is on its way, so that an engine may go."""
        for queue in self._wanted.values():
            queue.clear()
        busy = [worker for worker in self._workers.values() if not worker.done()]
        for worker in busy:
            worker.cancel()
        if busy:
            await asyncio.wait(busy)

    async def _work(self, *, backlog: bool) -> None:
        """Read batch after batch until nothing is wanted."""
        queues = [self._wanted[why] for why in Why if (why is Why.BACKLOG) == backlog]
        most = 1 if not self._batched else DRAINED_TOGETHER if backlog else STATUSES_MAX
        while any(queues):
            if not backlog:
                await self._budget.spend(QUERIES_OF_A_READ)
            batch = dict(_taken(queues, most))
            await self._answer(batch)

    async def _answer(self, batch: Mapping[str, tuple[int, list[Answer]]]) -> None:
        """Read a batch. One run that cannot be read is no reason for the others to fail: it is looked for by halves."""
        try:
            found = await self.read({run_id: head for run_id, (head, _) in batch.items()})
        except Exception as error:  # noqa: BLE001  whatever a store raises is what its followers get
            if len(batch) == 1 or getattr(error, "retryable", False):
                for run_id, (_, answers) in batch.items():
                    for answer in answers:
                        answer(run_id, error)
                return
        else:
            for run_id, (_, answers) in batch.items():
                for answer in answers:
                    answer(run_id, found[run_id])
            return
        halves = list(batch.items())
        for half in (halves[: len(halves) // 2], halves[len(halves) // 2 :]):
            await self._answer(dict(half))

    async def read(self, heads: Mapping[str, int]) -> dict[str, Seen]:
        """What there is above each head now, of at most 200 runs; the status of a run is read before its events."""
        statuses = await self.statuses(list(heads))
        there = {run_id: head for run_id, head in heads.items() if run_id in statuses}
        if self._batched:
            events = await self._store.get_events_for_runs(there, limit_per_run=PAGE)
        else:
            events = {run_id: await self._events(run_id, head) for run_id, head in there.items()}
        return {run_id: Seen(statuses.get(run_id), events.get(run_id, [])) for run_id in heads}

    async def statuses(self, run_ids: list[str]) -> dict[str, str]:
        """The status of each of at most 200 runs that exists."""
        if self._batched:
            found: dict[str, str] = await self._store.get_run_statuses(run_ids)
            return found
        runs = [(run_id, await self._store.get_run(run_id)) for run_id in run_ids]
        return {run_id: run.status for run_id, run in runs if run is not None}

    async def _events(self, run_id: str, head: int) -> list[RunEventRecord]:
        after = None if head < 0 else head
        found: list[RunEventRecord] = await self._store.get_run_events(run_id, after_sequence_index=after, limit=PAGE)
        return found


def _taken(queues: list[dict[Key, list[Answer]]], most: int) -> Iterator[tuple[str, tuple[int, list[Answer]]]]:
    """The next batch, each run once: a follower that has read less far waits for another."""
    taken: set[str] = set()
    for queue in queues:
        for run_id, head in list(queue):
            if len(taken) == most:
                return
            if run_id not in taken:
                taken.add(run_id)
                yield run_id, (head, queue.pop((run_id, head)))
