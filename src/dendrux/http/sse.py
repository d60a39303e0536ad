"""The log of a run as server-sent events, which end with the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

import anyio
from starlette.responses import Response

from dendrux.errors import PersistenceError
from dendrux.http.answers import encoded
from dendrux.store import FollowedEvent, RunStore
from dendrux.vocabulary import TenantScope

LOG: Final = logging.getLogger("dendrux.http")
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Nothing between us and the reader may keep events back."""
KEEPALIVE: Final = b": keepalive\n\n"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class EventStream(Response):
    """A response that goes on until the run has ended and its log is sent, or until the reader has gone.

    It listens for the reader's end by itself: a server may swallow what is sent to nobody, and the follower would live
    on for as long as the run.
    """

    media_type = "text/event-stream"

    def __init__(
        self, store: RunStore, run_id: str, *, after: int | None, scope: TenantScope, keepalive_s: float
    ) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._reads = store
        self._run_id = run_id
        self._keepalive_s = keepalive_s
        self._events = store.follow(run_id, after=after, tenant_id=scope)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Send frames as events come."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        gone = asyncio.ensure_future(_gone(receive))
        waiting = asyncio.ensure_future(_next(self._events))
        try:
            while not gone.done():
                await asyncio.wait({gone, waiting}, timeout=self._keepalive_s, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                if not waiting.done():
                    await send(_body(KEEPALIVE))
                    continue
                event = waiting.result()
                if event is None:
                    await send(_body(await self._end()))
                    break
                await send(_body(frame(event)))
                waiting = asyncio.ensure_future(_next(self._events))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except PersistenceError as error:
            # The answer breaks off without its last frame, and a reader comes back with the last id that it saw.
            LOG.warning("the events of a run break off: %s", error.code)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            # A middleware's cancellation comes again at every await; the follower is ended all the same.
            with anyio.CancelScope(shield=True):
                await _ended(gone, waiting)
                await _closed(self._events)

    async def _end(self) -> bytes:
        """The last frame. It has no id: a reader that comes back anyway still names the last event."""
        run = await self._reads.state_store.get_run(self._run_id)
        data = encoded({"run_id": self._run_id, "status": None if run is None else run.status})
        return b"event: end\ndata: " + data + b"\n\n"


def frame(event: FollowedEvent) -> bytes:
    """An event as a reader gets it. JSON holds no line break, so its data is one line."""
    return b"id: %d\nevent: message\ndata: %s\n\n" % (event.sequence_index, encoded(event))


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def _next(events: AsyncIterator[FollowedEvent]) -> FollowedEvent | None:
    return await anext(events, None)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _closed(events: AsyncIterator[FollowedEvent]) -> None:
    closing = getattr(events, "aclose", None)
    if closing is not None:
        await closing()
