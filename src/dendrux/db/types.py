"""Column types: how text, JSON, money and time are stored, so that each comes back exactly as it went in."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation, localcontext
from typing import Any, Final

from sqlalchemy import BindParameter, DateTime, Numeric, String, Text, cast, type_coerce
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from dendrux.vocabulary import MONEY_MAX

MONEY_QUANTUM: Final = Decimal("0.000001")
_EXACT: Final = Context(prec=28, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation])
"""Money is the same whatever decimal context the caller works in."""


class StoredValueError(ValueError):
    """A stored value cannot be read. Carries the kind of value, never the value."""


def dumps(value: Any) -> str:
    """The stored text of a JSON value: compact, members in order, U+0000 always as its escape.

    Refuses: NaN, infinities and values JSON does not have.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def canonical(value: Any) -> str:
    """Text that is equal for equal values only: members sorted; `1`, `1.0` and `true` are three values."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def loads(text: str) -> Any:
    """The value of a stored JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass  # the error would carry the document
    raise StoredValueError("a stored JSON document cannot be read")


def money(amount: Decimal | float | int) -> Decimal:
    """US dollars as stored: six decimal places, half even.

    Refuses: negative and non-finite amounts, and amounts above MONEY_MAX.
    """
    try:
        with localcontext(_EXACT):
            exact = Decimal(float.__repr__(amount)) if isinstance(amount, float) else Decimal(amount)
            if exact.is_finite() and 0 <= exact <= MONEY_MAX:
                # The addition turns -0 into 0.
                return exact.quantize(MONEY_QUANTUM) + 0
    except InvalidOperation:
        pass
    raise ValueError("must be a finite amount of at least 0 and at most 10^11")


# -- U+0000 where the database cannot store it ------------------------------------------------------------------------

_MARK: Final = "\x1a"
_MARKED: Final = re.compile(f"{_MARK}([AB])")
_ESCAPE: Final = re.compile(r"\\(?:u0000|u001a|.)", re.DOTALL)
_MARKED_ESCAPE: Final = re.compile(r"\\(?:u001[aA][AB]|.)", re.DOTALL)
_ENCODED: Final = {r"\u001a": r"\u001aA", r"\u0000": r"\u001aB"}
_DECODED: Final = {"A": r"\u001a", "B": r"\u0000"}


def lacks_nul(dialect: Dialect) -> bool:
    """Whether this database refuses U+0000 in text, and in the strings and keys of a document it converts."""
    return dialect.name == "postgresql"


def encoded_text(text: str) -> str:
    """Text without U+0000: U+001A becomes U+001A `A`, U+0000 becomes U+001A `B`."""
    return text.replace(_MARK, _MARK + "A").replace("\0", _MARK + "B")


def decoded_text(text: str) -> str:
    """The text that `encoded_text` was given; a mark that no encoding wrote stays."""
    return _MARKED.sub(lambda found: _MARK if found[1] == "A" else "\0", text) if _MARK in text else text


def encoded_document(text: str) -> str:
    """A document of `dumps` with every string and key of it as `encoded_text`: both characters stand as escapes."""
    if r"\u00" not in text:
        return text
    return _ESCAPE.sub(lambda found: _ENCODED.get(found[0], found[0]), text)


def decoded_document(text: str) -> str:
    """The document that `encoded_document` was given."""
    if r"\u001" not in text:
        return text
    # An escape is taken whole, so that an escaped backslash before these letters is no escape of theirs.
    return _MARKED_ESCAPE.sub(lambda found: found[0] if len(found[0]) == 2 else _DECODED[found[0][-1]], text)


class _JsonText(UserDefinedType[str]):
    """The type `json` of PostgreSQL, which keeps a document's text."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"


def on_mysql(dialect: Dialect) -> bool:
    """Whether the server is MySQL or MariaDB, whatever the engine's URL calls it."""
    return dialect.name in ("mysql", "mariadb")


def exact_collation(dialect: Dialect) -> str:
    """The collation that tells apart whatever differs, trailing spaces too. MySQL and MariaDB have none in common."""
    return "utf8mb4_nopad_bin" if getattr(dialect, "is_mariadb", False) else "utf8mb4_0900_bin"


class Word(TypeDecorator[str]):
    """An identifier, tenant, key or name: compared code point by code point, and of one length everywhere."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if on_mysql(dialect):
            return mysql.VARCHAR(self.length, charset="utf8mb4", collation=exact_collation(dialect))
        # On PostgreSQL a database's default may be a language's, whose order another version of its library changes.
        collation = "C" if dialect.name == "postgresql" else None
        return dialect.type_descriptor(String(self.length, collation=collation))


class Prose(TypeDecorator[str]):
    """Free text of any length and any characters."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _long_text(dialect) if on_mysql(dialect) else dialect.type_descriptor(Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return encoded_text(value) if value is not None and lacks_nul(dialect) else value

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return decoded_text(value) if value is not None and lacks_nul(dialect) else value


def _long_text(dialect: Dialect) -> TypeEngine[Any]:
    """TEXT there ends at 64 KiB."""
    return mysql.LONGTEXT(charset="utf8mb4", collation=exact_collation(dialect))


class Json(TypeDecorator[Any]):
    """A JSON document as text. The base serialises it itself; None is SQL NULL.

    The engine's serializer plays no part: it would decide about escapes, separators and NaN. Nor does a column type of
    the database's own that would store another text.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if lacks_nul(dialect):
            return dialect.type_descriptor(_JsonText())
        return _long_text(dialect) if on_mysql(dialect) else dialect.type_descriptor(Text())

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """As text also where a driver that is given `json` would parse it, with whatever the application configured."""
        as_json = isinstance(self.impl_instance, _JsonText)
        return type_coerce(cast(column, Text()), self) if as_json else column

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        return encoded_document(dumps(value)) if lacks_nul(dialect) else dumps(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        return loads(decoded_document(value) if lacks_nul(dialect) else value)


class _Microseconds(mysql.DATETIME):
    """DATETIME rounds to seconds unless told otherwise, and a plain literal there is text: in CASE or COALESCE it makes
    text of the column beside it.
    """

    def __init__(self, timezone: bool = False, fsp: int | None = 6) -> None:
        super().__init__(timezone=timezone, fsp=fsp)

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return cast(bindvalue, mysql.DATETIME(fsp=6))


class Instant(TypeDecorator[datetime]):
    """An instant: aware UTC with microseconds on both sides, whatever the database keeps."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _Microseconds() if on_mysql(dialect) else dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise StoredValueError("a datetime without time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Money(TypeDecorator[float]):
    """US dollars with six decimal places; a float on the way out."""

    impl = Numeric(18, 6, asdecimal=False)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        exact = money(value)
        return exact if dialect.supports_native_decimal else float(exact)

    def process_result_value(self, value: Any, dialect: Dialect) -> float | None:
        return None if value is None else float(value)
