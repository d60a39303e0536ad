"""What a store of the zoo is made of: a built-in store, with one promise removed in as few lines as that takes."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Final

from sqlalchemy import text

from dendrux.store import SQLiteStateStore
from dendrux.store.hooks import Hooks

ZOO: dict[str, type[Broken]] = {}
"""Every store of the zoo by name, in the order of the nouns."""


SQL: Final = ("ColumnElement", "Executable", "InsertPlan", "Select")
"""What a hook returns that builds SQL."""
BUILDS_SQL: Final = frozenset(
    name
    for name, hook in vars(Hooks).items()
    if inspect.isfunction(hook) and any(word in str(hook.__annotations__.get("return")) for word in SQL)
)
"""The hooks whose statement or expression the store sends as it is."""


class Broken:
    """What the stores of the zoo have in common, whatever database they are made for."""

    database: ClassVar[str] = "sqlite"
    format: ClassVar[int] = 2
    """The format of its runs."""
    breaks: ClassVar[str]
    killed_by: ClassVar[str]
    """The contract that must go red."""
    own_signatures: ClassVar[bool] = False
    """Whether its overrides show signatures of their own. Else capability validation is not what fails."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "breaks" not in vars(cls):
            return
        ZOO[cls.__name__] = cls
        for name, method in vars(cls).items():
            replaced = getattr(super(cls, cls), name, None)
            if inspect.iscoroutinefunction(method) and callable(replaced) and not cls.own_signatures:
                method.__signature__ = inspect.signature(replaced)  # type: ignore[attr-defined]

    @classmethod
    def rewritten(cls) -> frozenset[str]:
        """What this store changes in the SQL of the store it was made from: the hooks that build it.

        Other stores leave that SQL as it is: they break an operation or a step of its transaction, or store something
        besides it.
        """
        own = {name for base in cls.__mro__ if issubclass(base, Broken) for name in vars(base)}
        return BUILDS_SQL & own

    async def run_sql(self, statement: str, **values: Any) -> Any:
        """One statement in a transaction of its own, past everything the base does."""
        async with self._engine.begin() as connection:  # type: ignore[attr-defined]
            result = await connection.execute(text(statement), values)
            return result.first() if result.returns_rows else result.rowcount


class BrokenStore(Broken, SQLiteStateStore):
    """A store of the zoo on SQLite."""
