"""What MySQL calls things. MariaDB is a short list of differences from it."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from sqlalchemy import FromClause, String, and_, exists, false, func, literal, select, type_coerce
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import GenericFunction

from dendrux.db.types import dumps
from dendrux.store.hookvalues import JsonPath, JsonValue


class Elements(GenericFunction[Any]):
    """The elements of a JSON array as rows of one column, `value`."""

    inherit_cache = True
    name = "dendrux_json_elements"


@compiles(Elements)
def _elements(element: Elements, compiler: SQLCompiler, **kw: Any) -> str:
    return f"JSON_TABLE({compiler.process(element.clauses, **kw)}, '$[*]' COLUMNS (value JSON PATH '$'))"


class MySQL:
    """Names, limits and JSON of MySQL."""

    family: ClassVar[str] = "mysql"
    oldest: ClassVar[tuple[int, ...]] = (8, 4)
    collation: ClassVar[str] = "utf8mb4_0900_bin"
    isolation: ClassVar[str] = "transaction_isolation"
    insert_returning: ClassVar[bool] = False

    # -- JSON: `found` is what json_extract gives, NULL where the path is missing --------------------------------------

    def member(self, col: ColumnElement[Any], path: JsonPath) -> ColumnElement[Any]:
        """The value at a path of a column."""
        return self.at(col, path)

    def at(self, document: ColumnElement[Any], path: JsonPath) -> ColumnElement[Any]:
        """The value at a path."""
        if not path:
            return document
        return type_coerce(func.json_extract(document, literal(written(path), String())), String())

    def kind(self, found: ColumnElement[Any], *words: str) -> ColumnElement[bool]:
        """Whether the value is of one of these JSON types."""
        return func.json_type(found).in_(words)

    def is_integer(self, found: ColumnElement[Any]) -> ColumnElement[bool]:
        """Whether the value is a number without fraction and exponent, and fits 64 bits."""
        return self.kind(found, "INTEGER", "UNSIGNED INTEGER")

    def is_float(self, found: ColumnElement[Any]) -> ColumnElement[bool]:
        """Whether the value is any other number."""
        return self.kind(found, "DOUBLE")

    def text(self, found: ColumnElement[Any]) -> ColumnElement[str]:
        """The characters of a JSON string, compared exactly."""
        return func.json_unquote(found, type_=String()).collate(self.collation)

    def contains(self, found: ColumnElement[Any], value: JsonValue) -> ColumnElement[bool]:
        """Whether a value holds another: a scalar is equal and of the same JSON type, a container has every member."""
        if isinstance(value, dict):
            members = [self.contains(self.at(found, (key,)), inner) for key, inner in value.items()]
            return and_(self.kind(found, "OBJECT"), *members)
        if isinstance(value, list):
            return and_(self.kind(found, "ARRAY"), *(self._has_element(found, inner) for inner in value))
        if value is None:
            return self.kind(found, "NULL")
        if isinstance(value, bool):
            return and_(self.kind(found, "BOOLEAN"), func.json_unquote(found) == dumps(value))
        if isinstance(value, str):
            return and_(self.kind(found, "STRING"), self.text(found) == value)
        if isinstance(value, int):
            return and_(self.is_integer(found), self.equals(found, value))
        return and_(self.is_float(found), self.equals(found, value))

    def equals(self, found: ColumnElement[Any], value: float) -> ColumnElement[bool]:
        """Whether a JSON number is this one: the server compares it as the type it has."""
        return found == literal(value)

    def _has_element(self, found: ColumnElement[Any], value: JsonValue) -> ColumnElement[bool]:
        each: FromClause = Elements(found).table_valued("value")
        # MySQL gives SQL NULL for an element that is null.
        same = self.contains(func.coalesce(each.c.value, "null") if value is None else each.c.value, value)
        return exists(select(literal(1)).select_from(each).where(same))

    def holds(self, col: ColumnElement[Any], path: JsonPath, value: JsonValue) -> ColumnElement[bool]:
        """`contains` at a path of a column; false where the path is missing."""
        return func.coalesce(self.contains(self.member(col, path), value), false())


def written(path: JsonPath) -> str:
    """A JSON path in the server's spelling: keys are quoted as JSON strings are."""
    parts = []
    for part in path:
        if isinstance(part, str):
            parts.append("." + json.dumps(part, ensure_ascii=False))
        else:
            parts.append(f"[{part}]" if part >= 0 else f"[last-{-part - 1}]" if part < -1 else "[last]")
    return "$" + "".join(parts)
