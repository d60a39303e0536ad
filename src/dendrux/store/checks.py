"""The checks that parameters are held to. Each answers the value to use, or raises naming the parameter."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from dendrux.db.types import dumps, money
from dendrux.runtime.values import (
    UsageStats,
)
from dendrux.vocabulary import (
    ID_LENGTH,
    LOOP_STATE_MAX,
    NAME_LENGTH,
    STATUSES,
    STATUSES_MAX,
    TYPE_LENGTH,
    UNSCOPED,
)

Check = Callable[[str, Any], Any]

INT_MAX: Final = 2**31 - 1
"""Counts and indexes: the width of an integer column everywhere."""

TOKENS_MAX: Final = 2**44 - 1
"""Tokens of one call or run, and milliseconds: what millions of rows can be summed of in 64 bits."""

EVENTS_LIMIT_MAX: Final = 100
DURATION_MAX: Final = timedelta(days=365_000)
CURSOR_LENGTH: Final = 512
"""Code points of a cursor that a page gave: a place, never a list of runs."""
NESTING_MAX: Final = 100
"""Levels of a JSON document: what every database's JSON functions can follow."""

FILTER_KEYS_MAX: Final = 100
FILTER_NODES_MAX: Final = 1000
FILTER_LISTS_MAX: Final = 5
"""A filter becomes one expression: what every database's limits on expressions allow."""

_FILTER_KEY: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


# -- text -------------------------------------------------------------------------------------------------------------


def text(name: str, value: Any) -> str:
    """Free text: any Unicode string that can be encoded."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if _SURROGATE.search(value):
        raise ValueError(f"{name} must not contain lone surrogates")
    return str.__str__(value)  # of a subclass, such as an Enum of strings, the characters and nothing else


def identifier(length: int, *, empty: bool = False) -> Check:
    """An id, name or type: compared exactly, so nothing in it may be lost on any database."""

    def check(name: str, given: Any) -> str:
        value = text(name, given)
        if not value and not empty:
            raise ValueError(f"{name} must not be empty")
        if "\0" in value:
            raise ValueError(f"{name} must not contain U+0000")
        if len(value) > length:
            raise ValueError(f"{name} must have at most {length} characters, not {len(value)}")
        return value

    return check


def one_of(words: Iterable[str]) -> Check:
    """One of a few words, which the message lists."""
    known = sorted(words)

    def check(name: str, given: Any) -> str:
        value = text(name, given)
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}")
        return value

    return check


def optional(check: Check) -> Check:
    """None, or what the check accepts."""
    return lambda name, value: None if value is None else check(name, value)


# -- numbers, flags, times --------------------------------------------------------------------------------------------


def integer(least: int, most: int) -> Check:
    """A whole number within bounds; a bool is none."""

    def check(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
        number = int.__int__(value)
        if not least <= number <= most:
            raise ValueError(f"{name} must be between {least} and {most}")
        return number

    return check


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def instant(name: str, value: Any) -> datetime:
    """An aware datetime, as UTC."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(f"{name} must be timezone-aware")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        pass
    raise ValueError(f"{name} must be between the years 1 and 9999 in UTC")


def duration(name: str, value: Any) -> timedelta:
    """How long ago, from now."""
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {type(value).__name__}")
    if not timedelta(0) <= value <= DURATION_MAX:
        raise ValueError(f"{name} must be between 0 and {DURATION_MAX.days} days")
    return value


def usage(name: str, value: Any) -> UsageStats:
    """A UsageStats, its cost rounded as it will be stored."""
    if not isinstance(value, UsageStats):
        raise TypeError(f"{name} must be a UsageStats, not {type(value).__name__}")
    plain: dict[str, Any] = {}
    for field in ("input_tokens", "output_tokens", "total_tokens"):
        plain[field] = count(f"{name}.{field}", getattr(value, field))
    for field in ("cache_read_input_tokens", "cache_creation_input_tokens", "reasoning_tokens"):
        plain[field] = optional(count)(f"{name}.{field}", getattr(value, field))
    cost = value.cost_usd
    if cost is None:
        return replace(value, **plain)
    if isinstance(cost, bool) or not isinstance(cost, Decimal | float | int):
        raise TypeError(f"{name}.cost_usd must be a number, not {type(cost).__name__}")
    try:
        return replace(value, cost_usd=money(cost), **plain)
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{name}.cost_usd {reason}")


count = integer(0, TOKENS_MAX)


# -- JSON -------------------------------------------------------------------------------------------------------------


def json_value(name: str, value: Any) -> Any:
    """A JSON value that comes back exactly as it went in: a copy, so that a later change of the argument is not seen.

    Refuses: NaN and infinities, lone surrogates, keys that are not strings, other types, deep nesting.
    """
    _walk(name, value, 1)
    try:
        encoded = dumps(value)
    except ValueError as error:
        reason = "NaN or infinity" if "float" in str(error) else "an integer too long to write down"
    else:
        if not _SURROGATE.search(encoded):
            return json.loads(encoded)
        reason = "lone surrogates"
    raise ValueError(f"{name} must not contain {reason}")


