"""The conversation of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Row, Select, bindparam, func, select

from dendrux.db.models import react_traces
from dendrux.runtime.values import BlobEdge, ConversationPage, JsonObject, TraceRecord, TraceWrite
from dendrux.store import records
from dendrux.store.digest import content_digest
from dendrux.store.ops._references import Edges, digested, refer
from dendrux.store.ops.evidence import store_once
from dendrux.store.statements import page
from dendrux.store.tx import Entry, Facts, Outcome, Tx, Unchanged
from dendrux.vocabulary import TraceKind

traces = react_traces.c


def trace_entry(tx: Tx, run_id: str, trace: TraceWrite, storage_format: int, refs: Edges = None) -> Entry:
    """A message to store, the same row whichever operation stores it. Its references are a part of its content."""
    shown = {
        "role": trace.role,
        "content": trace.content,
        "order_index": trace.order_index,
        "meta": trace.meta,
        "trace_kind": trace.trace_kind,
    }
    place = trace.order_index if storage_format == 2 else None
    values = {
        "id": None if trace.trace_id is None else str(trace.trace_id),
        "agent_run_id": run_id,
        **shown,
        "position_key": place,
        "content_digest": content_digest("save_trace", **shown, **digested(refs)),
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    return Entry(table=react_traces, values=values, position=(traces.position_key, place))


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
    blob_refs: Sequence[BlobEdge] | None = None,
    blob_refs_scope: str | None = None,
) -> Outcome[None]:
    """Append a message to the conversation. On format 2 one message holds an order index.

    Refuses: RunNotFoundError, WriteConflictError, StaleClaimError, RunAlreadyTerminalError, BlobNotFoundError.
    """
    write = TraceWrite(
        role=role, content=content, order_index=order_index, meta=meta, trace_id=trace_id, trace_kind=trace_kind
    )

    def entry(run: Facts) -> Entry:
        return trace_entry(tx, run_id, write, run.format, blob_refs)

    appended = await store_once(tx, run_id, claim_epoch, entry, final=True)
    if not appended.fresh:
        return Unchanged(None)
    await refer(tx, run_id, blob_refs, blob_refs_scope)
    return None


async def get_traces(tx: Tx, run_id: str, *, limit: int = 1000, offset: int = 0) -> list[TraceRecord]:
    """A page of the conversation by order index."""
    found = await tx.rows(_of_run(), {"p_run": run_id, "p_limit": limit, "p_offset": offset})
    return [records.trace(row) for row in found]


@cache
def _of_run() -> Select[Any]:
    of_this_run = records.TRACE.where(traces.agent_run_id == bindparam("p_run"))
    return page(of_this_run, traces.order_index, traces.id)


async def get_traces_after(tx: Tx, run_id: str, *, order_index: int, limit: int) -> list[TraceRecord]:
    """The messages above an order index. On format 1, where several may share one, read pages with get_traces."""
    statement = records.TRACE.where(traces.agent_run_id == run_id, traces.order_index > order_index)
    return [records.trace(row) for row in await tx.rows(statement.order_by(traces.order_index, traces.id).limit(limit))]


async def conversation_traces(
    tx: Tx, run_id: str, *, after_order_index: int | None = None, limit: int, max_bytes: int | None = None
) -> ConversationPage:
    """A page of what a model has to see: the last rewrite stands for everything before it.

    Ensures: at most `limit` messages, and of `max_bytes` at most, unless the first alone is larger.
    """
    rewritten = (
        select(traces.order_index)
        .where(traces.agent_run_id == run_id, traces.trace_kind == "rewrite")
        .order_by(traces.order_index.desc())
        .limit(1)
        .scalar_subquery()
    )
    after = -1 if after_order_index is None else after_order_index
    seen = [traces.agent_run_id == run_id, traces.order_index > after]
    seen.append(traces.order_index >= func.coalesce(rewritten, 0))
    order = (traces.order_index, traces.id)
    if max_bytes is None:
        found = await tx.rows(records.TRACE.where(*seen).order_by(*order).limit(limit + 1))
        more = len(found) > limit
        page = [records.trace(row) for row in found[:limit]]
    else:
        found = await tx.rows(_within(seen, limit, max_bytes))
        page = _fitting([_without_measures(row) for row in found[:limit]], max_bytes)
        more = bool(found) and found[0].there > len(page)
    return ConversationPage(traces=page, next_after=page[-1].order_index if more else None)


def _within(seen: list[Any], limit: int, max_bytes: int) -> Select[Any]:
    """The messages that can be on the page, without reading the text of any other.

    What a database calls the length of a text is at most twice its bytes in UTF-8: characters at most equal those, and
    an encoding of U+0000 doubles them. So nothing that fits is left out, and little that does not is read.
    """
    sizes = (
        select(traces.id, traces.order_index, func.length(traces.content).label("size"))
        .where(*seen)
        .order_by(traces.order_index, traces.id)
        .limit(limit + 1)
        .subquery("sizes")
    )
    upto = func.sum(sizes.c.size).over(order_by=(sizes.c.order_index, sizes.c.id), rows=(None, 0))
    measured = select(sizes.c.id, (upto - sizes.c.size).label("before"), func.count().over().label("there")).subquery(
        "measured"
    )
    page = records.TRACE.add_columns(measured.c.there).join(measured, measured.c.id == traces.id)
    return page.where(measured.c.before <= 2 * max_bytes).order_by(traces.order_index, traces.id)


def _without_measures(row: Row[Any]) -> TraceRecord:
    fields = dict(row._mapping)
    del fields["there"]
    return TraceRecord(**fields)


def _fitting(page: list[TraceRecord], max_bytes: int) -> list[TraceRecord]:
    """As many messages as fit, and always one."""
    size = 0
    for count, trace in enumerate(page):
        size += len(trace.content.encode())
        if count and size > max_bytes:
            return page[:count]
    return page
