"""The schema's life: where a database stands, and the way to this release's tables under a lock.

The revisions themselves are in the package `dendrux_migrations`. This module opens the connection, takes the lock that
makes one of several migrations work and the others wait, runs the revisions, and commits.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, inspect, text
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

import dendrux_migrations
from dendrux.db.drift import missing
from dendrux.db.models import STORAGE_FORMAT, agent_runs
from dendrux.db.session import is_memory
from dendrux.db.storage_format import read_format, write_format
from dendrux.db.urls import engine_on, file_of, read_url

FAMILIES: Final = ("sqlite", "postgresql", "mysql", "mariadb")
"""The databases that revisions are written and tested for."""
WAIT_S: Final = 300.0
"""How long one migration waits for another, and for locks of writers at work."""
OLDEST_WITH_TABLES: Final = "0001"
"""Where tables without a revision are taken up: every later revision finishes what it finds begun."""
_LOCK: Final = "dendrux.migrate"

State = Literal["empty", "behind", "current", "ahead"]
T = TypeVar("T")


class MigrationError(Exception):
    """The schema could not be brought where it was asked to be. Carries no SQL, URL or text of a driver."""


class SchemaAheadError(MigrationError):
    """The database belongs to a later release: its revision or storage format is unknown here. Use that release."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


class SchemaBehindError(MigrationError):
    """The schema is older than this release. Run `dendrux db migrate` first."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


class SchemaLockedError(MigrationError):
    """Somebody else holds the schema or its rows for longer than the wait allows. Nothing is lost: run it again."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


@dataclass(frozen=True)
class SchemaState:
    """Where a database stands."""

    database: str
    """One of FAMILIES."""
    state: State
    """`empty` has no tables of ours, `ahead` is of a later release."""
    revision: str | None
    """None where no migration ran: also for tables that create_all made."""
    head: str
    """The newest revision of this release."""
    pending: tuple[str, ...]
    """Revisions that `migrate` would run, oldest first."""
    missing: tuple[str, ...]
    """Tables, columns, keys and indexes that this release needs and the database has not."""
    storage_format: str | None
    """The format new runs start with; None without tables."""


@asynccontextmanager
async def connected(url: str | URL, *, wait_s: float = WAIT_S) -> AsyncIterator[AsyncConnection]:
    """A connection for schema work: its own, at the isolation that sees what others committed while it waited."""
    made = read_url(url)
    if made.get_backend_name() == "sqlite":
        options: dict[str, Any] = {"connect_args": {"timeout": wait_s}}
    else:
        options = {"isolation_level": "READ COMMITTED"}
    engine = engine_on(made, poolclass=NullPool, **options)
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


async def read_state(url: str | URL) -> SchemaState:
    """Where the database stands now. Writes nothing, and makes no SQLite file that is not there."""
    made = read_url(url)
    if made.get_backend_name() == "sqlite" and not _exists(made):
        return SchemaState("sqlite", "empty", None, _head(), _all_revisions(), (), None)
    async with connected(made) as connection:
        state: SchemaState = await connection.run_sync(_state)
        return state


async def migrate(url: str | URL, *, wait_s: float = WAIT_S) -> tuple[SchemaState, SchemaState]:
    """Bring the database to this release: where it stood under the lock, and where it stands.

    Ensures: of several at once one works and the others find it done; a migration that was killed is finished by the
    next one; every row is kept.
    Refuses: SchemaAheadError, SchemaLockedError.
    """
    async with connected(url, wait_s=wait_s) as connection:
        return await connection.run_sync(under_lock, wait_s, _migrate)


async def activate(url: str | URL, *, wait_s: float = WAIT_S) -> tuple[SchemaState, SchemaState]:
    """Let new runs start with this release's storage format: where the database stood, and where it stands.

    Ensures: repeatable; runs that exist, and rows of writers at work, stay as they are.
    Refuses: SchemaBehindError while the schema is not the one of this release, SchemaAheadError, SchemaLockedError.
    """
    made = read_url(url)
    if made.get_backend_name() == "sqlite" and not _exists(made):
        raise SchemaBehindError  # opening the file would make it
    async with connected(made, wait_s=wait_s) as connection:
        return await connection.run_sync(under_lock, wait_s, _activate)


def under_lock(connection: Connection, wait_s: float, work: Callable[[Connection], T]) -> T:
    """Do schema work while nobody else does any, and commit it.

    Refuses: SchemaLockedError when somebody holds a lock for longer than `wait_s` seconds.
    """
    try:
        with _quiet(), _locked(connection, wait_s):
            done = work(connection)
            connection.commit()
            return done
    except DBAPIError as error:
        if not _waited_in_vain(error):
            raise
    raise SchemaLockedError


