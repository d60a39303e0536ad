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
    "23505": UNIQUE,
    "40001": DEADLOCK,
    "40P01": DEADLOCK,
    "55P03": TIMEOUT,
    "57P01": LOST,
    "57P02": LOST,
    "57P03": LOST,
    "25006": LOST,  # a read-only server: a primary that was demoted
    "54000": LARGE,
}
"""Class 08 is a lost connection as a whole."""

ERRNOS: Final = {
    1062: UNIQUE,
    1586: UNIQUE,
    1205: TIMEOUT,
    3572: TIMEOUT,
    1213: DEADLOCK,
    1020: DEADLOCK,
    1053: LOST,
    1290: LOST,
    1792: LOST,
    1927: LOST,
    2003: LOST,
    2006: LOST,
    2013: LOST,
    2014: LOST,
    2055: LOST,
    1153: LARGE,
    1301: LARGE,
}

PRIMARY_CODES: Final = {5: TIMEOUT, 6: DEADLOCK, 18: LARGE}
EXTENDED_CODES: Final = {517: DEADLOCK, 1555: UNIQUE, 2067: UNIQUE, 2579: UNIQUE}
"""An embedded database's codes: the low byte is the primary code, the whole number the extended one."""

_COLUMNS = re.compile(r"UNIQUE constraint failed: ([\w., ]+)")
_KEY = re.compile(r"for key '([^']+)'$")
_INTO = re.compile(r"INSERT INTO `?(\w+)")


def classify(exc: BaseException) -> DbError:
    """The default of the hook `classify_db_error`."""
    if isinstance(exc, PoolTimeout | OSError):
        return DbError(LOST)
    orig: Any = exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
    # The drivers that give a number give an SQLSTATE beside it, too, which says less.
    found = _embedded(orig) or _errno(orig, exc) or _sqlstate(orig) or DbError(OTHER)
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


def _sqlstate(orig: Any) -> DbError | None:
    state = getattr(orig, "sqlstate", None) or getattr(orig, "pgcode", None)
    if not isinstance(state, str):
        return None
    kind = LOST if state.startswith("08") else SQLSTATES.get(state, OTHER)
    name = getattr(orig, "constraint_name", None) or getattr(getattr(orig, "__cause__", None), "constraint_name", None)
    return DbError(kind, name if name in OUR_NAMES else None, state)


def _errno(orig: Any, exc: BaseException) -> DbError | None:
    args = getattr(orig, "args", ())
    if isinstance(orig, OSError) or not args or not isinstance(args[0], int) or isinstance(args[0], bool):
        return None
    kind = ERRNOS.get(args[0], OTHER)
    constraint = _key_of(str(args[-1]), getattr(exc, "statement", None)) if kind is UNIQUE else None
    return DbError(kind, constraint, str(args[0]))


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
