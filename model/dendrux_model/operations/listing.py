"""Finding runs: lists, counts and statuses, all scoped by tenant as written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dendrux.vocabulary import UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import Returned
from dendrux_model.values import members
from dendrux_model.world import Run, World


def matches(run: Run, op: Any) -> bool:
    """Every given filter holds. A metadata filter compares whole values: `1`, `1.0` and `true` are three."""
    statuses = (op.status,) if isinstance(op.status, str) else op.status
    meta = dict(run.meta or ())
    return (
        rules.in_scope(run, op.tenant_id)
        and (statuses is None or run.status in statuses)
        and (op.agent_name is None or run.agent_name == op.agent_name)
        and (op.parent_run_id is None or run.parent_run_id == op.parent_run_id)
        and all(meta.get(key) == value for key, value in members(op.metadata_filter) or ())
    )


@dataclass(frozen=True, kw_only=True)
class ListRuns(Operation, lost_ack="read"):
    """Read a page of runs, newest first."""

    agent_name: str
    limit: int = 50
    offset: int = 0
    tenant_id: TenantScope = UNSCOPED
    status: str | Sequence[str] | None = None
    parent_run_id: str | None = None
    metadata_filter: dict[str, Any] | None = None

    def step(self, world: World) -> Step:
        found = [run.id for run in reversed(world.runs) if matches(run, self)]
        return world, Returned(found[self.offset : self.offset + self.limit])


@dataclass(frozen=True, kw_only=True)
class CountRuns(Operation, lost_ack="read"):
    """Count the runs that a list with the same filters would show."""

    agent_name: str
    tenant_id: TenantScope = UNSCOPED
    status: str | Sequence[str] | None = None
    parent_run_id: str | None = None
    metadata_filter: dict[str, Any] | None = None

    def step(self, world: World) -> Step:
        return world, Returned(sum(matches(run, self) for run in world.runs))


@dataclass(frozen=True, kw_only=True)
class GetRunStatuses(Operation, lost_ack="read"):
    """Read the statuses of several runs at once; missing runs are absent."""

    run_ids: Sequence[str]

    def step(self, world: World) -> Step:
        return world, Returned({run.id: run.status for run in world.runs if run.id in self.run_ids})
