"""What an operation answers: values, refusals, and the two ways of not knowing.

A refusal is an observation like any value. Unavailability promises no effect. Unknown promises nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Returned(NamedTuple):
    """The operation answered this value (plain data, see `values.py`)."""

    value: Any

    def __str__(self) -> str:
        return f"-> {self.value!r}"


class Refused(NamedTuple):
    """The store said no for a reason of state; `code` is the error's stable code."""

    code: str

    def __str__(self) -> str:
        return f"-> refused {self.code}"


class Unavailable(NamedTuple):
    """The store could not try. It promises that nothing was written."""

    code: str

    def __str__(self) -> str:
        return f"-> unavailable {self.code}"


class Unknown(NamedTuple):
    """The caller does not know whether the operation took effect: a lost acknowledgement."""

    code: str = "store_outcome_unknown"

    def __str__(self) -> str:
        return f"-> unknown ({self.code})"


class Cancelled(NamedTuple):
    """The caller was cancelled, and the call let the cancellation out. It took effect or did not, never in part."""

    def __str__(self) -> str:
        return "-> cancelled"


class Broken(NamedTuple):
    """The operation raised something outside the contract. No world of the model explains it."""

    error: str

    def __str__(self) -> str:
        return f"-> raised {self.error}, which no contract allows"


Outcome = Returned | Refused | Unavailable | Unknown | Cancelled | Broken

NONE: Final = Returned(None)
TRUE: Final = Returned(True)
FALSE: Final = Returned(False)

INVALID: Final = Refused("invalid")
"""A ValueError or TypeError: bad arguments, or what the run's format does not have."""
NOT_FOUND: Final = Refused("run_not_found")
NO_BLOB: Final = Refused("blob_not_found")
CONFLICT: Final = Refused("write_conflict")
STALE: Final = Refused("stale_claim")
CLOSED: Final = Refused("run_closed")
TERMINAL: Final = Refused("run_terminal")
NOT_STARTED: Final = Refused("tool_call_not_started")
KEY_CONFLICT: Final = Refused("idempotency_conflict")
OUTCOME_UNKNOWN: Final = Refused("store_outcome_unknown")
"""submit_and_claim refuses to say who owns the claim of a stored submission: certain, unlike Unknown."""
FAILED: Final = ("persistence_error", "store_unavailable", "store_busy")
"""Codes of a write that failed before its COMMIT was sent: certain, too."""
VALIDATION: Final = Refused("validate")
"""The caller's own `validate` raised."""


def codes_of(*, at_commit: bool) -> tuple[str, ...]:
    """The codes by which a page may name a run whose transaction was cut there."""
    return (OUTCOME_UNKNOWN.code,) if at_commit else FAILED
