"""One write transaction, and the few helpers that every operation is made of.

`fence` and `swap` are guarded updates, `hold` takes the run's row, `append` inserts a row by identity, `same` asks
whether an existing row is the caller's and equal, `stale` and `closed` apply the rules of refusal, `lost` answers a
lost swap. An operation never opens, commits or retries; it returns a value, returns Unchanged, or raises a refusal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Generic, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from sqlalchemy import (
    Column,
    CursorResult,
    Row,
    Table,
    case,
    literal,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import agent_runs, run_events
from dendrux.db.types import StoredValueError, canonical
from dendrux.errors import RunAlreadyTerminalError, RunNotFoundError, StaleClaimError, WriteConflictError
from dendrux.store import statements as built
from dendrux.store.hooks import Hooks
from dendrux.store.hookvalues import (
    ConflictSpec,
    DbError,
    DbErrorKind,
    InsertPlan,
    OrderedAssignments,
    RunLockScope,
    SelectSource,
)
from dendrux.store.patience import patient
from dendrux.vocabulary import RUNNING, TERMINAL_STATUSES, UNSCOPED, TenantScope

logger = logging.getLogger("dendrux.store")
runs = agent_runs.c
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[T_co]):
    """An operation's answer when it changed nothing: the transaction is rolled back and nothing is announced."""

    value: T_co


Outcome: TypeAlias = T | Unchanged[T]

LostAck = Literal["claim", "identity", "natural", "unknown"]
"""Of which class an operation is when the acknowledgement of COMMIT is lost; `attempts.py` says what each means."""


class Stopped(BaseException):
    """The caller was cancelled; the transaction ends at its next boundary."""


class Failure(Exception):
    """The database refused or the connection failed. Carries the classified error and nothing of the driver."""

    def __init__(self, error: DbError) -> None:
        super().__init__(error.kind)
        self.error = error


UNREADABLE: Final = DbError(DbErrorKind.OTHER, None, "stored_value")
"""A row holds what this column cannot hold: the statement succeeded, and its answer cannot be read."""


COUNTED: Final = {"preserve_rowcount": True}
"""Read the number of rows before the cursor is closed: a driver may forget it then, and an insert counts by it."""


