"""MariaDB: what it has and MySQL has not, and the other way round."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, Final

from sqlalchemy import Double, String, and_, case, cast, func, literal, not_, or_, type_coerce
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.types import dumps
from dendrux.store.dialects.mysql_server import MySQL
from dendrux.store.hookvalues import JsonPath, JsonValue

INITIALS: Final = {"OBJECT": r"^\{", "ARRAY": r"^\[", "STRING": '^"', "BOOLEAN": "^[tf]", "NULL": "^n"}
NUMBER: Final = "^[-0-9]"
INTEGER: Final = "^-?[0-9]+$"

VALUES: Final = (
    r'(?(DEFINE)(?<s>\s*+"(?:[^"\\]++|\\.)*+"\s*+)'
    r"(?<v>(?&s)|\s*+(?:\[(?:(?&v)(?:,(?&v))*+|\s*+)\]|\{(?:(?&s):(?&v)(?:,(?&s):(?&v))*+|\s*+)\}|[-+.\w]++)\s*+))"
)
"""JSON for the server's regular expressions, which take documents of any depth: a string, and a value."""


class MariaDB(MySQL):
    """The differences from MySQL. JSON is text, whose digits the functions keep; they read 31 levels and no more."""

    family: ClassVar[str] = "mariadb"
    oldest: ClassVar[tuple[int, ...]] = (10, 11)
    collation: ClassVar[str] = "utf8mb4_nopad_bin"
    isolation: ClassVar[str] = "tx_isolation"
    insert_returning: ClassVar[bool] = True

    def member(self, col: ColumnElement[Any], path: JsonPath) -> ColumnElement[Any]:
        """What the functions cannot read, a regular expression finds."""
        found: ColumnElement[Any] = col
        for part in path:
            found = func.nullif(func.regexp_substr(found, literal(_pattern(part), String()), type_=String()), "")
        return type_coerce(case((func.json_valid(col) == 1, self.at(col, path)), else_=func.trim(found)), String())

    def kind(self, found: ColumnElement[Any], *words: str) -> ColumnElement[bool]:
        """By its first character: json_type calls 1e5 an integer and has no answer to a deep document."""
        return or_(*(found.regexp_match(INITIALS[word]) for word in words))

    def is_integer(self, found: ColumnElement[Any]) -> ColumnElement[bool]:
        """A number without fraction and exponent."""
        return found.regexp_match(INTEGER)

    def is_float(self, found: ColumnElement[Any]) -> ColumnElement[bool]:
        """Any other number."""
        return and_(found.regexp_match(NUMBER), not_(found.regexp_match(INTEGER)))

    def equals(self, found: ColumnElement[Any], value: float) -> ColumnElement[bool]:
        """Integers by their digits: text and number would be compared with 53 bits."""
        return found == dumps(value) if isinstance(value, int) else cast(found, Double()) == value

    def contains(self, found: ColumnElement[Any], value: JsonValue) -> ColumnElement[bool]:
        """As everywhere; a container that is too deep to look into has to be the same text."""
        inside = super().contains(found, value)
        return or_(inside, found == dumps(value)) if isinstance(value, dict | list) else inside


def _pattern(part: str | int) -> str:
    """Finds the value of one key, or the element of one index, of a document."""
    if isinstance(part, str):
        key = re.escape(json.dumps(part, ensure_ascii=False))
        return rf"{VALUES}^\s*+\{{(?:(?&s):(?&v),)*?\s*+{key}\s*+:\K(?&v)"
    if part >= 0:
        return rf"{VALUES}^\s*+\[(?:(?&v),){{{part}}}\K(?&v)"
    return rf"{VALUES}^\s*+\[(?:(?&v),)*?\K(?&v)(?=(?:,(?&v)){{{-part - 1}}}\])"
