"""When pending ids are sent, kept and dropped, whatever the transport does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterable

import pytest

from dendrux.live import HearsUpdates, LiveUpdates, PendingUpdates
from dendrux.live.pending import batches, unpacked


class Scripted(PendingUpdates):
    """A transport whose sends are released, or fail, one by one."""

    pending_max = 5
    flush_deadline_s = 0.2
    backoff_first_s = backoff_most_s = 60.0

    def __init__(self):
        super().__init__()
        self.sent, self.gates, self.fails = [], [], 0

    async def send(self, run_ids):
        if self.gates:
            await self.gates.pop(0).wait()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("hush-hush")
        self.sent.append(list(run_ids))

    def gate(self):
        self.gates.append(asyncio.Event())
        return self.gates[-1]


def test_it_is_what_a_store_and_a_follower_ask_for():
    assert isinstance(Scripted(), LiveUpdates)
    assert isinstance(Scripted(), HearsUpdates)


async def test_an_id_noted_while_it_is_on_its_way_is_sent_again():
    # The follower may have read between the two commits: the second one needs a hint of its own.
    live = Scripted()
    gate = live.gate()
    live.enqueue(["a"])
    first = asyncio.create_task(live.flush())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    live.enqueue(["a"])
    gate.set()
    await first
    await live.flush()
    assert live.sent == [["a"], ["a"]]


async def test_writers_at_the_same_time_share_a_batch():
    live = Scripted()
    gate = live.gate()
    live.enqueue(["a"])
    flushes = [asyncio.create_task(live.flush())]
    await asyncio.sleep(0)
    for run_id in "bcd":
        live.enqueue([run_id])
        flushes.append(asyncio.create_task(live.flush()))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*flushes)
    assert live.sent == [["a"], ["b", "c", "d"]]


async def test_a_failure_keeps_the_ids_and_makes_it_wait(caplog):
    live = Scripted()
    live.fails = 1
    live.enqueue(["a"])
    with caplog.at_level(logging.WARNING, "dendrux.live"):
        await live.flush()
    assert "RuntimeError" in caplog.text
    assert "hush-hush" not in caplog.text
    live.enqueue(["b"])
    await live.flush()
    assert live.sent == [], "nothing is sent while it backs off"
    live._retry_at = 0.0
    await live.flush()
    assert live.sent == [["a", "b"]]


async def test_a_flush_ends_at_its_deadline_and_the_ids_stay():
    live = Scripted()
    live.gate()
    live.enqueue(["a"])
    async with asyncio.timeout(5):
        await live.flush()
    await asyncio.wait([live._sending])
    assert live.sent == []
    live._retry_at = 0.0
    await live.flush()
    assert live.sent == [["a"]]


async def test_a_cancelled_caller_leaves_the_batch_on_its_way():
    live = Scripted()
    gate = live.gate()
    live.enqueue(["a"])
    caller = asyncio.create_task(live.flush())
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.set()
    await live.flush()
    assert live.sent == [["a"]]


async def test_what_cannot_be_kept_is_dropped_and_counted():
    live = Scripted()
    live.enqueue(["", "x" * 65, None, 7, *"abcde", "a", "f"])
    assert live.dropped == 5
    with pytest.raises(TypeError, match="iterable"):
        live.enqueue("abc")
    live.fails = 1
    await live.flush()
    live.enqueue(["g"])
    assert live.dropped == 6, "what came back counts against the bound"
    await live.close()
    assert live.sent == [list("abcde")]
    live.enqueue(["h"])
    assert live.dropped == 7


async def test_a_batch_that_comes_back_goes_before_newer_ids():
    live = Scripted()
    gate = live.gate()
    live.fails = 1
    live.enqueue(["abc", "b"])
    caller = asyncio.create_task(live.flush())
    await asyncio.sleep(0.01)
    live.enqueue(["c", "d", "e", "f", "g"])
    gate.set()
    await caller
    assert list(live._pending) == ["abc", "b", "c", "d", "e"]
    assert live.dropped == 2


async def test_close_tries_once_more_and_is_idempotent():
    live = Scripted()
    live.fails = 2
    live.enqueue(["a"])
    await live.flush()
    await asyncio.gather(live.close(), live.close())
    await live.close()
    assert live.fails == 0
    assert live.sent == []


async def test_close_does_not_wait_for_a_transport_that_hangs():
    live = Scripted()
    live.gate()
    live.enqueue(["a"])
    async with asyncio.timeout(5):
        await live.close()
    assert live._sending.done()


async def test_a_transport_that_only_sends_leaves_no_task_behind():
    live = Scripted()
    live.listen(lambda run_ids: None)()
    assert live._listening is None


def test_ids_are_packed_within_the_bytes_of_a_payload_and_unpacked():
    ids = [chr(0x1F600) * 64, "\x00", 'quo"te', "a,b", "é" * 64] * 40
    packed = list(batches(ids, 7900))
    assert [run_id for payload in packed for run_id in unpacked(payload)] == ids
    assert max(map(len, packed)) <= 7900
    assert all(payload.isascii() for payload in packed)
    assert len(packed) < len(json.dumps(ids)) / 7900 + 3, "they are packed tightly"
    assert list(batches([], 100)) == []
    for noise in ("", "nonsense", "7", '{"a": 1}', b"\xff\xfe"):
        assert unpacked(noise) == []
    assert unpacked('["a", 1, null]') == ["a"]


class LosesACancellation(PendingUpdates):
    """A transport in which the first cancellation arrives as what is waited for is done, and is lost."""

    lost = 0

    async def receive(self) -> AsyncGenerator[Iterable[str] | None]:
        yield None
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if self.lost:
                    raise
                self.lost += 1


async def test_closing_ends_although_a_cancellation_is_lost():
    updates, heard = LosesACancellation(), asyncio.Event()
    updates.listen(lambda _: heard.set())
    await heard.wait()
    async with asyncio.timeout(30):
        await updates.close()
    assert (updates.lost, updates._listening.done()) == (1, True)
