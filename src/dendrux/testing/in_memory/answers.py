"""The model's plain data as the records of the protocol: the inverse of what the driver makes of a store's answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from dendrux.runtime.blobs import BlobInfo, BlobReference
from dendrux.runtime.pending import PendingCall, PendingWork
from dendrux.runtime.values import (
    ConversationPage,
    CreateRunResult,
    DelegationInfo,
    LLMInteractionRecord,
    NoteRecord,
    ParentRef,
    ReplayedToolCalls,
    RunBrief,
    RunControl,
    RunEventRecord,
    RunRecord,
    Submission,
    SubtreeNodeRecord,
    SubtreeRecord,
    SubtreeSummary,
    ToolCallRecord,
    ToolCallStart,
    TraceRecord,
    UsageRollup,
)
from dendrux.testing.in_memory.data import Data, moment
from dendrux_model.values import At, JsonText

Shown = Mapping[str, Any]
Given = Mapping[str, Any]
Answer = Callable[[Data, Given, Any], Any]
"""Makes an answer of the protocol from what the model answers to a call with these arguments."""


def real(value: Any) -> Any:
    """A plain value: documents from their text, times from their instants, anything else as it is."""
    if isinstance(value, JsonText):
        return json.loads(value.text)
    return moment(value.instant) if isinstance(value, At) else value


def record(kind: Callable[..., Any], shown: Shown, **more: Any) -> Any:
    """A record with these fields, and with those that the model does not show."""
    return kind(**{name: real(value) for name, value in shown.items()}, **more)


# -- rows -------------------------------------------------------------------------------------------------------------


def event(data: Data, run_id: str, row: Shown) -> RunEventRecord:
    """An entry of a log."""
    made: RunEventRecord = record(RunEventRecord, row, run_id=run_id, created_at=data.stored_at("events", row["id"]))
    return made


def trace(data: Data, run_id: str, row: Shown) -> TraceRecord:
    """A message."""
    made: TraceRecord = record(TraceRecord, row, created_at=data.stored_at("traces", row["id"]))
    return made


def tool_call(data: Data, run_id: str, row: Shown) -> ToolCallRecord:
    """A tool call."""
    made: ToolCallRecord = record(ToolCallRecord, row, created_at=data.stored_at("tool_calls", row["id"]))
    return made


def interaction(data: Data, run_id: str, row: Shown) -> LLMInteractionRecord:
    """A call of a model."""
    made: LLMInteractionRecord = record(LLMInteractionRecord, row, created_at=data.stored_at("interactions", row["id"]))
    return made


def note(data: Data, run_id: str, row: Shown) -> NoteRecord:
    """A note."""
    made: NoteRecord = record(NoteRecord, row, run_id=run_id, created_at=data.stored_at("notes", row["id"]))
    return made


Row = Callable[[Data, str, Shown], Any]


def rows(row: Row) -> Answer:
    """A list of rows of the run that the call is about."""
    return lambda data, given, found: [row(data, given["run_id"], one) for one in found]


# -- runs and what is said of them ------------------------------------------------------------------------------------


def maybe(kind: Callable[..., Any]) -> Answer:
    """A record, or None."""
    return lambda data, given, found: None if found is None else record(kind, found)


def pause_state(data: Data, given: Given, found: Shown | None) -> Any:
    """The document, with the id of a submission beside the document's own members."""
    if found is None:
        return None
    submission = found["submission_id"]
    return {**real(found["document"]), **({} if submission is None else {"submission_id": submission})}


def pending(data: Data, given: Given, found: Shown | None) -> PendingWork | None:
    """What a paused run waits for."""
    if found is None:
        return None
    work: PendingWork = record(
        PendingWork, {**found, "calls": tuple(record(PendingCall, one) for one in found["calls"])}
    )
    return work


def events_of_runs(data: Data, given: Given, found: Mapping[str, list[Shown]]) -> Any:
    """Several logs."""
    return {run_id: [event(data, run_id, row) for row in page] for run_id, page in found.items()}


def started(data: Data, given: Given, found: Shown) -> ToolCallStart:
    """What the caller may do with a call."""
    stored = found["completed"]
    completed = None if stored is None else tool_call(data, given["run_id"], stored)
    return ToolCallStart(attempt=found["attempt"], replayed=found["replayed"], completed=completed)


def replayed(data: Data, given: Given, found: Shown) -> ReplayedToolCalls:
    """Calls that were started more than once."""
    calls = [tool_call(data, given["run_id"], row) for row in found["calls"]]
    return ReplayedToolCalls(calls=calls, truncated=found["truncated"])


def conversation(data: Data, given: Given, found: Shown) -> ConversationPage:
    """A page of the conversation."""
    traces = [trace(data, given["run_id"], row) for row in found["traces"]]
    return ConversationPage(traces=traces, next_after=found["next_after"])


def family(data: Data, given: Given, found: Shown | None) -> DelegationInfo | None:
    """Where a run stands in its family."""
    if found is None:
        return None
    above = found["parent"]
    return DelegationInfo(
        parent=None if above is None else ParentRef(**above),
        children=[RunBrief(**child) for child in found["children"]],
        ancestry=[RunBrief(**one) for one in found["ancestry"]],
        subtree_summary=SubtreeSummary(**found["subtree_summary"]),
        ancestry_complete=found["ancestry_complete"],
    )


def subtree(data: Data, given: Given, found: Shown | None) -> SubtreeRecord | None:
    """A run and everything below it."""
    if found is None:
        return None
    nodes = [
        SubtreeNodeRecord(run=record(RunRecord, node["run"]), depth=node["depth"], usage=UsageRollup(**node["usage"]))
        for node in found["nodes"]
    ]
    return SubtreeRecord(nodes=nodes, usage=UsageRollup(**found["usage"]))


def blob(data: Data, given: Given, found: Shown | None) -> BlobInfo | None:
    """What is known of a blob: the model's part, and what is kept beside it."""
    if found is None:
        return None
    kept = data.blobs[given["tenant_scope"], found["sha256"]]._asdict()
    del kept["content"], kept["removed"]
    info: BlobInfo = record(BlobInfo, {**found, **kept})
    return info


def references(data: Data, given: Given, found: list[Shown]) -> list[BlobReference]:
    """A page of references in their order."""
    return [record(BlobReference, row) for row in found]


ANSWERS: Final[dict[str, Answer]] = {
    "create_run": maybe(CreateRunResult),
    "get_run": maybe(RunRecord),
    "consume_submission": maybe(Submission),
    "get_run_control": maybe(RunControl),
    "get_pause_state": pause_state,
    "get_pending": pending,
    "get_run_events": rows(event),
    "get_events_for_runs": events_of_runs,
    "get_traces": rows(trace),
    "get_traces_after": rows(trace),
    "conversation_traces": conversation,
    "start_tool_call": started,
    "get_tool_calls": rows(tool_call),
    "get_replayed_tool_calls": replayed,
    "get_llm_interactions": rows(interaction),
    "get_notes": rows(note),
    "put_blob": blob,
    "blob_info": blob,
    "purge_blob": blob,
    "blob_references": references,
    "get_delegation_info": family,
    "child_runs_page": lambda data, given, found: [RunBrief(**row) for row in found],
    "get_subtree": subtree,
    "run_usage": maybe(UsageRollup),
    "subtree_usage": maybe(UsageRollup),
}
"""How each method's answer is made; that of a method not named here is a plain value."""
