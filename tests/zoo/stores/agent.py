"""Broken stores on which a single operation looks right and an agent does not get on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.runtime.values import CreateRunResult, RunControl, RunRecord, ToolCallRecord, ToolCallStart, TraceRecord
from zoo.stores.base import BrokenStore


class ForgetsInput(BrokenStore):
    breaks = "what a run was asked with is gone when it is read again"
    killed_by = "agent_flows.resume_after_restart"

    async def get_run(self, run_id: str, **given: Any) -> RunRecord | None:
        run = await super().get_run(run_id, **given)
        return None if run is None else replace(run, input_data=None)


class KeepsSubmissionsToItself(BrokenStore):
    breaks = "get_pause_state shows the document without what was submitted"
    killed_by = "agent_flows.client_tool"

    async def get_pause_state(self, run_id: str) -> Any:
        document = await super().get_pause_state(run_id)
        return document and {k: v for k, v in document.items() if not k.startswith("submi")}


class DeafToCancellation(BrokenStore):
    breaks = "get_run_control does not show a request to cancel"
    killed_by = "agent_flows.cancel_working"

    async def get_run_control(self, run_id: str) -> RunControl:
        return replace(await super().get_run_control(run_id), cancel_requested=False)


class SilentInbox(BrokenStore):
    breaks = "get_run_control does not show that notes are waiting"
    killed_by = "agent_flows.pause_and_note"

    async def get_run_control(self, run_id: str) -> RunControl:
        return replace(await super().get_run_control(run_id), has_pending_notes=False)


class Orphans(BrokenStore):
    breaks = "a child is created without its parent"
    killed_by = "agent_flows.delegation"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> CreateRunResult:
        return await super().create_run(run_id, agent_name, **{**given, "parent_run_id": None})


class WithoutLastWords(BrokenStore):
    breaks = "a run's answer is not among its messages"
    killed_by = "agent_flows.run"

    async def get_traces(self, run_id: str, **given: Any) -> list[TraceRecord]:
        return [trace for trace in await super().get_traces(run_id, **given) if trace.trace_kind != "final"]


class EveryCallIsNew(BrokenStore):
    breaks = "a call that a former owner had begun is handed out as a first attempt"
    killed_by = "agent_flows.taken_over"

    async def start_tool_call(self, run_id: str, **given: Any) -> ToolCallStart:
        row = f"{given['row_id'][:32]}-{given['claim_epoch']}"
        call = f"{given['tool_call_id']}-{given['claim_epoch']}"
        return await super().start_tool_call(run_id, **{**given, "row_id": row, "tool_call_id": call})

    async def complete_tool_call(self, run_id: str, **given: Any) -> int:
        row = f"{given['row_id'][:32]}-{given['claim_epoch']}"
        return await super().complete_tool_call(run_id, **{**given, "row_id": row})


class LosesErrors(BrokenStore):
    breaks = "the text of an error does not reach the row"
    killed_by = "agent_flows.failure"

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        return await super().finalize_with_event(run_id, **{**given, "error": None})


class ApprovesEverything(BrokenStore):
    breaks = "a decision is read back as its opposite when it was no"
    killed_by = "agent_flows.approval"

    async def get_pause_state(self, run_id: str) -> Any:
        document = await super().get_pause_state(run_id)
        for decision in (document or {}).get("submitted_decisions", ()):
            decision["approved"] = True
        return document


class WorksInSecret(BrokenStore):
    breaks = "a call that is being executed cannot be seen"
    killed_by = "agent_flows.server_tool"

    async def get_tool_calls(self, run_id: str, **given: Any) -> list[ToolCallRecord]:
        return [call for call in await super().get_tool_calls(run_id, **given) if call.completed]


class CancelsInWords(BrokenStore):
    breaks = "the end of a run at work as cancelled is answered and not stored"
    killed_by = "agent_flows.stream"

    async def finalize_with_event(self, run_id: str, **given: Any) -> int | None:
        if given["status"] == "cancelled" and "running" in given["allowed_current_statuses"]:
            return 0
        return await super().finalize_with_event(run_id, **given)


class WaitsOn(BrokenStore):
    breaks = "a request to cancel does not reach a run that waits"
    killed_by = "agent_flows.cancel_waiting"

    async def request_cancel(self, run_id: str) -> bool:
        run = await self.get_run(run_id)
        return run is not None and run.status == "running" and await super().request_cancel(run_id)
