"""The statements that every transaction is made of, each built once and compiled once.

Building a statement and finding what it was compiled to take longer than most of them take to run. So a statement that
is run often is a cached function of its shape; its values come as parameters, whose names begin with `p_`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final, Literal

from sqlalchemy import Column, Integer, Select, Table, bindparam, case, func, literal, null, select, update
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ColumnElement

from dendrux.db.models import agent_runs, run_events
from dendrux.store.hooks import Hooks
from dendrux.store.hookvalues import SelectSource
from dendrux.vocabulary import RUNNING, UNSCOPED, TenantScope

runs = agent_runs.c

FACTS: Final = (runs.id, runs.status, runs.storage_format.label("format"), runs.claim_epoch, runs.iteration_count)
"""What every rule asks of a run, in the order of `Facts`."""


def scoped(statement: Any, tenant_id: TenantScope) -> Any:
    """A statement about runs with the tenant predicate of a scope: exact, and none for UNSCOPED."""
    return statement if tenant_id is UNSCOPED else statement.where(runs.tenant_id == tenant_id)


def term(column: ColumnElement[Any], value: Any) -> ColumnElement[Any]:
    """A value as an expression of the column's type."""
    if isinstance(value, ColumnElement):
        return value
    return null() if value is None else literal(value, column.type)


Shape = Literal["every", "none", "one"]
"""What a tenant scope makes of a statement: no predicate, runs without a tenant, or those of `p_tenant`."""


def shape_of(tenant_id: TenantScope) -> Shape:
    """The shape of a scope."""
    return "every" if tenant_id is UNSCOPED else "none" if tenant_id is None else "one"


def within(statement: Select[Any], scope: Shape) -> Select[Any]:
    """As `scoped`, for a statement that is built once: the tenant comes as `p_tenant`."""
    if scope == "every":
        return statement
    return statement.where(runs.tenant_id.is_(None) if scope == "none" else runs.tenant_id == bindparam("p_tenant"))


def page(statement: Select[Any], *order: Any) -> Select[Any]:
    """A statement that reads one page: its rows in this order, `p_limit` of them from `p_offset` on."""
    bounded = statement.order_by(*order).limit(bindparam("p_limit", type_=Integer()))
    return bounded.offset(bindparam("p_offset", type_=Integer()))


@cache
def of_run(*columns: Any, scope: Shape = "every") -> Select[Any]:
    """Columns of the run `p_run`, unless it is outside the scope."""
    return within(select(*columns).where(runs.id == bindparam("p_run")), scope)


@lru_cache(maxsize=1)
def fence_statement() -> Executable:
    """Renew the lease of a run that is running under an epoch: the first statement of most writes."""
    now = bindparam("p_now", type_=runs.last_progress_at.type)
    return (
        update(agent_runs)
        .where(runs.id == bindparam("p_run"), runs.status == RUNNING, runs.claim_epoch == bindparam("p_epoch"))
        .values(
            last_progress_at=case((runs.last_progress_at > now, runs.last_progress_at), else_=now),
            lease_expired_at=None,
        )
        .returning(*FACTS)
    )


def owner_of(table: Table) -> Column[Any]:
    """The column that names the run a row belongs to."""
    return table.c.agent_run_id if "agent_run_id" in table.c else table.c.run_id


@lru_cache(maxsize=16)
def by_identity(table: Table) -> Select[Any]:
    """Whose row has an id, what it holds, and its place in a log."""
    place = table.c.sequence_index if table is run_events else literal(0)
    return select(owner_of(table).label("owner"), table.c.content_digest, place.label("place")).where(
        table.c.id == bindparam("p_id")
    )


def event_source(store: Hooks) -> SelectSource:
    """The event with the next free index of its run, allocated inside the insert."""
    events = run_events.c
    run_id = bindparam("p_agent_run_id", type_=events.agent_run_id.type)
    last = (
        select(events.sequence_index)
        .where(events.agent_run_id == run_id)
        .order_by(events.sequence_index.desc())
        .limit(1)
        .scalar_subquery()
    )
    given = [column for column in events if column is not events.sequence_index]
    values = [bindparam(f"p_{column.key}", type_=column.type).label(column.key) for column in given]
    following = store.event_sequence_expr(func.coalesce(last, -1) + 1).label("sequence_index")
    return SelectSource(
        [*(column.key for column in given), "sequence_index"],
        select(*values, following).select_from(agent_runs).where(runs.id == run_id),
    )
