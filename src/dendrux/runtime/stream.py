"""A run as it happens: its events, one after the other, and its result at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Self

from dendrux.runtime.results import LAST_EVENTS, RunEvent, RunEventType, RunResult, last_event

Work = Callable[[Callable[[RunEvent], None]], Awaitable[RunResult]]
"""What a stream runs: it is handed the function that tells of events, and answers the result."""


CLOSED: Final = "dendrux: the stream was closed"
"""What a stream cancels its work with."""


class RunStream:
    """The events of one execution. It starts with the first `async for` or `text()`, and can be read once.

    An error of the run is the last event (`run_error`) and is not raised. Closing the stream before its end stops the
    work; a run that had started is cancelled then, if this process still owns it, and keeps what was told of its
    answer.
    """

    def __init__(self, run_id: str, work: Work) -> None:
        self.run_id = run_id
        """The run; with an idempotency key, the one that exists already is known after the first event."""
        self.result: RunResult | None = None
        """Where the run stands; None before the last event and after an error."""
        self._work = work
        self._events: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._read = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[RunEvent]:
        if self._read:
            raise RuntimeError("a RunStream can be read once")
        self._read = True
        self._task = asyncio.create_task(self._run())
        try:
            while True:
                event = await self._events.get()
                if event is None:  # it was closed by somebody else than its reader
                    return
                self.run_id = event.run_id or self.run_id
                yield event
                if event.type in LAST_EVENTS:
                    return
        finally:
            await self.aclose()

    async def text(self) -> AsyncIterator[str]:
        """The text of the model alone. Raises the error of the run, because no event is there to tell of it."""
        async for event in self:
            if event.type is RunEventType.TEXT_DELTA and event.text:
                yield event.text
            elif event.error is not None:
                raise event.error

    async def aclose(self) -> None:
        """Stop. Idempotent, and without effect on a run that has ended or waits."""
        self._read = True
        task = self._task
        if task is None or task.done():
            return
        task.cancel(CLOSED)
        await asyncio.wait({task})

    async def _run(self) -> None:
        try:
            self.result = await self._work(self._events.put_nowait)
        except asyncio.CancelledError:
            self._events.put_nowait(None)
            raise
        except Exception as error:  # noqa: BLE001  a stream tells of it
            self._events.put_nowait(self._failure(error))
            return
        self._events.put_nowait(last_event(self.result))

    def _failure(self, error: BaseException) -> RunEvent:
        known: Any = getattr(error, "run_id", None)
        return RunEvent(type=RunEventType.RUN_ERROR, run_id=known or self.run_id, error=error)
