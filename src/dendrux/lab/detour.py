"""Puts an engine's connections behind proxies while somebody wants to cut them, and leaves the engine as it was.

Each connection has a proxy of its own, so that the one that is cut is the one that the cut call uses. Connections that
were made before are replaced when they are asked for. A connection that was made behind a proxy stays there until its
pool closes it; its proxy passes everything and ends with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

from dendrux.lab.proxy import Proxy

PROXY: Final = "dendrux_proxy"
"""Where a pool connection's `info` keeps the proxy that it goes through; None where it cannot go through one."""

PORTS: Final[Mapping[str, int]] = {"asyncpg": 5432, "psycopg": 5432, "asyncmy": 3306, "aiomysql": 3306}
"""The drivers whose arguments are known, with the port that each takes when it is told none."""

ELSEWHERE: Final = frozenset(
    {"dsn", "conninfo", "unix_socket", "hostaddr", "service", "passfile", "read_default_file", "async_creator_fn"}
)
"""Arguments by which a driver may find its server without host and port, or check whom it talks to."""

CREATOR: Final = "sqlalchemy.engine.create"
"""The module whose function connects with arguments; a function of the engine's author connects as it likes."""


def endpoint(dialect: Any, positional: list[Any], named: Mapping[str, Any]) -> tuple[str, int] | None:
    """Host and port that a driver connects to over TCP; None where it does not, or where that is not certain.

    A certificate that has to name its host would not fit the loopback interface.
    """
    if dialect.driver not in PORTS or any(positional) or not ELSEWHERE.isdisjoint(named):
        return None
    host, port, tls = named.get("host"), named.get("port") or PORTS[dialect.driver], named.get("ssl")
    if not isinstance(host, str) or not host or host.startswith("/") or "," in host or not str(port).isdigit():
        return None
    strict = (getattr(tls, "check_hostname", False), tls == "verify-full", named.get("sslmode") == "verify-full")
    return None if any(strict) else (host, int(port))


class Probed(Exception):
    """Ends an attempt to connect once its arguments are known."""


def target_of(engine: Any) -> tuple[str, int] | None:
    """Where this engine's driver would connect to, asked of the engine without connecting."""
    made: Engine = engine.sync_engine
    found: list[tuple[str, int] | None] = []

    def look(dialect: Any, _record: Any, positional: list[Any], named: dict[str, Any]) -> None:
        found.append(endpoint(dialect, positional, named))
        raise Probed

    if made.dialect.driver not in PORTS or getattr(made.pool, "_creator", None).__module__ != CREATOR:
        return None
    event.listen(made, "do_connect", look)
    try:
        # A copy of the pool: the engine's own may have a connection, or none to give. Where a listener of the engine's
        # author connects it fails in another way, because nothing can be awaited here, and then nothing was found.
        with suppress(Exception):
            made.pool.recreate().connect()
    finally:
        event.remove(made, "do_connect", look)
    return found[0] if found else None


class Detour:
    """The proxies of one engine.

    Args:
        engine: an AsyncEngine.
        on_cut: called for each cut, in the thread of its proxy.
    """

    def __init__(self, engine: Any, on_cut: Callable[[], None]) -> None:
        self.engine = engine
        self.on_cut = on_cut
        self.used: list[Proxy] = []
        """Proxies that were asked to cut."""
        for name, listener in self._listeners():
            event.listen(engine.sync_engine, name, listener)

    def _listeners(self) -> tuple[tuple[str, Callable[..., None]], ...]:
        return ("do_connect", self._connect), ("engine_connect", self._connected)

    def leave(self) -> None:
        """Make no more detours. Nothing stays held or cut."""
        for name, listener in self._listeners():
            event.remove(self.engine.sync_engine, name, listener)
        for proxy in self.used:
            proxy.mode = "pass"
            proxy.on_cut = None
            proxy.release()

    def proxy_of(self, connection: Any) -> Proxy | None:
        """The proxy of a pool connection, which from now on tells of its cuts."""
        proxy: Proxy | None = connection.info.get(PROXY)
        if proxy is not None:
            proxy.on_cut = self.on_cut
            self.used.append(proxy)
        return proxy

    def _connect(self, dialect: Any, record: Any, positional: list[Any], named: dict[str, Any]) -> None:
        """Send the driver to a proxy. Runs after the listeners of the engine's author."""
        target = endpoint(dialect, positional, named)
        if record is None:
            return
        if target is None:
            record.info[PROXY] = None
            return
        proxy = Proxy(target)
        named["host"], named["port"] = "127.0.0.1", proxy.port
        record.info[PROXY] = proxy

    def _connected(self, connection: Connection) -> None:
        """Replace a connection that goes straight to the server.

        The pool may have another of them to give instead; each is replaced until a new one comes.
        """
        while PROXY not in connection.connection.info:
            connection.invalidate()  # the next look at `connection.connection` asks the pool for another one
