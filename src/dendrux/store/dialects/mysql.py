"""MySQL and MariaDB: row locks, no UPDATE RETURNING, documents in LONGTEXT.

Requirements are checked at first use and refused with the setting to change: a SET by the store would last until
somebody else's checkout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final, Self

from sqlalchemy import (
    URL,
    BindParameter,
    Boolean,
    CursorResult,
    FromClause,
    Select,
    Table,
    bindparam,
    case,
    cast,
    false,
    func,
    text,
    true,
    type_coerce,
)
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import BigInteger

from dendrux.db.models import metadata
from dendrux.db.session import get_engine
from dendrux.db.types import Json, Word
from dendrux.store.base import SQLStateStore
from dendrux.store.dialects.mariadb import MariaDB
from dendrux.store.dialects.mysql_server import MySQL
from dendrux.store.hookvalues import (
    ConflictSpec,
    DbError,
    DbErrorKind,
    DialectFacts,
    InsertPlan,
    JsonPatch,
    JsonPath,
    JsonReadType,
    JsonValue,
    SelectSource,
    ValuesSource,
)

MYSQL, MARIADB = MySQL(), MariaDB()


class MySQLStateStore(SQLStateStore):
    """The store on MySQL 8.4 or MariaDB 10.11 and later, with asyncmy. What the server is, the engine finds out."""

    dialect_names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    supports_row_locks = True
    capabilities = replace(SQLStateStore.capabilities, deployment="multi_server")
    _packet: int | None = None
    """The server's max_allowed_packet, in bytes, once it is known."""

    @classmethod
    def from_url(cls, url: str | URL, *, live_updates: Any = None, **engine_options: Any) -> Self:
        """A store on a new engine of `get_engine`, which takes the options.

        The engine is the caller's: dispose `store.engine` when the store is closed.
        """
        return cls(get_engine(url, **engine_options), live_updates=live_updates)

    @property
    def engine(self) -> AsyncEngine:
        """The engine this store works on."""
        return self._engine

    @property
    def server(self) -> MySQL:
        """What the server calls things: known from the URL, or once the engine has connected."""
        return MARIADB if getattr(self._engine.dialect, "is_mariadb", False) else MYSQL

    async def statement_capacity(self) -> int | None:
        """The most bytes that one statement may have: the server's max_allowed_packet."""
        async with self._engine.connect() as connection:
            return int(await connection.scalar(text("SELECT @@max_allowed_packet")))

    # -- statements ---------------------------------------------------------------------------------------------------

    def insert_if_absent_stmt(
        self,
        table: Table,
        source: ValuesSource | SelectSource,
        *,
        conflict: ConflictSpec,
        returning: Sequence[ColumnElement[Any]] = (),
    ) -> InsertPlan:
        """A plain insert, which raises: IGNORE would swallow other errors, and ON DUPLICATE KEY any other key."""
        stmt = insert(table)
        if isinstance(source, SelectSource):
            stmt = stmt.from_select(list(source.columns), source.select)
        elif source:
            stmt = stmt.values(dict(source))
        return InsertPlan(stmt.returning(*returning) if returning else stmt, "raise_unique")

    def upsert_setting(self, table: Table, *, key: str, value: str, updated_at: datetime) -> Executable:
        """The new value overwrites the stored one."""
        stmt = insert(table).values(key=key, value=value, updated_at=updated_at)
        return stmt.on_duplicate_key_update(value=value, updated_at=updated_at)

    def event_sequence_expr(self, next_index: ColumnElement[Any]) -> ColumnElement[Any]:
        """The answer to the insert carries the value of LAST_INSERT_ID."""
        return func.last_insert_id(next_index)

    def inserted_event_sequence(self, result: CursorResult[Any]) -> int | None:
        """The value that LAST_INSERT_ID was given."""
        return int(result.lastrowid)

    def by_parent(self, stmt: Select[Any], runs: FromClause) -> Select[Any]:
        """Most runs have no parent, and the statistics count those as children of one."""
        return stmt.with_hint(runs, "FORCE INDEX (ix_agent_runs_children)")

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def json_get(self, col: ColumnElement[Any], path: JsonPath, as_type: JsonReadType) -> ColumnElement[Any]:
        """One value of a document; a value of another JSON type is NULL."""
        server = self.server
        found = server.member(col, path)
        if as_type == "json":
            return type_coerce(found, Json())
        if as_type == "str":
            return case((server.kind(found, "STRING"), server.text(found))).collate(server.collation)
        if as_type == "int":
            return case((server.is_integer(found), cast(found, BigInteger())))
        if as_type == "bool":
            words = [(server.contains(found, word), true() if word else false()) for word in (True, False)]
            return type_coerce(case(*words), Boolean)
        raise ValueError(f"json_get reads json, str, int or bool, not {as_type!r}")

    def json_contains(self, col: ColumnElement[Any], path: JsonPath, value: JsonValue) -> ColumnElement[bool]:
        """Containment, member by member: JSON_CONTAINS takes 1 for 1.0 and a scalar for an array that holds it."""
        return self.server.holds(col, path, value)

    def json_is_null(self, col: ColumnElement[Any], path: JsonPath) -> ColumnElement[bool]:
        """JSON_TYPE answers the word NULL for a JSON null, and SQL NULL for a missing path."""
        return self.server.holds(col, path, None)

    def json_patch_expr(self, col: ColumnElement[Any], patch: JsonPatch) -> ColumnElement[Any] | None:
        """None: JSON_SET rewrites the whole document, in another order on MySQL, with other spaces on MariaDB."""
        return None

    def pause_projection(self, col: ColumnElement[Any]) -> list[ColumnElement[Any]]:
        """None: MySQL reorders members and MariaDB reads no deep document, so the document is read whole."""
        return []

    def json_conversion_error(self, exc: BaseException) -> bool:
        """Invalid JSON text, and on both servers a document that nests deeper than the functions go."""
        return self.classify_db_error(exc).code in JSON_ERRORS

    # -- the server ---------------------------------------------------------------------------------------------------

    def classify_db_error(self, exc: BaseException) -> DbError:
        """As everywhere; and who sends too large a statement may find the server gone before it can answer so."""
        found = super().classify_db_error(exc)
        if found.kind != DbErrorKind.CONNECTION_LOST or self._packet is None or not isinstance(exc, DBAPIError):
            return found
        too_large = size(exc.statement, exc.params) > self._packet
        return DbError(DbErrorKind.STATEMENT_TOO_LARGE, None, found.code) if too_large else found

    async def connection_checks(self, conn: AsyncConnection) -> DialectFacts:
        """Refuse a server or session that breaks the store's promises, with the setting to change."""
        server, version = self.server, conn.dialect.server_version_info or ()
        if version < server.oldest:
            oldest = ".".join(map(str, server.oldest))
            raise ValueError(f"{server.family} {'.'.join(map(str, version))} is too old: {oldest} or later is needed")
        found = (await conn.execute(text(SESSION.format(isolation=server.isolation)))).mappings().one()
        for problem in session_problems(found):
            raise ValueError(problem)
        await self._check_found_rows(conn)
        await self._check_tables(conn)
        self._packet = int(found["packet"])
        return DialectFacts(
            server_family=server.family,
            server_version=".".join(map(str, version)),
            features={"supports_insert_returning": server.insert_returning},
            max_allowed_packet=self._packet,
        )

    async def _check_found_rows(self, conn: AsyncConnection) -> None:
        """An update that finds its row and changes nothing has to count it: the client says so when it connects."""
        driver: Any = (await conn.get_raw_connection()).driver_connection
        flags = getattr(driver, "_client_flag", getattr(driver, "client_flag", 0))
        if not flags & FOUND_ROWS:
            raise ValueError(
                "the connection counts changed rows, not found ones: leave the client flag FOUND_ROWS set "
                "(SQLAlchemy sets it unless connect_args or a creator of the application's own says otherwise)"
            )

    async def _check_tables(self, conn: AsyncConnection) -> None:
        """Our tables, where they are there already, are InnoDB and compare their keys exactly."""
        wanted = self.server.collation
        tables: BindParameter[Any] = bindparam(
            "tables", [table.name for table in metadata.sorted_tables], expanding=True
        )
        for row in await conn.execute(text(COLUMNS).bindparams(tables)):
            if row.engine is None:
                continue  # the server could not open the table just now, and says nothing of it
            if row.engine.lower() != "innodb":
                raise ValueError(f"the table {row.name} is {row.engine}: ALTER TABLE {row.name} ENGINE=InnoDB")
            column = metadata.tables[row.name].columns.get(row.column_name)
            if column is not None and isinstance(column.type, Word) and row.collation != wanted:
                raise ValueError(
                    f"the column {row.name}.{row.column_name} has the collation {row.collation}, which takes some "
                    f"different keys for one: it needs {wanted}"
                )


