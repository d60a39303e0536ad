"""A state store written against the public hooks alone.

It speaks to SQLite, so that anybody can run it, and uses as little of SQLite as it can: no RETURNING, no row locks, no
patching of JSON inside the database. What is left is what every store has to say about its database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    ColumnElement,
    Table,
    Text,
    and_,
    case,
    column,
    false,
    func,
    literal,
    or_,
    table,
    text,
    true,
    type_coerce,
    update,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.sql import Executable

from dendrux.store import (
    ConflictSpec,
    DialectFacts,
    InsertPlan,
    JsonPatch,
    JsonPath,
    JsonReadType,
    JsonValue,
    RunLockScope,
    SelectSource,
    SQLStateStore,
    ValuesSource,
)

RUNS = table("agent_runs", column("id"), column("cancel_requested"))
OLDEST_SQLITE = (3, 38)  # the first release with the operator ->


class LedgerStore(SQLStateStore):
    """Runs in one SQLite file, shared by the processes of one machine."""

    dialect_names = ("sqlite",)

    supports_update_returning = False
    supports_insert_returning = False
    supports_row_locks = False
    ddl_transactional = True

    def __init__(self, engine: AsyncEngine, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.capabilities = replace(self.capabilities, deployment="single_host")

    async def connection_checks(self, conn: AsyncConnection) -> DialectFacts:
        version = (await conn.execute(text("SELECT sqlite_version()"))).scalar_one()
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SQLITE:
            raise ValueError(f"LedgerStore needs SQLite 3.38 or later; this is {version}")
        return DialectFacts(server_family="sqlite", server_version=version, features={}, max_allowed_packet=None)

    # -- statements ---------------------------------------------------------------------------------------------------

    def insert_if_absent_stmt(
        self,
        table: Table,
        source: ValuesSource | SelectSource,
        *,
        conflict: ConflictSpec,
        returning: Sequence[ColumnElement[Any]] = (),
    ) -> InsertPlan:
        # `returning` stays empty: the store does not declare supports_insert_returning.
        statement = insert(table)
        if isinstance(source, SelectSource):
            statement = statement.from_select(source.columns, source.select)
        elif source:
            statement = statement.values(source)
        absorbed = statement.on_conflict_do_nothing(index_elements=conflict.target, index_where=conflict.predicate)
        return InsertPlan(absorbed, "targeted_ignore")

    def upsert_setting(self, table: Table, *, key: str, value: str, updated_at: datetime) -> Executable:
        return insert(table).prefix_with("OR REPLACE").values(key=key, value=value, updated_at=updated_at)

    # -- JSON: a document is text, and `document -> path` is the text of one value in it ------------------------------

    def json_get(self, col: ColumnElement[Any], path: JsonPath, as_type: JsonReadType) -> ColumnElement[Any]:
        kind, value = _kind(col, path), func.json_extract(col, _path(path))
        if as_type == "json":
            return type_coerce(_text_of(col, path), JSON)
        if as_type == "str":
            return case((kind == "text", value)).collate("BINARY")
        if as_type == "int":
            return case((kind == "integer", value))
        if as_type == "bool":
            return type_coerce(case((kind == "true", true()), (kind == "false", false())), Boolean)
        raise ValueError(f"no JSON value can be read as {as_type!r}")

    def json_contains(self, col: ColumnElement[Any], path: JsonPath, value: JsonValue) -> ColumnElement[bool]:
        # Both texts are written by the same serialiser, so equal values of the same type have equal texts.
        same = func.coalesce(_text_of(col, path) == _json(value), false())
        if not isinstance(value, Mapping):
            return same
        members = [self.json_contains(col, (*path, key), member) for key, member in value.items()]
        return or_(same, and_(func.coalesce(_kind(col, path) == "object", false()), *members))

    def json_is_null(self, col: ColumnElement[Any], path: JsonPath) -> ColumnElement[bool]:
        return func.coalesce(_kind(col, path) == "null", false())

    def json_patch_expr(self, col: ColumnElement[Any], patch: JsonPatch) -> None:
        """No patch is applied in the database: the base reads, merges and writes under its lock."""
        return

    # -- one writer at a time -----------------------------------------------------------------------------------------

    async def reserve_parent_writer(self, session: AsyncSession, run_id: str) -> None:
        # Any write takes the lock of the whole file, also one that finds no row. This one changes nothing.
        await session.execute(update(RUNS).where(RUNS.c.id == run_id).values(cancel_requested=RUNS.c.cancel_requested))

    async def serialize_in_tx(self, session: AsyncSession, *, owner: RunLockScope) -> None:
        """The lock of the file, held since the first statement, serialises everything."""


def _path(path: JsonPath) -> str:
    """`("a b", 0, -1)` is `$."a b"[0][#-1]`."""
    return "$" + "".join(
        (f"[{part}]" if part >= 0 else f"[#{part}]") if isinstance(part, int) else f".{_json(part)}" for part in path
    )


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _kind(col: ColumnElement[Any], path: JsonPath) -> ColumnElement[str]:
    """`object`, `array`, `text`, `integer`, `real`, `true`, `false`, `null`; SQL NULL where there is nothing."""
    return func.json_type(col, _path(path), type_=Text)


def _text_of(col: ColumnElement[Any], path: JsonPath) -> ColumnElement[str]:
    return type_coerce(col, Text).op("->", return_type=Text())(literal(_path(path), Text()))
