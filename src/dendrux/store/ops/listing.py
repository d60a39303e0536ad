"""Finding runs: lists, counts and statuses, all scoped by tenant as written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, union_all

from dendrux.db.models import agent_runs
from dendrux.runtime.values import JsonObject, RunRecord
from dendrux.store import records
from dendrux.store.statements import scoped
from dendrux.store.tx import Tx
from dendrux.vocabulary import UNSCOPED, TenantScope

runs = agent_runs.c


def _filtered(
    tx: Tx,
    statement: Any,
    *,
    tenant_id: TenantScope,
    status: str | Sequence[str] | None,
    agent_name: str | None,
    parent_run_id: str | None,
    started_after: datetime | None,
    started_before: datetime | None,
    metadata_filter: JsonObject | None,
) -> Any:
    statement = scoped(statement, tenant_id)
    if status is not None:
        wanted = [status] if isinstance(status, str) else dict.fromkeys(status)
        statement = statement.where(runs.status.in_(list(wanted)))
    if agent_name is not None:
        statement = statement.where(runs.agent_name == agent_name)
    if parent_run_id is not None:
        statement = statement.where(runs.parent_run_id == parent_run_id)
    if started_after is not None:
        statement = statement.where(runs.created_at >= started_after)
    if started_before is not None:
        statement = statement.where(runs.created_at < started_before)
    if metadata_filter:
        statement = statement.where(tx.store.metadata_filter_predicate(runs.meta, metadata_filter))
    return statement


async def list_runs(
    tx: Tx,
    *,
    limit: int = 50,
    offset: int = 0,
    tenant_id: TenantScope = UNSCOPED,
    status: str | Sequence[str] | None = None,
    agent_name: str | None = None,
    parent_run_id: str | None = None,
    started_after: datetime | None = None,
    started_before: datetime | None = None,
    metadata_filter: JsonObject | None = None,
) -> list[RunRecord]:
    """A page of runs, newest first. Started_after is inclusive, started_before exclusive."""

    def filtered(statement: Any, wanted: str | Sequence[str] | None) -> Any:
        return _filtered(
            tx,
            statement,
            tenant_id=tenant_id,
            status=wanted,
            agent_name=agent_name,
            parent_run_id=parent_run_id,
            started_after=started_after,
            started_before=started_before,
            metadata_filter=metadata_filter,
        )

    newest = (runs.created_at.desc(), runs.id.desc())
    several = [] if status is None or isinstance(status, str) else list(dict.fromkeys(status))
    if len(several) < 2:
        statement = filtered(records.RUN, status).order_by(*newest)
    else:
        # An index gives the order within one status: merging the first of each sorts a few rows, not the table.
        first = [filtered(select(runs.id), [one]).order_by(*newest).limit(offset + limit).subquery() for one in several]
        page = union_all(*(select(part.c.id) for part in first)).subquery("page")
        statement = records.RUN.where(runs.id.in_(select(page.c.id))).order_by(*newest)
    return [records.run(row) for row in await tx.rows(statement.limit(limit).offset(offset))]


async def count_runs(
    tx: Tx,
    *,
    tenant_id: TenantScope = UNSCOPED,
    status: str | Sequence[str] | None = None,
    agent_name: str | None = None,
    parent_run_id: str | None = None,
    started_after: datetime | None = None,
    started_before: datetime | None = None,
    metadata_filter: JsonObject | None = None,
) -> int:
    """How many runs a list with the same filters would show."""
    statement = _filtered(
        tx,
        select(func.count().label("found")).select_from(agent_runs),
        tenant_id=tenant_id,
        status=status,
        agent_name=agent_name,
        parent_run_id=parent_run_id,
        started_after=started_after,
        started_before=started_before,
        metadata_filter=metadata_filter,
    )
    counted = await tx.row(statement)
    return 0 if counted is None else int(counted.found)


async def get_run_statuses(tx: Tx, run_ids: Sequence[str]) -> dict[str, str]:
    """The status of each of at most 200 runs; missing runs are absent."""
    if not run_ids:
        return {}
    found = await tx.rows(select(runs.id, runs.status).where(tx.store.id_in(runs.id, list(run_ids))))
    return {row.id: row.status for row in found}
