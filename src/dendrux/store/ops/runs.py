"""Runs: how one begins, what it is, and its metadata."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Row, Select, bindparam, case, literal, literal_column, select, true

from dendrux.db.models import STORAGE_FORMAT, STORAGE_FORMAT_KEY, agent_runs, settings
from dendrux.errors import IdempotencyConflictError, RunClosedError, RunNotFoundError, StaleClaimError
from dendrux.runtime.values import BlobEdge, CreateRunResult, JsonObject, RunRecord, SeedTrace, TraceWrite
from dendrux.store import records
from dendrux.store.digest import content_digest
from dendrux.store.digest import given as written
from dendrux.store.hookvalues import ConflictSpec, InsertPlan, SelectSource, SetFields
from dendrux.store.ids import new_id
from dendrux.store.ops._references import digested, refer
from dendrux.store.ops.evidence import store_all
from dendrux.store.ops.traces import trace_entry
from dendrux.store.statements import Shape, of_run, shape_of, within
from dendrux.store.tx import Entry, Outcome, Tx, Unchanged
from dendrux.vocabulary import (
    FORMAT_2_CAPABILITIES,
    META_LOOP,
    RECOVERABLE_LOOP,
    RUNNING,
    TERMINAL_STATUSES,
    UNSCOPED,
    TenantScope,
)

runs = agent_runs.c
FOUND: Final = (
    runs.id,
    runs.tenant_id,
    runs.status,
    runs.storage_format,
    runs.delegation_level,
    runs.claim_epoch,
    runs.cancel_requested,
    runs.idempotency_fingerprint,
    runs.content_digest,
    runs.idempotency_scope,
    runs.idempotency_key,
    runs.agent_name,
    runs.input_data,
    runs.meta,
    runs.model,
    runs.strategy,
    runs.parent_run_id,
    runs.retry_of_run_id,
)
PATCHABLE: Final = re.compile(r"[A-Za-z0-9_.:-]+\Z")
PATCH_MAX: Final = 30
"""Members that one patch expression sets: databases bound the arguments of a function."""


# -- creation ---------------------------------------------------------------------------------------------------------


async def create_run(
    tx: Tx,
    run_id: str,
    agent_name: str,
    *,
    input_data: JsonObject | None = None,
    model: str | None = None,
    strategy: str | None = None,
    parent_run_id: str | None = None,
    delegation_level: int = 0,
    tenant_id: str | None = None,
    meta: JsonObject | None = None,
    idempotency_key: str | None = None,
    idempotency_fingerprint: str | None = None,
    retry_of_run_id: str | None = None,
    blob_refs: Sequence[BlobEdge] | None = None,
    blob_refs_scope: str | None = None,
    seed_traces: Sequence[SeedTrace] = (),
    pii_mapping: dict[str, str] | None = None,
    parent_claim_epoch: int | None = None,
) -> Outcome[CreateRunResult]:
    """Begin a run, once per run_id and once per idempotency key of a tenant.

    Ensures: running under epoch 1 with a fresh lease, with its seeds as the first messages; a repeat of the run_id and
    content is `created` again.
    Refuses: RunNotFoundError for a parent or retried run of another tenant, ValueError for a level that does not fit
    and for seeds where runs are of format 1, IdempotencyConflictError, WriteConflictError, StaleClaimError,
    RunClosedError, BlobNotFoundError.
    """
    given: dict[str, Any] = {
        "agent_name": agent_name,
        "input_data": input_data,
        "model": model,
        "strategy": strategy,
        "parent_run_id": parent_run_id,
        "delegation_level": delegation_level,
        "tenant_id": tenant_id,
        "meta": meta,
        "idempotency_key": idempotency_key,
        "idempotency_fingerprint": idempotency_fingerprint or "",
        "retry_of_run_id": retry_of_run_id,
    }
    seeds = [written(seed) for seed in seed_traces]
    digest = content_digest("create_run", **given, seed_traces=seeds, pii_mapping=pii_mapping, **digested(blob_refs))
    parent = await _parent(tx, parent_run_id, tenant_id)
    if retry_of_run_id is not None and retry_of_run_id != parent_run_id:
        await _related(tx, retry_of_run_id, tenant_id)
    if parent is not None and delegation_level != parent.delegation_level + 1:
        raise ValueError(f"delegation_level must be {parent.delegation_level + 1}, its parent's plus one")
    refusal = None if parent is None else _refused(tx, parent, parent_claim_epoch)
    if refusal is not None or tx.settling:
        found = await _existing(tx, run_id, given, digest)
        if found is not None:
            return found
        if refusal is not None:
            raise refusal
    storage_format = await _insert(tx, run_id, {**given, "pii_mapping": pii_mapping}, digest)
    if storage_format is not None:
        if seed_traces:
            if storage_format == 1:
                raise ValueError("seed_traces is not for a run of format 1: use save_trace")
            await store_all(tx, _seeds(tx, run_id, seed_traces))
        await refer(tx, run_id, blob_refs, blob_refs_scope)
        return CreateRunResult(run_id=run_id, outcome="created", status=RUNNING, format=storage_format, claim_epoch=1)
    found = await _existing(tx, run_id, given, digest)
    if found is None:
        raise tx.again()
    return found


def _seeds(tx: Tx, run_id: str, seeds: Sequence[SeedTrace]) -> list[Entry]:
    """The messages that a run starts with; they hold the order indexes from 0 on."""
    writes = [
        TraceWrite(
            role=seed.role,
            content=seed.content,
            order_index=place,
            meta=seed.meta,
            trace_id=new_id(),
            trace_kind="seed",
        )
        for place, seed in enumerate(seeds)
    ]
    return [trace_entry(tx, run_id, write, 2) for write in writes]


async def _parent(tx: Tx, parent_run_id: str | None, tenant_id: str | None) -> Row[Any] | None:
    """The parent's row, held against a concurrent cancel or end."""
    if parent_run_id is None:
        return None
    await tx.begin(parent_run_id)
    parent = await tx.row(tx.store.lock_clause(_found().where(runs.id == parent_run_id), "update_no_key"))
    if parent is None or parent.tenant_id != tenant_id:
        raise RunNotFoundError(parent_run_id)
    return parent


