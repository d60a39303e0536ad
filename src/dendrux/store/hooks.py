"""The hooks: what a store for one database builds or runs, with the portable defaults.

A hook never commits, retries or validates. Two rules hold for each: identifiers and tenants compare exactly, and a hook
that cannot decide refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, NoReturn

from sqlalchemy import CursorResult, FromClause, Select, Table, and_, or_, select, true, union_all
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import agent_runs, run_events
from dendrux.store.dberrors import classify
from dendrux.store.hookvalues import (
    ConflictSpec,
    DbError,
    DialectFacts,
    InsertPlan,
    JsonPatch,
    JsonPath,
    JsonReadType,
    JsonValue,
    LockIntent,
    RunLockScope,
    RunParentCursor,
    ScalarKey,
    SelectSource,
    ValuesSource,
)
from dendrux.vocabulary import UNSCOPED, TenantScope

PAUSE_SUMMARY = ("pause_reason", "iteration", "pending_tool_calls", "pending_targets")
"""The members of a pause document that a summary shows."""


class Hooks:
    """Flags and hooks of one database. A dialect class is these and nothing else."""

    dialect_names: ClassVar[tuple[str, ...]] = ()
    """Values of `engine.dialect.name` that the store accepts; empty accepts any."""

    supports_update_returning: bool = False
    supports_insert_returning: bool = False
    supports_row_locks: bool = False
    ddl_transactional: bool = False

    reads_autocommit: ClassVar[bool] = False
    """Whether the driver switches to AUTOCOMMIT without asking the server: then a read is one round trip, not three. A
    read needs no transaction: each of its statements sees what is committed."""

    cancel_grace_s: ClassVar[float] = 5.0
    """With row locks: how long a cancelled caller waits for the statement in flight, then the connection is cut."""

    statement_deadline_s: ClassVar[float] = 60.0
    """With row locks: how long one statement may take, then the connection is cut. Without them, statements are never
    interrupted: the database's own busy wait bounds them."""

    # -- statements and expressions -----------------------------------------------------------------------------------

    def insert_if_absent_stmt(
        self,
        table: Table,
        source: ValuesSource | SelectSource,
        *,
        conflict: ConflictSpec,
        returning: Sequence[ColumnElement[Any]] = (),
    ) -> InsertPlan:
        """An insert that leaves an existing row alone. Required."""
        self._required("insert_if_absent_stmt")

    def upsert_setting(self, table: Table, *, key: str, value: str, updated_at: datetime) -> Executable:
        """Insert or overwrite one settings row. Required."""
        self._required("upsert_setting")

    def json_get(self, col: ColumnElement[Any], path: JsonPath, as_type: JsonReadType) -> ColumnElement[Any]:
        """One value of a JSON column; a value of another JSON type reads as SQL NULL. Required."""
        self._required("json_get")

    def json_contains(self, col: ColumnElement[Any], path: JsonPath, value: JsonValue) -> ColumnElement[bool]:
        """Whether the path holds the value: a scalar exactly, a container by containment. Required."""
        self._required("json_contains")

    def json_is_null(self, col: ColumnElement[Any], path: JsonPath) -> ColumnElement[bool]:
        """True only for an explicit JSON null. Required."""
        self._required("json_is_null")

    def json_patch_expr(self, col: ColumnElement[Any], patch: JsonPatch) -> ColumnElement[Any] | None:
        """The patched document as an expression, or None: the base then reads and writes under a lock. Required."""
        self._required("json_patch_expr")

    def pause_projection(self, col: ColumnElement[Any]) -> list[ColumnElement[Any]]:
        """The columns of a pause's summary: its summary members, then its last step.

        None at all when the database cannot read them as they are stored: the document is read whole then.
        """
        members: list[ColumnElement[Any]] = [self.json_get(col, (key,), "json").label(key) for key in PAUSE_SUMMARY]
        return [*members, self.json_get(col, ("steps", -1), "json").label("last_step")]

    def metadata_filter_predicate(
        self, col: ColumnElement[Any], metadata_filter: dict[str, Any]
    ) -> ColumnElement[bool]:
        """Runs whose metadata holds every pair; the empty filter matches all."""
        return and_(true(), *(self.json_contains(col, (key,), value) for key, value in metadata_filter.items()))

    def idempotency_scope_predicate(self, tenant_id: str | None) -> ColumnElement[bool]:
        """Compare a run's tenant with that of an idempotency lookup: no tenant and the empty string are one scope."""
        return agent_runs.c.idempotency_scope == (tenant_id or "")

    def event_sequence_expr(self, next_index: ColumnElement[Any]) -> ColumnElement[Any]:
        """Wrap the expression that allocates an event's index inside its insert."""
        return next_index

    def inserted_event_sequence(self, result: CursorResult[Any]) -> int | None:
        """The index that an insert without RETURNING allocated; None makes the base read it by key."""
        return None

    def lock_clause(self, stmt: Select[Any], intent: LockIntent) -> Select[Any]:
        """The row lock of an intent, where there are row locks."""
        if not self.supports_row_locks:
            return stmt
        if intent == "share":
            return stmt.with_for_update(read=True)
        return stmt.with_for_update(key_share=intent == "update_no_key")

    def id_in(self, col: ColumnElement[Any], ids: Sequence[ScalarKey]) -> ColumnElement[bool]:
        """Membership in a bounded list of ids."""
        return col.in_(ids)

    def child_page_query(
        self, *, runs: Table, parents: Sequence[RunParentCursor], tenant_scope: TenantScope, page_size: int
    ) -> Select[Any]:
        """One page of child runs in (parent, id) order."""
        beyond = [
            runs.c.parent_run_id == p.parent_run_id
            if p.after is None
            else and_(runs.c.parent_run_id == p.parent_run_id, runs.c.id > p.after)
            for p in parents
        ]
        stmt = select(runs).where(or_(*beyond)).order_by(runs.c.parent_run_id, runs.c.id).limit(page_size)
        return stmt if tenant_scope is UNSCOPED else stmt.where(runs.c.tenant_id == tenant_scope)

    def by_parent(self, stmt: Select[Any], runs: FromClause) -> Select[Any]:
        """A step from parents to their children: a hint for a planner that would rather read every run."""
        return stmt

    def events_for_runs_query(self, heads: Mapping[str, int], *, limit_per_run: int) -> Executable:
        """The first events above each run's head: one bounded, indexed read per run, united."""
        pages = [
            select(
                select(run_events)
                .where(run_events.c.agent_run_id == run_id, run_events.c.sequence_index > head)
                .order_by(run_events.c.sequence_index)
                .limit(limit_per_run)
                .subquery()
            )
            for run_id, head in heads.items()
        ]
        return union_all(*pages)

    def blob_now(self) -> datetime | ColumnElement[Any]:
        """The timestamp on rows of stored images."""
        return datetime.now(UTC)

    # -- hooks that run a statement -----------------------------------------------------------------------------------

    async def serialize_in_tx(self, session: AsyncSession, *, owner: RunLockScope) -> None:
        """Nobody else counts and inserts notes of this run until the transaction ends."""
        if self.supports_row_locks:
            await session.execute(
                self.lock_clause(select(agent_runs.c.id).where(agent_runs.c.id == owner.run_id), "update")
            )

    async def reserve_parent_writer(self, session: AsyncSession, run_id: str) -> None:
        """Without row locks: take the write lock on a run's row before anything is read."""

    async def connection_checks(self, conn: AsyncConnection) -> DialectFacts:
        """Refuse a server that cannot be used with ValueError; say what was found."""
        return DialectFacts(server_family=conn.dialect.name)

    # -- reading errors -----------------------------------------------------------------------------------------------

    def classify_db_error(self, exc: BaseException) -> DbError:
        """What a driver's error means, without the driver's words."""
        return classify(exc)

    def json_conversion_error(self, exc: BaseException) -> bool:
        """Whether the database refused to convert stored JSON text while reading a pause summary."""
        return False

    def _required(self, hook: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} must implement the hook {hook}")
