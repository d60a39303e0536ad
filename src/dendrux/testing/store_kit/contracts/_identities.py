"""Repeating a write by its identity: stored once, answered the same, and never mistaken for another write."""

from __future__ import annotations

from collections.abc import Callable
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
from dendrux_model.outcomes import CONFLICT, Outcome, Refused, Returned
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


EARLIER: Final = (
    "The identity is looked at before the fence, so work is handed to somebody who does not own the run any more."
)


def repeated(before: Program, call: Any, formats: tuple[int, ...] = (1, 2)) -> Outcome:
    """The answer of a repeat, which must change nothing, on these formats alike."""
    outcome = expected(before, call, formats)
    if not isinstance(outcome, Returned) or any(changes(before, call, form) for form in formats):
        raise ValueError(f"{call.method}: not a repeat according to the model")
    return outcome


def moved_on(before: Program) -> Program:
    """The run under a later owner; nothing more when it has ended."""
    run = find(world_after(before, 2), "r")
    assert run is not None
    if run.status in TERMINAL_STATUSES:
        return before
    steps = (paused(), claimed()) if run.status == RUNNING else (claimed(),)
    return (*before, *steps)


def over(before: Program) -> Program:
    """The run after its end."""
    run = find(world_after(before, 2), "r")
    return before if run is not None and run.status in TERMINAL_STATUSES else (*before, ended())


def identity(sample: Sample) -> None:
    """The contracts of one operation."""
    method = sample.method
    call = replace(sample.operation, claim_epoch=OWNER) if sample.operation.fenced else sample.operation
    done = (*sample.before, Do(call))
    by_id = f"{call.identity}"

    def repeats(claim: str, promise: str, *steps: Any, cause: str = TWICE) -> None:
        needs = sample.needs
        contract(f"retry_ids.{method}.{claim}", promise, *steps, group="retry_ids", cause=cause, needs=needs)

    def again(before: Program, one: Any = call) -> Outcome:
        return repeated(before, one, sample.formats)

    once = f"{method} repeated with the same {by_id} and content is stored once"
    if method in UNSEEN:
        contract(f"retry_ids.{method}.stored_once", f"{once}.", group="retry_ids", unverified=UNSEEN[method])
    repeats(
        "answered_alike" if method in UNSEEN else "stored_once",
        f"{once} and answered the same.",
        *done,
        Look(),
        Do(call, expect=again(done)),
        Do(call, expect=again(done)),
    )
    if stored(sample):
        repeats(
            "other_content_conflicts",
            f"{method} with a known {by_id} and anything else in its content is a write conflict and changes nothing.",
            *done,
            Look(),
            *(Do(other, expect=CONFLICT) for other in others(sample, call)),
            cause=OTHER,
        )
    if call.fence_first:
        fenced_repeats(sample, call, done, repeats)
        return
    later = moved_on(done)
    repeats(
        "repeats_under_a_later_epoch",
        f"{method} is recognised as a repeat after the run got another owner, under the old epoch and without one.",
        *later,
        Look(),
        Do(call, expect=again(later)),
        *(
            (Do(replace(call, claim_epoch=None), expect=again(later, replace(call, claim_epoch=None))),)
            if call.fenced and not call.owners_only
            else ()
        ),
        cause=LATER,
    )
    repeats(
        "repeats_after_the_end",
        f"{method} is recognised as a repeat after the run has ended.",
        *over(done),
        Look(),
        Do(call, expect=again(over(done))),
        cause=LATER,
    )
    if call.identity != "run_id":
        repeats(
            "other_run_conflicts",
            f"{method} with a {by_id} that a row of another run has is a write conflict and changes neither run.",
            born("s"),
            *done,
            Look(),
            Do(in_other_run(call), expect=CONFLICT),
            cause=OTHER,
        )


def in_other_run(call: Any) -> Any:
    """The call on a run that was just born: by its owner where nobody else may call, else by no owner."""
    epoch = {"claim_epoch": 1 if call.owners_only else None} if call.fenced else {}
    return replace(call, run_id="s", **epoch)


def fenced_repeats(sample: Sample, call: Any, done: Program, repeats: Callable[..., None]) -> None:
    """The contracts of an operation whose fence comes before its identity, because it hands out or orders work."""
    method, by_id = sample.method, f"{call.identity}"
    states = (
        ("repeats_under_a_later_epoch", "after the run got another owner", moved_on(done)),
        ("repeats_after_the_end", "after the run has ended", over(done)),
    )
    for claim, when, before in states:
        refusal = expected(before, call, sample.formats)
        if not isinstance(refusal, Refused):
            raise ValueError(f"{method}: the model does not refuse a repeat {when}")
        promise = f"{method} is refused to its former owner {when}, also as a repeat."
        repeats(claim, promise, *before, Look(), Do(call, expect=refusal), cause=EARLIER)
    if call.identity_of_run:
        return
    repeats(
        "other_run_conflicts",
        f"{method} with a {by_id} that a row of another run has is a write conflict and changes neither run.",
        born("s"),
        *done,
        Look(),
        Do(in_other_run(call), expect=CONFLICT),
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
