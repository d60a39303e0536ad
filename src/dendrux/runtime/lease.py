"""Keeps a run while it is worked on: a heartbeat renews the lease, and work stops at once when the run was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from dendrux.errors import PersistenceError, RunAlreadyTerminalError, RunNotFoundError, StaleClaimError

LOG: Final = logging.getLogger("dendrux.runtime")
LAST_WORDS_S: Final = 5.0
"""How long work that is stopped may take to end; whatever still runs afterwards is left alone, fenced by its epoch."""

T = TypeVar("T")


def check_heartbeat(lease_s: float, heartbeat_s: float) -> None:
    """Refuses: ValueError for a heartbeat that leaves no room for two lost ones within a lease."""
    if not lease_s > 0:
        raise ValueError(f"lease_s must be more than 0, not {lease_s!r}")
    if not 0 < heartbeat_s <= lease_s / 3:
        raise ValueError(
            f"heartbeat_s={heartbeat_s:g} must be more than 0 and at most a third of lease_s={lease_s:g}: a lease has "
            "to outlive two heartbeats that fail"
        )


class Lease:
    """The claim of one run under one epoch, for as long as this process works on it.

    `lease_s` is the age at which sweeps of this deployment take a run for lost. Once that much time has passed without
    a renewal the work stops too: the store would still fence its writes, but nothing fences a tool's side effects. A
    renewal counts from when it was asked for, and none is waited for beyond the lease.
    """

    def __init__(
        self, run_id: str, touch: Callable[[], Awaitable[bool]], *, lease_s: float, heartbeat_s: float
    ) -> None:
        self.run_id = run_id
        self._touch = touch
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._now = asyncio.get_running_loop().time
        self._renewed = self._now()
        self._touching: asyncio.Future[bool] | None = None
        self._letting_go = False
        self.lost: BaseException | None = None
        """Why the run is not ours any more."""

    def let_go(self) -> None:
        """The owner is about to pause or end the run: a heartbeat that comes too late now is no loss."""
        self._letting_go = True

    def keep(self) -> None:
        """The pause or end did not happen: the run is still ours to lose."""
        self._letting_go = False

    async def hold(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work under the lease. Raises what ended the ownership, when something did."""
        task = asyncio.ensure_future(work)
        beats = asyncio.ensure_future(self._beat())
        try:
            await asyncio.wait({task, beats}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            beats.result()  # a heartbeat ends with the loss of the run, or with a bug, which is raised here
            await _stopped(task)
            assert self.lost is not None
            raise self.lost
        except asyncio.CancelledError:
            await _stopped(task)
            raise
        finally:
            await _stopped(beats, self._touching)

    async def _beat(self) -> None:
        """Renew until the run is lost."""
        while self.lost is None:
            await asyncio.sleep(min(self._heartbeat_s, self._left()))
            try:
                if await self._renew():
                    continue
                lost: BaseException = StaleClaimError(operation="touch_progress", run_id=self.run_id)
            except (StaleClaimError, RunAlreadyTerminalError, RunNotFoundError) as refused:
                lost = refused
            except (PersistenceError, TimeoutError) as away:
                if self._left() > 0:
                    LOG.warning("run %s: a heartbeat failed (%s)", self.run_id, type(away).__name__)
                    continue
                lost = StaleClaimError(
                    "The lease could not be renewed for as long as it lasts, so somebody else may own the run.",
                    operation="touch_progress",
                    run_id=self.run_id,
                )
            if not self._letting_go:
                self.lost = lost

    def _left(self) -> float:
        """How much of the lease is left, in seconds; 0 when it is over."""
        return max(0.0, self._renewed + self._lease_s - self._now())

    async def _renew(self) -> bool:
        """One heartbeat. Refuses: TimeoutError at the end of the lease, whatever the store is still doing."""
        asked = self._now()
        self._touching = touching = asyncio.ensure_future(self._touch())
        await asyncio.wait({touching}, timeout=self._left())
        if not touching.done():
            raise TimeoutError
        held = touching.result()
        if held:
            self._renewed = asked
        return held


async def _stopped(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and wait for their end, for a bounded time."""
    stopping = [task for task in tasks if task is not None]
    for task in stopping:
        task.cancel()
    await asyncio.wait(stopping, timeout=LAST_WORDS_S)
    for task in stopping:
        if task.done() and not task.cancelled():
            task.exception()  # asked for, so that nothing complains of an error that nobody saw
