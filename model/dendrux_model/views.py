"""The view: everything the protocol can show of the runs in a set of worlds, as the reads that show it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

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

WRITERS: Final[Mapping[type[Operation], frozenset[str]]] = {
    GetPauseState: frozenset(
        {
            "pause_run",
            "try_pause_run",
            "pause_with_event",
            "submit_and_claim",
            "release_run_claim",
            "finalize_run",
            "finalize_run_if_status_in",
            "finalize_with_event",
            "cancel_subtree",
            "mark_lease_expired",
            "sweep_abandoned_runs",
            "sweep_stale_runs",
        }
    ),
    GetPiiMapping: frozenset({"pause_with_event", "complete_tool_call", "consume_submission", "checkpoint_step"}),
    GetLoopState: frozenset({"checkpoint_step"}),
    GetTraces: frozenset(
        {
            "create_run",
            "save_trace",
            "checkpoint_step",
            "complete_tool_call",
            "consume_submission",
            "finalize_with_event",
        }
    ),
    GetToolCalls: frozenset({"save_tool_call", "start_tool_call", "complete_tool_call", "consume_submission"}),
    GetLLMInteractions: frozenset({"save_llm_interaction", "checkpoint_step"}),
    GetNotes: frozenset({"add_note", "mark_notes_delivered"}),
}
"""Of each read of a run that only some writes can change, which. The others are changed by most."""


def view(worlds: Iterable[World], called: Collection[str] | None = None, turn: int = 0) -> list[Operation]:
    """The reads whose answers together are all that can be seen.

    After the operations `called`, by name, of a run's reads that none of them can have changed only one is made, each
    in its turn.
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
        reads += whole if called is None else telling(whole, called, turn + number)
    blobs = sorted({(blob.tenant_scope, blob.sha256) for world in worlds for blob in world.blobs})
    for scope, content in blobs:
        reads += [BlobInfo(sha256=content, tenant_scope=scope), BlobReferences(sha256=content, tenant_scope=scope)]
    return reads


def telling(reads: list[Operation], called: Collection[str], turn: int) -> list[Operation]:
    """The reads that an operation of these can have changed, and one of the others."""
    untouched = [read for read in reads if type(read) in WRITERS and WRITERS[type(read)].isdisjoint(called)]
    spared = [read for number, read in enumerate(untouched) if number != turn % len(untouched)]
    return [read for read in reads if read not in spared]
