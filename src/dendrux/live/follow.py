"""Following runs: every event once and in order, until the run has ended and its log is read to the end.

The log decides. Hints say when to look, and where there are none, polling does.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Final

from dendrux.errors import RunNotFoundError
from dendrux.live.reads import Seen, SharedReads, Why
from dendrux.runtime.values import RunEventRecord
from dendrux.vocabulary import ID_LENGTH, STATUSES_MAX, TERMINAL_EVENTS, TERMINAL_STATUSES, UNSCOPED, TenantScope

GRACE_S: Final = 0.1
"""How long after the end of a run one more look is taken, where status and event may have been two writes."""

POLL_MIN_S: Final = 0.01


class Followers:
    """The followers of one RunStore: who follows which run, and the reads that they share."""

    def __init__(self, store: Any, queries_per_s: float) -> None:
        self.store = store
        self.reads = SharedReads(store, queries_per_s)
        # An adapter of an older store has the method where the store itself makes two writes of it.
        self.ends_whole: Final = callable(getattr(getattr(store, "wrapped", store), "finalize_with_event", None))
        """Whether a run's end and its last event are one write."""
        self._by_run: dict[str, set[Follower]] = {}
        self._end_listening: Callable[[], None] | None = None

    def enter(self, follower: Follower) -> None:
        """Tell this follower of hints from now on."""
        for run_id in follower.heads:
            self._by_run.setdefault(run_id, set()).add(follower)
        listen = getattr(getattr(self.store, "live_updates", None), "listen", None)
        if self._end_listening is None and callable(listen):
            self._end_listening = listen(self.hear)

    def leave(self, follower: Follower, run_id: str) -> None:
        """Tell this follower no more of this run. When nobody follows anything, nothing is listened to."""
        left = self._by_run.get(run_id, set())
        left.discard(follower)
        if not left:
            self._by_run.pop(run_id, None)
        if not self._by_run and self._end_listening is not None:
            self._end_listening()
            self._end_listening = None

    def hear(self, run_ids: Iterable[str] | None) -> None:
        """These runs changed; None says that any may have."""
        changed = [run_id for run_id in (self._by_run if run_ids is None else run_ids) if run_id in self._by_run]
        self.reads.hurry(changed)
        for run_id in changed:
            for follower in self._by_run[run_id]:
                follower.ask(run_id, Why.HINT)

    async def look_up(self, run_ids: Iterable[str], tenant_id: TenantScope) -> None:
        """Refuses: RunNotFoundError for the first of these runs that is missing or outside the scope."""
        ids = list(run_ids)
        if tenant_id is UNSCOPED:
            if len(ids) == 1:
                return  # the first read, which followers share, says it before the first event
            for start in range(0, len(ids), STATUSES_MAX):
                part = ids[start : start + STATUSES_MAX]
                there: Any = await self.reads.statuses(part)
                _all_there(part, there)
            return
        for run_id in ids:
            if await self.store.get_run(run_id, tenant_id=tenant_id) is None:
                raise RunNotFoundError(run_id)

    async def follow(
        self, heads: Mapping[str, int], *, poll_interval_s: float, idle_timeout_s: float | None, tenant_id: TenantScope
    ) -> AsyncGenerator[tuple[str, RunEventRecord]]:
        """Each event above the heads, with its run, until every run has ended or nothing came for the idle timeout.

        Refuses: RunNotFoundError, before the first event.
        """
        await self.look_up(heads, tenant_id)
        follower = Follower(self, heads, poll_interval_s, idle_timeout_s)
        try:
            async for found in follower.events():
                yield found
        finally:
            follower.end()
            if not self._by_run:
                await self.reads.settle()


def _all_there(run_ids: Iterable[str], there: Mapping[str, str]) -> None:
    for run_id in run_ids:
        if run_id not in there:
            raise RunNotFoundError(run_id)


