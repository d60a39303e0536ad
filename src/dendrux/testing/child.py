"""The other process of a race: `python -m dendrux.testing.child`, started by `peers`.

It makes a store of a named class on a URL, waits for calls and answers what the store answered. Requests and answers
are pickled on its own pipes, so a password is on no command line and in no environment.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import IO, Any

from sqlalchemy.engine import URL

from dendrux.db.session import get_engine
from dendrux.testing.bench import kind
from dendrux.testing.driver import Driver
from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome

SPIN_S = 0.002
"""The end of a wait, in which nothing else runs: a loop's timers are too coarse for a meeting."""


class Peer:
    """A store with an engine of its own, as a process of an application makes it."""

    def __init__(self, module: str, name: str, url: URL) -> None:
        self.engine = get_engine(url)
        self.store: Any = getattr(import_module(module), name)(self.engine)

    async def call(self, namespace: str, operation: Operation, at: float) -> Outcome:
        """Call at this moment, not before."""
        await moment(at)
        return await Driver(namespace).call(self.store, operation)

    async def several(
        self, namespace: str, aged: timedelta, operations: Sequence[Operation], at: float
    ) -> list[tuple[Outcome, int, int]]:
        """Call one after the other from this moment on: answers, with the host's monotonic clock around each call."""
        driver = Driver(namespace)
        driver.aged = aged
        found = []
        await moment(at)
        for operation in operations:
            invoked = time.monotonic_ns()
            outcome = await driver.call(self.store, operation)
            found.append((outcome, invoked, time.monotonic_ns()))
        return found

    async def close(self) -> None:
        """Let go of the store and its connections."""
        if hasattr(self.store, "close"):
            await self.store.close()
        await self.engine.dispose()


async def moment(at: float) -> None:
    """Wait until it is this time."""
    await asyncio.sleep(max(0.0, at - time.time() - SPIN_S))
    while time.time() < at:
        pass


async def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    peer: Peer | None = None
    while True:
        try:
            word, *given = pickle.load(requests)  # noqa: S301  # written by the process that started this one
        except EOFError:
            return
        answer: Any
        try:
            if word == "open":
                peer = Peer(*given)
                await peer.store.get_run("nobody")
                answer = kind(peer.store)
            elif word == "call":
                assert peer is not None
                answer = await peer.call(*given)
            elif word == "several":
                assert peer is not None
                answer = await peer.several(*given)
            else:
                if peer is not None:
                    await peer.close()
                answer, peer = None, None
        except Exception as error:
            answer = RuntimeError(type(error).__name__)
        pickle.dump(answer, answers)
        answers.flush()


def main() -> None:
    """Keep the pipes for answers: whatever a store prints goes elsewhere."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(serve(sys.stdin.buffer, answers))


if __name__ == "__main__":
    main()
