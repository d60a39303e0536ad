"""The conversation of a run."""

from __future__ import annotations

from dendrux.db.models import react_traces
from dendrux.runtime.values import JsonObject, TraceRecord
from dendrux.store import records
from dendrux.store.digest import content_digest
from dendrux.store.ops.evidence import store_once
from dendrux.store.tx import Entry, Facts, Outcome, Tx, Unchanged
from dendrux.vocabulary import TraceKind

traces = react_traces.c


async def save_trace(
    tx: Tx,
    run_id: str,
    role: str,
    content: str,
    *,
    order_index: int,
    meta: JsonObject | None = None,
    trace_id: str | None = None,
    trace_kind: TraceKind = "message",
    claim_epoch: int | None = None,
) -> Outcome[None]:
    """Append a message to the conversation. On format 2 one message holds an order index.

    Refuses: RunNotFoundError, WriteConflictError, StaleClaimError, RunAlreadyTerminalError.
    """
    shown = {"role": role, "content": content, "order_index": order_index, "meta": meta, "trace_kind": trace_kind}
    digest = content_digest("save_trace", **shown)

    def entry(run: Facts) -> Entry:
        place = order_index if run.format == 2 else None
        values = {
            "id": trace_id,
            "agent_run_id": run_id,
            **shown,
            "position_key": place,
            "content_digest": digest,
            "created_at": tx.now,
            "updated_at": tx.now,
        }
        return Entry(table=react_traces, values=values, position=(traces.position_key, place))

    appended = await store_once(tx, run_id, claim_epoch, entry, final=True)
    return None if appended.fresh else Unchanged(None)


async def get_traces(tx: Tx, run_id: str, *, limit: int = 1000, offset: int = 0) -> list[TraceRecord]:
    """A page of the conversation by order index."""
    statement = records.TRACE.where(traces.agent_run_id == run_id).order_by(traces.order_index, traces.id)
    return [records.trace(row) for row in await tx.rows(statement.limit(limit).offset(offset))]
