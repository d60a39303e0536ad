"""What a paused run's document says, what may be submitted to it, and what its next owner makes of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dendrux.errors import InvalidToolResultError, PauseStatusMismatchError
from dendrux.llm.protocol import ToolCall
from dendrux.runtime.conversation import Conversation, stored_calls
from dendrux.runtime.results import ToolResult
from dendrux.runtime.tools import encoded
from dendrux.runtime.values import JsonObject, UsageStats

RESULTS: Final = "submitted_tool_results"
INPUT: Final = "submitted_user_input"
DECISIONS: Final = "submitted_decisions"
RESUMED: Final = "submitted_resume"
"""The members of a submission, by what the run waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a run is let go of, and what it waits for."""

    status: str
    pause_id: str
    calls: tuple[ToolCall, ...] = ()
    targets: Mapping[str, str] | None = None
    reason: str | None = None
    """`requested` or `budget` of a run with status `paused`."""
    message: str | None = None
    gates: JsonObject | None = None
    """Why each call needs approval, by call id: `source` and `reason`."""
    exceeded: JsonObject | None = None

    def document(self, agent_name: str, iteration: int, conversation: Conversation, usage: UsageStats) -> JsonObject:
        """What is stored of the pause. The conversation is stored already, and is not repeated here."""
        used = {name: value for name, value in asdict(usage).items() if name != "cost_source"}
        if used["cost_usd"] is not None:
            used["cost_usd"] = float(used["cost_usd"])
        optional = {
            "pause_reason": self.reason,
            "pause_message": self.message,
            "approval_gates": self.gates,
            "budget_exceeded": self.exceeded,
        }
        return {
            "agent_name": agent_name,
            "pause_id": self.pause_id,
            "pending_tool_calls": stored_calls(self.calls),
            "pending_targets": dict(self.targets or {}),
            "iteration": iteration,
            "trace_order_offset": conversation.next_order,
            "usage": used,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def event_data(self) -> JsonObject:
        """What `run.paused` says. Its `pause_id` is that of the `run.resumed` that answers it."""
        targets = self.targets or {}
        optional = {"reason": self.reason, "message": self.message, "exceeded": self.exceeded}
        return {
            "status": self.status,
            "pause_id": self.pause_id,
            "pending_tool_calls": [
                {"id": call.id, "name": call.name, "target": targets.get(call.id), "params": call.params}
                for call in self.calls
            ],
            **{name: value for name, value in optional.items() if value is not None},
        }


# -- submitting -------------------------------------------------------------------------------------------------------


def tool_results(run_id: str, results: Any, document: JsonObject) -> list[JsonObject]:
    """Submitted results as they are stored. A mapping gives values by call id; a ToolResult tells of a failure too.

    Refuses: InvalidToolResultError unless there is exactly one for each call that the run waits for.
    """
    names = {call["id"]: call["name"] for call in document.get("pending_tool_calls", ())}
    if isinstance(results, Mapping):
        results = [
            value if isinstance(value, ToolResult) else _of_value(run_id, str(call_id), names, value)
            for call_id, value in results.items()
        ]
    given: list[JsonObject] = []
    for result in results:
        if not isinstance(result, ToolResult):
            raise InvalidToolResultError(run_id, f"a result must be a ToolResult, not {type(result).__name__}")
        given.append(
            {
                "name": names.get(result.call_id, result.name),
                "call_id": result.call_id,
                "payload": result.payload,
                "success": result.success,
                "error": result.error,
                "duration_ms": result.duration_ms,
            }
        )
    exactly(run_id, [result["call_id"] for result in given], names)
    return given


def _of_value(run_id: str, call_id: str, names: Mapping[str, str], value: Any) -> ToolResult:
    try:
        payload = encoded(value)
    except (TypeError, ValueError) as wrong:
        raise InvalidToolResultError(run_id, f"the result of call {call_id!r} is no JSON: {wrong}") from None
    return ToolResult(name=names.get(call_id, ""), call_id=call_id, payload=payload)


def exactly(run_id: str, given: Sequence[str], wanted: Mapping[str, Any]) -> None:
    """One answer for each call. Refuses: InvalidToolResultError naming what is missing, unknown or given twice."""
    twice = sorted({call_id for call_id in given if given.count(call_id) > 1})
    missing = [call_id for call_id in wanted if call_id not in given]
    unknown = [call_id for call_id in given if call_id not in wanted]
    for what, ids in (("answered twice", twice), ("without an answer", missing), ("not waited for", unknown)):
        if ids:
            raise InvalidToolResultError(run_id, f"calls {what}: {', '.join(map(repr, ids))}")


def decided(
    run_id: str, document: JsonObject, approved: bool | None, decisions: Mapping[str, bool] | None, reason: str | None
) -> list[JsonObject]:
    """Decisions as they are stored: one for all calls, or one for each."""
    names = {call["id"]: call["name"] for call in document.get("pending_tool_calls", ())}
    if (approved is None) == (decisions is None):
        raise ValueError("give approved= for all calls, or decisions= for each")
    chosen = dict.fromkeys(names, approved) if decisions is None else dict(decisions)
    exactly(run_id, list(chosen), names)
    if not all(isinstance(value, bool) for value in chosen.values()):
        raise InvalidToolResultError(run_id, "a decision is True or False")
    return [{"call_id": call_id, "approved": yes, "reason": None if yes else reason} for call_id, yes in chosen.items()]


def still_at(run_id: str, status: str, pause_id: str | None) -> Callable[[JsonObject], None]:
    """What the store asks inside the claiming transaction: is the run still at the pause that is being answered?

    Without it, an answer to an earlier pause would be taken for one to a later pause of the same status.
    """

    def validate(document: JsonObject) -> None:
        if pause_id is not None and document.get("pause_id") != pause_id:
            raise PauseStatusMismatchError(run_id, f"{status} (pause {document.get('pause_id')})", f"pause {pause_id}")

    return validate


# -- taking up --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What was submitted to the last pause of a run. Read from the stored document alone, so that every owner of the
    run logs the same events of it.
    """

    submission_id: str | None
    pause_id: str | None
    status: str | None
    """What the run waited as."""
    iteration: int
    results: tuple[ToolResult, ...] = ()
    decisions: Mapping[str, JsonObject] = field(default_factory=dict)
    user_input: str | None = None
    targets: Mapping[str, str] = field(default_factory=dict)

    def resumed_data(self) -> JsonObject:
        """What `run.resumed` says."""
        data: JsonObject = {"resumed_from": self.status, "pause_id": self.pause_id}
        if self.user_input is not None:
            data["user_input"] = self.user_input
        elif self.results:
            data["submitted_results"] = [
                {"call_id": result.call_id, "name": result.name, "success": result.success} for result in self.results
            ]
        if self.decisions:
            data["decisions"] = [
                {"call_id": call_id, "approved": decision["approved"]} for call_id, decision in self.decisions.items()
            ]
        return data


def answers(document: JsonObject, status: str | None) -> Answers:
    """Read a pause document with the submission laid over it."""
    results = [
        ToolResult(
            name=said["name"],
            call_id=said["call_id"],
            payload=said["payload"],
            success=said["success"],
            error=said.get("error"),
            duration_ms=said.get("duration_ms") or 0,
            outcome="completed" if said["success"] else "failed",
        )
        for said in document.get(RESULTS) or ()
    ]
    text = document.get(INPUT)
    if text is not None:
        results += [
            ToolResult(name=call["name"], call_id=call["id"], payload=encoded(text))
            for call in document.get("pending_tool_calls") or ()
        ]
    return Answers(
        submission_id=document.get("submission_id"),
        pause_id=document.get("pause_id"),
        status=status,
        iteration=int(document.get("iteration") or 0),
        results=tuple(results),
        decisions={said["call_id"]: said for said in document.get(DECISIONS) or ()},
        user_input=text,
        targets=document.get("pending_targets") or {},
    )
