"""The components of a history: calls that no run, identity, creation, blob or family connects do not see each other.

Each component changes runs and blobs of its own, so its search may begin from the whole world, and the ends of all
components are put together from what each of them changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from dendrux.runtime.values import BlobEdge
from dendrux_model.operations import (
    BlobInfo,
    BlobReferences,
    CancelSubtree,
    ChildRunsPage,
    CollectGarbage,
    CountRuns,
    CreateRun,
    GetDelegationInfo,
    GetLeaseExpired,
    GetSubtree,
    ListRuns,
    Operation,
    PurgeBlob,
    PutBlob,
    ReadBlob,
    SubtreeUsage,
)
from dendrux_model.operations.blobs import CollectedAlone
from dendrux_model.operations.delegation import Shown, SubtreeRuns, SubtreeSums
from dendrux_model.operations.leases import Sweep
from dendrux_model.possible import Possible
from dendrux_model.world import World

EVERYTHING: Final = (
    CancelSubtree,
    ChildRunsPage,
    CollectGarbage,
    CountRuns,
    GetDelegationInfo,
    GetLeaseExpired,
    GetSubtree,
    ListRuns,
    Shown,
    SubtreeRuns,
    SubtreeSums,
    SubtreeUsage,
    Sweep,
)
"""Operations over many runs or blobs: whatever another call touches, they may see."""

RUNS: Final = frozenset({"run_id", "root_run_id", "parent_run_id", "retry_of_run_id"})
IDENTITIES: Final = frozenset({"event_id", "trace_id", "row_id", "usage_id", "interaction_id", "note_id"})
"""Ids that are unique among all runs."""
BLOBS: Final = (BlobInfo, BlobReferences, PurgeBlob, PutBlob, ReadBlob)


def components(operations: Sequence[Operation], start: World) -> list[list[int]]:
    """The numbers of the operations from one world, component by component, each in order."""
    found: list[tuple[set[str], list[int]]] = []
    everything = any(isinstance(operation, EVERYTHING) for operation in operations)
    for number, operation in enumerate(operations):
        names = {"everything"} if everything else set(touched(operation, start))
        numbers = [number]
        for other in [one for one in found if one[0] & names]:
            found.remove(other)
            names |= other[0]
            numbers += other[1]
        found.append((names, sorted(numbers)))
    return sorted(numbers for _, numbers in found)


def touched(operation: Operation, start: World) -> Iterator[str]:
    """What a call may read or change, by name. Creations share one: they share keys, and lists show all runs."""
    if isinstance(operation, CreateRun):
        yield "births"
        if operation.idempotency_key is not None:  # it answers with the status of whichever run holds the key
            yield from (f"run {run.id}" for run in start.runs if run.idempotency_key == operation.idempotency_key)
    if isinstance(operation, CollectedAlone):
        yield f"blob {operation.collection.tenant_scope} {operation.sha256}"
    if isinstance(operation, BLOBS):
        content = operation.payload if isinstance(operation, PutBlob) else operation.sha256
        yield f"blob {operation.tenant_scope} {content}"
    yield from named(operation)


def named(value: Any) -> Iterator[str]:
    """The names in a call's arguments."""
    for field in fields(value):
        given = getattr(value, field.name)
        if field.name in RUNS and given is not None:
            yield f"run {given}"
        elif field.name in IDENTITIES and given is not None:
            yield f"row {given}"
        elif field.name in ("run_ids", "heads"):
            yield from (f"run {run_id}" for run_id in given)
        elif isinstance(given, BlobEdge):
            yield f"blob {given.tenant_scope} {given.sha256}"
        else:
            parts = given if isinstance(given, tuple) else (given,)
            for part in parts:
                if isinstance(part, BlobEdge):
                    yield f"blob {part.tenant_scope} {part.sha256}"
                elif is_dataclass(part):
                    yield from named(part)


def merged(start: Possible, ends: Sequence[Possible]) -> Possible | None:
    """One world with what each component changed; None when two of them take one instant for different times."""
    if len(ends) < 2:
        return ends[0] if ends else start
    clock = dict(start.clock)
    for end in ends:
        for place, time in end.clock.items():
            if clock.setdefault(place, time) != time:
                return None
    worlds = [end.world for end in ends]
    return Possible(start.world._replace(runs=runs(start.world, worlds), blobs=blobs(start.world, worlds)), clock)


def runs(start: World, ends: Sequence[World]) -> tuple[Any, ...]:
    """The runs of all components: one component at most created any, and it may have given them another order."""
    longest = max((world.runs for world in ends), key=len)
    changed = {run.id: run for world in ends for run, before in zip_by_id(world.runs, start.runs) if run is not before}
    return tuple(changed.get(run.id, run) for run in longest)


def zip_by_id(after: Sequence[Any], before: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Each run with its former self, or None."""
    known = {run.id: run for run in before}
    return ((run, known.get(run.id)) for run in after)


def blobs(start: World, ends: Sequence[World]) -> tuple[Any, ...]:
    """The blobs of all components: each changed, added or removed blobs that no other touched."""
    left = {blob[:2]: blob for blob in start.blobs}
    for world in ends:
        now = {blob[:2]: blob for blob in world.blobs}
        for key in [blob[:2] for blob in start.blobs if blob[:2] not in now]:
            left.pop(key, None)
        left |= {key: blob for key, blob in now.items() if blob not in start.blobs}
    return tuple(left.values())
