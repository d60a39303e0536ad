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
from dendrux_model.world import World


def view(worlds: Iterable[World]) -> list[Operation]:
    """The reads whose answers together are all that can be seen."""
    worlds = list(worlds)
    runs = sorted({run.id for world in worlds for run in world.runs})
    agents = sorted({run.agent_name for world in worlds for run in world.runs})
    reads: list[Operation] = [GetRunStatuses(run_ids=tuple(runs))] if runs else []
    reads += [CountRuns(agent_name=agent) for agent in agents]
    for run in runs:
        reads += [
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
    blobs = sorted({(blob.tenant_scope, blob.sha256) for world in worlds for blob in world.blobs})
    for scope, content in blobs:
        reads += [BlobInfo(sha256=content, tenant_scope=scope), BlobReferences(sha256=content, tenant_scope=scope)]
    return reads
