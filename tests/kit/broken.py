"""Stores with one promise removed, and contracts that notice it."""

from __future__ import annotations

from typing import Any

from dendrux.store import SQLiteStateStore
from dendrux_model.operations import ClaimPausedRun, CreateRun, PauseWithEvent, SaveTrace, TouchProgress
from dendrux_model.outcomes import STALE
from dendrux_model.programs import Do, Fault, Reopen, Tick, Together
from kit.tiny import DECLARATION, tiny


class Unfenced(SQLiteStateStore):
    """save_trace does not look at the epoch."""

    async def save_trace(
        self,
        run_id: str,
        role: str,
        content: str,
        *,
        order_index: int,
        meta: Any = None,
        trace_id: str | None = None,
        trace_kind: Any = "message",
        claim_epoch: int | None = None,
        **blobs: Any,
    ) -> None:
        known: dict[str, Any] = {
            "order_index": order_index,
            "meta": meta,
            "trace_id": trace_id,
            "trace_kind": trace_kind,
        }
        await super().save_trace(run_id, role, content, **known, **blobs)


class NeedsMore(SQLiteStateStore):
    """Cannot be made from an engine alone."""

    def __init__(self, engine: Any, region: str, **given: Any) -> None:
        super().__init__(engine, **given)


PROGRESS = TouchProgress(run_id="r")
LATE = (
    Do(CreateRun(run_id="r", agent_name="a")),
    Do(PauseWithEvent(run_id="r", status="waiting_approval", pause_data={"n": [1, 2]})),
    Do(ClaimPausedRun(run_id="r", expected_status="waiting_approval")),
    Do(SaveTrace(run_id="r", role="user", content_text="late", order_index=0, claim_epoch=1), expect=STALE),
)
RACE = (*LATE[:3], Together((Do(LATE[3].operation, 0, yield_at=1), Do(PROGRESS, 1))))
"""The same, while another instance writes."""
FENCE = tiny("fenced_writes.save_trace", program=LATE, cause="The update lacks the epoch.")
CUT = tiny(
    "crash_recovery.create_run",
    program=(Fault(Do(CreateRun(run_id="r", agent_name="a")), "after_commit", "invalidated"),),
    needs={"fault_injector", "disconnect_form"},
)
CATALOGUE = [
    *DECLARATION,
    tiny("basic.pause", program=LATE[:3]),
    FENCE,
    tiny("retry_ids.create", program=LATE[:1]),
    tiny("checkpointing.pause", program=LATE[:2]),
    tiny("atomic_completion.pause", program=LATE[:2]),
    tiny("recovery.restart", program=(*LATE[:1], Tick(60.0), Reopen(0)), needs={"clock", "reopen"}),
    tiny("concurrency.second", program=(*LATE[:1], Do(LATE[0].operation, instance=1)), needs={"second_instance"}),
    CUT,
]
