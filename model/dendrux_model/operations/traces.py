"""The conversation of a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dendrux.vocabulary import TraceKind
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import Returned
from dendrux_model.values import json_text, rows
from dendrux_model.world import Trace, World, find


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

    def step(self, world: World) -> Step:
        return rules.append(world, self, "traces", self.row, final=True, position=("order_index", self.order_index))

    @cached_property
    def row(self) -> Trace:
        """What is stored."""
        meta = json_text(self.meta)
        return Trace(self.trace_id, self.content, self.role, self.content_text, self.order_index, meta, self.trace_kind)

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        return {"content": given.pop("content_text"), **given}


@dataclass(frozen=True, kw_only=True)
class GetTraces(Operation, lost_ack="read"):
    """Read the conversation by order index."""

    run_id: str
    limit: int = 1000
    offset: int = 0

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        found = [
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
            for trace in sorted(run.traces if run else (), key=lambda trace: (trace.order_index, trace.id or ""))
        ]
        return world, Returned(rows(found, self.offset, self.limit))
