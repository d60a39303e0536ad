"""The proxy passes every byte, and cuts, or holds, the next one when it was told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from dendrux.lab import proxy as module
from dendrux.lab.proxy import Proxy

PATIENCE_S = 20


class Echo(threading.Thread):
    """A server that answers everything in capitals, and remembers it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard: list[bytes] = []
        self.ended = threading.Event()
        self.connection: socket.socket | None = None
        self.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.ended.clear()
            self.connection = connection
            with connection:
                try:
                    while data := connection.recv(1 << 16):
                        self.heard.append(data)
                        connection.sendall(data.upper())
                except OSError:
                    pass
            self.ended.set()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    server.join(PATIENCE_S)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that nobody uses ends soon."""
    monkeypatch.setattr(module, "LAST_S", 0.05)


def client(proxy: Proxy) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port))
    connection.settimeout(PATIENCE_S)
    return connection


def said(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(1 << 16)


def is_cut(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_everything_passes_and_the_proxy_ends_with_its_last_connection(echo: Echo) -> None:
    proxy = Proxy(echo.address)
    with client(proxy) as one:
        assert said(one, b"hello") == b"HELLO"
        assert said(one, b"again") == b"AGAIN"
    proxy.thread.join(PATIENCE_S)
    assert not proxy.thread.is_alive()
    proxy.release()  # nobody is there to hear it


def test_a_request_is_cut_where_it_leaves(echo: Echo) -> None:
    cuts: list[int] = []
    proxy = Proxy(echo.address, on_cut=lambda: cuts.append(1))
    with client(proxy) as one:
        said(one, b"begin")
        proxy.mode = "cut_request"
        one.sendall(b"commit")
        assert is_cut(one)
    assert cuts == [1]
    assert echo.ended.wait(PATIENCE_S)
    assert echo.heard == [b"begin"]


def test_an_answer_is_cut_where_it_returns(echo: Echo) -> None:
    cuts: list[int] = []
    proxy = Proxy(echo.address, on_cut=lambda: cuts.append(1))
    with client(proxy) as one:
        said(one, b"begin")
        proxy.mode = "cut_answer"
        one.sendall(b"commit")
        assert is_cut(one)
    assert (cuts, echo.heard) == ([1], [b"begin", b"commit"])


def test_a_held_request_arrives_when_it_is_released(echo: Echo) -> None:
    proxy = Proxy(echo.address)
    with client(proxy) as one:
        said(one, b"begin")
        proxy.hold()
        one.sendall(b"commit")
        assert is_cut(one)
        assert not proxy.settled.wait(0.1)
        assert echo.heard == [b"begin"]
        proxy.release()
        assert proxy.settled.wait(PATIENCE_S)
        assert echo.heard == [b"begin", b"commit"]
        assert echo.ended.wait(PATIENCE_S)


def test_a_held_request_is_settled_by_the_end_of_its_session(echo: Echo) -> None:
    proxy = Proxy(echo.address)
    with client(proxy) as one:
        said(one, b"begin")
        proxy.hold()
        one.sendall(b"commit")
        assert is_cut(one)
    assert echo.connection is not None
    echo.connection.shutdown(socket.SHUT_RDWR)
    assert proxy.settled.wait(PATIENCE_S)
    assert echo.heard == [b"begin"]


def test_a_server_that_is_not_there_is_not_there_through_a_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    proxy = Proxy(address)
    with client(proxy) as one:
        assert is_cut(one)
