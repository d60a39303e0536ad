"""An event loop whose time is its own: it passes when nothing else is left to do, and a wait of an hour takes none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTime(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of waiting for it. Nothing in it may wait for a thread or a socket."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0

    def time(self) -> float:
        return self._passed

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._passed = max(self._passed, self._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]  # asyncio's own, of every loop that selects


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do this in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(work)
