"""Cuts of the reference store: before a write begins, and before and after the world is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from dendrux_model.programs import Point

if TYPE_CHECKING:
    from dendrux.testing.in_memory.store import ReferenceStore

POINTS: Final[tuple[Point, ...]] = ("statement", "before_commit", "after_commit")
KINDS: Final = ("error", "cancel", "invalidated")


class Cut(Exception):
    """What a store on a database would get from its driver here."""

    def __init__(self, point: Point, kind: str) -> None:
        super().__init__("injected fault")
        self.at_commit = point != "statement"
        self.disconnected = kind == "invalidated"


class Armed:
    """One place where the writes of a store are cut."""

    def __init__(self, point: Point, kind: str, after: int, sticky: bool) -> None:
        self.point = point
        self.kind = kind
        self.left = after
        self.sticky = sticky
        self.fired = 0

    def reach(self, point: Point) -> None:
        """Let the first matching points pass, then cut: once, or every time when sticky."""
        if point != self.point or (self.fired and not self.sticky):
            return
        if self.left > 0:
            self.left -= 1
            return
        self.fired += 1
        if self.kind == "cancel":
            raise asyncio.CancelledError
        raise Cut(point, self.kind)


class ReferenceFaultInjector:
    """Fails the writes of one ReferenceStore at a named point.

    Points: `statement` (before a write looks at the world), `before_commit` (the world is not replaced),
    `after_commit` (it is, and the answer is withheld). Kinds: `error` (as a plain error of a driver), `invalidated`
    (as a lost connection), `cancel` (the call is cancelled). A write that changes nothing reaches `statement` only.
    """

    def __init__(self) -> None:
        self._armed: WeakKeyDictionary[ReferenceStore, Armed] = WeakKeyDictionary()

    def arm(
        self, store: ReferenceStore, point: Point, *, kind: str = "error", after: int = 0, sticky: bool = False
    ) -> None:
        """Cut this store's next write at `point`, after letting `after` matching points pass.

        Refuses: ValueError for a point or kind that does not exist, and for a store without these points.
        """
        if point not in POINTS:
            raise ValueError(f"unknown point {point!r}; known: {', '.join(POINTS)}")
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
        watchers = getattr(store, "_cuts", None)
        if watchers is None:
            raise ValueError(f"{type(store).__name__} is no ReferenceStore; write an injector of your own for it")
        self.disarm(store)
        self._armed[store] = armed = Armed(point, kind, after, sticky)
        watchers.append(armed)

    def fired(self, store: ReferenceStore) -> int:
        """How many cuts happened since this store was armed."""
        armed = self._armed.get(store)
        return 0 if armed is None else armed.fired

    def disarm(self, store: ReferenceStore) -> None:
        """Cut no more. What was fired is forgotten when the store is armed again."""
        armed = self._armed.get(store)
        if armed is not None:
            with suppress(ValueError):
                store._cuts.remove(armed)

    def disconnect_forms(self, store: ReferenceStore) -> Sequence[str]:
        """The forms of a lost connection that exist for this store."""
        return ("invalidated",)

    def close(self) -> None:
        """Disarm every store."""
        for store in list(self._armed):
            self.disarm(store)
