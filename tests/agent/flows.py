"""What the agent's tests share: tools, stores that are watched, logs that are read."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dendrux
from dendrux.db.session import get_engine
from dendrux.runtime.values import RunEventRecord
from dendrux.store import SQLiteStateStore, SQLStateStore


@dendrux.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@dendrux.tool(target="client")
def locate() -> str:
    """Where the user is."""
    raise AssertionError("a client's tool is never called here")


@dendrux.tool(target="human")
def ask(question: str) -> str:
    """Ask the user."""
    raise AssertionError("a person's tool is never called here")


class Audited(SQLiteStateStore):
    """A store of an application that audits every event it is told of, and nothing more."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.seen: list[str] = []

    async def save_run_event(
        self,
        run_id: str,
        *,
        event_type: str,
        iteration_index: int = 0,
        correlation_id: str | None = None,
        data: Any = None,
        event_id: str | None = None,
        claim_epoch: int | None = None,
        sequence_index: int | None = None,
    ) -> int:
        self.seen.append(event_type)
        return await super().save_run_event(
            run_id,
            event_type=event_type,
            iteration_index=iteration_index,
            correlation_id=correlation_id,
            data=data,
            event_id=event_id,
            claim_epoch=claim_epoch,
        )


@contextlib.asynccontextmanager
async def store_at(path: Path, kind: type[SQLStateStore] = SQLiteStateStore) -> AsyncIterator[Any]:
    """A store on a file; a second one on the same file is another process."""
    engine = get_engine(f"sqlite+aiosqlite:///{path}")
    try:
        yield kind(engine)
    finally:
        await engine.dispose()


async def log(store: Any, run_id: str) -> list[RunEventRecord]:
    """The whole log of a run; its indexes have no gap."""
    events: list[RunEventRecord] = await store.get_run_events(run_id)
    assert [event.sequence_index for event in events] == list(range(len(events)))
    return events


async def types(store: Any, run_id: str) -> list[str]:
    """The types of a run's events, in order."""
    return [event.event_type for event in await log(store, run_id)]
