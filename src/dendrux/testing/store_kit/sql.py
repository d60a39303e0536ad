"""A clock and a fault injector for any store on an SQLAlchemy engine.

Both work below the store: the clock rewrites stored times, the injector fails transactions where the driver would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import DateTime, Select, Table, Update, bindparam, select
from sqlalchemy.types import TypeDecorator

from dendrux.db.models import Base
from dendrux.lab.seam import Seam, engine_of, seam_of
from dendrux_model.programs import Point

POINTS: tuple[Point, ...] = ("statement", "before_commit", "after_commit")
KINDS = ("error", "invalidated")
BATCH = 500
"""Rows whose times are rewritten in one statement."""


class SqlClock:
    """Lets time pass for a store by making everything stored older.

    Args:
        engine: a callable that gives the engine, asked for only when time passes, so that a fixture may make the clock
            before the first store.
    """

    def __init__(self, engine: Callable[[], Any]) -> None:
        self._engine = engine

    async def advance(self, delta: timedelta) -> None:
        """Everything written earlier reads as `delta` older."""
        if delta < timedelta(0):
            raise ValueError(f"time does not go back: delta={delta}")
        engine = self._engine()
        if inspect.isawaitable(engine):
            engine = await engine
        async with engine.begin() as connection:
            for table in Base.metadata.sorted_tables:
                await age(connection, table, delta)


@cache
def clocks(table: Table) -> tuple[Any, ...]:
    """The columns of a table that hold times."""

    def holds_time(column: Any) -> bool:
        kind = column.type.impl if isinstance(column.type, TypeDecorator) else column.type
        return isinstance(kind, DateTime) or getattr(column.type, "is_time", False)

    return tuple(column for column in table.columns if holds_time(column))


@cache
def ageing(table: Table) -> tuple[Select[Any], Update]:
    """The statements that read a table's times, and that write those of one row."""
    keys, times = list(table.primary_key.columns), clocks(table)
    update = table.update()
    for key in keys:
        update = update.where(key == bindparam(f"key_{key.name}", type_=key.type))
    written = {time.name: bindparam(f"to_{time.name}", type_=time.type) for time in times}
    return select(*keys, *times), update.values(written)


async def age(connection: Any, table: Table, delta: timedelta) -> None:
    """Make every time in one table `delta` older, row by row: no date arithmetic is portable."""
    times = clocks(table)
    if not times:
        return
    keys = list(table.primary_key.columns)
    read, update = ageing(table)
    rows = (await connection.execute(read)).all()
    aged = [
        {f"key_{key.name}": value for key, value in zip(keys, row, strict=False)}
        | {
            f"to_{time.name}": None if value is None else value - delta
            for time, value in zip(times, row[len(keys) :], strict=True)
        }
        for row in rows
    ]
    for start in range(0, len(aged), BATCH):
        await connection.execute(update, aged[start : start + BATCH])


class Armed:
    """One place where a store's write transactions are cut."""

    def __init__(self, point: Point, kind: str, after: int, sticky: bool) -> None:
        self.point = point
        self.kind = kind
        self.left = after
        self.sticky = sticky
        self.fired = 0

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None:
        if self.point == "statement":
            self.pass_or_cut(seam, connection)

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        if wrote and self.point == "before_commit":
            self.pass_or_cut(seam, connection)

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        if wrote and self.point == "after_commit":
            self.pass_or_cut(seam, connection)

    def on_error(self, seam: Seam, error: BaseException) -> None: ...

    def pass_or_cut(self, seam: Seam, connection: Any) -> None:
        """Let the first matching points pass, then cut: once, or every time when sticky."""
        if self.fired and not self.sticky:
            return
        if self.left > 0:
            self.left -= 1
            return
        self.fired += 1
        raise seam.driver_error(disconnected=self.kind == "invalidated")


class SqlFaultInjector:
    """Fails the write transactions of one store at a named point.

    Points: `statement` (before a statement), `before_commit` (COMMIT is not sent), `after_commit` (COMMIT is applied
    and its answer withheld). Kinds: `error` is a plain error of the driver, `invalidated` a lost connection.
    """

    def __init__(self) -> None:
        self._armed: WeakKeyDictionary[Any, Armed] = WeakKeyDictionary()

    def arm(self, store: Any, point: str, *, kind: str = "error", after: int = 0, sticky: bool = False) -> None:
        """Cut this store's next write transaction at `point`, after letting `after` matching points pass."""
        if point not in POINTS:
            raise ValueError(f"unknown point {point!r}; known: {', '.join(POINTS)}")
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
        engine = engine_of(store)
        if engine is None:
            raise ValueError(f"{type(store).__name__} has no engine to cut; write an injector of your own for it")
        self.disarm(store)
        armed = Armed(point, kind, after, sticky)
        self._armed[store] = armed
        seam_of(engine).watchers.append(armed)

    def fired(self, store: Any) -> int:
        """How many cuts happened since this store was armed."""
        armed = self._armed.get(store)
        return 0 if armed is None else armed.fired

    def disarm(self, store: Any) -> None:
        """Cut no more. What was fired is forgotten when the store is armed again."""
        armed = self._armed.get(store)
        if armed is not None:
            with suppress(ValueError):
                seam_of(engine_of(store)).watchers.remove(armed)

    def disconnect_forms(self, store: Any) -> Sequence[str]:
        """The forms of a lost connection that exist for this store."""
        return ("invalidated",)

    def close(self) -> None:
        """Disarm every store."""
        for store in list(self._armed):
            self.disarm(store)