async def _related(tx: Tx, run_id: str, tenant_id: str | None) -> None:
    retried = await tx.row(select(runs.tenant_id).where(runs.id == run_id))
    if retried is None or retried.tenant_id != tenant_id:
        raise RunNotFoundError(run_id)


def _refused(tx: Tx, parent: Row[Any], claim_epoch: int | None) -> Exception | None:
    """Why the parent can have no new child, if so."""
    if claim_epoch is not None and parent.claim_epoch != claim_epoch:
        return StaleClaimError(operation=tx.operation, run_id=tx.run_id)
    if parent.status in TERMINAL_STATUSES or parent.cancel_requested:
        return RunClosedError(operation=tx.operation, run_id=tx.run_id)
    if claim_epoch is not None and parent.status != RUNNING:
        return StaleClaimError(operation=tx.operation, run_id=tx.run_id)
    return None


async def _existing(tx: Tx, run_id: str, given: dict[str, Any], digest: str) -> Unchanged[CreateRunResult] | None:
    """The run that has the run_id, else the one that has the key."""
    same = await tx.row(_found().where(runs.id == run_id))
    if same is not None:
        if not _equal(same, given, digest):
            raise tx.conflict()
        return Unchanged(
            CreateRunResult(
                run_id=run_id, outcome="created", status=same.status, format=same.storage_format, claim_epoch=1
            )
        )
    if given["idempotency_key"] is None:
        return None
    in_scope = tx.store.idempotency_scope_predicate(given["tenant_id"])
    rival = await tx.row(_found().where(in_scope, runs.idempotency_key == given["idempotency_key"]))
    if rival is None:
        return None
    if (rival.idempotency_fingerprint or "") != given["idempotency_fingerprint"]:
        raise IdempotencyConflictError(rival.id, given["idempotency_key"])
    return Unchanged(
        CreateRunResult(
            run_id=rival.id,
            outcome="existing_terminal" if rival.status in TERMINAL_STATUSES else "existing_active",
            status=rival.status,
            format=rival.storage_format,
            claim_epoch=0,
        )
    )


def _equal(same: Row[Any], given: dict[str, Any], digest: str) -> bool:
    """Equal content. A row of the earlier release has no digest: its columns are compared instead."""
    if same.content_digest is not None:
        return bool(same.content_digest == digest)
    shared = {**same._mapping, "idempotency_fingerprint": same.idempotency_fingerprint or ""}
    left_out: dict[str, Any] = {"seed_traces": [], "pii_mapping": None}
    return content_digest("create_run", **{name: shared[name] for name in given}, **left_out) == digest


