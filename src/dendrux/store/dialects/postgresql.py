"""PostgreSQL: row locks, RETURNING, documents kept as text in `json` and compared as `jsonb`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Integer,
    Numeric,
    Text,
    and_,
    any_,
    case,
    cast,
    column,
    exists,
    false,
    func,
    lateral,
    literal,
    select,
    true,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, Insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import run_events
from dendrux.db.types import Json, Prose, dumps, encoded_text
from dendrux.live import PostgresUpdates
from dendrux.store.base import SQLStateStore
from dendrux.store.dberrors import sqlstate_of
from dendrux.store.dialects.on_conflict import OnConflict
from dendrux.store.hookvalues import (
    DialectFacts,
    JsonPatch,
    JsonPath,
    JsonReadType,
    JsonValue,
    ScalarKey,
)

OLDEST: Final = (14,)
"""The oldest major version that its project still maintained when this store was written."""

CONVERSION: Final = frozenset({"22P02", "22P05"})
"""invalid_text_representation and untranslatable_character: stored JSON text that PostgreSQL cannot take apart."""

WHOLE: Final = "^-?[0-9]{1,19}$"
"""JSON text of an integer that may fit 64 bits; more digits never do."""

INT_LEAST, INT_MOST = literal(-(2**63), BigInteger()), literal(2**63 - 1, BigInteger())


class PostgresStateStore(OnConflict, SQLStateStore):
    """The store on PostgreSQL with asyncpg; psycopg works, too."""

    dialect_names: ClassVar[tuple[str, ...]] = ("postgresql",)
    supports_update_returning = True
    supports_insert_returning = True
    supports_row_locks = True
    ddl_transactional = True
    insert_class = Insert
    reads_autocommit = True

    def __init__(self, engine: AsyncEngine, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.capabilities = replace(self.capabilities, deployment="multi_server")

    def _own_updates(self) -> PostgresUpdates:
        """LISTEN and NOTIFY of the database that the engine's URL names."""
        return PostgresUpdates()

    # -- statements ---------------------------------------------------------------------------------------------------

    def id_in(self, col: ColumnElement[Any], ids: Sequence[ScalarKey]) -> ColumnElement[bool]:
        """One array parameter: the statement is the same for every number of ids, so it is prepared once."""
        return col == any_(literal(list(ids), ARRAY(Integer if isinstance(ids[0], int) else Text)))

    def events_for_runs_query(self, heads: Mapping[str, int], *, limit_per_run: int) -> Executable:
        """For each head of an array, its own bounded walk along the index of the log."""
        wanted = (
            func.unnest(literal(list(heads), ARRAY(Text)), literal(list(heads.values()), ARRAY(Integer)))
            .table_valued(column("run_id", Text), column("head", Integer))
            .render_derived("wanted")
        )
        page = lateral(
            select(run_events)
            .where(run_events.c.agent_run_id == wanted.c.run_id, run_events.c.sequence_index > wanted.c.head)
            .order_by(run_events.c.sequence_index)
            .limit(limit_per_run),
            "page",
        )
        return select(page).select_from(wanted.join(page, true()))

    def blob_now(self) -> ColumnElement[Any]:
        """The server's clock, the same for every process."""
        return func.now()

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def json_get(self, col: ColumnElement[Any], path: JsonPath, as_type: JsonReadType) -> ColumnElement[Any]:
        """The operators of `json` keep the text of a value: a number its digits, a string its escapes."""
        found = _at(col, path)
        kind = func.json_typeof(found)
        if as_type == "json":
            return type_coerce(found, Json())
        if as_type == "str":
            return type_coerce(case((kind == "string", _unquoted(found))).collate("C"), Prose())
        if as_type == "int":
            fits = cast(_text(found), Numeric()).between(INT_LEAST, INT_MOST)
            return case((_text(found).regexp_match(WHOLE), case((fits, cast(_text(found), BigInteger)))))
        if as_type == "bool":
            return case((kind == "boolean", cast(_text(found), Boolean)))
        raise ValueError(f"json_get reads json, str, int or bool, not {as_type!r}")

    def json_contains(self, col: ColumnElement[Any], path: JsonPath, value: JsonValue) -> ColumnElement[bool]:
        """Containment of `jsonb`, which an index on the column may serve, and for numbers their very text."""
        exact = func.coalesce(_holds(_at(col, path), value), false())
        if not all(isinstance(part, str) for part in path):
            return exact
        document = value
        for part in reversed(path):
            document = {part: document}  # type: ignore[dict-item]
        found = _jsonb(col).contains(_jsonb(literal(document, Json())))
        # Of a document that is there, containment is true or false; a COALESCE around it would hide it from the index.
        return and_(col.is_not(None), found, exact) if _has_number(value) else and_(col.is_not(None), found)

    def metadata_filter_predicate(
        self, col: ColumnElement[Any], metadata_filter: dict[str, Any]
    ) -> ColumnElement[bool]:
        """One containment for all pairs, which is what the index on metadata is for, and the numbers one by one."""
        if not metadata_filter:
            return true()
        numbers = {key: value for key, value in metadata_filter.items() if _has_number(value)}
        found = _jsonb(col).contains(_jsonb(literal(metadata_filter, Json())))
        exact = [func.coalesce(_holds(_at(col, (key,)), value), false()) for key, value in numbers.items()]
        return and_(col.is_not(None), found, *exact)

    def json_is_null(self, col: ColumnElement[Any], path: JsonPath) -> ColumnElement[bool]:
        """A missing path is SQL NULL, which has no JSON type."""
        return func.coalesce(func.json_typeof(_at(col, path)) == "null", false())

    def json_patch_expr(self, col: ColumnElement[Any], patch: JsonPatch) -> None:
        """Nothing patches `json` in place, and `jsonb` would rewrite the rest of the document."""
        return

    def json_conversion_error(self, exc: BaseException) -> bool:
        """Text of an older release may hold an escape that PostgreSQL converts to nothing."""
        return sqlstate_of(exc) in CONVERSION

    # -- the server ---------------------------------------------------------------------------------------------------

    async def connection_checks(self, conn: AsyncConnection) -> DialectFacts:
        """Refuse a server that is too old, cannot hold every character, or shows a transaction an old snapshot."""
        version = conn.dialect.server_version_info or OLDEST
        shown = ".".join(map(str, version))
        if version < OLDEST:
            raise ValueError(f"PostgreSQL {shown} is too old: {OLDEST[0]} or later is needed")
        asked = select(
            func.current_setting("server_encoding"),
            func.current_setting("transaction_isolation"),
            func.current_setting("client_encoding"),
        )
        encoding, isolation, client = (await conn.execute(asked)).one()
        if encoding != "UTF8" or client != "UTF8":
            raise ValueError(
                f"the database's encoding is {encoding} and its client's {client}: text needs UTF8 for both; "
                "create the database with ENCODING 'UTF8', and leave client_encoding as the driver sets it"
            )
        if isolation != "read committed":
            raise ValueError(
                f"transactions are {isolation}: a store needs READ COMMITTED, where a statement that waited for a row "
                "sees it as it is; create the engine with isolation_level='READ COMMITTED', "
                "or set default_transaction_isolation"
            )
        return DialectFacts(server_family="postgresql", server_version=shown)