@contextmanager
def _quiet() -> Iterator[None]:
    """MariaDB notes for each new table that primary keys have no names there, and asyncmy logs notes as warnings."""
    log = logging.getLogger("asyncmy")
    log.addFilter(_no_note)
    try:
        yield
    finally:
        log.removeFilter(_no_note)


def _no_note(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith("ignored for PRIMARY key.")


@contextmanager
def _locked(connection: Connection, wait_s: float) -> Iterator[None]:
    """The lock of this database: on SQLite and PostgreSQL it ends with the transaction, whatever pool is between."""
    kind = connection.dialect.name
    if kind == "sqlite":
        # Outside a transaction, where the setting counts: tables are rebuilt, and dropping one must delete nothing.
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield
    elif kind == "postgresql":
        connection.execute(text("SELECT set_config('lock_timeout', :wait, true)"), {"wait": f"{int(wait_s * 1000)}ms"})
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _number(_LOCK)})
        yield
    else:
        # The name counts on the whole server, so it holds the database's.
        name = f"{_LOCK}.{_number(str(connection.scalar(text('SELECT database()'))))}"
        connection.execute(text("SET SESSION lock_wait_timeout = :wait"), {"wait": max(1, int(wait_s))})
        if connection.scalar(text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": wait_s}) != 1:
            raise SchemaLockedError
        try:
            yield
        finally:
            if not connection.invalidated:
                connection.rollback()
                connection.execute(text("DO RELEASE_LOCK(:name)"), {"name": name})


def _number(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:7])


def _waited_in_vain(error: DBAPIError) -> bool:
    """SQLite busy, PostgreSQL's lock_not_available, MySQL's 1205."""
    raw: Any = error.orig
    if getattr(raw, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return True
    return getattr(raw, "sqlstate", None) == "55P03" or raw.args[:1] == (1205,)


def _migrate(connection: Connection) -> tuple[SchemaState, SchemaState]:
    before = _state(connection)
    if before.state == "ahead":
        raise SchemaAheadError
    if before.state == "current":
        if before.revision is None:
            command.stamp(_config(connection), "head")
        return before, _state(connection)
    if before.state == "behind" and before.revision in {None, before.head}:
        command.stamp(_config(connection), OLDEST_WITH_TABLES, purge=True)
    command.upgrade(_config(connection), "head")
    return before, _state(connection)


def _activate(connection: Connection) -> tuple[SchemaState, SchemaState]:
    before = _state(connection)
    if before.state == "ahead":
        raise SchemaAheadError
    if before.state != "current":
        raise SchemaBehindError
    write_format(connection)
    return before, _state(connection)


# -- where it stands --------------------------------------------------------------------------------------------------


def _state(connection: Connection) -> SchemaState:
    scripts, tables = _scripts(), set(inspect(connection).get_table_names())
    known = [script.revision for script in scripts.walk_revisions()][::-1]
    context = MigrationContext.configure(connection, opts={"version_table": dendrux_migrations.VERSION_TABLE})
    revisions = context.get_current_heads()
    revision = revisions[0] if revisions else None
    lacking = tuple(missing(connection)) if agent_runs.name in tables else ()
    storage_format = read_format(connection, tables)
    if any(each not in known for each in revisions) or storage_format not in {None, "1", STORAGE_FORMAT}:
        state: State = "ahead"
    elif agent_runs.name not in tables:
        state = "empty"
    elif lacking or revision not in {None, known[-1]}:
        state = "behind"
    else:
        state = "current"
    return SchemaState(
        database=_family(connection),
        state=state,
        revision=revision,
        head=known[-1],
        pending=_pending(state, revision, known),
        missing=lacking,
        storage_format=storage_format,
    )


def _pending(state: State, revision: str | None, known: list[str]) -> tuple[str, ...]:
    if state == "empty":
        return tuple(known)
    if state != "behind":
        return ()
    start = OLDEST_WITH_TABLES if revision in {None, known[-1]} else revision
    return tuple(known[known.index(str(start)) + 1 :])


def _family(connection: Connection) -> str:
    return "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name


def _exists(url: URL) -> bool:
    return is_memory(url) or file_of(url).exists()


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(dendrux_migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _all_revisions() -> tuple[str, ...]:
    return tuple(script.revision for script in _scripts().walk_revisions())[::-1]


def _head() -> str:
    return _all_revisions()[-1]
