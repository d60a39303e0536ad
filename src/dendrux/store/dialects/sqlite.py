"""SQLite: one writer at a time, JSON in text, RETURNING since 3.35."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import (
    Boolean,
    String,
    and_,
    case,
    exists,
    false,
    func,
    literal,
    select,
    true,
    type_coerce,
    update,
)
from sqlalchemy.dialects.sqlite import Insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import agent_runs
from dendrux.db.session import is_memory
from dendrux.db.types import Json, dumps
from dendrux.db.urls import file_of
from dendrux.store.base import SQLStateStore
from dendrux.store.dialects.on_conflict import OnConflict
from dendrux.store.hookvalues import (
    AppendArray,
    DbError,
    DialectFacts,
    JsonPatch,
    JsonPath,
    JsonReadType,
    JsonValue,
    RunLockScope,
    SetFields,
)
from dendrux.store.remedies import NO_PATH

OLDEST = (3, 38, 0)
"""RETURNING came with 3.35, the operator -> with 3.38."""


class SQLiteStateStore(OnConflict, SQLStateStore):
    """The store on SQLite with aiosqlite. It creates no tables itself: take the engine from get_engine."""

    dialect_names: ClassVar[tuple[str, ...]] = ("sqlite",)
    supports_update_returning = True
    supports_insert_returning = True
    supports_row_locks = False
    ddl_transactional = True
    insert_class = Insert

    def __init__(self, engine: AsyncEngine, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.capabilities = replace(
            self.capabilities, deployment="single_process" if is_memory(engine.url) else "single_host"
        )

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def json_get(self, col: ColumnElement[Any], path: JsonPath, as_type: JsonReadType) -> ColumnElement[Any]:
        """json_extract answers SQL values, so the JSON type decides which of them count."""
        at = _path(path)
        kind, value = func.json_type(col, at), func.json_extract(col, at)
        if as_type == "json":
            # The operator -> keeps the text of the document: true stays true, a number its digits.
            return type_coerce(_raw(col, at), Json())
        if as_type == "str":
            return case((and_(kind == "text", _whole(col, at)), value)).collate("BINARY")
        if as_type == "int":
            return case((kind == "integer", value))
        if as_type == "bool":
            return type_coerce(case((kind == "true", true()), (kind == "false", false())), Boolean)
        raise ValueError(f"json_get reads json, str, int or bool, not {as_type!r}")

    def json_contains(self, col: ColumnElement[Any], path: JsonPath, value: JsonValue) -> ColumnElement[bool]:
        """A missing path is false: its JSON type is SQL NULL, which the outer coalesce turns."""
        return func.coalesce(_contains(col, _path(path), value), false())

    def json_is_null(self, col: ColumnElement[Any], path: JsonPath) -> ColumnElement[bool]:
        """json_type answers the word null for a JSON null, and SQL NULL for a missing path."""
        return func.coalesce(func.json_type(col, _path(path)) == "null", false())

    def json_patch_expr(self, col: ColumnElement[Any], patch: JsonPatch) -> ColumnElement[Any] | None:
        """json_set and json_insert leave the rest of the text as it is."""
        stored = func.coalesce(func.nullif(col, literal("null")), literal("{}"))
        # Of another JSON value json_set would make nothing: then the statement fails, as it does for broken text.
        document = case((func.json_type(stored) == "object", stored), else_=func.json(literal("")))
        if isinstance(patch, SetFields):
            pairs: list[Any] = []
            for key, value in patch.fields.items():
                pairs += [_path((key,)), func.json(dumps(value))]
            return func.json_set(document, *pairs) if pairs else document
        if isinstance(patch, AppendArray):
            return func.json_insert(document, _path(patch.path) + "[#]", func.json(dumps(patch.value)))
        return None  # deleting members: read, merged and written by the base

    # -- the writer ---------------------------------------------------------------------------------------------------

    async def serialize_in_tx(self, session: AsyncSession, *, owner: RunLockScope) -> None:
        """Nothing to do: the transaction holds the database's only write lock already."""

    async def reserve_parent_writer(self, session: AsyncSession, run_id: str) -> None:
        """Take the write lock before any read, so that no read can be stale when it is acted on."""
        connection = session.bind
        assert isinstance(connection, AsyncConnection)
        if getattr(connection.sync_connection.connection.driver_connection, "in_transaction", False):  # type: ignore[union-attr]
            # A driver connection with autocommit=False is always inside a transaction: a write reserves it.
            await connection.execute(
                update(agent_runs)
                .where(agent_runs.c.id == run_id)
                .values(cancel_requested=agent_runs.c.cancel_requested)
            )
        else:
            await connection.exec_driver_sql("BEGIN IMMEDIATE")

    def classify_db_error(self, exc: BaseException) -> DbError:
        """Of a file that cannot be opened the path says whether it can be later: as with too many open files."""
        found = super().classify_db_error(exc)
        if found.code is None or not found.code.startswith("SQLITE_CANTOPEN") or is_memory(self._engine.url):
            return found
        return found if can_be_opened(file_of(self._engine.url)) else DbError(found.kind, None, NO_PATH)

    async def connection_checks(self, conn: AsyncConnection) -> DialectFacts:
        """Refuse a library that lacks a word this store uses."""
        version = conn.dialect.server_version_info or OLDEST
        if version < OLDEST:
            raise ValueError(f"SQLite {'.'.join(map(str, version))} is too old: 3.38 or later is needed")
        return DialectFacts(server_family="sqlite", server_version=".".join(map(str, version)))


