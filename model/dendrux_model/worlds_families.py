"""Small worlds of families: a run, its child and grandchildren, and somebody who cancels all of it in pages."""

from __future__ import annotations

from typing import Any

from dendrux.runtime.values import UsageStats
from dendrux_model.operations import (
    CancelSubtree,
    ChildRunsPage,
    ClaimPausedRun,
    GetDelegationInfo,
    GetEventsForRuns,
    GetSubtree,
    Operation,
    RequestCancel,
    RunUsage,
    SaveLLMInteraction,
    SubtreeUsage,
)
from dendrux_model.worlds import ANY_OPEN, APPROVAL, MISSING, R1, R2, R3, end, pause, run, small_world


@small_world
def pages(storage_format: int) -> dict[str, Any]:
    """A family of three levels that is cancelled in pages while its runs pause, end and begin children."""

    def child(run_id: str, parent: str, level: int, **given: Any) -> Operation:
        return run(run_id, tenant_id="t", parent_run_id=parent, delegation_level=level, **given)

    def cancel(**given: Any) -> CancelSubtree:
        return CancelSubtree(**{"root_run_id": R1, **given})

    usage = UsageStats(input_tokens=2, cost_usd=0.25)
    reads = (GetDelegationInfo, GetSubtree, RunUsage, SubtreeUsage, ChildRunsPage)
    return {
        "setup": (run(R1, tenant_id="t"), child(R2, R1, 1)),
        "alphabet": (
            child(R3, R2, 2),
            child("r0", R1, 1),
            pause(R1, "p1", 1),
            pause(R2, "p2", 1),
            ClaimPausedRun(run_id=R2, expected_status=APPROVAL),
            RequestCancel(run_id=R2),
            end(R1, "f1", None, allowed=ANY_OPEN),
            end(R2, "f2", None, allowed=ANY_OPEN),
            cancel(),
            cancel(tenant_id="t"),
            cancel(tenant_id="T"),
            cancel(limit=1),
            cancel(limit=2),
            *(cancel(limit=1, after=after) for after in (R1, R2, R3)),
            cancel(root_run_id=R2),
            cancel(root_run_id=MISSING),
            cancel(after=MISSING),
            SaveLLMInteraction(run_id=R2, interaction_id="i1", iteration_index=0, usage=usage),
            *(read(run_id=run_id) for read in reads for run_id in (R1, R2, MISSING)),
            *(read(run_id=R1, tenant_id=scope) for read in reads for scope in ("t", "T")),
            ChildRunsPage(run_id=R1, limit=1, after="r0", tenant_id="t"),
            GetEventsForRuns(heads={R1: -1, R2: 0, MISSING: -1}),
            GetEventsForRuns(heads={MISSING: -1}),
        ),
        "within": lambda world: all(run.claim_epoch <= 2 for run in world.runs),
        "sometimes": ("cancel_passes_an_end", "cancel_in_pages"),
    }
