"""What a paused run waits for, without the rest of its pause document."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A tool call that somebody outside has to answer."""

    id: str
    name: str
    params: Any
    target: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork:
    """What a paused run waits for."""

    status: str
    reason: str | None
    iteration: int | None
    calls: tuple[PendingCall, ...]
    paused_at: datetime | None
