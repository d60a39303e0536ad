"""Hints through PUBLISH and SUBSCRIBE of a Redis server, for stores on any database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final

from dendrux.live.pending import PendingUpdates, batches, unpacked

PAYLOAD_MAX: Final = 64 * 1024
"""Bytes of one message."""


class RedisUpdates(PendingUpdates):
    """Announces and hears through one channel of a Redis server, with redis-py (extra `redis`).

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        channel: channels are not kept apart by database number, so two deployments on one server need two names.
        options: for `redis.asyncio.Redis.from_url`.
    """

    connect_timeout_s: ClassVar[float] = 5.0
    ping_s: ClassVar[float] = 30.0
    """After so long without a message the server is asked whether it lives; it has as long again to answer."""

    def __init__(self, url: str, *, channel: str = "dendrux:runs", **options: Any) -> None:
        super().__init__()
        if find_spec("redis") is None:
            raise ImportError('RedisUpdates needs redis: pip install "dendrux[redis]"')
        if url.partition("://")[0] not in ("redis", "rediss", "unix"):
            raise ValueError("url must be a URL of Redis: redis://host:port")  # not repeated: it may hold a password
        if not channel:
            raise ValueError("channel must not be empty")
        self.channel = channel
        self._url = url
        self._options = {"socket_connect_timeout": self.connect_timeout_s, **options}
        self._sender: Any = None

    def _client(self) -> Any:
        return import_module("redis.asyncio").Redis.from_url(self._url, **self._options)

    async def send(self, run_ids: Sequence[str]) -> None:
        """Publish, every message in one round trip."""
        if self._sender is None:
            self._sender = self._client()
        async with self._sender.pipeline(transaction=False) as pipe:
            for payload in batches(run_ids, PAYLOAD_MAX):
                pipe.publish(self.channel, payload)
            await pipe.execute()

    async def receive(self) -> AsyncGenerator[Iterable[str] | None]:
        """Subscribe on a connection until it is gone. The client may connect again by itself, which it shows by another
        confirmation: what was published meanwhile is lost.
        """
        client = self._client()
        subscription = client.pubsub()
        try:
            await subscription.subscribe(self.channel)
            asked = False
            while True:
                message = await subscription.get_message(timeout=self.ping_s)
                if message is None:
                    if asked:
                        raise ConnectionError("the connection that listens does not answer")
                    asked = True
                    await subscription.ping()
                    continue
                asked = False
                if message["type"] == "subscribe":
                    yield None
                elif message["type"] == "message":
                    yield unpacked(message["data"])
        finally:
            await subscription.aclose()
            await client.aclose()

    async def disconnect(self) -> None:
        """Close the connections that send."""
        client, self._sender = self._sender, None
        if client is not None:
            await client.aclose()
