"""Operations over many runs, a page at a time: each run in a transaction of its own.

A page's body reads which runs are next and hands each of them to `one`. A run that fails is an entry of the answer and
does not stop the page; only the read of the page itself can fail the call.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from dendrux.errors import PersistenceError
from dendrux.runtime.values import FailedRun
from dendrux.store.hooks import Hooks
from dendrux.store.tx import LostAck, Outcome, Stopped, Tx

T = TypeVar("T")


class Attempt(Protocol):
    """One transaction with its repeats; the binding makes it, so that operations know nothing of it."""

    async def run(self) -> Any: ...

    def stop(self) -> None: ...


@dataclass(slots=True)
class Pages:
    """One call of a paged operation: the transactions it makes, one after the other."""

    store: Hooks
    operation: str
    body: Callable[[Pages], Awaitable[Any]]
    begin: Callable[..., Attempt]
    announces: bool = True
    stopped: bool = False
    """The caller was cancelled."""
    current: Attempt | None = field(default=None)
    away: asyncio.Future[Any] | None = field(default=None)
    """What the call awaits outside the database."""

    def stop(self) -> None:
        """The caller is gone: the transaction in flight ends at its next boundary, and no other begins."""
        self.stopped = True
        if self.current is not None:
            self.current.stop()
        if self.away is not None:
            self.away.cancel()

    async def run(self) -> Any:
        """The operation's answer. Its body may ask hooks for expressions: what they depend on is found out first."""
        await self.read(_nothing)
        return await self.body(self)

    async def read(self, body: Callable[[Tx], Awaitable[T]]) -> T:
        """One reading transaction."""
        answer: T = await self._attempt(None, body, "natural", reading=True)
        return answer

    async def one(self, run_id: str, body: Callable[[Tx], Awaitable[Outcome[T]]]) -> T | FailedRun:
        """One write transaction on one run, tried again as any other; what it raises is the run's entry.

        An outcome that nobody knows is an entry, too: its code says so.
        """
        try:
            answer: T = await self._attempt(run_id, body, "unknown", reading=False)
        except PersistenceError as error:
            return FailedRun(run_id=run_id, code=error.code)
        return answer

    async def write(self, body: Callable[[Tx], Awaitable[Outcome[T]]], lost: LostAck) -> T:
        """One write transaction that ends the call when it fails."""
        answer: T = await self._attempt(None, body, lost, reading=False)
        return answer

    async def outside(self, call: Awaitable[T]) -> T:
        """Something that is no transaction, between two of them: a cancelled caller's call ends at once."""
        if self.stopped:
            close = getattr(call, "close", None)
            if close is not None:
                close()
            raise Stopped
        self.away = asyncio.ensure_future(call)
        try:
            answer: T = await self.away
            return answer
        except asyncio.CancelledError:
            if self.stopped:
                raise Stopped from None
            raise
        finally:
            self.away = None

    async def _attempt(self, run_id: str | None, body: Callable[[Tx], Any], lost: LostAck, *, reading: bool) -> Any:
        if self.stopped:
            raise Stopped
        self.current = self.begin(
            operation=self.operation,
            run_id=run_id,
            body=body,
            lost_ack=lost,
            announces=self.announces and not reading,
            reading=reading,
        )
        try:
            return await self.current.run()
        finally:
            self.current = None


async def _nothing(_tx: Tx) -> None:
    """A transaction without statements: all that it does is the store's first use."""


# -- cursors ----------------------------------------------------------------------------------------------------------

CURSOR_MAX = 4096
"""Characters of a cursor at most: it names a place, never a list of runs."""


def encoded(*place: Any) -> str:
    """A place as a cursor: opaque to callers, the same on every instance."""
    return base64.urlsafe_b64encode(json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()).decode()


def decoded(name: str, cursor: str, *types: type | tuple[type, ...]) -> tuple[Any, ...]:
    """The place that a cursor of this operation names.

    Refuses: ValueError for a text that is no such cursor.
    """
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, binascii.Error):
        place = None
    if isinstance(place, list) and len(place) == len(types) and all(map(isinstance, place, types)):
        return tuple(place)
    raise ValueError(f"{name} is no cursor that this operation gave")
