"""What every instance over the same data shares: the world of the model, and what the model does not tell of it.

The model says nothing of the time at which a row was stored, chooses no ids, and has no bytes: they are kept beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, zip_longest
from typing import Any, Final, NamedTuple

from dendrux_model.values import MINTED
from dendrux_model.world import Run, World

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
KINDS: Final = ("events", "traces", "tool_calls", "usage", "interactions", "notes")
"""The rows below a run, by their field of the model's run."""


def moment(instant: int) -> datetime:
    """An instant of the model as a time: here instants are microseconds since 1970."""
    return EPOCH + instant * MICROSECOND


def instant_of(when: datetime) -> int:
    """The instant of a time."""
    return (when - EPOCH) // MICROSECOND


class ReferenceClock:
    """The clock of a ReferenceStore: the system's, and what a test lets pass on top of it."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        """The time that the store would write now, in UTC."""
        return EPOCH + (time.time_ns() // 1000) * MICROSECOND + self._ahead

    def advance(self, delta: timedelta) -> None:
        """Let time pass: everything written earlier is older by `delta`.

        Refuses: ValueError for time that goes back.
        """
        if delta < timedelta(0):
            raise ValueError(f"time does not go back: delta={delta}")
        self._ahead += delta


class Kept(NamedTuple):
    """What is kept of a blob beside its row in the world."""

    byte_length: int
    storage: str
    generation: str
    content: bytes | None
    """None where a BlobStore has them, and after a purge."""
    removed: bool = False
    """Whether a purge has removed the object from the BlobStore."""


class Data:
    """One world, and what is beside it."""

    def __init__(self, clock: ReferenceClock) -> None:
        self.clock = clock
        self.world = World()
        self.created: dict[tuple[str, str], int] = {}
        """When each row was stored, by its kind and id: ids are global."""
        self.blobs: dict[tuple[str, str], Kept] = {}
        """By scope and digest; the digest is the content that the model knows a blob by."""
        self._last = 0
        self._minted = count()

    def tick(self) -> int:
        """The instant of a transaction. No two are the same, so that rows have one order by time."""
        self._last = max(self._last + 1, instant_of(self.clock.now()))
        return self._last

    def mint(self) -> str:
        """An id that sorts behind every one before it, as 26 characters."""
        return f"{self._last:016x}{next(self._minted):010x}"

    def commit(self, before: World, after: World) -> None:
        """Put the world after a step in the place of the one before it, each new row with an id and a time."""
        runs = tuple(
            run if run is old else self._named(old, run, after.now)
            for old, run in zip_longest(before.runs, after.runs)  # worlds keep their runs, and append to them
        )
        self.world = after._replace(runs=runs)

    def _named(self, old: Run | None, run: Run, now: int) -> Run:
        """A run that changed, with ids where the model leaves them to the store."""
        changes: dict[str, Any] = {}
        for kind in KINDS:
            present = getattr(run, kind)
            known = () if old is None else getattr(old, kind)
            if present is not known:
                changes[kind] = (*present[: len(known)], *self._rows(kind, present[len(known) :], now))
        if run.submission is not None and run.submission.id is None:
            changes["submission"] = run.submission._replace(id=self.mint())
        if "traces" in changes and "tool_calls" in changes:
            observation = changes["traces"][-1].id  # a call that is completed brings one message, which it points at
            calls = changes["tool_calls"]
            changes["tool_calls"] = tuple(
                call._replace(trace_id=observation) if call.trace_id is MINTED else call for call in calls
            )
        return run._replace(**changes)

    def _rows(self, kind: str, rows: tuple[Any, ...], now: int) -> Iterator[Any]:
        for row in rows:
            named = row if row.id is not None else row._replace(id=self.mint())
            self.created[kind, named.id] = now
            yield named

    def stored_at(self, kind: str, row_id: str) -> datetime:
        """When a row was stored."""
        return moment(self.created[kind, row_id])