def _at(document: ColumnElement[Any], path: JsonPath) -> ColumnElement[Any]:
    """The JSON value at a path, SQL NULL where there is none. Keys are stored encoded, as all text in a document is."""
    for part in path:
        at = literal(part, Integer()) if isinstance(part, int) else literal(encoded_text(part), Text())
        document = document.op("->", precedence=15)(at)
    return type_coerce(document, Json()) if path else document


def _text(found: ColumnElement[Any]) -> ColumnElement[str]:
    return cast(found, Text())


def _jsonb(document: ColumnElement[Any]) -> Any:
    return cast(document, JSONB())


def _unquoted(found: ColumnElement[Any]) -> ColumnElement[str]:
    """The characters of a JSON string."""
    return found.op("#>>", precedence=15, return_type=Text())(literal([], ARRAY(Text)))


def _has_number(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(_has_number(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_has_number(inner) for inner in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _holds(found: ColumnElement[Any], value: JsonValue) -> ColumnElement[bool]:
    """Whether a JSON value is, or contains, another, NULL where there is none. `jsonb` would take 1 for 1.0."""
    kind = func.json_typeof(found)
    if isinstance(value, dict):
        return and_(kind == "object", *(_holds(_at(found, (key,)), inner) for key, inner in value.items()))
    if isinstance(value, list):
        return and_(kind == "array", *(_has_element(found, inner) for inner in value))
    if isinstance(value, str):
        return and_(kind == "string", _unquoted(found) == encoded_text(value))
    return _text(found) == dumps(value)


def _has_element(array: ColumnElement[Any], value: JsonValue) -> ColumnElement[bool]:
    """Whether some element of a JSON array contains the value. The function is given an array whatever is stored."""
    elements = case((func.json_typeof(array) == "array", array), else_=literal([], Json()))
    each = func.json_array_elements(elements).table_valued(column("value", Json())).render_derived()
    return exists(select(literal(1)).select_from(each).where(_holds(each.c.value, value)))