class Facts(NamedTuple):
    """What every rule asks of a run."""

    id: str
    status: str
    format: int
    claim_epoch: int
    iteration_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row to insert by identity: its `values` hold the id, the run and the content digest."""

    table: Table
    values: dict[str, Any]
    position: tuple[Column[Any], Any] | None = None
    """The place that only one row may hold."""
    shared: tuple[str, ...] = ()
    """Columns that tell equal content from other on a row of the earlier release, which has no digest."""

    @property
    def id(self) -> str:
        return str(self.values["id"])


class Appended(NamedTuple):
    """What became of an insert by identity: `fresh` when this call stored the row."""

    fresh: bool
    place: int


class Tx:
    """A transaction that opens its connection at the first statement.

    The binding makes it, ends it, and decides what a failure means; operations use what is below `begin`.
    """

    def __init__(
        self,
        store: Hooks,
        operation: str,
        run_id: str | None,
        *,
        settling: bool = False,
        in_doubt: bool = False,
        reading: bool = False,
    ) -> None:
        self.store = store
        self.operation = operation
        self.run_id = run_id
        self.settling = settling
        """A unique key clashed in an earlier attempt: look before inserting, to say which row is in the way."""
        self.reading = reading
        self.in_doubt = in_doubt
        """An earlier attempt of this very call issued COMMIT, and nobody knows what became of it."""
        self.stopped = False
        self.stop: Callable[[], None] = lambda: None
        self.connection: AsyncConnection | None = None
        self.open_connection: Callable[[], Awaitable[AsyncConnection]] | None = None
        self._session: AsyncSession | None = None
        self._now: datetime | None = None

    # -- statements ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """One instant for the whole transaction, taken once it holds its lock."""
        if self._now is None:
            self._now = datetime.now(UTC)
        return self._now

    @property
    def session(self) -> AsyncSession:
        """A session on this transaction's connection, for hooks only. Closing it would end the transaction."""
        if self._session is None:
            assert self.connection is not None
            self._session = AsyncSession(bind=self.connection, join_transaction_mode="rollback_only")
        return self._session

    def check_stop(self) -> None:
        """Between any two steps: a cancelled caller's transaction goes no further."""
        if self.stopped:
            raise Stopped

    async def begin(self, run_id: str | None = None) -> None:
        """Open the transaction. Without row locks its first statement reserves the database's writer."""
        if self.connection is not None:
            return
        assert self.open_connection is not None
        self.connection = await self.open_connection()
        if self.reading:
            if self.store.reads_autocommit:
                await self.guarded(self.connection.execution_options(isolation_level="AUTOCOMMIT"))
            return
        await self.guarded(self.connection.begin())
        if not self.store.supports_row_locks:
            await self.guarded(self.store.reserve_parent_writer(self.session, run_id or self.run_id or ""))

    async def guarded(self, step: Awaitable[T]) -> T:
        """Await one step of the database; its errors come out classified, with nothing of the driver attached."""
        if self.stopped:
            if asyncio.iscoroutine(step):
                step.close()
            raise Stopped
        try:
            return await self.undisturbed(step)
        except StoredValueError:
            failure = Failure(UNREADABLE)
        except (SQLAlchemyError, OSError, EOFError) as error:
            failure = Failure(self.store.classify_db_error(error))
        raise failure

    def undisturbed(self, step: Awaitable[T]) -> Awaitable[T]:
        """The step as this database allows it to be awaited: with one writer for all, never interrupted."""
        return self._bounded(step) if self.store.supports_row_locks else patient(step, self.stop)

    async def _bounded(self, step: Awaitable[T]) -> T:
        """The step within the deadline; cut short, SQLAlchemy throws the connection away and the server rolls back."""
        async with asyncio.timeout(self.store.statement_deadline_s):
            return await step

    async def result(
        self, statement: Executable, params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    ) -> CursorResult[Any]:
        """Run one statement, once for each row of parameters."""
        await self.begin()
        assert self.connection is not None
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s: %s", self.operation, statement)
        return await self.guarded(self.connection.execute(statement, params, execution_options=COUNTED))

    async def rows(self, statement: Executable, params: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """Run one statement and take all its rows."""
        result = await self.result(statement, params)
        return await self.guarded(_all(result))

    async def row(self, statement: Executable, params: Mapping[str, Any] | None = None) -> Row[Any] | None:
        """Run one statement that finds at most one row."""
        found = await self.rows(statement, params)
        return found[0] if found else None

    async def serialize_notes(self, run_id: str) -> None:
        """Enter the critical section of a run's note counting."""
        await self.begin(run_id)
        await self.guarded(self.store.serialize_in_tx(self.session, owner=RunLockScope(run_id)))

    # -- the run's row ------------------------------------------------------------------------------------------------

    async def hold(self, run_id: str, tenant_id: TenantScope = UNSCOPED, *columns: Any) -> Any:
        """Take the run's row and read its facts and the given columns.

        Refuses: RunNotFoundError for a missing run, or one outside the tenant scope.
        """
        await self.begin(run_id)
        scope = built.shape_of(tenant_id)
        statement = self.planned(
            ("hold", scope, columns),
            lambda: self.store.lock_clause(built.of_run(*built.FACTS, *columns, scope=scope), "update_no_key"),
        )
        held = await self.row(statement, {"p_run": run_id, "p_tenant": tenant_id})
        if held is None:
            raise RunNotFoundError(run_id)
        return held if columns else Facts._make(held)

    async def fence(self, run_id: str, claim_epoch: int, tenant_id: TenantScope = UNSCOPED) -> Facts | None:
        """Renew the lease of the run this caller owns, which also holds its row. None when it owns none."""
        await self.begin(run_id)
        if not self.store.supports_update_returning or tenant_id is not UNSCOPED:
            owned = [runs.status == RUNNING, runs.claim_epoch == claim_epoch]
            swapped: Facts | None = await self.swap(run_id, owned, list(self.renewal().items()), tenant_id=tenant_id)
            return swapped
        held = await self.row(built.fence_statement(), {"p_run": run_id, "p_epoch": claim_epoch, "p_now": self.now})
        return None if held is None else Facts._make(held)

    def renewal(self) -> dict[Column[Any], Any]:
        """What renews a lease: the clock never goes back, the mark goes."""
        now = literal(self.now, runs.last_progress_at.type)
        return {
            runs.last_progress_at: case((runs.last_progress_at > now, runs.last_progress_at), else_=now),
            runs.lease_expired_at: None,
        }

    async def swap(
        self,
        run_id: str,
        guard: Sequence[ColumnElement[bool]],
        assignments: OrderedAssignments,
        *,
        tenant_id: TenantScope = UNSCOPED,
        columns: Sequence[Column[Any]] = (),
    ) -> Any:
        """Change the run's row if it satisfies the guard, and read its facts, and the given columns, as they are then.

        None when it does not satisfy the guard.
        """
        await self.begin(run_id)
        if self.store.supports_update_returning:
            statement = built.scoped(update(agent_runs).where(runs.id == run_id, *guard), tenant_id)
            changed = await self.row(statement.ordered_values(*assignments).returning(*built.FACTS, *columns))
            return changed if changed is None or columns else Facts._make(changed)
        # The locking read computes what the update is about to set, so that no third statement reads it back.
        after: dict[str | None, Any] = {column.key: built.term(column, value) for column, value in assignments}
        seen = select(*(after.get(fact.key, fact).label(fact.key) for fact in (*built.FACTS, *columns)))
        seen = built.scoped(seen.select_from(agent_runs).where(runs.id == run_id, *guard), tenant_id)
        held = await self.row(self.store.lock_clause(seen, "update_no_key"))
        if held is None:
            return None
        await self.result(update(agent_runs).where(runs.id == run_id).ordered_values(*assignments))
        return held if columns else Facts._make(held)

    # -- rows by identity ---------------------------------------------------------------------------------------------

    async def append(self, entry: Entry) -> Appended:
        """Insert a row once per identity.

        Ensures: when the row is there already, it is this run's and equal, and `fresh` is False.
        Refuses: WriteConflictError when the identity or the position holds something else.
        """
        if self.settling:
            held = await self.find(entry)
            if held is not None:
                return Appended(False, await self.same(entry, held))
            await self._check_position(entry)
        index = await (self._insert_event(entry) if entry.table is run_events else self._insert(entry))
        if index is not None:
            return Appended(True, index)
        held = await self.find(entry)
        if held is None:
            raise self.again()  # the row that absorbed the insert is gone again, or another key absorbed it
        return Appended(False, await self.same(entry, held))

    async def inserted(self, entry: Entry) -> bool:
        """Insert a row unless one of this id is there already, whoever's it is.

        Refuses: WriteConflictError when something else holds its position.
        """
        if self.settling:
            if await self.find(entry) is not None:
                return False
            await self._check_position(entry)
        return await self._insert(entry) is not None

    async def added(self, entry: Entry) -> int:
        """Insert a row that has to be new: its place.

        Refuses: WriteConflictError when its id exists anywhere, or when something else holds its position.
        """
        appended = await self.append(entry)
        if not appended.fresh:
            raise self.conflict()
        return appended.place

    async def repeated(self, entry: Entry) -> Appended | None:
        """The outcome of an earlier call with this identity in this run, None when there was none.

        Refuses: WriteConflictError when the identity holds something else.
        """
        held = await self.find(entry)
        return None if held is None else Appended(False, await self.same(entry, held))

    async def repeated_here(self, entry: Entry) -> Appended | None:
        """As `repeated`, but a row of this id in another run counts only once the guard is won."""
        held = await self.find(entry)
        if held is None or held.owner != entry.values[built.owner_of(entry.table).key]:
            return None
        return Appended(False, await self.same(entry, held))

    async def find(self, entry: Entry) -> Row[Any] | None:
        """The row that has the entry's id, whoever's it is."""
        return await self.row(built.by_identity(entry.table), {"p_id": entry.id})

    async def same(self, entry: Entry, held: Row[Any]) -> int:
        """The index of an existing row that is this run's and holds the same content.

        Refuses: WriteConflictError otherwise.
        """
        if held.owner != entry.values[built.owner_of(entry.table).key]:
            raise self.conflict()
        equal = held.content_digest == entry.values["content_digest"]
        if not equal and not (held.content_digest is None and await self._equal_columns(entry)):
            raise self.conflict()
        return int(held.place)

    async def _equal_columns(self, entry: Entry) -> bool:
        """Whether a row without a digest holds the entry's values in the columns that its release had."""
        if not entry.shared:
            return False
        columns = entry.table.c
        held = await self.row(select(*(columns[name] for name in entry.shared)).where(columns.id == entry.id))
        given = {name: entry.values[name] for name in entry.shared}
        return held is not None and _comparable(dict(held._mapping)) == _comparable(given)

    async def _insert(self, entry: Entry) -> int | None:
        """0 when the row was inserted, None when its id was there."""
        plan: InsertPlan = self._plan(entry.table)
        result = await self.result(plan.statement, entry.values)
        return 0 if result.rowcount else None

    async def _insert_event(self, entry: Entry) -> int | None:
        """The index the event took inside its own insert, None when its id was there."""
        plan: InsertPlan = self._plan(run_events)
        result = await self.result(plan.statement, {f"p_{name}": value for name, value in entry.values.items()})
        if self.store.supports_insert_returning:
            taken = await self.guarded(_all(result))
            return None if not taken else int(taken[0][0])
        if not result.rowcount:
            return None
        index = self.store.inserted_event_sequence(result)
        if index is None:
            held = await self.find(entry)
            index = None if held is None else int(held.place)
        return index

    def planned(self, shape: Hashable, build: Callable[[], T]) -> T:
        """What a hook takes part in building, built once per store: SQLAlchemy compiles it once, too."""
        plans: dict[Hashable, Any] = self.store.__dict__.setdefault("_plans", {})
        if shape not in plans:
            plans[shape] = build()
        return plans[shape]  # type: ignore[no-any-return]

    def _plan(self, table: Table) -> InsertPlan:
        """The insert into a table."""

        def build() -> InsertPlan:
            source: SelectSource | dict[str, Any] = built.event_source(self.store) if table is run_events else {}
            returning = (
                (table.c.sequence_index,) if table is run_events and self.store.supports_insert_returning else ()
            )
            return self.store.insert_if_absent_stmt(
                table,
                source,
                conflict=ConflictSpec((table.c.id,), constraint=f"pk_{table.name}"),
                returning=returning,
            )

        return self.planned(table.name, build)

    async def _check_position(self, entry: Entry) -> None:
        if entry.position is None or entry.position[1] is None:
            return
        column, place = entry.position
        owner = built.owner_of(entry.table)
        taken = select(entry.table.c.id).where(owner == entry.values[owner.key], column == place)
        if await self.row(taken) is not None:
            raise self.conflict()

    # -- refusals -----------------------------------------------------------------------------------------------------

    def conflict(self) -> WriteConflictError:
        """Another row is in the way. Says nothing about that row: it may belong to another tenant."""
        return WriteConflictError(operation=self.operation, run_id=self.run_id)

    def stale(self, run: Any, claim_epoch: int | None, *, running: bool = False) -> None:
        """Rule of the fence: another epoch is refused, and for a plain write a run that is not running, too."""
        if claim_epoch is None:
            return
        if run.claim_epoch != claim_epoch or (running and run.status != RUNNING):
            raise StaleClaimError(operation=self.operation, run_id=self.run_id)

    def ended(self, run: Any) -> bool:
        """Format 2: the run has a terminal status, so some rows are refused."""
        return bool(run.format == 2 and run.status in TERMINAL_STATUSES)

    def closed(self, run: Facts) -> None:
        """Format 2: the log, the conversation and the tool calls of a run that has ended are final."""
        if self.ended(run):
            raise RunAlreadyTerminalError(run.id, run.status)

    def lost(self, run: Any, *, holds: bool, answer: T) -> Unchanged[T]:
        """The answer of a lost swap, unless the row as now held would have satisfied it: then the swap runs again."""
        if holds:
            raise self.again()
        return Unchanged(answer)

    def again(self) -> Failure:
        """Somebody changed the row between two statements: run the transaction again."""
        return Failure(DbError(DbErrorKind.DEADLOCK_OR_SERIALIZATION, None, "changed_meanwhile"))

    def format_1_only(self, run: Any, instead: str) -> None:
        """The legacy operations do not exist on format 2."""
        if run.format == 2:
            wrong_format(self.operation, instead)

    def format_2_only(self, run: Any, instead: str, parameter: str | None = None) -> None:
        """Operations, and parameters of them, that format 1 does not have."""
        if run.format != 2:
            what = self.operation if parameter is None else f"{parameter} of {self.operation}"
            raise ValueError(f"{what} is not for a run of format {run.format}: use {instead}")


def wrong_format(operation: str, instead: str) -> NoReturn:
    """An operation, parameter or event type that the run's format does not have."""
    raise ValueError(f"{operation} is not for a run of format 2: use {instead}")


def _comparable(values: Mapping[str, Any]) -> str:
    """Stored and given values as one text; money counts as it is read."""
    return canonical({name: float(value) if isinstance(value, Decimal) else value for name, value in values.items()})


async def _all(result: CursorResult[Any]) -> Sequence[Row[Any]]:
    """All rows of a buffered result. Decoding happens here, so its errors are guarded, too."""
    try:
        return result.all()
    except (ValueError, TypeError, ArithmeticError):
        pass  # the error would carry the value
    raise StoredValueError("a stored value cannot be read")
