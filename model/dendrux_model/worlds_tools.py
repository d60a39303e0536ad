"""The small world of tool calls: one run, three owners, and calls that are started, completed and replayed."""

from __future__ import annotations

from typing import Any

from dendrux.runtime.values import EventWrite, TraceWrite
from dendrux.vocabulary import TOOL_COMPLETED, TOOL_STARTED
from dendrux_model.operations import (
    ClaimPausedRun,
    CompleteToolCall,
    GetReplayedToolCalls,
    GetToolCalls,
    SaveRunEvent,
    SaveToolCall,
    StartToolCall,
)
from dendrux_model.worlds import ANY_OPEN, APPROVAL, MISSING, R1, R2, end, pause, run, small_world


def start(row_id: str, epoch: int, run_id: str = R1, kind: str = TOOL_STARTED, **given: Any) -> StartToolCall:
    """The start of a call that is called after its row."""
    return StartToolCall(
        run_id=run_id,
        row_id=row_id,
        claim_epoch=epoch,
        event=EventWrite(event_type=kind, event_id=f"s-{row_id}"),
        **{"tool_call_id": f"c-{row_id}", "tool_name": "look", **given},
    )


def complete(row_id: str, epoch: int, run_id: str = R1, kind: str = TOOL_COMPLETED, **given: Any) -> CompleteToolCall:
    """What a call came to; the observations of all calls want the same place in the conversation."""
    return CompleteToolCall(
        run_id=run_id,
        row_id=row_id,
        claim_epoch=epoch,
        event=EventWrite(event_type=kind, event_id=f"d-{row_id}"),
        trace=TraceWrite(role="tool", content="x", order_index=0, trace_id=f"o-{row_id}", trace_kind="observation"),
        **given,
    )


@small_world
def tools(storage_format: int) -> dict[str, Any]:
    """A run whose owners come and go while their calls are open, and a neighbour who uses the same ids."""
    last = TraceWrite(role="assistant", content="bye", order_index=0, trace_id="last", trace_kind="final")
    return {
        "setup": (run(R1, tenant_id="t"), run(R2)),
        "alphabet": (
            *(start("k1", epoch) for epoch in (1, 2, 3)),
            start("k1", 1, params={"n": 1}),
            start("k1", 1, R2),
            start("k2", 2, trace_id="asked"),
            start("k3", 1, tool_call_id="c-k1"),
            start("k1", 1, MISSING),
            start("k1", 1, kind="tool.begun"),
            *(complete("k1", epoch, pii_mapping={"x": "y"}) for epoch in (1, 2, 3)),
            complete("k1", 1, success=False),
            complete("k1", 1, R2),
            complete("k2", 2),
            complete("k9", 1),
            complete("k1", 1, MISSING),
            complete("k1", 1, kind="tool.done"),
            SaveToolCall(run_id=R1, row_id="k2", tool_call_id="c-k2", tool_name="look"),
            SaveRunEvent(run_id=R2, event_id="d-k1", event_type=TOOL_COMPLETED),
            pause(R1, "p1", 1),
            pause(R1, "p2", 2),
            ClaimPausedRun(run_id=R1, expected_status=APPROVAL),
            *(end(R1, f"f{epoch}", epoch, trace=last) for epoch in (1, 2)),
            end(R1, "f3", None, allowed=ANY_OPEN),
            end(MISSING, "f1", 1, trace=last),
            GetToolCalls(run_id=R1),
            *(GetReplayedToolCalls(run_id=R1, tenant_id=tenant) for tenant in ("t", "T")),
            GetReplayedToolCalls(run_id=R1, limit=1),
            GetReplayedToolCalls(run_id=MISSING),
        ),
        "sometimes": ("replay_under_a_third_epoch",) if storage_format == 2 else (),
    }