SESSION: Final = (
    "SELECT @@session.{isolation} AS isolation, @@session.time_zone AS zone, @@system_time_zone AS system_zone, "
    "@@session.sql_mode AS modes, @@session.autocommit AS autocommit, @@session.character_set_client AS client, "
    "@@session.character_set_connection AS connection, @@session.character_set_results AS results, "
    "@@max_allowed_packet AS packet"
)
COLUMNS: Final = (
    "SELECT t.table_name AS name, t.engine AS engine, c.column_name AS column_name, c.collation_name AS collation "
    "FROM information_schema.tables t JOIN information_schema.columns c "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
    "WHERE t.table_schema = DATABASE() AND t.table_name IN :tables ORDER BY t.table_name, c.ordinal_position"
)
UTC_NAMES: Final = frozenset({"+00:00", "UTC", "Etc/UTC"})
STRICT: Final = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})
FOUND_ROWS: Final = 2
"""CLIENT_FOUND_ROWS of the client/server protocol."""

JSON_ERRORS: Final = frozenset({"3140", "3141", "3157", "4037", "4038", "4040"})
"""MySQL: invalid JSON text (in a parameter), a document too deep. MariaDB: bad or cut off JSON, a document too deep."""


ESCAPED: Final = str.maketrans(dict.fromkeys("\x00\n\r\x1a\"'\\"))
"""Characters that a driver writes as two."""


