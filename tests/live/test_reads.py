"""The reads that followers share: in batches, within a budget, what was heard of first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from dendrux.live.reads import Budget, Why
from dendrux.runtime.values import RunEventRecord
from dendrux.store import RunStore
from live.support import collecting, within


class Fake:
    """Logs in memory, with or without the batched reads; it counts what it is asked."""

    def __init__(self, batched):
        self.statuses, self.logs, self.asked, self.widest = {}, {}, 0, 0
        if batched:
            self.get_events_for_runs, self.get_run_statuses = self.events_for_runs, self.run_statuses

    def add(self, run_id, *types):
        self.statuses.setdefault(run_id, "running")
        log = self.logs.setdefault(run_id, [])
        for event_type in types:
            log.append(
                RunEventRecord(
                    id=f"{run_id}-{len(log)}", run_id=run_id,
                    sequence_index=len(log), event_type=event_type, iteration_index=0, correlation_id=None,
                    data=None, created_at=datetime.now(UTC),
                )
            )  # fmt: skip

    def end(self, run_id):
        self.add(run_id, "run.completed")
        self.statuses[run_id] = "success"

    async def run_statuses(self, run_ids):
        assert len(run_ids) <= 200
        self.asked += 1
        return {run_id: self.statuses[run_id] for run_id in run_ids if run_id in self.statuses}

    async def events_for_runs(self, heads, *, limit_per_run):
        assert len(heads) <= 200
        self.asked += 1
        self.widest = max(self.widest, len(heads))
        return {run_id: self.logs[run_id][head + 1 :][:limit_per_run] for run_id, head in heads.items()}

    async def get_run(self, run_id):
        self.asked += 1
        return SimpleNamespace(status=self.statuses[run_id]) if run_id in self.statuses else None

    async def get_run_events(self, run_id, *, after_sequence_index, limit):
        self.asked += 1
        return self.logs[run_id][(-1 if after_sequence_index is None else after_sequence_index) + 1 :][:limit]

    async def finalize_with_event(self):
        raise NotImplementedError


async def asked_in(store, seconds):
    before = store.asked
    await asyncio.sleep(seconds)
    return store.asked - before


@pytest.mark.parametrize("batched", [True, False])
async def test_a_follow_of_more_runs_than_a_batch_holds(batched):
    class Generous(RunStore):
        queries_per_s = 1e6

    store = Fake(batched)
    ids = [f"r{number}" for number in range(450)]
    for run_id in ids:
        store.add(run_id, *["step"] * (230 if run_id == "r7" else 1))
    follow = collecting(Generous(store), ids, poll_interval_s=0.02)
    for run_id in ids:
        await asyncio.sleep(0)
        store.end(run_id)
    found = await within(follow)
    assert store.widest == (200 if batched else 0)
    for run_id in ids:
        assert [index for of, index in found if of == run_id] == list(range(len(store.logs[run_id])))


async def test_a_thousand_idle_followers_share_their_reads():
    store = Fake(batched=True)
    ids = [f"r{number}" for number in range(1000)]
    for run_id in ids:
        store.add(run_id)
    reader = RunStore(store)
    follows = [collecting(reader, run_id, poll_interval_s=0.5) for run_id in ids + ids]
    await asyncio.sleep(0.7)
    assert await asked_in(store, 2.0) <= 10 * 6, "five batches of two queries at a tick; two followers share one"
    for run_id in ids:
        store.end(run_id)
    for follow in follows:
        assert len(await within(follow)) == 1


async def test_a_store_without_batched_reads_keeps_to_the_same_budget():
    class Careful(RunStore):
        queries_per_s = 40.0

    store = Fake(batched=False)
    ids = [f"r{number}" for number in range(60)]
    for run_id in ids:
        store.add(run_id)
    follow = collecting(Careful(store), ids, poll_interval_s=0.01)
    await asyncio.sleep(1.5)
    assert await asked_in(store, 2.0) <= 40 * 2 + 42
    store.add("r7", *["step"] * 1000)
    before = store.asked
    for run_id in ids:
        store.end(run_id)
    found = await within(follow)
    assert len(found) == 1060
    assert store.asked > before


async def test_pages_of_a_backlog_cost_no_budget():
    class Poor(RunStore):
        queries_per_s = 2.0

    store = Fake(batched=True)
    store.add("r", *["step"] * 50_000)
    store.end("r")
    assert len(await within(collecting(Poor(store), "r"), 20)) == 50_001


async def test_what_was_heard_of_goes_before_polls():
    reads_of, asked = [], asyncio.Event()

    class Slow:
        async def get_run(self, run_id):
            reads_of.append(run_id)
            await asked.wait()
            return SimpleNamespace(status="running")

        async def get_run_events(self, run_id, **_):
            return []

    followers = RunStore(Slow())._followers
    for run_id in "abcd":
        followers.reads.want(run_id, -1, Why.POLL, lambda run_id, seen: None)
    await asyncio.sleep(0.01)
    followers.reads.hurry(["d"])
    asked.set()
    await asyncio.sleep(0.05)
    assert reads_of == ["a", "d", "b", "c"]


async def test_a_budget_is_spent_and_comes_back():
    budget = Budget(100.0)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for _ in range(120):
        await budget.spend(1)
    assert loop.time() - begun >= 0.19
    await Budget(0.5).spend(2)
