"""Which way through an operation's step a call took: what exploration covers and certificates count."""

from __future__ import annotations

from typing import Final

from dendrux_model.operations import Operation
from dendrux_model.outcomes import Broken, Outcome, Refused, Returned
from dendrux_model.world import World

SWAPS: Final = frozenset({"ClaimPausedRun", "FinalizeWithEvent", "PauseWithEvent", "SubmitAndClaim"})
"""Operations whose None says that the guard was lost; for the others None is all they ever say."""


def branch(before: World, operation: Operation, outcome: Outcome, after: World) -> str:
    """One word for the way this call took.

    A refusal is its code. A read is `shown` or `absent`. A write is `applied`, `lost` (its guard did not hold) or
    `unchanged` (a repeat, or nothing to do), unless the answer has a word of its own (`full`, `existing_active`).
    """
    if isinstance(outcome, Refused):
        return outcome.code
    if not isinstance(outcome, Returned):
        return "broken" if isinstance(outcome, Broken) else outcome.code
    value = outcome.value
    if operation.lost_ack == "read":
        return "shown" if value else "absent"
    if after is not before:
        return "applied"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        word = str(value["outcome"])
        return "created-again" if word == "created" else word
    if value is False or (value is None and type(operation).__name__ in SWAPS):
        return "lost"
    return "unchanged"
