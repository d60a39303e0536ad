"""Two processes on one database: a helper process, and what it takes to make a store there.

The class must be importable by its name and take an engine alone; the data must be in a file or behind a server.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import pickle
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Final

from sqlalchemy.engine import URL

from dendrux.db.session import is_memory
from dendrux.lab.seam import engine_of
from dendrux.testing.bench import kind
from dendrux.testing.child import Peer
from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome

ANSWER_S: Final = 60.0
"""A helper that has not answered by then hangs."""
LEAD_S: Final = 0.004
"""How long before its moment a call is sent to the helper."""


class NoPeer(Exception):
    """A second process cannot make this store."""


class Helper:
    """The other process. It ends when this one does."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or "." for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dendrux.testing.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        atexit.register(self.end)

    def end(self) -> None:
        """No more requests."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def asked(self, request: Any) -> Any:
        """One request with its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()
            answer = pickle.load(self.process.stdout)  # noqa: S301  # written by a process of ours
        except (OSError, EOFError) as gone:
            raise NoPeer("the second process ended") from gone
        if isinstance(answer, Exception):
            raise NoPeer(f"a second process could not make or call the store: {answer}")
        return answer

    async def ask(self, *request: Any) -> Any:
        """One request with its answer, without blocking the loop."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(self.asked, request), ANSWER_S)
        except TimeoutError:
            self.process.kill()
            raise NoPeer(f"the second process did not answer within {ANSWER_S:.0f} s") from None


RUNNING: list[Helper] = []
"""The helper of this session, once it was needed."""


def helper() -> Helper:
    """The helper process: one for the session, replaced when it has ended."""
    if RUNNING and RUNNING[-1].process.poll() is not None:
        RUNNING.pop()
    if not RUNNING:
        RUNNING.append(Helper())
    return RUNNING[-1]


class Pair:
    """A store in this process and one in another, on the same data."""

    def __init__(self, here: Peer, there: Helper) -> None:
        self.here = here
        self.there = there

    async def race(self, namespace: str, here: Operation, there: Operation, late: float) -> tuple[Outcome, Outcome]:
        """Two calls at one moment, or the one here a little `late`."""
        at = time.time() + LEAD_S
        asked = self.there.ask("call", namespace, there, at)
        answers: tuple[Outcome, Outcome] = await asyncio.gather(self.here.call(namespace, here, at + late), asked)
        return answers

    async def close(self) -> None:
        """Close both stores; the helper stays."""
        await self.here.close()
        await self.there.ask("close")


async def pair(store: Any) -> Pair:
    """Make the two stores, or raise NoPeer."""
    made = type(store)
    url = await address(store)
    if url is None:
        raise NoPeer("its data is in no file and behind no server")
    if getattr(sys.modules.get(made.__module__), made.__qualname__, None) is not made:
        raise NoPeer("its class cannot be imported by name")
    try:
        here = Peer(made.__module__, made.__qualname__, url)
        await here.store.get_run("nobody")
    except Exception as error:
        raise NoPeer(f"its class does not work on an engine alone: {type(error).__name__}") from error
    there = helper()
    try:
        other = await there.ask("open", made.__module__, made.__qualname__, url)
    except NoPeer:
        await here.close()
        raise
    if not kind(here.store) == other == kind(store):
        await here.close()
        raise NoPeer("on an engine alone it declares something else")
    return Pair(here, there)


async def address(store: Any) -> URL | None:
    """Where the data is for another process: a URL with its password, or None."""
    engine = engine_of(store)
    if engine is None or is_memory(engine.url):
        return None
    url: URL = engine.url
    if url.get_backend_name() != "sqlite":
        return url
    async with engine.connect() as connection:  # an engine may have been pointed at another file than its URL says
        rows = (await connection.exec_driver_sql("PRAGMA database_list")).all()
    files = [row[2] for row in rows if row[1] == "main"]
    return URL.create("sqlite+aiosqlite", database=files[0]) if files and files[0] else None
