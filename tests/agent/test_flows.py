"""What an agent does with its runs, on every database: tools, pauses, approvals, notes, budgets, children."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import dendrux
from agent.flows import add, ask, locate, log, types
from dendrux.errors import (
    DelegationDepthExceededError,
    IdempotencyConflictError,
    InvalidToolResultError,
    ModelError,
    PauseStatusMismatchError,
    RunAlreadyActiveError,
    RunAlreadyTerminalError,
    RunNotFoundError,
    RunNotPausedError,
)
from dendrux.llm import LLMResponse, Message, ScriptedLLM, calling
from dendrux.llm.protocol import TextDelta
from dendrux.runtime.context import current
from dendrux.runtime.results import RunEventType, ToolResult
from dendrux.runtime.values import UsageStats
from dendrux.store import RunStore


@pytest_asyncio.fixture
async def store(database: Any, tmp_path: Path) -> AsyncIterator[Any]:
    async with database.store(tmp_path) as made:
        yield made


def agent_of(store: Any, *answers: Any, **options: Any) -> dendrux.Agent:
    given = {"name": "a", "prompt": "Help.", "tools": [add, locate, ask], **options}
    return dendrux.Agent(provider=ScriptedLLM(answers), state_store=store, **given)


async def test_a_server_tool_and_an_answer(store: Any) -> None:
    agent = agent_of(store, calling(("add", {"a": 1, "b": 2}), ("add", {"a": 5})), "3 and 6", max_iterations=4)
    done = await agent.run("sums", metadata={"thread": "t"}, temperature=0.5)
    assert (done.status, done.answer, done.iteration_count) == ("success", "3 and 6", 2)
    assert [result.payload for result in done.steps[0].results] == ["3", "6"]
    assert done.usage.total_tokens == 30
    run = await store.get_run(done.run_id)
    assert (run.answer, run.total_input_tokens, run.meta["thread"], run.meta["dendrux.loop"]) == (
        "3 and 6",
        20,
        "t",
        "react",
    )
    traces = await store.get_traces(done.run_id)
    assert [(t.role, t.content, t.trace_kind) for t in traces] == [
        ("user", "sums", "seed"),
        ("assistant", "", "message"),
        ("tool", "3", "observation"),
        ("tool", "6", "observation"),
        ("assistant", "3 and 6", "final"),
    ]
    asked = agent.provider.call_history  # type: ignore[union-attr]
    assert [m.role for m in asked[1].messages] == ["system", "user", "assistant", "tool", "tool"]
    assert asked[1].options == {"temperature": 0.5}
    calls = await store.get_tool_calls(done.run_id)
    assert sorted(call.result for call in calls) == [3, 6]
    assert {call.outcome for call in calls} == {"completed"}


async def test_calls_that_cannot_run_are_answered_to_the_model(store: Any) -> None:
    bad = calling(("add", {"a": "x"}), ("nothing", {}), ("add", {"a": 1, "c": 2}))
    done = await agent_of(store, bad, "sorry").run("go")
    outcomes = [(result.success, result.outcome) for result in done.steps[0].results]
    assert sorted(outcomes) == [(False, "invalid")] * 3
    said = " ".join(result.error or "" for result in done.steps[0].results)
    assert "a: " in said
    assert "there is no tool 'nothing'" in said
    assert "c: " in said


async def test_a_run_goes_on_after_a_restart(store: Any, database: Any) -> None:
    first = agent_of(store, calling(("add", {"a": 1}), ("locate", {})))
    paused = await first.run("where?", model="special", top_p=1)
    again = agent_of(database.kind(store._engine), "home")
    stands = await again.result(paused.run_id)
    assert (stands.pause_id, stands.pending_tool_calls) == (paused.pause_id, paused.pending_tool_calls)
    failure = ToolResult(
        name="", call_id=paused.pending_tool_calls[0].id, payload='{"error":"lost"}', success=False, error="lost"
    )
    done = await again.submit_tool_results(paused.run_id, [failure], pause_id=paused.pause_id)
    assert (done.status, done.answer) == ("success", "home")
    asked = again.provider.call_history[0]  # type: ignore[union-attr]
    assert (asked.model, asked.options) == ("special", {"top_p": 1})
    assert [(m.role, m.content) for m in asked.messages[3:]] == [("tool", "2"), ("tool", '{"error":"lost"}')]
    calls = {call.tool_name: call for call in await store.get_tool_calls(paused.run_id)}
    assert (calls["locate"].target, calls["locate"].success, calls["locate"].error_message) == ("client", False, "lost")


async def test_submissions_that_do_not_answer_change_nothing(store: Any) -> None:
    agent = agent_of(store, calling(("locate", {})), "home")
    paused = await agent.run("where?")
    before = await store.get_run(paused.run_id)
    (call,) = paused.pending_tool_calls
    twice = [ToolResult(name="locate", call_id=call.id, payload="1")] * 2
    for wrong in ({}, {"other": 1}, {call.id: 1, "other": 2}, twice, {call.id: float("nan")}):
        with pytest.raises(InvalidToolResultError):
            await agent.submit_tool_results(paused.run_id, wrong)
    with pytest.raises(PauseStatusMismatchError):
        await agent.submit_input(paused.run_id, "text")
    with pytest.raises(PauseStatusMismatchError):
        await agent.submit_tool_results(paused.run_id, {call.id: 1}, pause_id="an earlier one")
    with pytest.raises(RunNotFoundError):
        await agent.submit_tool_results(paused.run_id, {call.id: 1}, tenant_id="t")
    with pytest.raises(ValueError, match="belongs to the agent 'a'"):
        await agent_of(store, name="b").submit_tool_results(paused.run_id, {call.id: 1})
    assert await store.get_run(paused.run_id) == before
    assert (await agent.submit_tool_results(paused.run_id, {call.id: 1})).status == "success"
    with pytest.raises(RunAlreadyTerminalError):
        await agent.submit_tool_results(paused.run_id, {call.id: 1})


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_gates_the_whole_batch(store: Any, approved: bool) -> None:
    ran: list[int] = []

    @dendrux.tool
    def note(number: int) -> str:
        """Note it."""
        ran.append(number)
        return "noted"

    batch = calling(("note", {"number": 1}), ("add", {"a": 1}), ("locate", {}))
    agent = agent_of(store, batch, "done", tools=[note, add, locate], require_approval=["note"])
    gate = await agent.run("go")
    assert (gate.status, [c.name for c in gate.pending_tool_calls], ran) == ("waiting_approval", ["note"], [])
    assert await store.get_tool_calls(gate.run_id) == []
    document = await store.get_pause_state(gate.run_id)
    assert list(document["approval_gates"].values()) == [{"source": "static", "reason": None}]
    client = await agent.submit_approval(gate.run_id, approved=approved, rejection_reason="not now")
    assert (client.status, ran) == ("waiting_client_tool", [1] if approved else [])
    done = await agent.submit_tool_results(gate.run_id, {client.pending_tool_calls[0].id: "here"})
    assert (done.status, ran) == ("success", [1] if approved else [])
    calls = {call.tool_name: call for call in await store.get_tool_calls(gate.run_id)}
    assert calls["note"].outcome == ("completed" if approved else "rejected")
    assert calls["note"].error_message == (None if approved else "rejected: not now")
    (decided,) = [e for e in await log(store, gate.run_id) if e.event_type == "approval.decided"]
    assert decided.data["decision"] == ("approved" if approved else "rejected")
    assert decided.data["run_id"] == gate.run_id


async def test_decisions_one_by_one(store: Any) -> None:
    agent = agent_of(store, calling(("add", {"a": 1}), ("add", {"a": 2})), "ok", require_approval=["add"])
    gate = await agent.run("go")
    one, two = gate.pending_tool_calls
    with pytest.raises(InvalidToolResultError):
        await agent.submit_approval(gate.run_id, decisions={one.id: True})
    done = await agent.submit_approval(gate.run_id, decisions={one.id: True, two.id: False})
    assert done.status == "success"
    calls = {call.tool_call_id: call.outcome for call in await store.get_tool_calls(gate.run_id)}
    assert calls == {one.id: "completed", two.id: "rejected"}


async def test_a_question_to_a_person(store: Any) -> None:
    agent = agent_of(store, calling(("ask", {"question": "Red?"}), ("ask", {"question": "Blue?"})), "ok")
    first = await agent.run("go")
    assert (first.status, first.pending_tool_calls[0].params) == ("waiting_human_input", {"question": "Red?"})
    second = await agent.submit_input(first.run_id, "yes")
    assert (second.status, second.pending_tool_calls[0].params) == ("waiting_human_input", {"question": "Blue?"})
    done = await agent.submit_input(first.run_id, "no")
    assert done.status == "success"
    asked = agent.provider.call_history[-1].messages  # type: ignore[union-attr]
    assert [m.content for m in asked if m.role == "tool"] == ['"yes"', '"no"']
    pairs = await RunStore(store).get_pauses(first.run_id)
    assert [pair.user_input for pair in pairs] == ["yes", "no"]


async def test_a_pause_on_request_and_notes_meanwhile(store: Any) -> None:
    async def asking(messages: Any) -> LLMResponse:
        outcome = await agent.request_pause((await store.list_runs())[0].id, reason="lunch")
        assert set(outcome.affected.values()) == {"requested"}
        return calling(("add", {"a": 1}))

    agent = agent_of(store, asking, "done")
    paused = await agent.run("go")
    assert (paused.status, paused.pending_tool_calls) == ("paused", ())
    (event,) = [e for e in await log(store, paused.run_id) if e.event_type == "run.paused"]
    assert (event.data["reason"], event.data["message"]) == ("requested", "lunch")
    assert (await agent.request_pause(paused.run_id)).affected == {paused.run_id: "already_paused"}
    first = await agent.submit_note(paused.run_id, "hurry", metadata={"from": "me"})
    done = await agent.resume(paused.run_id)
    assert done.status == "success"
    said = agent.provider.call_history[-1].messages[-1]  # type: ignore[union-attr]
    assert (said.role, said.content) == ("user", "NOTE FROM USER:\nhurry")
    (note,) = await store.get_notes(paused.run_id)
    assert (note.id, note.delivered_iteration) == (first, 2)
    delivered = [e for e in await log(store, paused.run_id) if e.event_type == "inbox.delivered"]
    assert [e.correlation_id for e in delivered] == [first]
    with pytest.raises(RunAlreadyTerminalError):
        await agent.submit_note(paused.run_id, "too late")


async def test_cancelling_what_waits_and_what_works(store: Any) -> None:
    agent = agent_of(store, calling(("locate", {})))
    paused = await agent.run("where?")
    ended = await agent.cancel_run(paused.run_id)
    assert (ended.status, (await types(store, paused.run_id))[-1]) == ("cancelled", "run.cancelled")
    assert (await agent.cancel_run(paused.run_id)).status == "cancelled"
    with pytest.raises(RunAlreadyTerminalError):
        await agent.submit_tool_results(paused.run_id, {paused.pending_tool_calls[0].id: 1})

    ran: list[int] = []

    @dendrux.tool(parallel=False)
    async def stop(number: int) -> str:
        """Stop."""
        ran.append(number)
        run = current()
        assert run is not None
        assert (await worker.cancel_run(run.run_id)).status == "running"
        return "stopping"

    worker = agent_of(store, calling(("stop", {"number": 1}), ("stop", {"number": 2})), "never", tools=[stop])
    done = await worker.run("go")
    assert (done.status, ran) == ("cancelled", [1])
    assert (await types(store, done.run_id))[-1] == "run.cancelled"


async def test_a_cancelled_task_ends_its_run(store: Any) -> None:
    begun = asyncio.Event()

    async def slow(messages: Any) -> LLMResponse:
        begun.set()
        await asyncio.sleep(60)
        raise AssertionError("unreachable")

    task = asyncio.create_task(agent_of(store, slow).run("go"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = await store.list_runs()
    assert run.status == "cancelled"
    assert (await log(store, run.id))[-1].data == {"reason": "task_cancelled"}


@pytest.mark.parametrize("calls", [False, True], ids=["answering", "between_turns"])
async def test_a_stream_that_its_reader_closes_ends_its_run_with_what_was_told_of_the_answer(
    store: Any, calls: bool
) -> None:
    class Telling(ScriptedLLM):
        async def complete_stream(self, messages: Any, **asked: Any) -> Any:
            if calls and not self.call_history:
                async for item in super().complete_stream(messages, **asked):
                    yield item
            for piece in ("it ", "is ", "so"):
                yield TextDelta(piece)
            await asyncio.sleep(60)

    agent = agent_of(store)
    told: list[str] = []
    async with agent.stream("go", provider=Telling([calling(("add", {"a": 1}), text="let me see")])) as stream:
        async for event in stream:
            told += [event.text] if event.text else []
            if event.text == "so":
                break
    run = await store.get_run(stream.run_id)
    assert (run.status, run.answer) == ("cancelled", "it is so")
    assert (await log(store, run.id))[-1].data == {"reason": "stream_closed"}


async def test_what_a_result_says_of_how_it_came_about(store: Any) -> None:
    answers = calling(("add", {"a": 1}), text="let me see"), LLMResponse(text="tw", stop_reason="length")
    done = await agent_of(store, *answers).run("go")
    assert (done.answer, done.truncated, done.commentary) == ("tw", True, ("let me see",))
    events = await log(store, done.run_id)
    phases = [event.data["phase"] for event in events if event.event_type == "llm.completed"]
    assert phases == ["commentary", "final_answer"]
    assert events[-1].data == {"status": "success", "stop_reason": "length", "truncated": True}
    assert not (await agent_of(store, "two").run("go")).truncated
    short = await agent_of(store, calling(("add", {"a": 1})), max_iterations=1).run("go")
    assert (short.status, short.truncated) == ("max_iterations", True)
    assert (await log(store, short.run_id))[-1].data["truncated"] is True


async def test_notes_that_came_too_late_are_named(store: Any) -> None:
    left: list[str] = []

    async def last(messages: Any) -> str:
        (run,) = await store.list_runs()
        left.append(await agent.submit_note(run.id, "wait"))
        return "done"

    agent = agent_of(store, last)
    done = await agent.run("go")
    assert (done.answer, done.meta) == ("done", {"undelivered_notes": left})


async def test_a_stream(store: Any) -> None:
    agent = agent_of(store, calling(("add", {"a": 1}), text="let me see"), "two")
    stream = agent.stream("go")
    seen = [event async for event in stream]
    assert [event.type for event in seen] == [
        RunEventType.RUN_STARTED,
        RunEventType.TEXT_DELTA,
        RunEventType.TOOL_USE_START,
        RunEventType.TOOL_RESULT,
        RunEventType.TEXT_DELTA,
        RunEventType.RUN_COMPLETED,
    ]
    assert stream.result is not None
    assert (stream.result.answer, {event.run_id for event in seen}) == ("two", {stream.run_id})
    assert (await store.get_run(stream.run_id)).status == "success"
    with pytest.raises(RuntimeError, match="once"):
        [event async for event in stream]


async def test_a_stream_that_is_closed_cancels_its_run(store: Any) -> None:
    async with agent_of(store, calling(("add", {"a": 1})), "never").stream("go") as stream:
        async for event in stream:
            if event.type is RunEventType.TOOL_RESULT:
                break
    assert (await store.get_run(stream.run_id)).status == "cancelled"


async def test_a_stream_tells_of_an_error(store: Any) -> None:
    stream = agent_of(store, ValueError("the vendor is away")).stream("go")
    last = [event async for event in stream][-1]
    assert (last.type, str(last.error)) == (RunEventType.RUN_ERROR, "the vendor is away")
    assert (await store.get_run(stream.run_id)).error == "ValueError: the vendor is away"


async def test_what_a_provider_raises_ends_the_run_and_reaches_the_caller(store: Any) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        await agent_of(store, ZeroDivisionError("x" * 5000)).run("go")
    run = await store.get_run(raised.value.run_id)  # type: ignore[attr-defined]
    assert (run.status, len(run.error)) == ("error", 500)
    assert await types(store, run.id) == ["run.started", "llm.started", "run.error"]


async def test_the_iteration_limit(store: Any) -> None:
    done = await agent_of(store, *[calling(("add", {"a": 1}))] * 3, max_iterations=2).run("go")
    assert (done.status, done.iteration_count, done.answer) == ("max_iterations", 2, None)
    assert (await log(store, done.run_id))[-1].data["truncated"] is True


async def test_responses_over_the_limits_end_the_run(store: Any) -> None:
    limits = dendrux.Limits(max_response_bytes=1000, max_tool_calls_per_turn=2, max_tool_result_bytes=500)
    for answer in ("x" * 2000, calling(*[("add", {"a": 1})] * 3), "\ud800"):
        with pytest.raises(ModelError):
            await agent_of(store, answer, limits=limits).run("go")

    @dendrux.tool
    def much() -> str:
        """Much."""
        return "x" * 1000

    done = await agent_of(store, calling(("much", {})), "ok", limits=limits, tools=[much]).run("go")
    assert "at most 500" in (done.steps[0].results[0].error or "")
    with pytest.raises(ValueError, match="max_input_bytes"):
        await agent_of(store, "x", limits=dendrux.Limits(max_input_bytes=10)).run("x" * 11)


def test_limits_of_a_prompt() -> None:
    with pytest.raises(ValueError, match="max_input_bytes"):
        dendrux.Agent(prompt="Help, please.", limits=dendrux.Limits(max_input_bytes=10))


async def test_idempotency(store: Any) -> None:
    agent = agent_of(store, "one", calling(("locate", {})))
    first = await agent.run("go", idempotency_key="k", tenant_id="t")
    again = await agent.run("go", idempotency_key="k", tenant_id="t")
    assert (again.run_id, again.answer) == (first.run_id, "one")
    with pytest.raises(IdempotencyConflictError):
        await agent.run("other", idempotency_key="k", tenant_id="t")
    other = await agent.run("go", idempotency_key="k", tenant_id="u")
    assert other.status == "waiting_client_tool"
    with pytest.raises(RunAlreadyActiveError) as active:
        await agent.run("go", idempotency_key="k", tenant_id="u")
    assert active.value.run_id == other.run_id
    with pytest.raises(RunNotPausedError):
        (running := await store.create_run("r", "a")) and await agent.resume(running.run_id)


async def test_delegation(store: Any) -> None:
    child = agent_of(store, "from below", name="child", max_delegation_depth=1)

    @dendrux.tool
    async def delegate(task: str) -> str:
        """Delegate."""
        return str((await child.run(task)).answer)

    parent = agent_of(store, calling(("delegate", {"task": "x"})), "ok", name="parent", tools=[delegate])
    done = await parent.run("go", tenant_id="t")
    assert done.steps[0].results[0].payload == '"from below"'
    (below,) = await store.child_runs_page(done.run_id)
    run = await store.get_run(below.run_id)
    assert (run.parent_run_id, run.delegation_level, run.tenant_id, run.agent_name) == (done.run_id, 1, "t", "child")

    @dendrux.tool
    async def deeper() -> str:
        """Delegate to itself."""
        return str((await endless.run("x")).answer)

    answers = [calling(("deeper", {}))] * 3 + ["ok"] * 3
    endless = agent_of(store, *answers, name="endless", tools=[deeper], max_delegation_depth=2)
    top = await endless.run("go")
    levels = [r.delegation_level for r in await store.list_runs(agent_name="endless")]
    assert (top.status, sorted(levels)) == ("success", [0, 1, 2])
    assert DelegationDepthExceededError.__name__ in str(
        [call.error_message for run in await store.list_runs() for call in await store.get_tool_calls(run.id)]
    )


@pytest.mark.parametrize("on_exceed", ["warn", "pause", "cancel"])
async def test_budgets(store: Any, on_exceed: Any) -> None:
    priced = calling(("add", {"a": 1}))
    usage = UsageStats(input_tokens=40, output_tokens=20, total_tokens=60, cost_usd=0.25)
    priced = LLMResponse(tool_calls=priced.tool_calls, usage=usage)
    budget = dendrux.Budget(max_tokens=100, warn_at=(0.5,), on_exceed=on_exceed)
    agent = agent_of(store, priced, priced, "done", budget=budget)
    result = await agent.run("go")
    kinds = [
        (e.event_type, e.data["metric"]) for e in await log(store, result.run_id) if e.event_type.startswith("budget")
    ]
    assert kinds == [("budget.threshold", "tokens"), ("budget.exceeded", "tokens")]
    run = await store.get_run(result.run_id)
    if on_exceed == "warn":
        assert (result.status, run.total_cost_usd) == ("success", None)  # one call without a price
    elif on_exceed == "cancel":
        assert (result.status, run.failure_reason, run.total_cost_usd) == ("cancelled", "budget_exceeded", 0.5)
    else:
        assert result.status == "paused"
        assert (await agent.resume(result.run_id)).status == "paused"  # there is still no room
        more = agent_of(store, "done", budget=dendrux.Budget(max_tokens=1000, on_exceed="pause"))
        assert (await more.resume(result.run_id)).status == "success"


async def test_a_retry_runs_no_answered_call_again(store: Any) -> None:
    ran: list[int] = []

    @dendrux.tool
    def once(number: int) -> int:
        """Once."""
        ran.append(number)
        return number

    agent = agent_of(store, calling(("once", {"number": 1})), OSError("away"), "done", tools=[once])
    with pytest.raises(OSError, match="away") as raised:
        await agent.run("go", tenant_id="t")
    done = await agent.retry(raised.value.run_id)  # type: ignore[attr-defined]
    assert (done.status, ran) == ("success", [1])
    run = await store.get_run(done.run_id)
    assert (run.retry_of_run_id, run.tenant_id) == (raised.value.run_id, "t")  # type: ignore[attr-defined]
    asked = agent.provider.call_history[-1].messages  # type: ignore[union-attr]
    assert [m.role for m in asked] == ["system", "user", "assistant", "tool"]


async def test_history_comes_before_the_input(store: Any) -> None:
    agent = agent_of(store, "hello again")
    before = [Message(role="user", content="hi"), Message(role="assistant", content="hello")]
    done = await agent.run("and now?", history=before)
    assert [m.content for m in agent.provider.call_history[0].messages[1:]] == ["hi", "hello", "and now?"]  # type: ignore[union-attr]
    kinds = [(t.trace_kind, t.content) for t in await store.get_traces(done.run_id)]
    assert kinds == [("seed", "hi"), ("seed", "hello"), ("seed", "and now?"), ("final", "hello again")]


async def test_errors_of_any_text_are_stored(store: Any) -> None:
    @dendrux.tool
    def odd() -> None:
        """Odd."""
        raise ValueError("half a pair: \ud800, and \u0000")

    agent = agent_of(store, calling(("odd", {})), LookupError("\udfff"), tools=[odd])
    with pytest.raises(LookupError) as raised:
        await agent.run("go")
    run_id = raised.value.run_id  # type: ignore[attr-defined]
    (call,) = await store.get_tool_calls(run_id)
    assert call.error_message == "ValueError: half a pair: ?, and \u0000"
    assert (await store.get_run(run_id)).error == "LookupError: ?"
    without = dendrux.Agent(name="a", prompt="Help.", state_store=store)
    assert (await without.result(run_id)).status == "error"