def size(statement: str | None, params: Any) -> int:
    """The bytes of a statement with its parameters in it, of the largest where there are several rows of them."""
    rows = params if isinstance(params, list) else [params]
    return len((statement or "").encode()) + max((sum(map(_size, _values(row))) for row in rows), default=0)


def _values(row: Any) -> Iterable[Any]:
    return row.values() if isinstance(row, Mapping) else row or ()


def _size(value: Any) -> int:
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("latin-1")
        return 2 * len(value) - len(value.translate(ESCAPED))
    if isinstance(value, str):
        return len(value.encode()) + len(value) - len(value.translate(ESCAPED))
    return 0


def session_problems(found: Mapping[Any, Any]) -> Iterator[str]:
    """What is wrong with a session, each with the setting to change."""
    if found["autocommit"]:
        yield "the session commits every statement by itself: set autocommit=0"
    if found["isolation"] != "READ-COMMITTED":
        yield (
            f"the session's isolation level is {found['isolation']}: create the engine with "
            "isolation_level='READ COMMITTED', or set transaction_isolation=READ-COMMITTED on the server"
        )
    zone = found["system_zone"] if found["zone"] == "SYSTEM" else found["zone"]
    if zone not in UTC_NAMES:
        yield (
            f"the session's time zone is {zone}: set default_time_zone='+00:00' on the server, or create the engine "
            "with connect_args={'init_command': \"SET time_zone = '+00:00'\"}"
        )
    if STRICT.isdisjoint(str(found["modes"]).split(",")):
        yield "the session is not strict and cuts off what does not fit: add STRICT_TRANS_TABLES to sql_mode"
    for name in ("client", "connection", "results"):
        if found[name] != "utf8mb4":
            yield f"character_set_{name} is {found[name]}: create the engine with charset=utf8mb4 in its URL"
