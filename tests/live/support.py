"""What tests of live updates share: an ear, and a Redis that can be restarted."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress

LONGEST_S = 20.0


class Ear:
    """Hears what one instance receives."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.nothings = 0
        self.something = asyncio.Event()

    def hear(self, run_ids: Iterable[str] | None) -> None:
        if run_ids is None:
            self.nothings += 1
        else:
            self.ids += run_ids
        self.something.set()

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(LONGEST_S):
            while not condition():  # type: ignore[operator]
                self.something.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.something.wait(), 0.2)


class OwnRedis:
    """A Redis server of its own on a port of its own; `restart` loses every connection and keeps the port."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("no redis-server on PATH")
        self.program = program
        self.folder = tempfile.mkdtemp(prefix="dendrux-redis-")
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        self.wait()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder]
        self.process = subprocess.Popen(
            [*command, "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
        return False

    def wait(self) -> None:
        for _ in range(200):
            if self.answers():
                return
            with suppress(subprocess.TimeoutExpired):
                assert self.process is not None
                self.process.wait(0.05)
        raise AssertionError("Redis does not answer")

    async def restart(self) -> None:
        self.halt()
        self.start()
        await asyncio.to_thread(self.wait)

    def halt(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)


def collecting(reader, run_ids, **options):
    async def collect():
        return [(event.run_id, event.sequence_index) async for event in reader.follow(run_ids, **options)]

    return asyncio.create_task(collect())


async def within(task, seconds=30):
    async with asyncio.timeout(seconds):
        return await task
