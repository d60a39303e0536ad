"""Inserts of the databases that say ON CONFLICT."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Table
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ColumnElement

from dendrux.store.hooks import Hooks
from dendrux.store.hookvalues import ConflictSpec, InsertPlan, SelectSource, ValuesSource


class OnConflict(Hooks):
    """The two hooks that insert. A dialect names its own INSERT, which has the clause."""

    insert_class: ClassVar[type[Any]]

    def insert_if_absent_stmt(
        self,
        table: Table,
        source: ValuesSource | SelectSource,
        *,
        conflict: ConflictSpec,
        returning: Sequence[ColumnElement[Any]] = (),
    ) -> InsertPlan:
        """ON CONFLICT (target) DO NOTHING absorbs that key only, and waits for a rival that has not committed yet."""
        stmt = self.insert_class(table)
        if isinstance(source, SelectSource):
            stmt = stmt.from_select(list(source.columns), source.select)
        elif source:
            stmt = stmt.values(dict(source))
        stmt = stmt.on_conflict_do_nothing(index_elements=list(conflict.target), index_where=conflict.predicate)
        return InsertPlan(stmt.returning(*returning) if returning else stmt, "targeted_ignore")

    def upsert_setting(self, table: Table, *, key: str, value: str, updated_at: datetime) -> Executable:
        """The excluded row overwrites the stored one."""
        stmt = self.insert_class(table).values(key=key, value=value, updated_at=updated_at)
        overwritten: Executable = stmt.on_conflict_do_update(
            index_elements=[table.c.key],
            set_={"value": stmt.excluded.value, "updated_at": stmt.excluded.updated_at},
        )
        return overwritten
