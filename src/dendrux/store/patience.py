"""Awaiting a step that must not be interrupted.

On SQLite an interrupted statement leaves the database locked for everybody else until the garbage collector finds its
cursor. The store never interrupts one; but a loop that shuts down cancels every task, the transaction's own, too. Here
that cancellation is noted, the step ends, and the transaction rolls back at its next boundary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Undisturbed:
    """Stands for a future that a task waits on, and answers the task's cancellation by noting it."""

    __slots__ = ("_asyncio_future_blocking", "future", "noticed")

    def __init__(self, future: asyncio.Future[Any], noticed: Callable[[], None]) -> None:
        self.future, self.noticed = future, noticed
        self._asyncio_future_blocking = True  # how a task knows that it is to wait

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.future.get_loop()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        self.future.add_done_callback(callback, context=context)

    def cancel(self, msg: Any = None) -> bool:
        self.noticed()
        return True


class patient(Generic[T]):  # noqa: N801  reads as a verb where it is awaited
    """`await patient(step, noticed)`: the step's result; `noticed()` is called when the task is cancelled meanwhile."""

    __slots__ = ("noticed", "step")

    def __init__(self, step: Awaitable[T], noticed: Callable[[], None]) -> None:
        self.step, self.noticed = step, noticed

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self.step.__await__()
        while True:
            try:
                waited = next(inner)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                if asyncio.isfuture(waited):
                    waited._asyncio_future_blocking = False
                    yield _Undisturbed(waited, self.noticed)
                else:
                    yield waited
            except asyncio.CancelledError:
                self.noticed()
            except BaseException:  # noqa: BLE001, S110  the step finds it on the future itself
                pass
