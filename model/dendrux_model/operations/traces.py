"""The conversation of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dendrux.runtime.values import BlobEdge, SeedTrace, TraceWrite
from dendrux.vocabulary import TraceKind
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import Returned
from dendrux_model.values import Unordered, json_text, rows
from dendrux_model.world import Run, Trace, World, find


def obstructed(world: World, run: Run, write: TraceWrite) -> bool:
    """Whether the message cannot be stored: its id exists somewhere, or its position is taken."""
    return rules.holder(world, "traces", write.trace_id) is not None or rules.taken(
        run, "traces", "order_index", write.order_index
    )


@dataclass(frozen=True, kw_only=True)
class SaveTrace(Operation, lost_ack="identity", identity="trace_id"):
    """Append a message. On format 2 one message holds an order index."""

    run_id: str
    role: str
    content_text: str
    order_index: int
    meta: dict[str, Any] | None = None
    trace_id: str | None = None
    trace_kind: TraceKind = "message"
    claim_epoch: int | None = None
    blob_refs: tuple[BlobEdge, ...] | None = None
    blob_refs_scope: str | None = None

    renamed = {"content_text": "content"}

    def step(self, world: World) -> Step:
        return rules.append(world, self, "traces", self.row, final=True, position=("order_index", self.order_index))

    @cached_property
    def row(self) -> Trace:
        """What is stored."""
        meta = json_text(self.meta)
        return Trace(self.trace_id, self.content, self.role, self.content_text, self.order_index, meta, self.trace_kind)


def trace_rows(writes: Sequence[TraceWrite]) -> tuple[Trace, ...]:
    """The rows that another operation stores together with its own change, each equal to the one of save_trace."""
    return tuple(
        SaveTrace(
            run_id="",
            role=write.role,
            content_text=write.content,
            order_index=write.order_index,
            meta=write.meta,
            trace_id=write.trace_id,
            trace_kind=write.trace_kind,
        ).row
        for write in writes
    )


def seed_rows(seeds: Sequence[SeedTrace]) -> tuple[Trace, ...]:
    """The messages that a run starts with: they hold the first order indexes, under ids that the store mints."""
    return trace_rows(
        [
            TraceWrite(role=seed.role, content=seed.content, order_index=place, meta=seed.meta, trace_kind="seed")
            for place, seed in enumerate(seeds)
        ]
    )


def in_order(run: Run | None) -> list[Trace]:
    """The messages of a run by order index."""
    return sorted(run.traces if run else (), key=lambda trace: (trace.order_index, trace.id or ""))


def shown(traces: Sequence[Trace]) -> list[Any]:
    """Messages as records. Where each holds an index of its own, minted ids leave the order as it is."""
    found: list[tuple[str | None, dict[str, Any]]] = [
        (
            trace.id,
            {
                "role": trace.role,
                "content": trace.text,
                "order_index": trace.order_index,
                "meta": trace.meta,
                "trace_kind": trace.kind,
            },
        )
        for trace in traces
    ]
    page = rows(found, 0, len(found))
    return list(page) if len({trace.order_index for trace in traces}) == len(traces) else page


@dataclass(frozen=True, kw_only=True)
class GetTraces(Operation, lost_ack="read"):
    """Read the conversation by order index."""

    run_id: str
    limit: int = 1000
    offset: int = 0

    def step(self, world: World) -> Step:
        found = shown(in_order(find(world, self.run_id)))
        page = found[self.offset : self.offset + self.limit]
        return world, Returned(Unordered(page) if isinstance(found, Unordered) else page)


@dataclass(frozen=True, kw_only=True)
class GetTracesAfter(Operation, lost_ack="read"):
    """Read the messages above an order index."""

    run_id: str
    after_order_index: int
    limit: int

    renamed = {"after_order_index": "order_index"}

    def step(self, world: World) -> Step:
        later = [trace for trace in in_order(find(world, self.run_id)) if trace.order_index > self.after_order_index]
        return world, Returned(shown(later[: self.limit]))


@dataclass(frozen=True, kw_only=True)
class ConversationTraces(Operation, lost_ack="read"):
    """Read what a model has to see: the last rewrite stands for everything before it."""

    run_id: str
    limit: int
    after_order_index: int | None = None
    max_bytes: int | None = None

    def step(self, world: World) -> Step:
        traces = in_order(find(world, self.run_id))
        begin = max((trace.order_index for trace in traces if trace.kind == "rewrite"), default=0)
        after = -1 if self.after_order_index is None else self.after_order_index
        left = [trace for trace in traces if trace.order_index >= begin and trace.order_index > after]
        page = fitting(left[: self.limit], self.max_bytes)
        going_on = page[-1].order_index if len(page) < len(left) else None
        return world, Returned({"traces": shown(page), "next_after": going_on})


def fitting(traces: Sequence[Trace], max_bytes: int | None) -> Sequence[Trace]:
    """As many messages as fit, and always one."""
    if max_bytes is None:
        return traces
    size, count = 0, 0
    for trace in traces:
        size += len(trace.text.encode())
        if count and size > max_bytes:
            break
        count += 1
    return traces[:count]
