"""A clock and a fault injector for any store on an SQLAlchemy engine.

Both work below the store: the clock rewrites stored times, the injector fails transactions where the driver would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import DateTime, Select, Table, Update, bindparam, select
from sqlalchemy.types import TypeDecorator

from dendrux.db.models import Base
from dendrux.lab.seam import engine_of
from dendrux.testing.store_kit.cuts import BY_KIND, FORMS, KINDS, POINTS, Armed, forms_of

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


class SqlFaultInjector:
    """Fails the write transactions of one store at a named point.

    Points: `statement` (before a statement), `before_commit` (COMMIT is not sent), `after_commit` (COMMIT is applied
    and its answer withheld). Kinds: `error` is a plain error of the driver, `cancel` cancels the task that armed the
    cut, the others are forms of a lost connection: `disconnect_forms` says which there are for a store. `invalidated`
    is the driver's word for it, `session_ended` the server's; `stream_cut` resets the stream at the byte where the
    request leaves or the answer returns; `commit_delayed` cuts the client off while its COMMIT is on the way, and the
    COMMIT is applied later.
    """

    def __init__(self) -> None:
        self._armed: WeakKeyDictionary[Any, Armed] = WeakKeyDictionary()
        self._forms: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
        """By engine."""

    def arm(self, store: Any, point: str, *, kind: str = "error", after: int = 0, sticky: bool = False) -> None:
        """Cut this store's next write transaction at `point`, after letting `after` matching points pass.

        Raises ValueError for a point or kind that does not exist, or that this store's database does not have.
        """
        if point not in POINTS:
            raise ValueError(f"unknown point {point!r}; known: {', '.join(POINTS)}")
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
        engine = engine_of(store)
        if engine is None:
            raise ValueError(f"{type(store).__name__} has no engine to cut; write an injector of your own for it")
        if kind in FORMS and kind not in self.disconnect_forms(store):
            raise ValueError(
                f"no {kind} for {type(store).__name__}; its database has {', '.join(self.disconnect_forms(store))}"
            )
        self.disarm(store)
        self._armed[store] = armed = BY_KIND[kind](engine, point, kind, after, sticky)
        armed.arm()

    def fired(self, store: Any) -> int:
        """How many cuts happened since this store was armed."""
        armed = self._armed.get(store)
        return 0 if armed is None else armed.fired

    def disarm(self, store: Any) -> None:
        """Cut no more, and hold nothing back. What was fired is forgotten when the store is armed again."""
        armed = self._armed.get(store)
        if armed is not None:
            armed.disarm()

    def disconnect_forms(self, store: Any) -> Sequence[str]:
        """The forms of a lost connection that exist for this store."""
        engine = engine_of(store)
        if engine is None:
            return ()
        if engine not in self._forms:
            self._forms[engine] = forms_of(engine)
        return self._forms[engine]

    def close(self) -> None:
        """Disarm every store."""
        for store in list(self._armed):
            self.disarm(store)
