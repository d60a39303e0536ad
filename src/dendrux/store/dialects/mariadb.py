"""MariaDB: what it has and MySQL has not, and the other way round."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import and_, not_
from sqlalchemy.sql.elements import ColumnElement

from dendrux.store.dialects.mysql_server import MySQL

INTEGER = "^-?[0-9]+$"


class MariaDB(MySQL):
    """The differences from MySQL. JSON is text here, and json_extract keeps the digits of a number."""

    family: ClassVar[str] = "mariadb"
    oldest: ClassVar[tuple[int, ...]] = (10, 11)
    collation: ClassVar[str] = "utf8mb4_nopad_bin"
    isolation: ClassVar[str] = "tx_isolation"
    insert_returning: ClassVar[bool] = True

    def is_integer(self, found: ColumnElement[Any]) -> ColumnElement[bool]:
        """json_type calls 1e5 an integer, so the digits decide."""
        return and_(self.kind(found, "INTEGER"), found.regexp_match(INTEGER))

    def is_float(self, found: ColumnElement[Any]) -> ColumnElement[bool]:
        """A number that is no integer."""
        return and_(self.kind(found, "INTEGER", "DOUBLE"), not_(found.regexp_match(INTEGER)))

    def number(self, found: ColumnElement[Any]) -> ColumnElement[Any]:
        """Text that is compared with a number would be compared as DOUBLE, which has 53 bits."""
        return found
