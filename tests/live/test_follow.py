"""What a follower sees: every event once and in order, to the end, with hints or without."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from dendrux.errors import StoreUnavailableError
from dendrux.live import PendingUpdates
from dendrux.store import RunNotFoundError, RunStore, SQLiteStateStore
from live.support import collecting, within
from unit.store_support import Format1Store, built_in

LONG_S = 3000.0
"""A poll that does not come within a test."""


class Local(PendingUpdates):
    """Hints within this process, which a test may drop or double."""

    def __init__(self):
        super().__init__()
        self.drop = False

    def listen(self, hear):
        self.hear = hear
        return self.ended

    def ended(self):
        self.hear = lambda run_ids: None

    def hear(self, run_ids):
        pass

    async def send(self, run_ids):
        if not self.drop:
            self.hear(run_ids)
            self.hear(run_ids)


async def ended(store, run_id, epoch=None):
    await store.finalize_with_event(
        run_id, status="success", allowed_current_statuses=["running"], event_type="run.completed", claim_epoch=epoch
    )


async def written(store, run_id, count):
    for number in range(count):
        await store.save_run_event(run_id, event_type="step", data={"n": number})


@pytest.fixture
async def live(tmp_path):
    async with built_in(tmp_path, live_updates=Local()) as store:
        await store.create_run("r", "agent")
        yield store
        await store.close()


async def test_from_the_first_event_to_the_last(database, tmp_path):
    async with database.store(tmp_path) as store:
        reader = RunStore(store)
        await store.create_run("r", "agent")
        await written(store, "r", 105)
        follow = collecting(reader, "r", poll_interval_s=0.02)
        await written(store, "r", 20)
        await asyncio.sleep(0.1)
        assert not follow.done()
        await ended(store, "r")
        assert await within(follow) == [("r", number) for number in range(126)]
        assert await within(collecting(reader, "r", after=100)) == [("r", number) for number in range(101, 126)]
        assert await within(collecting(reader, "r", after=125)) == []
        streamed = [event async for event in reader.stream_events("r", after_sequence_index=123)]
        assert [event.event_type for event in streamed] == ["step", "run.completed"]


async def test_several_runs_each_in_order_and_each_from_where_it_was(database, tmp_path):
    async with database.store(tmp_path) as store:
        ids = [f"r{number:03}" for number in range(12)]
        for run_id in ids:
            await store.create_run(run_id, "agent")
            await store.save_run_event(run_id, event_type="step")
        await written(store, "r000", 20)
        follow = collecting(RunStore(store), ids, after={"r000": 3, "r001": 0}, poll_interval_s=0.02)
        for run_id in ids:
            await ended(store, run_id)
        found = await within(follow, 60)
        for run_id in ids:
            first, last = {"r000": (4, 21), "r001": (1, 1)}.get(run_id, (0, 1))
            assert [index for of, index in found if of == run_id] == list(range(first, last + 1))


async def test_hints_wake_a_follower_and_a_double_one_shows_nothing_twice(live):
    follow = collecting(RunStore(live), "r", poll_interval_s=LONG_S)
    for _ in range(30):
        await live.save_run_event("r", event_type="step")
        await asyncio.sleep(0)
    await ended(live, "r")
    assert await within(follow) == [("r", number) for number in range(31)]


async def test_polling_carries_it_when_hints_are_lost(live):
    live.live_updates.drop = True
    follow = collecting(RunStore(live), "r", poll_interval_s=0.02)
    await written(live, "r", 3)
    await ended(live, "r")
    assert await within(follow) == [("r", number) for number in range(4)]


async def test_a_hint_that_comes_while_the_run_is_being_read_is_not_forgotten(live):
    reader, reading, go_on = RunStore(live), asyncio.Event(), asyncio.Event()
    read = reader._followers.reads.read

    async def slow(heads):
        found = await read(heads)
        reading.set()
        await go_on.wait()
        return found

    reader._followers.reads.read = slow
    follow = collecting(reader, "r", poll_interval_s=LONG_S)
    await reading.wait()
    await ended(live, "r")  # after the read, whose answer is still on its way
    go_on.set()
    assert await within(follow) == [("r", 0)]


async def test_everybody_looks_when_hints_may_have_been_lost(live):
    live.live_updates.drop = True
    follow = collecting(RunStore(live), "r", poll_interval_s=LONG_S)
    await asyncio.sleep(0.1)
    await ended(live, "r")
    live.live_updates.hear(None)
    assert await within(follow) == [("r", 0)]


async def test_a_reader_of_an_engine_does_not_listen(live):
    reader = RunStore.from_engine(live._engine)
    assert reader._store.live_updates is None
    follow = collecting(reader, "r", poll_interval_s=LONG_S)
    await asyncio.sleep(0.1)
    await ended(live, "r")
    await asyncio.sleep(0.1)
    assert not follow.done()
    follow.cancel()


async def test_it_stops_listening_with_the_last_follower(live):
    reader = RunStore(live)
    two = [collecting(reader, "r", poll_interval_s=LONG_S) for _ in range(2)]
    await asyncio.sleep(0.1)
    assert reader._followers._by_run["r"]
    for one in two:
        one.cancel()
        await asyncio.wait([one])
    assert reader._followers._by_run == {}
    assert reader._followers._end_listening is None


async def test_a_cancelled_follow_is_resumed_where_it_was(live):
    reader, seen = RunStore(live), []
    await written(live, "r", 210)

    async def some(after, count, enough):
        async with aclosing(reader.follow("r", after=after, poll_interval_s=0.02)) as events:
            async for event in events:
                seen.append(event.sequence_index)
                count -= 1
                if count == 0:
                    enough.set()
                    await asyncio.sleep(LONG_S)

    for count in (1, 100, 77):
        enough = asyncio.Event()
        task = asyncio.create_task(some(seen[-1] if seen else None, count, enough))
        async with asyncio.timeout(30):
            await enough.wait()
        task.cancel()
        await asyncio.wait([task])
    await ended(live, "r")
    await within(asyncio.create_task(some(seen[-1], 0, asyncio.Event())))
    assert seen == list(range(211))


async def test_a_missing_run_is_refused_before_the_first_event(live):
    await live.create_run("mine", "agent", tenant_id="a")
    reader = RunStore(live)
    await ended(live, "r")
    for run_ids, scope in (
        ("nobody", {}),
        (["r", "nobody"], {}),
        ("mine", {"tenant_id": "b"}),
        ("mine", {"tenant_id": None}),
    ):
        with pytest.raises(RunNotFoundError) as refused:
            await anext(reader.follow(run_ids, **scope))
        assert refused.value.run_id in ("nobody", "mine")
        assert refused.value.__context__ is None
    with pytest.raises(RunNotFoundError):
        await reader.get_event_view("nobody")
    with pytest.raises(RunNotFoundError):
        await reader.get_event_view("mine", tenant_id="b")
    follow = collecting(reader, "mine", tenant_id="a", idle_timeout_s=0)
    assert await within(follow) == []


async def test_an_idle_follow_ends_by_itself_once_it_has_read_what_is_there(live):
    await written(live, "r", 120)
    assert len(await within(collecting(RunStore(live), "r", idle_timeout_s=0))) == 120
    assert len(await within(collecting(RunStore(live), "r", idle_timeout_s=0.05, poll_interval_s=0.01))) == 120


def test_bad_arguments_are_refused_at_once():
    reader = RunStore(SimpleNamespace())
    for error, run_ids, options in (
        (TypeError, [1], {}),
        (ValueError, "", {}),
        (ValueError, ["x" * 65], {}),
        (ValueError, ["a", "b"], {"after": 1}),
        (ValueError, "a", {"after": {"b": 1}}),
        (TypeError, "a", {"after": "1"}),
        (TypeError, "a", {"after": True}),
        (ValueError, "a", {"after": -2}),
        (ValueError, "a", {"poll_interval_s": 0}),
        (ValueError, "a", {"poll_interval_s": float("nan")}),
        (TypeError, "a", {"poll_interval_s": "1"}),
        (ValueError, "a", {"idle_timeout_s": -1}),
    ):
        with pytest.raises(error):
            reader.follow(run_ids, **options)


# -- how a follow ends ------------------------------------------------------------------------------------------------


class Apart:
    """A store that has only the operations that followers need, and writes the end of a run in two steps."""

    def __init__(self, store):
        self.get_run, self.get_run_events = store.get_run, store.get_run_events


async def late(store, run_id, after_s, begun=None):
    assert await store.finalize_run(run_id, status="success")
    if begun is not None:
        begun.set()
    await asyncio.sleep(after_s)
    await store.save_run_event(run_id, event_type="run.completed")


async def test_a_store_that_writes_the_end_in_two_steps_gets_a_grace(tmp_path):
    async with built_in(tmp_path, Format1Store) as store:
        for number, reads in enumerate((RunStore(Apart(store)), RunStore(store))):
            run_id = f"r{number}"
            await store.create_run(run_id, "agent")
            follow = collecting(reads, run_id, poll_interval_s=0.01)
            await asyncio.sleep(0.05)
            await late(store, run_id, 0.03)
            assert await within(follow) == [(run_id, 0)]
        await store.create_run("view", "agent")
        begun = asyncio.Event()
        view = asyncio.create_task(late(store, "view", 0.03, begun))
        await begun.wait()
        seen = await RunStore(Apart(store)).get_event_view("view")
        await view
        assert ([event.event_type for event in seen.events], seen.ended) == (["run.completed"], True)


async def test_a_whole_end_is_believed_at_once(live, monkeypatch):
    monkeypatch.setattr("dendrux.live.follow.GRACE_S", LONG_S)
    monkeypatch.setattr("dendrux.store.reader.GRACE_S", LONG_S)
    await ended(live, "r")
    assert await within(collecting(RunStore(live), "r")) == [("r", 0)]
    assert (await RunStore(live).get_event_view("r")).ended


async def test_views_page_through_a_log_to_its_end(database, tmp_path):
    async with database.store(tmp_path) as store:
        reader = RunStore(store)
        await store.create_run("r", "agent")
        empty = await reader.get_event_view("r")
        assert (empty.status, empty.events, empty.next_after, empty.ended) == ("running", [], None, False)
        await written(store, "r", 3)
        first = await reader.get_event_view("r", limit=3)
        assert ([event.sequence_index for event in first.events], first.next_after, first.ended) == (
            [0, 1, 2],
            2,
            False,
        )
        await ended(store, "r")
        exact = await reader.get_event_view("r", limit=4)
        assert (len(exact.events), exact.ended) == (4, False), "a full page says nothing of what comes after it"
        last = await reader.get_event_view("r", after_sequence_index=exact.next_after)
        assert (last.status, last.events, last.next_after, last.ended) == ("success", [], 3, True)


# -- what a store raises ----------------------------------------------------------------------------------------------


async def test_one_run_that_cannot_be_read_ends_only_its_own_follow(tmp_path):
    class Poisoned(SQLiteStateStore):
        async def get_events_for_runs(self, heads, *, limit_per_run):
            if "r3" in heads:
                raise ValueError("cannot be read")
            return await super().get_events_for_runs(heads, limit_per_run=limit_per_run)

    async with built_in(tmp_path, Poisoned) as store:
        ids = [f"r{number}" for number in range(8)]
        for run_id in ids:
            await store.create_run(run_id, "agent")
        reader = RunStore(store)
        follows = {run_id: collecting(reader, run_id, poll_interval_s=0.02) for run_id in ids}
        await asyncio.sleep(0.2)
        for run_id in ids:
            await ended(store, run_id)
        for run_id in ids:
            if run_id == "r3":
                with pytest.raises(ValueError, match="cannot be read"):
                    await within(follows[run_id])
            else:
                assert await within(follows[run_id]) == [(run_id, 0)]


async def test_an_outage_reaches_the_caller_who_may_go_on_later(tmp_path):
    class Away(SQLiteStateStore):
        away = False

        async def get_run_statuses(self, run_ids):
            if self.away:
                raise StoreUnavailableError
            return await super().get_run_statuses(run_ids)

    async with built_in(tmp_path, Away) as store:
        reader = RunStore(store)
        await store.create_run("r", "agent")
        await written(store, "r", 3)
        seen = []

        async def follow(after):
            async for event in reader.follow("r", after=after, poll_interval_s=0.02):
                seen.append(event.sequence_index)  # noqa: PERF401  kept also when the follow ends with an error

        first = asyncio.create_task(follow(None))
        await asyncio.sleep(0.2)
        store.away = True
        with pytest.raises(StoreUnavailableError):
            await within(first)
        store.away = False
        await ended(store, "r")
        await within(asyncio.create_task(follow(seen[-1])))
        assert seen == [0, 1, 2, 3]
