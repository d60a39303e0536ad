"""What model calls cost: usage rows and full interactions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, Table, bindparam

from dendrux.db.models import llm_interactions, token_usage
from dendrux.runtime.values import JsonObject, LLMInteractionRecord, LLMInteractionWrite, UsageStats, UsageWrite
from dendrux.store import records
from dendrux.store.digest import content_digest, usage_columns
from dendrux.store.ops.evidence import store_once
from dendrux.store.statements import page
from dendrux.store.tx import Entry, Outcome, Tx, Unchanged

interactions = llm_interactions.c


def _row(
    tx: Tx, table: Table, run_id: str, row_id: str | None, digest: str, shown: dict[str, Any], usage: UsageStats
) -> Entry:
    columns = {**usage_columns(usage), "cost_usd": usage.cost_usd}
    given = None if row_id is None else str(row_id)
    values = {"id": given, "agent_run_id": run_id, **shown, **columns, "content_digest": digest, "created_at": tx.now}
    return Entry(table=table, values=values)


def usage_entry(tx: Tx, run_id: str, write: UsageWrite) -> Entry:
    """A usage row to store, the same row whichever operation stores it."""
    shown = {
        "iteration_index": write.iteration_index,
        "model": write.model,
        "provider": write.provider,
        "duration_ms": write.duration_ms,
        "meta": write.meta,
    }
    digest = content_digest("save_usage", usage=write.usage, **shown)
    return _row(tx, token_usage, run_id, write.usage_id, digest, shown, write.usage)


def interaction_entry(tx: Tx, run_id: str, write: LLMInteractionWrite) -> Entry:
    """A call of a model to store, the same row whichever operation stores it."""
    shown = {
        "iteration_index": write.iteration_index,
        "model": write.model,
        "provider": write.provider,
        "duration_ms": write.duration_ms,
        "semantic_request": write.semantic_request,
        "semantic_response": write.semantic_response,
        "provider_request": write.provider_request,
        "provider_response": write.provider_response,
        "guardrail_findings": write.guardrail_findings,
    }
    digest = content_digest("save_llm_interaction", usage=write.usage, **shown)
    row = _row(tx, llm_interactions, run_id, write.interaction_id, digest, shown, write.usage)
    # The earlier release kept every column but total_tokens.
    columns = (name for name in usage_columns(write.usage) if name != "total_tokens")
    return replace(row, shared=(*shown, *columns))


async def save_usage(
    tx: Tx,
    run_id: str,
    *,
    iteration_index: int,
    usage: UsageStats,
    model: str | None = None,
    provider: str | None = None,
    duration_ms: int | None = None,
    meta: JsonObject | None = None,
    usage_id: str | None = None,
    claim_epoch: int | None = None,
) -> Outcome[None]:
    """Store one usage row. Accepted unfenced after the run has ended, as late bookkeeping; it changes no totals.

    Refuses: RunNotFoundError, WriteConflictError, StaleClaimError.
    """
    write = UsageWrite(
        iteration_index=iteration_index,
        usage=usage,
        model=model,
        provider=provider,
        duration_ms=duration_ms,
        meta=meta,
        usage_id=usage_id,
    )
    appended = await store_once(tx, run_id, claim_epoch, lambda _: usage_entry(tx, run_id, write))
    return None if appended.fresh else Unchanged(None)


async def save_llm_interaction(
    tx: Tx,
    run_id: str,
    *,
    iteration_index: int,
    usage: UsageStats,
    model: str | None = None,
    provider: str | None = None,
    duration_ms: int | None = None,
    semantic_request: JsonObject | None = None,
    semantic_response: JsonObject | None = None,
    provider_request: JsonObject | None = None,
    provider_response: JsonObject | None = None,
    guardrail_findings: JsonObject | None = None,
    interaction_id: str | None = None,
    claim_epoch: int | None = None,
) -> Outcome[None]:
    """Store one call of a model, as asked and as answered. Accepted unfenced after the run has ended.

    Refuses: RunNotFoundError, WriteConflictError, StaleClaimError.
    """
    write = LLMInteractionWrite(
        iteration_index=iteration_index,
        usage=usage,
        model=model,
        provider=provider,
        duration_ms=duration_ms,
        semantic_request=semantic_request,
        semantic_response=semantic_response,
        provider_request=provider_request,
        provider_response=provider_response,
        guardrail_findings=guardrail_findings,
        interaction_id=interaction_id,
    )
    appended = await store_once(tx, run_id, claim_epoch, lambda _: interaction_entry(tx, run_id, write))
    return None if appended.fresh else Unchanged(None)


async def get_llm_interactions(
    tx: Tx,
    run_id: str,
    *,
    iteration_index: int | None = None,
    limit: int = 1000,
    offset: int = 0,
    before: datetime | None = None,
) -> list[LLMInteractionRecord]:
    """A page of the run's model calls by iteration."""
    values = {"p_run": run_id, "p_iteration": iteration_index, "p_before": before, "p_limit": limit, "p_offset": offset}
    found = await tx.rows(_of_run(iteration_index is not None, before is not None), values)
    return [records.interaction(row) for row in found]


@cache
def _of_run(iteration: bool, before: bool) -> Select[Any]:
    statement = records.INTERACTION.where(interactions.agent_run_id == bindparam("p_run"))
    if iteration:
        statement = statement.where(interactions.iteration_index == bindparam("p_iteration"))
    if before:
        statement = statement.where(interactions.created_at < bindparam("p_before"))
    return page(statement, interactions.iteration_index, interactions.id)
