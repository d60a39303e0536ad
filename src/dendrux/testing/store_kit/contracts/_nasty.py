"""Values that stores are known to bend: names that fold, text that is cut or re-encoded, numbers that change type."""

from __future__ import annotations

from typing import Any, Final


def wide(length: int) -> str:
    """A name of this many code points of four bytes each."""
    return "\U0001d4ea" * length


ALIKE: Final = (
    "t",
    "t ",
    " t",
    "T",
    "t\t",
    "t_",
    "t%",
    "\u00e9",  # e with acute, one code point
    "e\u0301",  # the same to a reader, two code points
    "e",
    "\u00df",  # sharp s
    "ss",
    "i",
    "\u0131",  # dotless i
    "\uff54",  # full-width t
    "t\u200b",  # followed by a zero-width space
    "\U0001d42d",  # a t of four bytes
    "'",
    '"',
    "\\",
    f"{wide(47)}x",
    f"{wide(47)}y",
)
"""Names that a folding, padding, normalising or shortened comparison takes for one another."""

TENANTS: Final = (None, "", *(ALIKE[i] for i in (0, 1, 3, 7, 8, 10, 11)))
"""Untenanted, the empty tenant, and names that look alike."""

TEXTS: Final = (
    "",
    " ",
    "trailing space ",
    "\u0000",
    "a\u0000b",
    "\x1a",
    "\x1aA \x1aB",
    "\x01\x1f\x7f\x80\ufeff\ufffd\uffff",
    "line\nline\r\nline\rtab\t",
    "\u00e9 e\u0301 \u00df \u0131 \u4e2d\u6587 \u05d0\u0627",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0010ffff",
    "'; DROP TABLE agent_runs; -- \" \\ % ? :name $1 %s {x}",
    "null",
    "{}",
    "\\u0000 \\ud800",
)
"""Text that must come back as it went in."""

LONG: Final = "0123456789 \u00e9\u4e2d\U0001f600\n" * 50_000
"""Text of about a megabyte, in characters of one to four bytes."""

NUMBERS: Final[dict[str, Any]] = {
    "one": 1,
    "one_point_zero": 1.0,
    "yes": True,
    "one_as_text": "1",
    "zero": 0,
    "no": False,
    "minus_zero": -0.0,
    "tenth": 0.1,
    "e16": 1e16,
    "smallest": 5e-324,
    "largest": 1.7976931348623157e308,
    "past_double": 2**53 + 1,
    "past_signed": 2**63,
    "past_unsigned": 2**64,
    "below_signed": -(2**63) - 1,
    "huge": 10**40,
}
ORDERED: Final[dict[str, Any]] = {"z": 1, "a": {"y": 1, "b": 2}, "m": [3, 1, 2], "A": 4}
HOLLOW: Final[dict[str, Any]] = {
    "object": {},
    "array": [],
    "text": "",
    "null": None,
    "deep": [[], {}, [None], {"k": None}],
}
WORDS: Final[dict[str, Any]] = {f"text {i}": text for i, text in enumerate(TEXTS)}
KEYS: Final[dict[str, Any]] = {
    key: i
    for i, key in enumerate(("", " ", "a.b", "a b", '"', "'", "$", "$.a", "[0]", "\\", "\u0000", "\x1aB", *ALIKE, "1"))
}
DEEPEST: Final = 98
"""Levels of a document: two fewer than it may have, because some contracts put one document into another."""


def deep() -> dict[str, Any]:
    """As many levels as a document may have, of lists and objects in turn."""
    value: Any = "leaf"
    for level in range(DEEPEST - 1):
        value = {"k": value} if level % 10 == 9 else [value]
    return {"a": value}


DEEP: Final = deep()

DOCUMENTS: Final[tuple[dict[str, Any], ...]] = ({}, NUMBERS, ORDERED, HOLLOW, WORDS, KEYS, DEEP)
"""JSON objects that must come back with the same members, in the same order, of the same types."""

VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    1,
    1.0,
    -0.0,
    2**64,
    "",
    "text",
    "\u0000",
    [],
    [1, [2.0]],
    {},
    NUMBERS,
)
"""JSON values of every kind."""
