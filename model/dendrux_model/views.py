"""The view: everything the protocol can show of the runs in a set of worlds, as the reads that show it."""

from __future__ import annotations

from collections.abc import Iterable

from dendrux_model.operations import (
    BlobInfo,
    BlobReferences,
    CountRuns,
    GetLLMInteractions,
    GetLoopState,
    GetNotes,
    GetPauseState,
    GetPiiMapping,
    GetRun,
    GetRunControl,
    GetRunEvents,
    GetRunStatuses,
    GetToolCalls,
    GetTraces,
    Operation,
)
from dendrux_model.outcomes import Returned
from dendrux_model.world import World


def view(worlds: Iterable[World], turn: int | None = None) -> list[Operation]:
    """The reads whose answers together are all that can be seen.

    With a `turn`, of the reads of a run that must show nothing only one is made, each in its turn.
    """
    worlds = list(worlds)
    runs = sorted({run.id for world in worlds for run in world.runs})
    agents = sorted({run.agent_name for world in worlds for run in world.runs})
    reads: list[Operation] = [GetRunStatuses(run_ids=tuple(runs))] if runs else []
    reads += [CountRuns(agent_name=agent) for agent in agents]
    for number, run in enumerate(runs):
        whole: list[Operation] = [
            GetRun(run_id=run),
            GetRunEvents(run_id=run),
            GetPauseState(run_id=run),
            GetRunControl(run_id=run),
            GetPiiMapping(run_id=run),
            GetLoopState(run_id=run),
            GetTraces(run_id=run),
            GetToolCalls(run_id=run),
            GetLLMInteractions(run_id=run),
            GetNotes(run_id=run),
        ]
        reads += whole if turn is None else telling(whole, worlds, turn + number)
    blobs = sorted({(blob.tenant_scope, blob.sha256) for world in worlds for blob in world.blobs})
    for scope, content in blobs:
        reads += [BlobInfo(sha256=content, tenant_scope=scope), BlobReferences(sha256=content, tenant_scope=scope)]
    return reads


def telling(reads: list[Operation], worlds: list[World], turn: int) -> list[Operation]:
    """The reads that show something in one of the worlds, and one of those that show nothing in any."""
    silent = [read for read in reads if all(shows_nothing(read, world) for world in worlds)]
    spared = [read for number, read in enumerate(silent) if number != turn % len(silent)]
    return [read for read in reads if read not in spared]


def shows_nothing(read: Operation, world: World) -> bool:
    """Whether what a read shows is that there is nothing: no row, or no value."""
    answer = read.step(world)[1]
    return isinstance(answer, Returned) and not answer.value and answer.value is not False
