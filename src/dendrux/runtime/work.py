"""What an owner knows of the run it works on: made new, or taken up from what earlier owners stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from dendrux.errors import ModelError, WriteConflictError
from dendrux.llm.protocol import ToolCall
from dendrux.runtime.conversation import Conversation, load, observation
from dendrux.runtime.limits import Limits
from dendrux.runtime.pauses import Answers, answers
from dendrux.runtime.recorder import Recorder
from dendrux.runtime.results import Step, ToolResult
from dendrux.runtime.tools import encoded
from dendrux.runtime.values import JsonObject, RunRecord, UsageStats
from dendrux.store.ids import derived_id
from dendrux.vocabulary import META_MAX_DEPTH, RUN_RESUMED, RUN_STARTED

LLM_COMPLETED: Final = "llm.completed"
APPROVAL_DECIDED: Final = "approval.decided"
BUDGET_THRESHOLD: Final = "budget.threshold"
BUDGET_EXCEEDED: Final = "budget.exceeded"
OPTIONS: Final = "options"
MODEL: Final = "model"
SEEDS: Final = "seeds"
"""Members of a run's stored input: what its model is asked with, and how many messages it began with."""


@dataclass(slots=True, kw_only=True)
class StoredAnswer:
    """An answer that is stored and not yet the end of the run."""

    text: str
    step_id: str


@dataclass(slots=True, kw_only=True)
class Work:
    """A run in the hands of its owner."""

    run_id: str
    tenant_id: str | None
    level: int
    max_depth: int | None
    model: str | None
    options: JsonObject
    """What the model is asked with: stored with the run, so that a resume asks with the same."""
    conversation: Conversation = field(default_factory=Conversation)
    iteration: int = 0
    usage: UsageStats = field(default_factory=UsageStats)
    steps: list[Step] = field(default_factory=list)
    decisions: Mapping[str, JsonObject] = field(default_factory=dict)
    marks: list[JsonObject] = field(default_factory=list)
    """What the budget has told of already."""
    final: StoredAnswer | None = None
    stop_reason: str | None = None
    replayed: list[JsonObject] = field(default_factory=list)
    """Calls that an earlier owner had begun, and that this one ran again."""


def work_of(record: RunRecord, max_depth: int | None) -> Work:
    """A run as its row tells of it. `max_depth`: of a run that was made without a bound of its own."""
    given = record.input_data or {}
    cost = record.total_cost_usd
    bound = (record.meta or {}).get(META_MAX_DEPTH, max_depth)
    return Work(
        run_id=record.id,
        tenant_id=record.tenant_id,
        level=record.delegation_level,
        max_depth=bound,
        model=given.get(MODEL),
        options=given.get(OPTIONS) or {},
        iteration=record.iteration_count,
        usage=UsageStats(
            input_tokens=record.total_input_tokens,
            output_tokens=record.total_output_tokens,
            total_tokens=record.total_input_tokens + record.total_output_tokens,
            cost_usd=None if cost is None else Decimal(str(cost)),
            cache_read_input_tokens=record.total_cache_read_tokens or None,
            cache_creation_input_tokens=record.total_cache_creation_tokens or None,
            reasoning_tokens=record.total_reasoning_tokens or None,
        ),
    )


async def take_up(
    record: RunRecord, recorder: Recorder, limits: Limits, *, max_depth: int | None, prompt: str, repair: bool
) -> Work:
    """Go on where earlier owners stopped: the conversation, the last step, and what was submitted meanwhile.

    With `repair` the last owner did not let go of the run by itself: what it stored and may not have logged is logged
    now, under the same ids, so that an event that is there already stays the only one.
    """
    store, run_id = recorder.store, record.id
    work = work_of(record, max_depth)
    given = record.input_data or {}
    work.conversation = await load(
        store, run_id, format_2=recorder.format_2, seeds=int(given.get(SEEDS) or 0), limits=limits
    )
    if recorder.format_2:
        if repair:
            await _began(recorder, record, prompt)
        await _last_step(work, recorder, await store.get_loop_state(run_id) or {}, repair=repair)
    document = await store.get_pause_state(run_id) or {}
    if document:
        work.marks = work.marks or list(document.get("budget_marks") or ())
        await _submitted(work, recorder, answers(document, record.paused_status))
    return work


async def _began(recorder: Recorder, record: RunRecord, prompt: str) -> None:
    """The owner that made the run may have gone before it logged so."""
    if record.iteration_count == 0:
        try:
            await begin(recorder, record.agent_name, prompt)
        except WriteConflictError:
            return  # logged, by an agent with another prompt