def _walk(name: str, value: Any, depth: int) -> None:
    """`depth`: the level that the value is on; the document itself is the first."""
    if depth > NESTING_MAX:
        raise ValueError(f"{name} must not be nested more than {NESTING_MAX} levels deep")
    if isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{name} must have string keys, not {type(key).__name__}")
            if isinstance(member, dict | list | tuple) or not isinstance(member, _SCALARS):
                _walk(name, member, depth + 1)
    elif isinstance(value, list | tuple):
        for member in value:
            if isinstance(member, dict | list | tuple) or not isinstance(member, _SCALARS):
                _walk(name, member, depth + 1)
    elif not isinstance(value, _SCALARS):
        raise TypeError(f"{name} must be JSON, which has no {type(value).__name__}")


_SCALARS: Final = (str, int, float, bool, type(None))


def json_object(name: str, value: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, not {type(value).__name__}")
    copy: dict[str, Any] = json_value(name, value)
    return copy


def mapping(name: str, value: Any) -> dict[str, str]:
    """Placeholders and what they stand for: strings to strings."""
    copy = json_object(name, value)
    for member in copy.values():
        if not isinstance(member, str):
            raise TypeError(f"{name} must map strings to strings, not to {type(member).__name__}")
    return copy


def metadata_filter(name: str, value: Any) -> dict[str, Any]:
    """Top-level keys of meta with the values they must hold."""
    copy = json_object(name, value)
    if len(copy) > FILTER_KEYS_MAX:
        raise ValueError(f"{name} must have at most {FILTER_KEYS_MAX} keys, not {len(copy)}")
    left = [FILTER_NODES_MAX]
    for key, wanted in copy.items():
        if not _FILTER_KEY.match(key):
            raise ValueError(f"{name} keys must match [A-Za-z0-9_-]+")
        _small_numbers(name, wanted)
        _addressable(name, wanted, left)
    return copy


def _addressable(name: str, value: Any, left: list[int], depth: int = 0) -> None:
    """A container is asked for member by member, so it is small and its keys can be named in a path of a document."""
    if not isinstance(value, dict | list):
        return
    depth += isinstance(value, list)
    if depth > FILTER_LISTS_MAX:
        raise ValueError(f"{name} must not hold lists nested more than {FILTER_LISTS_MAX} levels deep")
    left[0] -= len(value)
    if left[0] < 0:
        raise ValueError(f"{name} must have at most {FILTER_NODES_MAX} members in its lists and dicts")
    if isinstance(value, dict) and any(_ESCAPED.search(key) for key in value):
        raise ValueError(f"{name} keys must not contain a double quote, a backslash or a control character")
    for member in value.values() if isinstance(value, dict) else value:
        _addressable(name, member, left, depth)


def _small_numbers(name: str, value: Any) -> None:
    """A number that a database compares exactly must fit its integers."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} integers must fit 64 bits")
    if isinstance(value, dict | list | tuple):
        for member in value.values() if isinstance(value, dict) else value:
            _small_numbers(name, member)


def loop_state(name: str, value: Any) -> dict[str, Any]:
    """A patch of the loop state, of which what it sets alone must fit."""
    patch = json_object(name, value)
    fits(name, {key: member for key, member in patch.items() if member is not None})
    return patch


def fits(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """A loop state within its bound. Refuses: ValueError."""
    size = len(dumps(state).encode())
    if size > LOOP_STATE_MAX:
        raise ValueError(f"{name} must have at most {LOOP_STATE_MAX} bytes when it is encoded, not {size}")
    return state


# -- lists ------------------------------------------------------------------------------------------------------------


def several(check: Check, *, most: int | None = None, least: int = 0) -> Check:
    """A list whose members the check accepts. A bare string is one value passed by mistake."""

    def check_all(name: str, value: Any) -> list[Any]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | frozenset | set):
            raise TypeError(f"{name} must be a list, not {type(value).__name__}")
        if len(value) < least:
            raise ValueError(f"{name} must have at least {least} member")
        if most is not None and len(value) > most:
            raise ValueError(f"{name} must have at most {most} members, not {len(value)}")
        return [check(name, member) for member in value]

    return check_all


def heads(name: str, value: Any) -> dict[str, int]:
    """Run ids with the last index that was read of each; -1 before the first."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    if len(value) > STATUSES_MAX:
        raise ValueError(f"{name} must have at most {STATUSES_MAX} members, not {len(value)}")
    return {row_id(name, run_id): integer(-1, INT_MAX)(name, head) for run_id, head in value.items()}


def any_status(name: str, value: Any) -> list[str]:
    """A status or a list of them, as a list; an empty list matches nothing."""
    return [known_status(name, value)] if isinstance(value, str) else several(known_status)(name, value)


def scope(name: str, value: Any) -> Any:
    """UNSCOPED, None, or a tenant."""
    return value if value is UNSCOPED else tenant(name, value)


def function(name: str, value: Any) -> Any:
    """Something to call."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")
    return value


def plain_function(name: str, value: Any) -> Any:
    """Something to call whose work is done when it returns."""
    function(name, value)
    for called in (value, getattr(value, "__call__", None)):  # noqa: B004  an object may be called through a coroutine
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(f"{name} must be a plain function, not an async one")
    return value


def anything(_name: str, value: Any) -> Any:
    """A legacy parameter that is accepted and ignored."""
    return value


row_id = identifier(ID_LENGTH)
title = identifier(NAME_LENGTH)
kind = identifier(TYPE_LENGTH)
tenant = optional(identifier(NAME_LENGTH, empty=True))
epoch = optional(integer(1, INT_MAX))
index = integer(0, INT_MAX)
known_status = one_of(STATUSES)
