"""A way between a driver and its server that can be cut at a byte: a loopback proxy for one connection.

It reads no protocol, so that TLS passes. Whoever uses it says beforehand what becomes of the next bytes; the proxy acts
when they come. It runs in a thread of its own: it needs no event loop, outlives one, and works while the loop that the
driver runs in is busy.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Final, Literal

Mode = Literal["pass", "cut_request", "cut_answer", "hold_request"]
"""What becomes of the next bytes: they pass; the connection is cut instead of passing the next request, or the next
answer; the next request is kept while the client is cut off, and passed later."""

CHUNK: Final = 1 << 16
FIRST_S: Final = 30.0
"""A proxy to which nobody has connected by then ends."""
LAST_S: Final = 2.0
"""A proxy ends so long after its last connection: a driver may try again in another way, such as without TLS."""
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing the socket resets the connection, as a network that breaks does."""


@dataclass(eq=False)
class Way:
    """One connection that was made through the proxy: the two sockets it consists of."""

    client: socket.socket
    server: socket.socket
    held: bytes | None = None
    """A request that was kept from the server."""
    handed_over: bool = False
    """Whether that request has been passed."""
    open: set[socket.socket] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.open |= {self.client, self.server}


class Proxy:
    """Listens on a port of the loopback interface and connects whoever comes to `target`.

    Args:
        target: host and port of the server.
        on_cut: called, in the proxy's thread, for each cut before the client can see it.
    """

    def __init__(self, target: tuple[str, int], on_cut: Callable[[], None] | None = None) -> None:
        self.target = target
        self.on_cut = on_cut
        self.mode: Mode = "pass"
        self.settled = Event()
        """Set unless a request is held, or has been passed and not yet been answered."""
        self.settled.set()
        self._ways: list[Way] = []
        self._released = False
        self._lock = Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._bell, self._rung = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._rung, selectors.EVENT_READ)
        self.thread = Thread(target=self._run, name=f"dendrux proxy {self.port}", daemon=True)
        self.thread.start()

    def hold(self) -> None:
        """Keep the next request until `release`, and cut its client off."""
        self._released = False
        self.mode = "hold_request"

    def release(self) -> None:
        """Let a held request go on to the server. `settled` is set when it has been answered."""
        self._released = True
        with self._lock, suppress(OSError):  # closed: the thread has ended
            self._bell.send(b"!")

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        patience = FIRST_S
        try:
            while events := self._selector.select(None if self._ways else patience):
                for key, _ in events:
                    self._ready(key.fileobj)  # type: ignore[arg-type]  # sockets were registered
                patience = LAST_S if self._ways else patience
        finally:
            for way in list(self._ways):
                self._close(way)
            with self._lock:
                for each in (self._listener, self._bell, self._rung):
                    each.close()
            self._selector.close()

    def _ready(self, source: socket.socket) -> None:
        if source is self._listener:
            self._accept()
        elif source is self._rung:
            source.recv(CHUNK)
            self._hand_over()
        else:
            way = next((way for way in self._ways if source in way.open), None)
            if way is not None:  # an event of this round may have closed it
                self._carry(way, source)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self.target)
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(each, selectors.EVENT_READ)
        self._ways.append(Way(client, server))

    def _carry(self, way: Way, source: socket.socket) -> None:
        """Pass what has come, or do what was asked for instead."""
        try:
            data = source.recv(CHUNK)
        except OSError:
            data = b""
        if way.held is not None:
            # The client has been cut off. An answer to what was held back, or the end of the session, settles it.
            if way.handed_over or not data:
                self._close(way)
            return
        if not data:
            self._close(way)
            return
        from_client = source is way.client
        if self.mode == ("cut_request" if from_client else "cut_answer"):
            self._cut(way)
        elif self.mode == "hold_request" and from_client:
            way.held = data
            self.settled.clear()
            self._cut(way)
            self._hand_over()
        else:
            try:
                (way.server if from_client else way.client).sendall(data)
            except OSError:
                self._close(way)

    def _cut(self, way: Way) -> None:
        """Reset the connection, towards the server too unless something is held for it."""
        self.mode = "pass"
        if self.on_cut is not None:
            self.on_cut()
        for each in (way.client, way.server):
            if each is way.client or way.held is None:
                self._forget(way, each, reset=True)
        if not way.open:
            self._ways.remove(way)

    def _hand_over(self) -> None:
        """Pass on what was held, once that is wanted."""
        for way in [way for way in self._ways if self._released and way.held is not None and not way.handed_over]:
            assert way.held is not None
            way.handed_over = True
            try:
                way.server.sendall(way.held)
            except OSError:
                self._close(way)

    def _close(self, way: Way) -> None:
        for each in list(way.open):
            self._forget(way, each)
        self._ways.remove(way)
        if way.held is not None:
            self.settled.set()

    def _forget(self, way: Way, each: socket.socket, *, reset: bool = False) -> None:
        way.open.discard(each)
        self._selector.unregister(each)
        if reset:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        each.close()
