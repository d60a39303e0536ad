"""Live updates: lossy hints that a run changed. The database is the truth; a lost hint costs a follower one poll."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from dendrux.live.pending import Hear, PendingUpdates
from dendrux.live.postgres import PostgresUpdates
from dendrux.live.redis import RedisUpdates

__all__ = ["Hear", "HearsUpdates", "LiveUpdates", "PendingUpdates", "PostgresUpdates", "RedisUpdates"]


@runtime_checkable
class LiveUpdates(Protocol):
    """What a store asks of whoever announces its changes."""

    def bind(self, store: Any) -> None:
        """Belong to this store. A second one is refused with ValueError."""

    def enqueue(self, run_ids: Iterable[str]) -> None:
        """Note changed runs. Never blocks; what cannot be kept is dropped and counted."""

    async def flush(self) -> None:
        """Send what is pending, within a bounded time. Raises nothing but the caller's own cancellation."""

    async def close(self) -> None:
        """Send what is pending if possible and let go of the transport. Idempotent."""


@runtime_checkable
class HearsUpdates(Protocol):
    """What a follower asks of live updates that can also be heard. Without it, followers poll."""

    def listen(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` with what other processes announce, in this event loop. Calling the answer ends that."""
