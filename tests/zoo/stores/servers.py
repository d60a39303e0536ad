"""Stores that fall into a trap of one server: each is broken, and caught, on that database."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import cast, insert, or_
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.dialects.postgresql import JSONB

from dendrux.store import MySQLStateStore, PostgresStateStore
from dendrux.store.hookvalues import InsertPlan, SelectSource
from dendrux.store.tx import Tx
from zoo.stores.base import Broken
from zoo.stores.tampering import commits_before, tampered


def whole_seconds(tx: Tx) -> None:
    """The transaction's clock loses what is below a second."""
    tx._now = tx.now.replace(microsecond=0)


class OnPostgres(Broken, PostgresStateStore):
    """A store of the zoo on PostgreSQL."""

    database: ClassVar[str] = "postgresql"


class OnMySQL(Broken, MySQLStateStore):
    """A store of the zoo on MySQL."""

    database: ClassVar[str] = "mysql"


class OnMariaDB(Broken, MySQLStateStore):
    """A store of the zoo on MariaDB."""

    database: ClassVar[str] = "mariadb"


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


class PostgresWithoutLocks(OnPostgres):
    breaks = "a run's row is read without FOR UPDATE before it is changed"
    killed_by = "concurrency.update_run_meta.no_lost_update"

    def lock_clause(self, stmt: Any, intent: Any) -> Any:
        return stmt


class PostgresNotesUnserialized(OnPostgres):
    breaks = "the lock of a run is let go before its notes are counted, and nothing else orders those who count"
    killed_by = "concurrency.add_note.cap_holds"

    add_note = tampered("add_note", commits_before("result", turn=2))

    async def serialize_in_tx(self, session: Any, *, owner: Any) -> None:
        """Nothing: the row was held before."""


class PostgresComparesNumbers(OnPostgres):
    breaks = "a metadata filter asks whether the jsonb contains it, for which 1 and 1.0 are one number"
    killed_by = "basic.list_runs.metadata_values_are_typed"

    def metadata_filter_predicate(self, col: Any, metadata_filter: Any) -> Any:
        return cast(col, JSONB).contains(cast(metadata_filter, JSONB))


class PostgresFoldsTenants(OnPostgres):
    breaks = "a list compares tenants in lower case"
    killed_by = "basic.list_runs.tenants_are_equal_as_written"

    async def list_runs(self, **given: Any) -> Any:
        row = await self.run_sql(
            "SELECT tenant_id FROM agent_runs WHERE lower(tenant_id) = lower(:wanted) ORDER BY created_at",
            wanted=given.get("tenant_id") if isinstance(given.get("tenant_id"), str) else None,
        )
        return await super().list_runs(**{**given, **({} if row is None else {"tenant_id": row[0]})})


# -- MySQL ------------------------------------------------------------------------------------------------------------


class MySQLClaimsReturning(OnMySQL):
    breaks = "supports_update_returning is set, on a server without UPDATE ... RETURNING"
    killed_by = "basic.claim_paused_run.only_once"

    supports_update_returning = True


class MySQLIgnores(OnMySQL):
    breaks = "INSERT IGNORE absorbs the clash of any key"
    killed_by = "retry_ids.save_trace.one_message_per_position"

    def insert_if_absent_stmt(self, table: Any, source: Any, *, conflict: Any, returning: Any = ()) -> InsertPlan:
        stmt: Any = insert(table).prefix_with("IGNORE")
        if isinstance(source, SelectSource):
            stmt = stmt.from_select(list(source.columns), source.select)
        elif source:
            stmt = stmt.values(dict(source))
        return InsertPlan(stmt, "targeted_ignore")


class MySQLOverwrites(OnMySQL):
    breaks = "ON DUPLICATE KEY UPDATE gives a known message its new content"
    killed_by = "retry_ids.save_trace.other_content_conflicts"

    def insert_if_absent_stmt(self, table: Any, source: Any, *, conflict: Any, returning: Any = ()) -> InsertPlan:
        plan = super().insert_if_absent_stmt(table, source, conflict=conflict, returning=returning)
        if table.name != "react_traces" or source:
            return plan
        stmt = mysql_insert(table)
        return InsertPlan(stmt.on_duplicate_key_update(content=stmt.inserted.content), "targeted_ignore")


class MySQLOverlaps(OnMySQL):
    breaks = "a metadata filter asks JSON_OVERLAPS, for which one common element is enough"
    killed_by = "basic.list_runs.metadata_containers"

    def json_contains(self, col: Any, path: Any, value: Any) -> Any:
        if isinstance(value, list) and value:
            return or_(*(self.one(col, path, element) for element in value))
        return super().json_contains(col, path, value)

    def one(self, col: Any, path: Any, element: Any) -> Any:
        return super().json_contains(col, path, [element])


class MySQLWholeSeconds(OnMySQL):
    breaks = "the time of a note loses its microseconds"
    killed_by = "basic.add_note.read_in_the_order_they_came"

    add_note = tampered("add_note", whole_seconds)


class MySQLLosesIndexes(OnMySQL):
    breaks = "the index of an event is what LAST_INSERT_ID said before it"
    killed_by = "basic.save_run_event.indexes_count_up_from_zero"

    def inserted_event_sequence(self, result: Any) -> int | None:
        return max(int(result.lastrowid) - 1, 0)


# -- MariaDB ----------------------------------------------------------------------------------------------------------


class MariaDBPadsTenants(OnMariaDB):
    breaks = "a count compares tenants by a collation that pads them and folds their case"
    killed_by = "basic.count_runs.tenants_are_equal_as_written"

    async def count_runs(self, **given: Any) -> Any:
        row = await self.run_sql(
            "SELECT count(*) FROM agent_runs "
            "WHERE CONVERT(tenant_id USING utf8mb4) COLLATE utf8mb4_general_ci = :wanted",
            wanted=given.get("tenant_id") if isinstance(given.get("tenant_id"), str) else None,
        )
        return max(row[0], await super().count_runs(**given))


class MariaDBWithoutLocks(OnMariaDB):
    breaks = "a run's row is read from a snapshot, without FOR UPDATE, before it is changed"
    killed_by = "concurrency.claim_paused_run.one_winner"

    def lock_clause(self, stmt: Any, intent: Any) -> Any:
        return stmt


class MariaDBTrueIsOne(OnMariaDB):
    breaks = "a metadata filter takes true for 1, as a TINYINT does"
    killed_by = "basic.list_runs.metadata_values_are_typed"

    def json_contains(self, col: Any, path: Any, value: Any) -> Any:
        return super().json_contains(col, path, int(value) if isinstance(value, bool) else value)