def can_be_opened(file: Path) -> bool:
    """Whether a path is one of a file that SQLite can open, or make."""
    if file.exists():
        return file.is_file() and os.access(file, os.R_OK)
    return file.parent.is_dir() and os.access(file.parent, os.W_OK | os.X_OK)


def _path(path: JsonPath) -> str:
    """A JSON path. A quote cannot be escaped inside a quoted key, so such a key is refused."""
    parts = []
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]" if part >= 0 else f"[#{part}]")
        elif '"' in part:
            raise ValueError("a JSON key with a double quote cannot be addressed on SQLite")
        else:
            parts.append(f'."{part}"')
    return "$" + "".join(parts)


def _contains(document: ColumnElement[Any], at: str, value: JsonValue) -> ColumnElement[bool]:
    """Containment at a path of a document, NULL where the path is missing."""
    kind, found = func.json_type(document, at), func.json_extract(document, at)
    if isinstance(value, dict):
        members = [_contains(document, at + _path((key,))[1:], inner) for key, inner in value.items()]
        return _every([kind == "object", *members])
    if isinstance(value, list):
        # Of a scalar json_each makes an error, and it is asked whatever the term beside it says.
        array = case((kind == "array", found), else_=literal("[]"))
        return _every([kind == "array", *(_has_element(array, inner) for inner in value)])
    if value is None or isinstance(value, bool):
        return kind == {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return and_(kind == "text", _same_text(document, at, value))
    return and_(kind == ("integer" if isinstance(value, int) else "real"), found == value)


def _every(terms: list[ColumnElement[bool]]) -> ColumnElement[bool]:
    """All of many terms, in an expression that stays flat: the depth of one is limited. NULL where a term is."""
    if len(terms) <= AND_MAX:
        return and_(*terms)
    some = [func.min(*terms[start : start + AND_MAX], literal(1)) for start in range(0, len(terms), AND_MAX)]
    return _every([term == 1 for term in some])


AND_MAX: Final = 50
NUL: Final = "\\u0000"
"""How U+0000 stands in a document."""


def _raw(document: ColumnElement[Any], at: str) -> ColumnElement[str]:
    """The JSON text at a path, digits and escapes as they were stored."""
    return type_coerce(document.op("->")(literal(at, String())), String())


def _whole(document: ColumnElement[Any], at: str) -> ColumnElement[bool]:
    """Whether json_extract gives a string whole: it ends one at U+0000."""
    return func.instr(_raw(document, at), NUL) == 0


def _same_text(document: ColumnElement[Any], at: str, value: str) -> ColumnElement[bool]:
    """Equal strings, also where json_extract gives only the part before U+0000."""
    if "\0" in value:
        return _raw(document, at).in_([dumps(value), json.dumps(value)])
    same = func.json_extract(document, at) == value
    # A value that spells the escape in letters holds it, too; then the part before is all there is to compare.
    return same if NUL in value else and_(same, _whole(document, at))


def _same_element(array: ColumnElement[Any], each: Any, value: str) -> ColumnElement[bool]:
    """Equal strings, as `_same_text`, for an element of an array."""
    raw = type_coerce(array.op("->")(each.c.fullkey), String())
    if "\0" in value:
        return raw.in_([dumps(value), json.dumps(value)])
    same: ColumnElement[bool] = each.c.value == value
    return same if NUL in value else and_(same, func.instr(raw, NUL) == 0)


def _has_element(array: ColumnElement[Any], value: JsonValue) -> ColumnElement[bool]:
    """Whether some element of a JSON array contains the value."""
    each = func.json_each(array).table_valued("value", "type", "fullkey")
    if isinstance(value, dict | list):
        word = "object" if isinstance(value, dict) else "array"
        # The value of a container is its text; of a scalar it is no document, which the type tells first.
        text = case((each.c.type == word, each.c.value), else_=literal("{}" if word == "array" else "[]"))
        inner: ColumnElement[bool] = _contains(text, "$", value)
    elif value is None or isinstance(value, bool):
        inner = each.c.type == {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, str):
        inner = and_(each.c.type == "text", _same_element(array, each, value))
    else:
        word = "integer" if isinstance(value, int) else "real"
        inner = and_(each.c.type == word, each.c.value == value)
    return exists(select(literal(1)).select_from(each).where(inner))
