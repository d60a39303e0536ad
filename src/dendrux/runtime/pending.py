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


def pending_calls(members: dict[str, Any]) -> tuple[PendingCall, ...]:
    """The calls that the document names, each with its target. What is no call is passed over."""
    calls, targets = members["pending_tool_calls"], members["pending_targets"]
    targets = targets if isinstance(targets, dict) else {}
    return tuple(
        PendingCall(
            id=call["id"],
            name=call["name"],
            params=call.get("params"),
            target=call.get("target") or targets.get(call["id"]),
        )
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict) and isinstance(call.get("id"), str) and isinstance(call.get("name"), str)
    )
