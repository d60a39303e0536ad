"""How commands print: tables that a terminal can show, and JSON that a program can read."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dendrux.runtime.plain import plain

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NOTHING: Final = "-"


def encoded(value: Any) -> str:
    """One line of JSON. Nothing in it ends a line or steers a terminal: control characters are escaped by JSON."""
    return json.dumps(plain(value), ensure_ascii=True, allow_nan=False)


def seen(moment: datetime | None) -> str:
    """A time in UTC for people, to the second."""
    return NOTHING if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def shown(value: Any, width: int | None = None) -> str:
    """Any value on one line. What others stored cannot steer the terminal: unprintable characters are escaped."""
    if value is None:
        return NOTHING
    if isinstance(value, datetime):
        return seen(value)
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return line if width is None or len(line) <= width else f"{line[: max(width - 3, 0)]}..."


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns side by side, each as wide as its widest cell; the last one is not padded."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def facts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names with their values, one to a line."""
    known = list(pairs)
    width = max(len(name) for name, _ in known)
    return [f"{name.ljust(width)}  {value}".rstrip() for name, value in known]


# -- arguments --------------------------------------------------------------------------------------------------------


def duration(text: str) -> timedelta:
    """A length of time such as `90s`, `30m`, `2h`, `7d` or `1h30m`."""
    if not re.fullmatch(r"(\d{1,9}[smhd])+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time: write 90s, 30m, 2h, 7d or 1h30m")
    seconds = sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))
    if seconds > 365_000 * 86400:
        raise argparse.ArgumentTypeError("at most 365000d")
    return timedelta(seconds=seconds)


def moment(text: str) -> datetime:
    """An ISO 8601 time; one without an offset is in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no ISO 8601 time, such as 2026-01-31T08:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def within(least: int, most: int) -> Any:
    """A type of argument: a whole number in these bounds."""

    def number(text: str) -> int:
        if not re.fullmatch(r"-?\d{1,10}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{least} to {most}")
        return int(text)

    return number
