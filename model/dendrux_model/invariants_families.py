"""Invariants of families of runs: what is shown and cancelled of them."""

from __future__ import annotations

from typing import Any

from dendrux.vocabulary import OPEN_STATUSES, UNSCOPED
from dendrux_model.invariants import of_answer
from dendrux_model.outcomes import Returned
from dendrux_model.world import Run, World, find


@of_answer("GetDelegationInfo", "GetSubtree", "ChildRunsPage", "CancelSubtree")
def tenant_wall__relatives(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Of a family, nothing outside the scope is shown or cancelled."""
    value, scope = outcome.value, operation.tenant_id
    if scope is UNSCOPED or not value:
        return True
    named: list[str] = []
    if isinstance(value, list):
        named = [child["run_id"] for child in value]
    elif "nodes" in value:
        named = [node["run"]["id"] for node in value["nodes"]]
    elif "ancestry" in value:
        named = [operation.run_id, *(run["run_id"] for run in (*value["ancestry"], *value["children"]))]
    else:
        named = [*value["cancelled"], *value["requested"], *value["already_terminal"]]
    return {run.id for run in after.runs if run.tenant_id == scope}.issuperset(named)


@of_answer("CancelSubtree")
def cancel_reaches_children__pages(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """A page leaves no run behind its cursor open without a request, also not one that was born meanwhile."""
    root = find(after, operation.root_run_id)
    if root is None:
        return False
    order = breadth_first(after, root, operation.tenant_id)
    start = next((place for place, run in enumerate(order, 1) if run.id == operation.after), 0)
    last = outcome.value["next_after"] is None
    failed = {one["run_id"] for one in outcome.value["failed"]}
    behind = order if last else order[: start + operation.limit]
    if any(is_left(run) for run in order[:start]):  # whoever begins in the middle has left them there
        return True
    return not any(is_left(run) for run in behind if run.id not in failed)


def breadth_first(world: World, root: Run, scope: Any) -> list[Run]:
    """The order in which a cancellation reaches a family, found here without the operation's help."""
    order, level = [], [root]
    while level:
        order += sorted(level, key=lambda run: (run.parent_run_id or "", run.id))
        above = {run.id for run in level}
        level = [
            run
            for run in world.runs
            if run.parent_run_id in above and (scope is UNSCOPED or run.tenant_id == scope) and run is not root
        ]
    return order


def is_left(run: Run) -> bool:
    """Whether a cancellation that passed this run left it as it was."""
    return run.status in OPEN_STATUSES and not run.cancel_requested
