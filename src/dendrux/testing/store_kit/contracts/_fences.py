"""Who may write: for every operation that takes an epoch, the owner is accepted and everybody else leaves nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import (
    OWNED,
    OWNER,
    answer,
    born,
    changes,
    ended,
    expected,
    noted,
    paused,
)
from dendrux_model.outcomes import FALSE, NONE, Refused
from dendrux_model.programs import Do, Look, Program


class Stranger(NamedTuple):
    """A state of the run in which this epoch gives no right to write."""

    claim: str
    promise: str
    before: Program
    epoch: int


STRANGERS: Final = (
    Stranger("refuses_old_epoch", "An owner who lost a running run cannot use {} on it", OWNED, OWNER - 1),
    Stranger(
        "refuses_old_epoch_while_paused",
        "An owner who lost a run cannot use {} on it when it is paused again",
        (*OWNED, paused()),
        OWNER - 1,
    ),
    Stranger(
        "refuses_old_epoch_after_the_end",
        "An owner who lost a run cannot use {} on it after its end",
        (*OWNED, ended()),
        OWNER - 1,
    ),
    Stranger("refuses_epoch_nobody_has_yet", "{} refuses an epoch that no owner was given", (born(), noted()), 2),
    Stranger(
        "refuses_owner_of_paused_run",
        "Who paused a run cannot use {} on it before claiming it again",
        (born(), noted(), paused()),
        1,
    ),
    Stranger("refuses_owner_of_ended_run", "Who ended a run cannot use {} on it any more", (*OWNED, ended()), OWNER),
)

CAUSE: Final = (
    "The statement that changes the run does not compare claim_epoch with the caller's, or rows are inserted before "
    "that comparison holds the run: compare and write in one transaction that locks the run first."
)
CAUSE_OWNER: Final = (
    "The comparison with claim_epoch refuses its equal: look at how the epoch is bound, and at the "
    "status the update asks for."
)


def left_nothing(state: Stranger, sample: Sample) -> bool:
    """Whether the model refuses this call, or lets it lose its guard, on both formats and without any change."""
    call = replace(sample.operation, claim_epoch=state.epoch)
    return all(
        (isinstance(outcome := answer(state.before, call, form), Refused) or outcome in (NONE, FALSE))
        and not changes(state.before, call, form)
        for form in (1, 2)
    )


def fence(sample: Sample) -> None:
    """The contracts of one operation."""
    for state in STRANGERS:
        if not left_nothing(state, sample):
            raise ValueError(f"{sample.method}: the model does not refuse where it {state.claim.replace('_', ' ')}")
        call = replace(sample.operation, claim_epoch=state.epoch)
        contract(
            f"fenced_writes.{sample.method}.{state.claim}",
            state.promise.format(sample.method) + ", and the attempt leaves no trace.",
            *state.before,
            Look(),
            Do(call, expect=expected(state.before, call, sample.formats)),
            group="fenced_writes",
            needs=sample.needs,
            cause=CAUSE,
        )
    call = replace(sample.operation, claim_epoch=OWNER)
    contract(
        f"fenced_writes.{sample.method}.accepts_owner",
        f"The owner of a running run can use {sample.method} on it.",
        *sample.before,
        Do(call, expect=expected(sample.before, call, sample.formats)),
        group="fenced_writes",
        needs=sample.needs,
        cause=CAUSE_OWNER,
    )


for fenced in samples():
    if fenced.operation.fenced:
        fence(fenced)
