"""Writes that are cut at COMMIT: stored once or not at all, and the caller can find out by repeating."""

from __future__ import annotations

from typing import Any, Final

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import answer, changes, claimed, expected
from dendrux_model.operations import GetRun
from dendrux_model.outcomes import INVALID, Refused, Returned
from dendrux_model.programs import Do, Fault, Look, Point, Program

POINTS: Final[dict[Point, str]] = {
    "before_commit": "whose COMMIT never reached the database",
    "after_commit": "whose COMMIT was applied and never acknowledged",
}
KINDS: Final = {"error": "an error of the driver", "invalidated": "a lost connection"}

PROMISES: Final = {
    "claim": "{} {} ({}) answers that its outcome is unknown, and nobody is given the same epoch again.",
    "identity": "{} {} ({}) is settled by its identity: stored once, and a repeat is answered the same.",
    "natural": "{} {} ({}) takes effect once, whoever repeats it.",
    "unknown": "{} {} ({}) took effect once or not at all, never in part.",
    "paged": "{} {} ({}) names the run in failed and goes on with the page.",
}
CAUSES: Final = {
    "claim": "A claim was repeated, or looked up, after a failed COMMIT: always raise StoreOutcomeUnknown then.",
    "identity": "A failed COMMIT is reported as a failure, or the repeat does not look for its identity: repeat the "
    "whole transaction on a fresh connection, where the identity finds the row or the write is applied.",
    "natural": "A failed COMMIT is reported as a failure: this operation can simply be repeated once.",
    "unknown": "A failed COMMIT left a part of the write, or the call was repeated though nothing makes it repeatable.",
    "paged": "A failed COMMIT of one run ended the call, or the page is one transaction: give each run its own, and "
    "report the one that failed.",
}


def settled(sample: Sample) -> Program:
    """What comes after the cut: another look, and the same call again."""
    call = sample.operation
    if call.lost_ack == "claim":
        look = Do(GetRun(run_id=call.run_id))
        rival = (claimed(expected_status=call.expected_status),) if hasattr(call, "expected_status") else ()
        return (look, *rival, Do(call))
    repeatable = call.lost_ack in ("identity", "natural")
    again = expected((*sample.before, Do(call)), call, sample.formats) if repeatable else None
    return (Look(), Do(call, expect=again if isinstance(again, Returned) else None))


def cut(sample: Sample) -> None:
    """The contracts of one operation: both sides of COMMIT, both kinds of failure."""
    call: Any = sample.operation
    needs: set[Any] = set() if changes(sample.before, call, 1) else {"format_2"}
    if needs and not changes(sample.before, call, 2):
        raise ValueError(f"{sample.method}: the sample changes nothing, so there is no COMMIT to cut")
    refused = answer(sample.before, call, 2)
    for point, where in POINTS.items():
        for kind, how in KINDS.items():
            name = f"crash_recovery.{sample.method}.{point}_{kind}"
            promise = PROMISES[call.lost_ack].format(sample.method, where, how)
            steps = (*sample.before, Fault(Do(call), point, kind), *settled(sample))
            cause = CAUSES[call.lost_ack]
            if isinstance(refused, Refused):  # format 2 does not have this operation
                by_format(
                    name,
                    promise,
                    one=steps,
                    two=(*sample.before, Do(call, expect=INVALID)),
                    group="crash_recovery",
                    cause=cause,
                )
            else:
                contract(name, promise, *steps, group="crash_recovery", needs=needs, cause=cause)


for writing in samples():
    if writing.operation.lost_ack != "read":
        cut(writing)
