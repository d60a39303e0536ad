"""Finds a database server to test on: one that was named, one that listens, one that can be started, one in Docker.

SQLite needs none of this. Every step either answers a server that was logged in to, or says why it has none.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from dendrux.db.urls import engine_on, read_url

HOST: Final = "127.0.0.1"
PORTS: Final[Mapping[str, int]] = {"postgresql": 5432, "mariadb": 3306, "mysql": 3306, "redis": 6379}
"""The standard port of every server that is looked for, in the order of reports."""
NAMES: Final = tuple(PORTS)
ACCOUNTS: Final[Mapping[str, str]] = {
    "postgresql": "postgresql+asyncpg://postgres@{host}:{port}/postgres",
    "mariadb": "mysql+asyncmy://root@{host}:{port}/",
    "mysql": "mysql+asyncmy://root@{host}:{port}/",
    "redis": "redis://{host}:{port}/0",
}
"""The account of a new server, which has no password."""
DRIVERS: Final[Mapping[str, tuple[str, str]]] = {
    "postgresql": ("asyncpg", "postgres"),
    "mariadb": ("asyncmy", "mysql"),
    "mysql": ("asyncmy", "mysql"),
}
"""The module that reaches a server, and the extra that brings it. Redis is only asked whether it is there."""
ANSWER_S: Final = 10.0
"""What has not answered by then is not usable."""

T = TypeVar("T")


class Lacking(Exception):
    """Why one step found nothing. `final`: no other step is tried."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


class NotFound(Exception):
    """No step found this database. The message names the reason of each."""

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        super().__init__(f"{name} was not found: {'; '.join(reasons)}")
        self.name = name
        self.reasons = tuple(reasons)


def nothing() -> None:
    """A server that was not started here is not stopped here."""


@dataclass(frozen=True)
class Server:
    """A server that answers. `url` names an account that may create databases."""

    name: str
    url: URL
    version: str
    how: str
    """How it was found, in words that hold no URL."""
    stop: Callable[[], None] = nothing

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.how})"


Step = Callable[[str], Server]


def variable(name: str) -> str:
    """The environment variable that names a server."""
    return f"DENDRUX_TEST_{name.upper()}_URL"


def find(name: str, steps: Sequence[Step] | None = None) -> Server:
    """The first server of this name that a step finds. NotFound says what each step lacked."""
    reasons = []
    for step in every_step() if steps is None else steps:
        try:
            return step(name)
        except Lacking as lacking:
            reasons.append(str(lacking))
            if lacking.final:
                break
    raise NotFound(name, reasons)


def every_step() -> tuple[Step, ...]:
    """Where a server is looked for, in this order."""
    from dendrux.testing.servers import contained, started

    return (named, listening, started, contained)


def named(name: str) -> Server:
    """The server of the environment variable. One that was named and cannot be used ends the search."""
    given = os.environ.get(variable(name))
    if not given:
        raise Lacking(f"{variable(name)} is not set")
    try:
        url = read_url(given)
    except ValueError:
        raise Lacking(f"{variable(name)} is no URL", final=True) from None
    try:
        return Server(name, url, identified(name, url), variable(name))
    except Lacking as lacking:
        raise Lacking(f"the server of {variable(name)}: {lacking}", final=True) from None


def listening(name: str) -> Server:
    """The server on the standard port of this machine."""
    port = PORTS[name]
    if not is_open(port):
        raise Lacking(f"nothing listens on {HOST}:{port}")
    url = account(name, HOST, port)
    try:
        return Server(name, url, identified(name, url), f"listening on {HOST}:{port}")
    except Lacking as lacking:
        raise Lacking(f"the server on {HOST}:{port}: {lacking}") from None


def account(name: str, host: str, port: int) -> URL:
    """The URL of a new server's account."""
    return make_url(ACCOUNTS[name].format(host=host, port=port))


def is_open(port: int) -> bool:
    """Whether something on this machine takes connections there."""
    with suppress(OSError), socket.create_connection((HOST, port), ANSWER_S):
        return True
    return False


def identified(name: str, url: URL) -> str:
    """The version of the server behind a URL, which must be of this name: MySQL and MariaDB speak one protocol."""
    found, version = asked(name, url)
    if found != name:
        raise Lacking(f"it is {found or 'something else'}")
    return version


def asked(name: str, url: URL) -> tuple[str | None, str]:
    """What the server behind a URL calls itself, and its version."""
    if name == "redis":
        return asked_redis(url)
    driver, extra = DRIVERS[name]
    if url.drivername.endswith(f"+{driver}") and find_spec(driver) is None:
        raise Lacking(f'{driver} is not installed: pip install "dendrux[{extra}]" brings it')
    return said(in_a_loop(version_of(url)))


async def version_of(url: URL) -> str:
    """What a SQL server says of itself."""
    try:
        engine = engine_on(url)
    except (ValueError, SQLAlchemyError, ImportError) as error:
        raise Lacking(f"its URL cannot be used ({type(error).__name__})") from None
    try:
        async with asyncio.timeout(ANSWER_S), engine.connect() as connection:
            return str(await connection.scalar(text("SELECT version()")))
    except TimeoutError:
        raise Lacking(f"it did not answer within {ANSWER_S:.0f} s") from None
    except Exception as error:  # whatever a driver makes of a refusal, or of a server that is none of its own
        kind = type(getattr(error, "orig", None) or error).__name__
        raise Lacking(f"it does not let {url.username or 'us'} in ({kind})") from None
    finally:
        await engine.dispose()


def said(version: str) -> tuple[str | None, str]:
    """The name and number in the answer to `SELECT version()`."""
    if version.startswith("PostgreSQL "):
        return "postgresql", version.split()[1]
    if "MariaDB" in version:
        return "mariadb", version.split("-MariaDB", maxsplit=1)[0].removeprefix("5.5.5-")
    return ("mysql" if version[:1].isdigit() else None), version.split("-", maxsplit=1)[0]


def asked_redis(url: URL) -> tuple[str | None, str]:
    """Whether a Redis server answers. One that wants a password is there; the URL may carry it."""
    try:
        with socket.create_connection((url.host or HOST, url.port or PORTS["redis"]), ANSWER_S) as link:
            if url.password is not None:
                words = ("AUTH", *([url.username] if url.username else []), str(url.password))
                link.sendall(redis_command(*words))
                if not link.recv(64).startswith(b"+OK"):
                    raise Lacking("it does not take the password")
            link.sendall(redis_command("INFO", "server"))
            answer = link.recv(4096).decode(errors="replace")
    except OSError as error:
        raise Lacking(f"it did not answer ({type(error).__name__})") from None
    if answer.startswith("-NOAUTH"):
        raise Lacking("it wants a password")
    versions = [line.partition(":")[2] for line in answer.splitlines() if line.startswith("redis_version:")]
    return ("redis", versions[0]) if versions else (None, "")


def redis_command(*words: str) -> bytes:
    """A command in Redis' protocol."""
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run in a loop of a thread of its own: the caller may be inside another one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
