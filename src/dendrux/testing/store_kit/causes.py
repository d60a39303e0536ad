"""Where to look first when a program fails: what a contract says of itself, or what the failing step looks like.

A cause is a guess from the symptom. The finding is the program; this only shortens the way to the line.
"""

from __future__ import annotations

import builtins
from typing import Final

from dendrux.testing.execution import Failed, Line
from dendrux.testing.store_kit.contract import Contract
from dendrux_model.outcomes import CONFLICT, INVALID, NONE, NOT_FOUND, STALE, Broken, Refused, Returned
from dendrux_model.programs import Fault, Look, Together

NO_FENCE: Final = (
    "The epoch is not part of the write: an UPDATE or INSERT of the store's own without the epoch in its condition."
)
OWNER_REFUSED: Final = "The epoch is compared with something else than the epoch of the run's row as it is now."
TWICE: Final = (
    "The identity is not part of what must be unique, or insert_if_absent_stmt lets a clash on another key pass."
)
NOT_RECOGNISED: Final = (
    "A repeat is not recognised as one: what was stored reads otherwise than it was written (rounding, folding, JSON)."
)
SWALLOWED: Final = f"{NO_FENCE} Or it was refused, and an except of the store's own swallowed that."
OWN_CODE: Final = "The code of the store at the line that is named: what it raises is no answer of the protocol."
INVALID_CAUSE: Final = (
    "Good arguments were taken for bad ones: "
    "an override lacks a parameter of the base method, or a check is too strict."
)
RAISED: Final = "The error of the driver is one that classify_db_error does not know, or a hook raises one of its own."
NOT_FOUND_CAUSE: Final = (
    "A row is not found by the name it was stored under: a collation that folds or pads, or a scope compared inexactly."
)
TENANTS: Final = "A scope is compared inexactly: a collation that folds case or pads, or idempotency_scope_predicate."
LOG: Final = (
    "Two writers of one log can take the same number: insert_if_absent_stmt, serialize_in_tx or reserve_parent_writer."
)
CAP: Final = "serialize_in_tx does not hold from the count of the notes to the end of the transaction."
JSON: Final = (
    "json_contains, json_get or metadata_filter_predicate compares by something else than value and JSON type."
)
RACE: Final = (
    "What decides the write was read before it took the run's row, or supports_update_returning is True for a database "
    "whose conditional update is not atomic."
)
CUT: Final = "A failed COMMIT is reported as a failure, or the write is repeated without looking for its identity."
PART: Final = "A part of a write is outside of its transaction (a commit in a hook), or a value is not stored as given."
GUARD: Final = "The condition of the write leaves out a rule about the state of the run, or reads it before the lock."


DECISIVE: Final = frozenset({NO_FENCE, OWNER_REFUSED, TWICE, NOT_RECOGNISED, SWALLOWED, OWN_CODE, INVALID_CAUSE})
"""What an answer says for certain about where it went wrong, whatever the contract is about."""


def likely(contract: Contract | None, failed: Failed | None) -> str | None:
    """Where to look first. None when nothing is known: no cause of the contract's own, and no program.

    What one answer says by itself, such as a stale epoch that was accepted, comes before what the contract is about.
    """
    plain = of_an_answer(failed.lines[-1]) if failed is not None and alone(failed) else None
    if plain in DECISIVE:
        return plain
    if contract is not None and contract.cause is not None:
        return contract.cause
    if failed is None or not failed.lines:
        return None
    step, line = failed.program[-1], failed.lines[-1]
    if isinstance(step, Together):
        return RACE
    if isinstance(step, Fault):
        return CUT
    return of_an_answer(line) or of_a_method(line.call, looked=isinstance(step, Look))


def alone(failed: Failed) -> bool:
    """Whether the finding is the answer of one call, with nothing in its way and nobody beside it."""
    return failed.replayable and bool(failed.lines) and not isinstance(failed.program[-1], Fault | Together)


def of_an_answer(line: Line) -> str | None:
    """What an answer tells that the model does not allow."""
    if isinstance(line.observed, Broken):
        return OWN_CODE if hasattr(builtins, line.observed.error.partition(":")[0]) else RAISED
    refusals = {outcome for outcome in line.allowed if isinstance(outcome, Refused)}
    if line.observed == INVALID and INVALID not in refusals:
        return INVALID_CAUSE
    if line.observed == NONE and refusals == {STALE}:
        return SWALLOWED
    if isinstance(line.observed, Returned) and len(refusals) == len(line.allowed):
        return {STALE: NO_FENCE, CONFLICT: TWICE}.get(next(iter(refusals)), GUARD)
    if isinstance(line.observed, Refused) and line.observed not in refusals:
        return {STALE: OWNER_REFUSED, CONFLICT: NOT_RECOGNISED, NOT_FOUND: NOT_FOUND_CAUSE}.get(line.observed, GUARD)
    return None


def of_a_method(call: str, *, looked: bool) -> str:
    """What a value tells that is not the model's."""
    method = call.partition("(")[0]
    if method in ("get_run_events", "get_events_for_runs", "save_run_event"):
        return LOG
    if method == "add_note":
        return CAP
    if "metadata_filter" in call:
        return JSON
    if "tenant_id" in call and not looked:
        return TENANTS
    return PART if looked or method.startswith(("get_", "list_", "count_")) else GUARD
