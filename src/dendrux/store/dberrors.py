"""What a driver's error means, from its codes; never from its words, which may hold data.

The one text that is read is the column list or key of a unique violation, and only to find the constraint of our own
schema.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dendrux.db.models import metadata
from dendrux.store.hookvalues import DbError, DbErrorKind

UNIQUE, DEADLOCK = DbErrorKind.UNIQUE_VIOLATION, DbErrorKind.DEADLOCK_OR_SERIALIZATION
TIMEOUT, LOST, LARGE, OTHER = (
    DbErrorKind.LOCK_TIMEOUT,
    DbErrorKind.CONNECTION_LOST,
    DbErrorKind.STATEMENT_TOO_LARGE,
    DbErrorKind.OTHER,
)

SQLSTATES: Final = {
    "23505": UNIQUE,  # unique_violation
    "40001": DEADLOCK,  # serialization_failure
    "40P01": DEADLOCK,  # deadlock_detected
    "55P03": TIMEOUT,  # lock_not_available: lock_timeout ran out
    "57014": TIMEOUT,  # query_canceled: statement_timeout ran out, or an operator cancelled
    "57P01": LOST,  # admin_shutdown
    "57P02": LOST,  # crash_shutdown
    "57P03": LOST,  # cannot_connect_now: starting up, shutting down, or recovering
    "57P04": LOST,  # database_dropped
    "57P05": LOST,  # idle_session_timeout
    "25P03": LOST,  # idle_in_transaction_session_timeout
    "25P04": LOST,  # transaction_timeout
    "25006": LOST,  # read_only_sql_transaction: a primary that was demoted
    "53300": LOST,  # too_many_connections
    "0A000": LOST,  # feature_not_supported: a plan this connection prepared before a migration; no statement of ours
    "54000": LARGE,  # program_limit_exceeded
    "54001": LARGE,  # statement_too_complex
    "54023": LARGE,  # too_many_arguments
}
"""What PostgreSQL calls an error (its manual, appendix "PostgreSQL Error Codes"). Class 08, connection_exception, is a
lost connection as a whole. A kind LOST also means that the connection is not used again.
"""

ERRNOS: Final = {
    1062: UNIQUE,  # ER_DUP_ENTRY
    1586: UNIQUE,  # ER_DUP_ENTRY_WITH_KEY_NAME
    1205: TIMEOUT,  # ER_LOCK_WAIT_TIMEOUT: the statement alone is rolled back, so the store rolls back the rest
    3572: TIMEOUT,  # ER_LOCK_NOWAIT
    1213: DEADLOCK,  # ER_LOCK_DEADLOCK
    1020: DEADLOCK,  # ER_CHECKREAD: MariaDB with innodb_snapshot_isolation
    1047: LOST,  # ER_UNKNOWN_COM_ERROR: a Galera node that has not joined
    1053: LOST,  # ER_SERVER_SHUTDOWN
    1290: LOST,  # ER_OPTION_PREVENTS_STATEMENT: read_only, a primary that was demoted
    1792: LOST,  # ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
    1836: LOST,  # ER_READ_ONLY_MODE
    1927: LOST,  # ER_CONNECTION_KILLED: MariaDB
    3169: LOST,  # ER_SESSION_WAS_KILLED: MySQL
    4031: LOST,  # ER_CLIENT_INTERACTION_TIMEOUT
    0: LOST,  # a driver's "not connected"
    2003: LOST,  # CR_CONN_HOST_ERROR
    2006: LOST,  # CR_SERVER_GONE_ERROR
    2013: LOST,  # CR_SERVER_LOST
    2014: LOST,  # CR_COMMANDS_OUT_OF_SYNC
    2055: LOST,  # CR_SERVER_LOST_EXTENDED
    1153: LARGE,  # ER_NET_PACKET_TOO_LARGE
    1301: LARGE,  # ER_WARN_ALLOWED_PACKET_OVERFLOWED
    2020: LARGE,  # CR_NET_PACKET_TOO_LARGE
}
"""By the names in MySQL's and MariaDB's error references: ER_ is the server's, CR_ the client library's.

