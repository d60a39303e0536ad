"""Writes that are cut: stored once or not at all, and the caller can find out by repeating."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dendrux.testing.store_kit.contract import CONTRACTS, contract
from dendrux.testing.store_kit.contracts._crashes import STATEMENT, Crash, Family, exists, families, refused_on
from dendrux.testing.store_kit.contracts._samples import Sample, samples

PROMISES: Final = {
    "claim": "answers that its outcome is unknown, and nobody is given the same epoch again.",
    "identity": "is settled by its identity: stored once, and a repeat is answered the same.",
    "natural": "takes effect once, whoever repeats it.",
    "unknown": "took effect once or not at all, never in part.",
    "paged": "names the run in failed and goes on with the page.",
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
UNDONE: Final = "has no effect when it fails, and leaves neither a transaction nor a connection behind."
UNDONE_CAUSE: Final = (
    "The statements of the write are not one transaction, or its connection is not given back when one of them fails."
)
GONE: Final = "takes effect once or not at all, lets the cancellation out, and lets others write at once."
GONE_CAUSE: Final = (
    "The cancellation was swallowed, or came between a statement and the rollback: roll back and give the connection "
    "back before it goes on to the caller."
)
EARLY_CAUSE: Final = (
    "A plain read was taken for proof that nothing was written, while COMMIT was still on its way: repeat the write, "
    "whose first statement waits for the row."
)


def words(sample: Sample, family: Family) -> tuple[str, str]:
    """What a family of cuts promises, and the likely cause when it does not hold."""
    call = sample.operation
    if family.name == "cancelled":
        return GONE, GONE_CAUSE
    if family.cells[0][0] == STATEMENT:
        return UNDONE, UNDONE_CAUSE
    repeated = call.lost_ack in ("identity", "natural")
    late = repeated and family.name == "commit_delayed"
    return PROMISES[call.lost_ack], EARLY_CAUSE if late else CAUSES[call.lost_ack]


def cut(sample: Sample) -> None:
    """The contracts of one operation. Raises ValueError for a sample that has nothing to cut."""
    if not exists(sample, 1 if refused_on(sample) == 2 else 2):
        raise ValueError(f"{sample.method}: the sample changes nothing, so there is no COMMIT to cut")
    for family in families(sample):
        promise, cause = words(sample, family)
        check = Crash(sample, family)
        added = contract(
            f"crash_recovery.{sample.method}.{family.name}",
            f"{sample.method} {family.how} {promise}",
            group="crash_recovery",
            needs=check.needs,
            cause=cause,
            check=check,
        )
        CONTRACTS[added.id] = replace(added, program=check.shown)


for writing in samples():
    if writing.operation.lost_ack != "read":
        cut(writing)