async def _insert(tx: Tx, run_id: str, given: dict[str, Any], digest: str) -> int | None:
    """The new run's format, read from the settings in the creating statement; None when the run_id exists."""
    await tx.begin(given["parent_run_id"] or run_id)
    values = {
        **given,
        "id": run_id,
        "status": RUNNING,
        "claim_epoch": 1,
        "idempotency_scope": given["tenant_id"] or "",
        "content_digest": digest,
        "last_progress_at": tx.now,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    columns = tuple(name for name, value in values.items() if value is not None)
    capable = _capable(tx)
    plan = tx.planned(("create_run", columns, capable), lambda: _creation(tx, columns, capable))
    given_values = {f"p_{name}": values[name] for name in columns}
    if tx.store.supports_insert_returning:
        made = await tx.row(plan.statement, given_values)
        return None if made is None else int(made.storage_format)
    result = await tx.result(plan.statement, given_values)
    if not result.rowcount:
        return None
    made = await tx.row(of_run(runs.storage_format), {"p_run": run_id})
    return None if made is None else int(made.storage_format)


def _creation(tx: Tx, columns: tuple[str, ...], capable: bool) -> InsertPlan:
    """The insert of a run with values in these columns."""
    terms: list[Any] = [bindparam(f"p_{name}", type_=agent_runs.c[name].type).label(name) for name in columns]
    one = select(literal_column("1").label("one")).subquery("origin")
    source = select(*terms, _format(capable).label("storage_format")).select_from(one).where(true())
    return tx.store.insert_if_absent_stmt(
        agent_runs,
        SelectSource([*columns, "storage_format"], source),
        conflict=ConflictSpec((runs.id,), constraint="pk_agent_runs"),
        returning=(runs.storage_format,) if tx.store.supports_insert_returning else (),
    )


def _capable(tx: Tx) -> bool:
    """Whether this store keeps what format 2 promises."""
    declared = getattr(tx.store, "capabilities", None)
    return all(getattr(declared, name, False) for name in FORMAT_2_CAPABILITIES)


def _format(capable: bool) -> Any:
    """2 where the store is capable of it and the database is activated, else 1."""
    if not capable:
        return literal(1)
    value = select(settings.c.value).where(settings.c.key == STORAGE_FORMAT_KEY).scalar_subquery()
    return case((value == STORAGE_FORMAT, 2), else_=1)


def _found() -> Select[Any]:
    return select(*FOUND)


# -- metadata ---------------------------------------------------------------------------------------------------------


async def update_run_meta(tx: Tx, run_id: str, patch: JsonObject, *, claim_epoch: int | None = None) -> Outcome[None]:
    """Lay a patch over the run's meta, one top-level member at a time, under the row's lock.

    Ensures: no update is lost under races; None is stored as null; an empty patch changes nothing.
    Refuses: RunNotFoundError, StaleClaimError.
    """
    await tx.begin(run_id)
    expression = patch_expression(tx, patch) if patch else None
    keeps_mark = patch.get(META_LOOP, RECOVERABLE_LOOP) == RECOVERABLE_LOOP
    if expression is not None and await _patched(tx, run_id, expression, claim_epoch, keeps_mark=keeps_mark):
        return None
    run = await tx.hold(run_id, UNSCOPED, runs.meta)
    tx.stale(run, claim_epoch, running=True)
    if not patch:
        return Unchanged(None)
    if expression is not None:
        raise tx.again()
    merged = literal({**records.stored_object(run.meta), **patch}, runs.meta.type)
    await _patched(tx, run_id, merged, claim_epoch, keeps_mark=keeps_mark)
    return None


async def _patched(tx: Tx, run_id: str, meta: Any, claim_epoch: int | None, *, keeps_mark: bool) -> bool:
    """Store the new meta. A run that nobody could take over any more loses the mark that says somebody may."""
    guard = [] if claim_epoch is None else [runs.status == RUNNING, runs.claim_epoch == claim_epoch]
    renewal = {} if claim_epoch is None else tx.renewal()
    if not keeps_mark:
        renewal[runs.lease_expired_at] = None
    assignments = [(runs.meta, meta), (runs.updated_at, tx.now), *renewal.items()]
    return await tx.swap(run_id, guard, assignments) is not None


def patch_expression(tx: Tx, patch: JsonObject, document: Any = runs.meta) -> Any | None:
    """The patched document as an expression, where the database can and every key is plain; else None."""
    if len(patch) > PATCH_MAX or not all(PATCHABLE.match(key) for key in patch):
        return None
    return tx.store.json_patch_expr(document, SetFields(patch))


# -- reads ------------------------------------------------------------------------------------------------------------


async def get_run(tx: Tx, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> RunRecord | None:
    """One run, or None when it does not exist or is outside the tenant scope."""
    found = await tx.row(_run(shape_of(tenant_id)), {"p_run": run_id, "p_tenant": tenant_id})
    return None if found is None else records.run(found)


@cache
def _run(scope: Shape) -> Select[Any]:
    return within(records.RUN.where(runs.id == bindparam("p_run")), scope)


async def get_pii_mapping(tx: Tx, run_id: str) -> dict[str, str] | None:
    """The mapping of placeholders to what they stand for; None when there is none."""
    found = await tx.row(of_run(runs.pii_mapping), {"p_run": run_id})
    return None if found is None else found.pii_mapping
