"""Live updates: lossy hints that a run changed. The database is the truth; a lost hint costs a follower one poll."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from dendrux.vocabulary import ID_LENGTH

logger = logging.getLogger("dendrux.live")


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


class PendingUpdates:
    """The part that every transport shares: binding, the bounded set of pending ids, the deadline of a flush.

    A transport implements `send`.
    """

    pending_max: ClassVar[int] = 10_000
    flush_deadline_s: ClassVar[float] = 1.0

    def __init__(self) -> None:
        self.dropped = 0
        """Ids that were empty, too long, or beyond the bound."""
        self._store: Any = None
        self._pending: dict[str, None] = {}
        self._closed = False

    def bind(self, store: Any) -> None:
        """Belong to one store.

        Refuses: ValueError for a second store.
        """
        if self._store is not None and self._store is not store:
            raise ValueError(f"this {type(self).__name__} belongs to another store: make one instance per store")
        self._store = store

    def enqueue(self, run_ids: Iterable[str]) -> None:
        """Note changed runs.

        Refuses: TypeError for a bare string, which would be taken for its characters.
        """
        if isinstance(run_ids, str):
            raise TypeError("enqueue takes an iterable of run ids, not one string")
        for run_id in run_ids:
            if not 0 < len(run_id) <= ID_LENGTH or (
                run_id not in self._pending and len(self._pending) >= self.pending_max
            ):
                self.dropped += 1
            else:
                self._pending[run_id] = None

    async def flush(self) -> None:
        """Send what is pending; what was not sent in time stays for the next flush."""
        if not self._pending:
            return
        batch = list(self._pending)
        try:
            await asyncio.wait_for(self.send(batch), self.flush_deadline_s)
        except Exception as error:  # noqa: BLE001  a hint may be lost; the caller's write is done
            logger.warning("live updates: %d hints wait, %s", len(batch), type(error).__name__)
            return
        for run_id in batch:
            self._pending.pop(run_id, None)

    async def send(self, run_ids: Sequence[str]) -> None:
        """Hand changed run ids to the transport."""
        raise NotImplementedError(f"{type(self).__name__} must implement send")

    async def close(self) -> None:
        """Send what is pending, once."""
        if not self._closed:
            self._closed = True
            await self.flush()
