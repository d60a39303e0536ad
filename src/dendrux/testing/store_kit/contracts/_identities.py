"""Repeating a write by its identity: stored once, answered the same, and never mistaken for another write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._samples import Sample, samples, stored
from dendrux.testing.store_kit.contracts._states import (
    OWNER,
    born,
    changes,
    claimed,
    ended,
    expected,
    paused,
    world_after,
)
from dendrux.vocabulary import RUNNING, TERMINAL_STATUSES
from dendrux_model.outcomes import CONFLICT, Outcome, Returned
from dendrux_model.programs import Do, Look, Program
from dendrux_model.world import find

TWICE: Final = (
    "The caller's id is not the row's unique key, or the insert ignores clashes on another key: find the row by its id "
    "before anything else and answer from it."
)
OTHER: Final = (
    "A row with this id is taken for a repeat without comparing what it holds: compare a digest of everything the "
    "caller stores, with 1, 1.0 and true as three values."
)
UNSEEN: Final = {
    "save_usage": "save_usage retry identity: usage rows cannot be read through the protocol, so a duplicate row is "
    "not detected"
}
"""Operations whose rows no read shows, and what is therefore not verified."""
LATER: Final = (
    "The fence, or the check that the run is open, comes before the look at the identity: a repeat of a write that "
    "landed must be answered as the first call was."
)


def repeated(before: Program, call: Any) -> Outcome:
    """The answer of a repeat, which must change nothing, on both formats alike."""
    outcome = expected(before, call)
    if not isinstance(outcome, Returned) or any(changes(before, call, form) for form in (1, 2)):
        raise ValueError(f"{call.method}: not a repeat according to the model")
    return outcome


def moved_on(before: Program) -> Program:
    """The run under a later owner; nothing more when it has ended."""
    run = find(world_after(before, 1), "r")
    assert run is not None
    if run.status in TERMINAL_STATUSES:
        return before
    steps = (paused(), claimed()) if run.status == RUNNING else (claimed(),)
    return (*before, *steps)


def over(before: Program) -> Program:
    """The run after its end."""
    run = find(world_after(before, 1), "r")
    return before if run is not None and run.status in TERMINAL_STATUSES else (*before, ended())


def identity(sample: Sample) -> None:
    """The contracts of one operation."""
    method = sample.method
    call = replace(sample.operation, claim_epoch=OWNER) if sample.operation.fenced else sample.operation
    done = (*sample.before, Do(call))
    by_id = f"{call.identity}"

    def repeats(claim: str, promise: str, *steps: Any, cause: str = TWICE) -> None:
        contract(f"retry_ids.{method}.{claim}", promise, *steps, group="retry_ids", cause=cause)

    once = f"{method} repeated with the same {by_id} and content is stored once"
    if method in UNSEEN:
        contract(f"retry_ids.{method}.stored_once", f"{once}.", group="retry_ids", unverified=UNSEEN[method])
    repeats(
        "answered_alike" if method in UNSEEN else "stored_once",
        f"{once} and answered the same.",
        *done,
        Look(),
        Do(call, expect=repeated(done, call)),
        Do(call, expect=repeated(done, call)),
    )
    repeats(
        "other_content_conflicts",
        f"{method} with a known {by_id} and anything else in its content is a write conflict and changes nothing.",
        *done,
        Look(),
        *(Do(other, expect=CONFLICT) for other in others(sample, call)),
        cause=OTHER,
    )
    later = moved_on(done)
    repeats(
        "repeats_under_a_later_epoch",
        f"{method} is recognised as a repeat after the run got another owner, under the old epoch and without one.",
        *later,
        Look(),
        Do(call, expect=repeated(later, call)),
        *((Do(replace(call, claim_epoch=None), expect=repeated(later, call)),) if call.fenced else ()),
        cause=LATER,
    )
    repeats(
        "repeats_after_the_end",
        f"{method} is recognised as a repeat after the run has ended.",
        *over(done),
        Look(),
        Do(call, expect=repeated(over(done), call)),
        cause=LATER,
    )
    if call.identity != "run_id":
        repeats(
            "other_run_conflicts",
            f"{method} with a {by_id} that a row of another run has is a write conflict and changes neither run.",
            born("s"),
            *done,
            Look(),
            Do(replace(call, run_id="s", **({"claim_epoch": None} if call.fenced else {})), expect=CONFLICT),
            cause=OTHER,
        )


def others(sample: Sample, call: Any) -> list[Any]:
    """The call with one stored parameter changed at a time. Every one of them must have another value."""
    missing = set(stored(sample)) ^ set(sample.others)
    if missing:
        raise ValueError(f"{sample.method}: other values are not those of the stored parameters: {sorted(missing)}")
    return [replace(call, **{name: value}) for name, values in sample.others.items() for value in values]


for repeatable in samples():
    if repeatable.operation.identity is not None:
        identity(repeatable)
