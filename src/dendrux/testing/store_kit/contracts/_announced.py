"""Live updates of every write, with everything it takes, page after page, and of calls that change nothing."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final

from dendrux.runtime.values import BlobEdge, SeedTrace, TraceWrite, UsageStats
from dendrux.testing.driver import OVER_EVERY_RUN
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import Need, Situation, contract, needs_of
from dendrux.testing.store_kit.contracts._live import (
    FAMILY,
    OLD,
    READER,
    Announced,
    announces,
    live_of,
    nothing,
    touched,
)
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import LEASE_S, world_after
from dendrux.vocabulary import NO_TENANT
from dendrux_model.operations import (
    CancelSubtree,
    MarkLeaseExpired,
    MarkNotesDelivered,
    Operation,
    PutBlob,
    SweepStaleRuns,
    UpdateRunMeta,
)
from dendrux_model.programs import Do, Program
from dendrux_model.world import World, find

MORE: Final[dict[str, Any]] = {
    "correlation_id": "turn",
    "data": {"n": 1},
    "event_data": {"n": 1},
    "event_id": "given",
    "idempotency_key": "key",
    "iteration_count": 9,
    "parent_claim_epoch": 1,
    "parent_run_id": "p",
    "pii_mapping": {"<9>": "Bob"},
    "reason": "lunch",
    "retry_of_run_id": "p",
    "seed_traces": (SeedTrace(role="user", content="Hello"),),
    "submission_id": "given",
    "total_usage": UsageStats(input_tokens=9),
    "trace": TraceWrite(role="assistant", content="done", order_index=9, trace_id="final", trace_kind="final"),
    "validate": "accept",
}
"""A value for each optional parameter that a sample may have left out."""
LIVE: Final[frozenset[Need]] = frozenset({"live"})
FORMAT_2_ONLY: Final = frozenset({"seed_traces", "trace"})


def left_out(operation: Operation) -> set[str]:
    """The optional parameters that a call does not give."""
    return {f.name for f in fields(operation) if f.default is not MISSING and getattr(operation, f.name) == f.default}


def with_everything(sample: Sample, storage_format: int) -> Sample:
    """The sample with every optional parameter that it can have on runs of a format, an epoch and a blob among them."""
    call, before = sample.operation, sample.before
    names = left_out(call)
    run = find(world_after(before, storage_format), getattr(call, "run_id", ""))
    tenant = run.tenant_id if run is not None else getattr(call, "tenant_id", None)
    more = {name: MORE[name] for name in names & MORE.keys() if storage_format == 2 or name not in FORMAT_2_ONLY}
    if "tenant_id" in names and run is not None:
        more["tenant_id"] = tenant
    if "claim_epoch" in names and run is not None:
        more["claim_epoch"] = run.claim_epoch
    if "blob_refs" in names:
        scope = NO_TENANT if tenant is None else f"t:{tenant}"
        edge = BlobEdge(tenant_scope=scope, sha256="picture", owner_kind="row", owner_id="0", ordinal=0)
        more |= {"blob_refs": (edge,), "blob_refs_scope": scope}
        before = (*before, Do(PutBlob(payload="picture", tenant_scope=scope)))
    return Sample(operation=replace(call, **more), before=before, others={})


@dataclass(frozen=True)
class AnnouncedWithEverything:
    """A check: the write announces what it changed when it is given all that it takes."""

    sample: Sample

    async def __call__(self, situation: Situation) -> None:
        await Announced(with_everything(self.sample, situation.format))(situation)


def announces_everything(sample: Sample) -> None:
    """The contract of one write, unless its sample gives all that it takes."""
    forms = [form for form in (1, 2) if touched(sample.before, sample.operation, form)]
    whole = {form: with_everything(sample, form) for form in forms}
    if not any(one.operation != sample.operation for one in whole.values()):
        return
    for form, one in whole.items():
        if not touched(one.before, one.operation, form):
            raise ValueError(f"{one.operation} changes nothing on runs of format {form}: give it other arguments")
    only: frozenset[Need] = frozenset() if len(forms) == 2 else sample.needs
    contract(
        f"live_updates.{sample.method}.announced_with_everything",
        f"What {sample.method} changed is announced when every optional argument is given, too.",
        group="live_updates",
        capability=sample.capability,
        needs=READER | needs_of(whole[forms[-1]].before) | only,
        check=AnnouncedWithEverything(sample),
        cause="One way through the operation, taken when an optional argument is given, announces nothing.",
    )


for writing in samples():
    if writing.operation.lost_ack != "read":
        announces_everything(writing)

FIRST: Final = CancelSubtree(root_run_id="r", limit=2)
for paged, reached in (
    (replace(FIRST, after="child"), (*FAMILY, Do(FIRST))),
    (SweepStaleRuns(older_than_s=LEASE_S, limit=2), OLD),
    (MarkLeaseExpired(cutoff_s=LEASE_S, limit=2), OLD),
):
    announces(Sample(operation=paged, before=reached, others={}), "each_of_a_later_page")


# -- nothing to announce ----------------------------------------------------------------------------------------------

IDLE: Final[dict[str, Operation]] = {
    "mark_notes_delivered": MarkNotesDelivered(run_id="r", note_ids=("nowhere",), iteration=1),
    "update_run_meta": UpdateRunMeta(run_id="r", patch={}),
}
"""Calls that apply and change nothing."""


@dataclass(frozen=True)
class Quiet:
    """A check: of these calls, one after the other, those that change nothing a follower sees announce nothing."""

    sample: Sample

    async def __call__(self, situation: Situation) -> None:
        live = live_of(situation)
        await situation.bench.instance()
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run(self.sample.before, look=False)
        before: Program = self.sample.before
        for call in self.calls():
            changes = touched(before, call, situation.format)
            live.forget()
            await execution.step(Do(call))
            if not changes:
                nothing(live, str(call))
            before = (*before, Do(call))

    def calls(self) -> tuple[Operation, ...]:
        """A call under an epoch that nobody has yet, one that changes nothing, the sample, and the sample again."""
        call = self.sample.operation
        stale = (replace(call, claim_epoch=9),) if self.sample.takes("claim_epoch") else ()
        idle = (IDLE[call.method],) if call.method in IDLE else ()
        return (*stale, *idle, call, call)


def quiet(sample: Sample) -> None:
    """The contract of one write."""
    check = Quiet(sample)
    contract(
        f"live_updates.{sample.method}.nothing_to_announce",
        f"A call of {sample.method} that is refused, repeated or changes nothing a follower sees announces nothing.",
        group="live_updates",
        capability=sample.capability,
        needs=LIVE | needs_of(sample.before) | sample.needs,
        check=check,
        cause="Every call announces its run: hand over only the ids of runs whose row or log the write has changed.",
    )


for writing in samples():
    if writing.operation.lost_ack != "read" and writing.method not in OVER_EVERY_RUN:
        quiet(writing)
