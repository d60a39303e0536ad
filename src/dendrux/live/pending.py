"""What every transport shares: the bounded set of pending ids, when it is sent, and the loop that listens."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Final, TypeAlias

from dendrux.vocabulary import ID_LENGTH

logger = logging.getLogger("dendrux.live")

Hear: TypeAlias = Callable[[Iterable[str] | None], None]
"""Takes the ids of runs that changed; None when hints may have been lost, so that any run may have changed."""

CANCEL_AGAIN_S: Final = 0.1
"""How long a task that was cancelled may take before it is cancelled again."""


class PendingUpdates:
    """Live updates without their transport. A subclass implements `send`, and `receive` if it can be heard.

    An instance lives in one event loop, that of its store.
    """

    pending_max: ClassVar[int] = 10_000
    """Ids that wait at most; more are dropped and counted."""

    flush_deadline_s: ClassVar[float] = 1.0
    """How long a flush keeps its caller waiting at most."""

    backoff_first_s: ClassVar[float] = 0.5
    backoff_most_s: ClassVar[float] = 30.0
    """The pause after a failure of the transport; it doubles with each one, with jitter."""

    def __init__(self) -> None:
        self.dropped = 0
        """Ids that were no id, beyond the bound, or noted after `close`."""
        self._store: Any = None
        self._pending: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False
        self._hears: dict[object, Hear] = {}
        self._listening: asyncio.Task[None] | None = None

    def bind(self, store: Any) -> None:
        """Belong to one store.

        Refuses: ValueError for a second store.
        """
        if self._store is not None and self._store is not store:
            raise ValueError(f"this {type(self).__name__} belongs to another store: make one instance per store")
        self._store = store

    # -- sending ------------------------------------------------------------------------------------------------------

    def enqueue(self, run_ids: Iterable[Any]) -> None:
        """Note changed runs: texts of 1 to 64 characters.

        Refuses: TypeError for a bare string, which would be taken for its characters.
        """
        if isinstance(run_ids, str):
            raise TypeError("enqueue takes an iterable of run ids, not one string")
        for run_id in run_ids:
            fits = isinstance(run_id, str) and 0 < len(run_id) <= ID_LENGTH and not self._closed
            if fits and (run_id in self._pending or len(self._pending) < self.pending_max):
                self._pending[run_id] = None
            else:
                self.dropped += 1

    async def flush(self) -> None:
        """Wait until what is pending now was handed to the transport; what was not in time stays for the next flush.

        Writers at the same time share batches: the ids of this call are in the one that is on its way or in the next.
        A caller that is cancelled leaves the batch on its way.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.flush_deadline_s
        for _ in range(2):
            batch = self._on_its_way(loop)
            if batch is None:
                return
            await asyncio.wait((batch,), timeout=max(0.0, until - loop.time()))
            if not batch.done():
                return

    def _on_its_way(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
        if self._sending is not None and not self._sending.done():
            return self._sending
        if not self._pending or loop.time() < self._retry_at:
            return None
        batch, self._pending = self._pending, {}
        self._sending = loop.create_task(self._sent(batch), name="dendrux live updates, sending")
        return self._sending

    async def _sent(self, batch: dict[str, None]) -> None:
        """Send one batch. Ensures: an id that was not sent is pending again, and one noted meanwhile stays pending."""
        try:
            async with asyncio.timeout(self.flush_deadline_s):
                await self.send(list(batch))
        except BaseException as error:
            newer, self._pending = self._pending, batch
            self._failures += 1
            self._retry_at = asyncio.get_running_loop().time() + self._pause(self._failures)
            for run_id in newer:
                if run_id in batch or len(batch) < self.pending_max:
                    batch[run_id] = None
                else:
                    self.dropped += 1
            logger.warning("live updates: %d hints wait, %s", len(batch), type(error).__name__)
            if not isinstance(error, Exception):
                raise
        else:
            self._failures = 0

    def _pause(self, failures: int) -> float:
        longest = min(self.backoff_most_s, self.backoff_first_s * 2.0 ** min(failures - 1, 16))
        return longest * (0.5 + random.random() / 2)  # noqa: S311  processes that failed together do not return together

    async def send(self, run_ids: Sequence[str]) -> None:
        """Hand changed run ids to the transport. Cancelled at the deadline; may raise anything."""
        raise NotImplementedError(f"{type(self).__name__} must implement send")

    # -- hearing ------------------------------------------------------------------------------------------------------

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` with what is announced, until the answer is called. The first one opens a connection that stays
        until `close`.
        """
        key = object()
        self._hears[key] = hear
        heard = type(self).receive is not PendingUpdates.receive
        if heard and self._listening is None and not self._closed:
            self._listening = asyncio.get_running_loop().create_task(self._heard(), name="dendrux live updates")

        def end() -> None:
            self._hears.pop(key, None)

        return end

    async def _heard(self) -> None:
        """Listen, and again after each failure. What was announced meanwhile is lost, so everybody hears None then."""
        failures, ends = 0, "ConnectionError"
        while True:
            try:
                async with aclosing(self.receive()) as received:
                    async for run_ids in received:
                        failures = 0
                        for hear in list(self._hears.values()):
                            hear(run_ids)
            except Exception as error:  # noqa: BLE001  whatever a transport raises, polling goes on
                ends = type(error).__name__
            failures += 1
            pause = self._pause(failures)
            logger.warning("live updates: nothing is heard for %.1f s, followers poll, %s", pause, ends)
            await asyncio.sleep(pause)

    async def receive(self) -> AsyncGenerator[Iterable[str] | None]:
        """Yield None once connected, then run ids as they are announced; raise when the connection is gone.

        A transport that only sends need not override it: followers poll then.
        """
        nothing: tuple[Iterable[str] | None, ...] = ()
        for run_ids in nothing:
            yield run_ids

    # -- the end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send what is pending, once, and let go of the transport. Idempotent; what is noted later is dropped."""
        if self._closed:
            return
        self._closed = True
        self._retry_at = 0.0
        try:
            await self.flush()
        finally:
            await _cancelled(task for task in (self._sending, self._listening) if task is not None)
            self._hears.clear()
            await self.disconnect()

    async def disconnect(self) -> None:
        """Close what `send` keeps open."""


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended.

    One cancellation is not enough: `asyncio.wait_for` of Python 3.11 loses one that comes as what it waits for is done.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # asked for, so that nothing complains of an error that nobody saw


def batches(run_ids: Iterable[str], most: int) -> Iterator[str]:
    """Run ids as JSON arrays of at most `most` bytes, all of them ASCII: an encoding between the two ends is no matter.

    One id is at most 770 bytes so, whatever its characters.
    """
    batch: list[str] = []
    size = 2
    for run_id in run_ids:
        item = json.dumps(run_id)
        if batch and size + len(item) + 1 > most:
            yield f"[{','.join(batch)}]"
            batch, size = [], 2
        batch.append(item)
        size += len(item) + 1
    if batch:
        yield f"[{','.join(batch)}]"


def unpacked(payload: str | bytes) -> list[str]:
    """The run ids of one payload; none for a payload that is not ours."""
    try:
        found = json.loads(payload)
    except ValueError:
        return []
    return [run_id for run_id in found if isinstance(run_id, str)] if isinstance(found, list) else []
