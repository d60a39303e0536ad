"""Records as JSON has them, for whoever hands them out: the command line and HTTP."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any


def plain(value: Any) -> Any:
    """A record as JSON has it: members by name, times in UTC that end in Z. Documents stay as they are stored."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return [plain(member) for member in value] if isinstance(value, list | tuple) else value


def instant(moment: datetime) -> str:
    """A time in UTC, to the microsecond, ending in Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
