"""Reads of what another instance wrote, of everything that no other contract reads after every write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dendrux.runtime.values import BlobEdge, EventWrite, UsageStats
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._reads import LOOK
from dendrux.testing.store_kit.contracts._samples import samples
from dendrux.testing.store_kit.contracts._states import DUE, LEASE_S, answer, born, claimed, ended, paused
from dendrux.vocabulary import NO_TENANT
from dendrux_model.operations import (
    GetLeaseExpired,
    MarkLeaseExpired,
    Operation,
    PutBlob,
    ReclaimRun,
    SaveLLMInteraction,
    SaveRunEvent,
    SaveTrace,
    StartToolCall,
)
from dendrux_model.programs import Do, Program, Step, calls

CACHE: Final = "A read is answered from a cache that only the instance's own writes clear."
SEEN: Final = frozenset(type(call.operation) for call in calls(LOOK))
"""The reads that are checked after every write."""
REST: Final[tuple[Operation, ...]] = tuple(
    one.operation
    for one in samples()
    if one.operation.lost_ack == "read" and type(one.operation) not in SEEN | {GetLeaseExpired}
)
"""Every other read, as its sample calls it."""


def started(epoch: int) -> Do:
    """A tool call is started, or handed out again."""
    event = EventWrite(event_type="tool.started", event_id="started")
    call = StartToolCall(
        run_id="r", row_id="row", tool_call_id="call", tool_name="mail", claim_epoch=epoch, event=event
    )
    return Do(call)


PICTURE: Final = BlobEdge(tenant_scope=NO_TENANT, sha256="picture", owner_kind="row", owner_id="0", ordinal=0)
WRITES: Final[Program] = (
    born("c", parent_run_id="r", delegation_level=1),
    Do(SaveTrace(run_id="r", role="user", content_text="x", order_index=0, trace_id="t")),
    Do(SaveLLMInteraction(run_id="r", iteration_index=0, usage=UsageStats(input_tokens=5), interaction_id="i")),
    Do(SaveLLMInteraction(run_id="c", iteration_index=0, usage=UsageStats(input_tokens=7), interaction_id="j")),
    Do(SaveRunEvent(run_id="r", event_type="work", event_id="e")),
    Do(PutBlob(payload="picture")),
    Do(SaveTrace(run_id="r", role="user", content_text="x", order_index=1, trace_id="u", blob_refs=(PICTURE,))),
    started(1),
    paused(),
    claimed(),
    started(2),
    ended("c"),
    ended(),
)
"""Writes that together change what these reads show."""


def watched(writes: Program, reads: tuple[Operation, ...]) -> Iterator[Step]:
    """The writes, and after each the reads on another instance that it gives another answer, on runs of some format."""
    done: Program = (born(),)
    yield from (*done, *(Do(read, 1) for read in reads))
    for write in writes:
        after = (*done, write)
        yield write
        for read in reads:
            if any(answer(done, read, form) != answer(after, read, form) for form in (1, 2)):
                yield Do(read, 1)
        done = after


contract(
    "concurrency.run_usage.sees_other_instances",
    "Reads of families, usage, conversations, pauses and blobs show what another instance wrote since they were made.",
    *watched(WRITES, REST),
    group="concurrency",
    cause=CACHE,
)
contract(
    "concurrency.get_lease_expired.sees_other_instances",
    "The list of runs without an owner shows what another instance marked and took over since it was read.",
    *DUE,
    Do(GetLeaseExpired(), 1),
    Do(MarkLeaseExpired(cutoff_s=LEASE_S)),
    Do(GetLeaseExpired(), 1),
    Do(ReclaimRun(run_id="r", expected_epoch=1)),
    Do(GetLeaseExpired(), 1),
    group="concurrency",
    capability="recovery",
    cause=CACHE,
)