ER_QUERY_INTERRUPTED (1317) is not here: somebody ended the statement, and it is not for the store to run it again.
"""

PRIMARY_CODES: Final = {5: TIMEOUT, 6: DEADLOCK, 18: LARGE}
EXTENDED_CODES: Final = {517: DEADLOCK, 1555: UNIQUE, 2067: UNIQUE, 2579: UNIQUE}
"""An embedded database's codes: the low byte is the primary code, the whole number the extended one."""

_COLUMNS = re.compile(r"UNIQUE constraint failed: ([\w., ]+)")
_KEY = re.compile(r"for key '([^']+)'$")
_INTO = re.compile(r"INSERT INTO `?(\w+)")


def classify(exc: BaseException) -> DbError:
    """The default of the hook `classify_db_error`."""
    if isinstance(exc, PoolTimeout | OSError | EOFError):
        return DbError(LOST)
    orig: Any = exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
    # The drivers that give a number give an SQLSTATE beside it, too, which says less.
    found = _embedded(orig) or _errno(orig, exc) or _sqlstate(orig) or _unnumbered(orig)
    if isinstance(exc, DBAPIError) and exc.connection_invalidated:
        return DbError(LOST, None, found.code)
    return found


def _embedded(orig: Any) -> DbError | None:
    code = getattr(orig, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return None
    kind = EXTENDED_CODES.get(code) or PRIMARY_CODES.get(code & 0xFF, OTHER)
    constraint = constraint_of(str(orig)) if kind is UNIQUE else None
    return DbError(kind, constraint, getattr(orig, "sqlite_errorname", None) or str(code))


def sqlstate_of(exc: BaseException) -> str | None:
    """The five characters by which a server names its error, from whichever layer of the exception has them."""
    orig = exc.orig if isinstance(exc, DBAPIError) else exc
    for layer in (orig, getattr(orig, "__cause__", None)):
        state = getattr(layer, "sqlstate", None)
        if isinstance(state, str):
            return state
    return None


def _sqlstate(orig: Any) -> DbError | None:
    state = sqlstate_of(orig)
    if state is None:
        return None
    kind = LOST if state.startswith("08") else SQLSTATES.get(state, OTHER)
    return DbError(kind, _constraint_name(orig), state)


def _constraint_name(orig: Any) -> str | None:
    """The violated constraint where the driver names it, if it is one of ours."""
    for layer in (orig, getattr(orig, "__cause__", None), getattr(orig, "diag", None)):
        name = getattr(layer, "constraint_name", None)
        if name in OUR_NAMES:
            return str(name)
    return None


def _errno(orig: Any, exc: BaseException) -> DbError | None:
    args = getattr(orig, "args", ())
    if isinstance(orig, OSError) or not args or not isinstance(args[0], int) or isinstance(args[0], bool):
        return None
    kind = ERRNOS.get(args[0], OTHER)
    constraint = _key_of(str(args[-1]), getattr(exc, "statement", None)) if kind is UNIQUE else None
    return DbError(kind, constraint, str(args[0]))


def _unnumbered(orig: Any) -> DbError:
    """What a server says has a number; an InternalError of asyncmy without one is a stream it can no longer follow."""
    lost = type(orig).__name__ == "InternalError" and type(orig).__module__.startswith("asyncmy.")
    return DbError(LOST if lost else OTHER)


def _key_of(message: str, statement: str | None) -> str | None:
    """The name of our constraint that a message ends with. A primary key has none, and its table need not be named."""
    named = _KEY.search(message)
    if named is None:
        return None
    table, _, name = named.group(1).rpartition(".")
    if name == "PRIMARY":
        inserted = None if statement is None else _INTO.match(statement)
        table = table or (inserted.group(1) if inserted else "")
        name = f"pk_{table}"
    return name if name in OUR_NAMES else None


def constraint_of(message: str) -> str | None:
    """The name of our constraint over exactly the columns that a message lists, None for anybody else's."""
    listed = _COLUMNS.search(message)
    return None if listed is None else OUR_KEYS.get(frozenset(listed.group(1).split(", ")))


def _our_keys() -> dict[frozenset[str], str]:
    return {
        frozenset(f"{table.name}.{column.name}" for column in constraint.columns): str(constraint.name)
        for table in metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint)
    }


OUR_KEYS: Final = _our_keys()
OUR_NAMES: Final = frozenset(OUR_KEYS.values())
