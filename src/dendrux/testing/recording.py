"""Live updates that send nothing: they note what a store announces, and what another connection saw at that moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple


class Announcement(NamedTuple):
    """One id that was flushed."""

    run_id: Any
    seen: Any
    """What `look` answered at that moment; None when nobody looked."""


class RecordingUpdates:
    """The four methods that a store calls."""

    def __init__(self) -> None:
        self.bound: list[Any] = []
        self.pending: list[Any] = []
        self.sent: list[Announcement] = []
        self.flushes = 0
        self.closed = 0
        self.look: Callable[[Any], Awaitable[Any]] | None = None
        """Asked about each id when it is flushed."""

    def bind(self, store: Any) -> None:
        """Note the store."""
        self.bound.append(store)

    def enqueue(self, run_ids: Iterable[Any]) -> None:
        """Note the ids. Refuses: TypeError for a bare string."""
        if isinstance(run_ids, str):
            raise TypeError("enqueue takes an iterable of run ids, not one string")
        self.pending += run_ids

    async def flush(self) -> None:
        """Look at each pending id, as a follower that is woken does."""
        self.flushes += 1
        ids, self.pending = list(dict.fromkeys(self.pending)), []
        for run_id in ids:
            self.sent.append(Announcement(run_id, None if self.look is None else await self.look(run_id)))

    async def close(self) -> None:
        """Count."""
        self.closed += 1

    def forget(self) -> None:
        """Nothing was announced so far."""
        self.pending, self.sent, self.flushes = [], [], 0
