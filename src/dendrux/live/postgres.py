"""Hints through LISTEN and NOTIFY of a PostgreSQL database, on connections of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final

from sqlalchemy import URL
from sqlalchemy.exc import ArgumentError

from dendrux.db.urls import read_url
from dendrux.live.pending import PendingUpdates, batches, unpacked

PAYLOAD_MAX: Final = 7_900
"""Bytes of one notification; PostgreSQL takes fewer than 8000."""

NOTIFY: Final = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"
"""Every payload in one transaction: one round trip, and each is delivered once."""

OF_SQLALCHEMY: Final = ("prepared_statement_cache_size", "prepared_statement_name_func", "async_fallback")
"""What a URL may say to SQLAlchemy and not to asyncpg."""


class PostgresUpdates(PendingUpdates):
    """Announces through NOTIFY and hears through LISTEN, with asyncpg (extra `postgres`).

    Args:
        dsn: of the database, `postgresql://...`; None takes the URL of the store's engine. LISTEN needs a session of
            its own, so behind a pooler that hands out transactions this names the server itself.
        channel: what is listened to. Stores that share a database and a channel hear each other.
        connect_args: more for `asyncpg.connect`, such as `ssl`. What the engine was given besides its URL is not known
            here.

    A process that writes keeps one connection for sending, a process that follows one for hearing.
    """

    connect_timeout_s: ClassVar[float] = 5.0
    ping_s: ClassVar[float] = 30.0
    """After so long without a notification the connection is asked whether it lives."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        channel: str = "dendrux_runs",
        connect_args: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if find_spec("asyncpg") is None:
            raise ImportError('PostgresUpdates needs asyncpg: pip install "dendrux[postgres]"')
        if not 0 < len(channel.encode()) < 64:
            raise ValueError("channel must have 1 to 63 bytes, as every name of PostgreSQL")
        self.channel = channel
        self._more = dict(connect_args or {})
        self._target = None if dsn is None else _target(dsn)
        self._sender: Any = None

    def bind(self, store: Any) -> None:
        """Belong to one store, and go where its engine goes unless a dsn was given.

        Refuses: ValueError for a second store, and without a dsn for a store that is not on PostgreSQL.
        """
        super().bind(store)
        if self._target is None:
            url = getattr(getattr(store, "_engine", None), "url", None)
            if url is None or url.get_backend_name() != "postgresql":
                self._store = None
                raise ValueError(f"{type(store).__name__} has no PostgreSQL engine: give PostgresUpdates a dsn")
            self._target = _of_url(url)

    async def send(self, run_ids: Sequence[str]) -> None:
        """Notify, on a fresh connection when the one that was kept turns out to be gone."""
        payloads = list(batches(run_ids, PAYLOAD_MAX))
        kept, self._sender = self._sender, None
        if kept is not None and await self._notified(kept, payloads, last=False):
            return
        await self._notified(await self._connected(), payloads, last=True)

    async def _notified(self, connection: Any, payloads: list[str], *, last: bool) -> bool:
        """Whether it worked. Ensures: a connection is kept only when its statement came to its end."""
        try:
            await connection.execute(NOTIFY, self.channel, payloads)
        except BaseException as error:
            connection.terminate()
            if last or not isinstance(error, Exception):
                raise
            return False
        self._sender = connection
        return True

    async def receive(self) -> AsyncGenerator[Iterable[str] | None]:
        """Listen on a connection until it is gone."""
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        connection = await self._connected()
        try:
            connection.add_termination_listener(lambda _connection: heard.put_nowait(None))
            await connection.add_listener(self.channel, lambda _connection, _pid, _on, said: heard.put_nowait(said))
            yield None
            while True:
                try:
                    said = await asyncio.wait_for(heard.get(), self.ping_s)
                except TimeoutError:
                    await connection.execute("SELECT 1", timeout=self.connect_timeout_s)
                    continue
                if said is None:
                    raise ConnectionError("the connection that listens is gone")
                yield unpacked(said)
        finally:
            connection.terminate()

    async def disconnect(self) -> None:
        """Close the connection that sends."""
        connection, self._sender = self._sender, None
        if connection is not None:
            try:
                await connection.close(timeout=self.flush_deadline_s)
            except Exception:  # noqa: BLE001  it is let go of either way
                connection.terminate()

    async def _connected(self) -> Any:
        if self._target is None:
            raise ValueError("this PostgresUpdates has no dsn and belongs to no store yet")
        settings = {"application_name": "dendrux live updates"}
        return await import_module("asyncpg").connect(
            **{
                "timeout": self.connect_timeout_s,
                "statement_cache_size": 0,  # a pooler that hands out sessions may not know our statements
                "server_settings": settings,
                **self._target,
                **self._more,
            }
        )


def _target(dsn: str) -> dict[str, Any]:
    """Where a dsn leads, as arguments of asyncpg. Its own forms are its own matter.

    Refuses: ValueError for a text that is no URL of PostgreSQL, without repeating it: it may hold a password.
    """
    scheme, _, _ = dsn.partition("://")
    if scheme in ("postgresql", "postgres"):
        return {"dsn": dsn}
    try:
        url = read_url(dsn, "dsn")
    except ValueError:
        url = None
    if url is None or url.get_backend_name() != "postgresql":
        raise ValueError("dsn must be a URL of PostgreSQL: postgresql://user@host:port/database")
    return _of_url(url)


def _of_url(url: URL) -> dict[str, Any]:
    """The same for a URL of SQLAlchemy, whose driver says what its query means."""
    if url.get_driver_name() != "asyncpg":
        return {"dsn": url.set(drivername="postgresql").render_as_string(hide_password=False)}
    try:
        _, arguments = url.get_dialect()().create_connect_args(url)
    except (ArgumentError, ValueError):
        arguments = None  # the error quotes what it does not take
    if arguments is None:
        raise ValueError("dsn has an option after ? with a value that asyncpg does not take: correct or remove it")
    return {name: value for name, value in arguments.items() if name not in OF_SQLALCHEMY}