class Follower:
    """One follow of one run or several. At most one read of each run is on its way."""

    def __init__(
        self, followers: Followers, heads: Mapping[str, int], poll_interval_s: float, idle_timeout_s: float | None
    ) -> None:
        self.heads = dict(heads)
        """The index of the last event of each run that is still followed; -1 before the first."""
        self._all = followers
        self._poll_s = poll_interval_s
        self._idle_s = math.inf if idle_timeout_s is None else idle_timeout_s
        self._asked: set[str] = set()
        """Runs of which a read is on its way."""
        self._again: set[str] = set()
        """Runs of which something was heard meanwhile: that read may have come too early."""
        self._closed_logs: set[str] = set()
        """Runs of which the event that ends a log was seen."""
        self._graced: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._answers: deque[tuple[str, Seen | Exception]] = deque()
        self._something = asyncio.Event()

    def ask(self, run_id: str, why: Why) -> None:
        """Have a run read, unless a read of it is on its way."""
        if run_id not in self.heads:
            return
        if run_id not in self._asked:
            self._asked.add(run_id)
            self._all.reads.want(run_id, self.heads[run_id], why, self._answer)
        elif why is Why.HINT:
            self._again.add(run_id)

    def _answer(self, run_id: str, found: Seen | Exception) -> None:
        self._answers.append((run_id, found))
        self._something.set()

    def end(self) -> None:
        """Follow nothing any more. An answer that is on its way is dropped."""
        for run_id in list(self.heads):
            self._leave(run_id)

    def _leave(self, run_id: str) -> None:
        self.heads.pop(run_id, None)
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()
        self._all.leave(self, run_id)

    async def events(self) -> AsyncGenerator[tuple[str, RunEventRecord]]:
        """Every event as it is seen."""
        loop = asyncio.get_running_loop()
        self._all.enter(self)
        for run_id in self.heads:
            self.ask(run_id, Why.HINT)
        quiet_since = loop.time()
        while self.heads:
            while self._answers:
                run_id, seen = self._answers.popleft()
                if isinstance(seen, Exception):
                    raise seen
                for event in seen.events:
                    self.heads[run_id] = event.sequence_index
                    yield run_id, event
                    quiet_since = loop.time()
                self._go_on(run_id, seen)
            now = loop.time()
            if not self._asked and now >= quiet_since + self._idle_s:
                return
            await self._wait(loop, now, quiet_since + self._idle_s)

    async def _wait(self, loop: asyncio.AbstractEventLoop, now: float, until: float) -> None:
        """Until there is an answer, or the time has come to poll.

        Followers with the same interval poll at the same moments, so that they share their reads.
        """
        if not self.heads:
            return
        tick = (math.floor(now / self._poll_s) + 1) * self._poll_s
        self._something.clear()
        try:
            async with asyncio.timeout_at(min(tick, max(now, until)) if not self._asked else tick):
                await self._something.wait()
        except TimeoutError:
            if loop.time() >= tick:
                for run_id in self.heads:
                    self.ask(run_id, Why.POLL)

    def _go_on(self, run_id: str, seen: Seen) -> None:
        """After what a read showed: read on, take one more look, wait, or let the run go."""
        self._asked.discard(run_id)
        heard, self._again = run_id in self._again, self._again - {run_id}
        if seen.status is None:
            raise RunNotFoundError(run_id)
        if seen.events and seen.events[-1].event_type in TERMINAL_EVENTS:
            self._closed_logs.add(run_id)
        if seen.full:
            self.ask(run_id, Why.BACKLOG)
        elif seen.status not in TERMINAL_STATUSES:
            if heard:
                self.ask(run_id, Why.HINT)
        elif run_id in self._graced or (self._all.ends_whole and run_id in self._closed_logs):
            self._leave(run_id)
        else:
            self._graced.add(run_id)
            self._asked.add(run_id)
            self._timers[run_id] = asyncio.get_running_loop().call_later(GRACE_S, self._look_once_more, run_id)

    def _look_once_more(self, run_id: str) -> None:
        self._timers.pop(run_id, None)
        self._asked.discard(run_id)
        self.ask(run_id, Why.BACKLOG)


# -- arguments --------------------------------------------------------------------------------------------------------


def heads_of(run_ids: Any, after: Any) -> dict[str, int]:
    """The last index that was read of each run, -1 before the first.

    Refuses: TypeError and ValueError, naming the argument.
    """
    ids = [run_ids] if isinstance(run_ids, str) else list(run_ids)
    for run_id in ids:
        if not isinstance(run_id, str):
            raise TypeError(f"run_ids must be one run id or several, not {type(run_id).__name__}")
        if not 0 < len(run_id) <= ID_LENGTH:
            raise ValueError(f"run_ids must have 1 to {ID_LENGTH} characters each")
    heads = dict.fromkeys(ids, -1)
    if after is None:
        return heads
    if not isinstance(after, Mapping):
        if len(heads) != 1:
            raise ValueError("after must be a mapping from run id to index when several runs are followed")
        after = dict.fromkeys(heads, after)
    for run_id, head in after.items():
        if run_id not in heads:
            raise ValueError("after names a run that is not followed")
        if head is not None and (not isinstance(head, int) or isinstance(head, bool)):
            raise TypeError(f"after must be an index, not {type(head).__name__}")
        if head is not None and head < -1:
            raise ValueError("after must not be below -1")
        heads[run_id] = -1 if head is None else head
    return heads


def seconds(name: str, value: Any, least: float) -> float:
    """A time. Refuses: TypeError and ValueError, naming the argument."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} must be at least {least} and finite")
    return float(value)