async def begin(recorder: Recorder, agent_name: str, prompt: str, **more: Any) -> None:
    """The first event of a log."""
    await recorder.event(
        RUN_STARTED,
        event_id=derived_id(recorder.run_id, RUN_STARTED),
        iteration=0,
        data={"agent_name": agent_name, "system_prompt": prompt, **more},
    )


async def _last_step(work: Work, recorder: Recorder, state: JsonObject, *, repair: bool) -> None:
    """What the last checkpoint says of the turn it stored."""
    work.marks = list(state.get("marks") or ())
    work.stop_reason = state.get("stop_reason")
    if (step_id := state.get("step_id")) is None:
        return
    if repair:
        await log_step(recorder, state)
    if state.get("final"):
        work.final = StoredAnswer(text=await _answer(recorder, state), step_id=step_id)


async def log_step(recorder: Recorder, state: JsonObject) -> None:
    """The events of a stored turn."""
    await recorder.event(
        LLM_COMPLETED,
        event_id=derived_id(state["step_id"], LLM_COMPLETED),
        iteration=state["iteration"],
        correlation_id=state["interaction_id"],
        data=state["llm"],
    )
    for mark in state.get("marks") or ():
        kind = BUDGET_EXCEEDED if mark["fraction"] >= 1 else BUDGET_THRESHOLD
        await recorder.event(
            kind,
            event_id=derived_id(recorder.run_id, kind, mark["metric"], str(mark["fraction"])),
            iteration=mark["iteration"],
            data={name: value for name, value in mark.items() if name != "iteration"},
        )


async def _answer(recorder: Recorder, state: JsonObject) -> str:
    """The answer that the last turn gave: its text is in the stored response."""
    rows = await recorder.store.get_llm_interactions(recorder.run_id, iteration_index=state["iteration"])
    for row in rows:
        if row.id == state["interaction_id"]:
            return str((row.semantic_response or {}).get("text") or "")
    raise ModelError("the stored response of the run's last turn is not there")


async def _submitted(work: Work, recorder: Recorder, given: Answers) -> None:
    """Take what was submitted, store what it answers, and log it."""
    if recorder.format_2:
        if given.submission_id is None:
            return
        open_calls = {call.id: call for call in work.conversation.outstanding()}
        pairs = [(open_calls[result.call_id], result) for result in given.results if result.call_id in open_calls]
        turn = work.conversation.turn
        if await recorder.consume(given.submission_id, pairs, turn, given.targets) is None:
            return
        for call, result in pairs:
            assert turn is not None
            work.conversation.add(observation(call, result, turn.iteration), turn.place(call))
    work.decisions = given.decisions
    await _log_resumed(recorder, given)
    if not recorder.format_2:
        await _stored_one_by_one(work, recorder, given)
        return
    for result in given.results:
        await recorder.completed_call(result, given.iteration, given.targets.get(result.call_id, "client"))


async def _stored_one_by_one(work: Work, recorder: Recorder, given: Answers) -> None:
    """Format 1: nothing is handed out once, and every row has a write of its own."""
    turn = work.conversation.turn
    calls: dict[str, ToolCall] = {call.id: call for call in work.conversation.outstanding()}
    for result in given.results:
        call = calls.get(result.call_id)
        if call is not None and turn is not None:
            await recorder.answered_call(call, result, turn, given.targets.get(call.id, "client"))
            work.conversation.add(observation(call, result, turn.iteration), turn.place(call))


async def _log_resumed(recorder: Recorder, given: Answers) -> None:
    """`run.resumed`, and the decision where one was asked for. Ids follow from what is answered."""
    answered = given.submission_id or derived_id(given.pause_id or "", recorder.run.claim_epoch, "answer")
    await recorder.event(
        RUN_RESUMED,
        event_id=derived_id(answered, RUN_RESUMED),
        iteration=given.iteration,
        correlation_id=given.pause_id,
        data=given.resumed_data(),
    )
    if given.decisions:
        verdicts = {decision["approved"] for decision in given.decisions.values()}
        word = "mixed" if len(verdicts) > 1 else "approved" if True in verdicts else "rejected"
        await recorder.event(
            APPROVAL_DECIDED,
            event_id=derived_id(answered, APPROVAL_DECIDED),
            iteration=given.iteration,
            data={"run_id": recorder.run_id, "decision": word, "decisions": list(given.decisions.values())},
        )


def result_of(record: Any) -> ToolResult:
    """A stored call's result."""
    return ToolResult(
        name=record.tool_name,
        call_id=record.tool_call_id,
        payload=encoded(record.result),
        success=record.success,
        error=record.error_message,
        duration_ms=record.duration_ms or 0,
        outcome=record.outcome or "completed",
        replayed=record.attempt > 1,
    )
