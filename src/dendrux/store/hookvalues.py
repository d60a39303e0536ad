"""What hooks take and return: small values with which a store author builds SQL, and nothing private."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from sqlalchemy import Column, Select
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ColumnElement

from dendrux.vocabulary import UNSCOPED, TenantScope

JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
JsonPath = Sequence[str | int]
"""Literal object keys and array indexes; a negative index counts from the end."""

JsonReadType = Literal["json", "str", "int", "bool"]
ScalarKey = str | int
LockIntent = Literal["share", "update", "update_no_key"]
ValuesSource = Mapping[str, Any]
"""Values by column name; empty when the base passes them as it runs the statement."""

OrderedAssignments = Sequence[tuple[ColumnElement[Any], Any]]
"""The SET list of an update, in order: some databases let a later assignment see an earlier one."""

InsertMode = Literal["targeted_ignore", "raise_unique"]


@dataclass(frozen=True, slots=True)
class SelectSource:
    """An INSERT ... SELECT. The select always carries a WHERE, which some grammars need before a conflict clause."""

    columns: Sequence[str]
    select: Select[Any]


@dataclass(frozen=True, slots=True)
class ConflictSpec:
    """The one clash that an insert absorbs: plain columns of one unique key."""

    target: Sequence[Column[Any]]
    predicate: ColumnElement[bool] | None = None
    constraint: str | None = None
    """The name of that key."""


@dataclass(frozen=True, slots=True)
class InsertPlan:
    """An insert, and who notices the clash: the database absorbs it, or raises for the base to classify."""

    statement: Executable
    mode: InsertMode


@dataclass(frozen=True, slots=True)
class SetFields:
    """Set members of a JSON object; the rest of the document stays as it is."""

    fields: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class AppendArray:
    """Append one value to the array at a path."""

    path: JsonPath
    value: JsonValue


@dataclass(frozen=True, slots=True)
class PatchLoopState:
    """Set and delete members of the loop state."""

    fields: Mapping[str, JsonValue]


JsonPatch = SetFields | AppendArray | PatchLoopState


@dataclass(frozen=True, slots=True)
class RunLockScope:
    """The run whose notes are counted."""

    run_id: str
    tenant_id: TenantScope = UNSCOPED


@dataclass(frozen=True, slots=True)
class RunParentCursor:
    """Where a page of children goes on: after `after`, the id of the last child seen of this parent."""

    parent_run_id: str
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectFacts:
    """What was found out about the server on first use. `features` overrides the store's flags."""

    server_family: str = ""
    server_version: str = ""
    features: Mapping[str, bool] = field(default_factory=dict)
    max_allowed_packet: int | None = None


class DbErrorKind(StrEnum):
    """What a database's error means for the transaction it ended."""

    UNIQUE_VIOLATION = "unique_violation"
    DEADLOCK_OR_SERIALIZATION = "deadlock_or_serialization"
    LOCK_TIMEOUT = "lock_timeout"
    CONNECTION_LOST = "connection_lost"
    STATEMENT_TOO_LARGE = "statement_too_large"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class DbError:
    """A driver's error without the driver's words."""

    kind: DbErrorKind | str
    constraint: str | None = None
    """The name of the violated constraint, None when unknown."""
    code: str | None = None
    """A stable code: SQLSTATE, errno or the driver's error name."""


FEATURES: Final = (
    "supports_update_returning",
    "supports_insert_returning",
    "supports_row_locks",
    "ddl_transactional",
)
"""The flags that DialectFacts.features may override."""
