"""What the agent of the earlier release did wrong with its runs, by the number in `tests/weaknesses.md`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import dendrux
from agent.flows import add, ask, locate, log, store_at, types
from agent.test_ownership import taken_over
from dendrux.errors import PauseStatusMismatchError, RunAlreadyTerminalError, StaleClaimError
from dendrux.llm import LLMResponse, ScriptedLLM, calling
from dendrux.runtime.context import current
from dendrux.store import RunStore
from dendrux.store.views import RunEventRecord, pauses
from dendrux.vocabulary import TERMINAL_EVENTS


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Any]:
    async with store_at(tmp_path / "s.db") as made:
        yield made


def agent_of(store: Any, *answers: Any, **options: Any) -> dendrux.Agent:
    given = {"name": "a", "prompt": "Help.", "tools": [add, locate, ask], **options}
    return dendrux.Agent(provider=ScriptedLLM(answers), state_store=store, **given)


ENDINGS = {
    "success": ["answer"],
    "max_iterations": [calling(("add", {"a": 1}))],
    "error": [OSError("away")],
    "cancelled": [calling(("stop", {}))],
}


class LookedAt:
    """A store at which somebody looks after every call, whether it was answered or raised."""

    def __init__(self, store: Any, look: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._look = look

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        @functools.wraps(method)
        async def looked_at(*args: Any, **options: Any) -> Any:
            try:
                return await method(*args, **options)
            finally:
                await self._look()

        return looked_at


@pytest.mark.parametrize("status", ENDINGS)
async def test_4_no_reader_sees_an_end_without_its_event(store: Any, status: str) -> None:
    """Between any two calls of the store a reader sees status and terminal event together, or neither."""
    shown: list[tuple[bool, bool]] = []

    @dendrux.tool
    async def stop() -> None:
        """Stop."""
        run = current()
        assert run is not None
        await agent.cancel_run(run.run_id)

    async def look() -> None:
        for run in await store.list_runs():
            events = await store.get_run_events(run.id)
            shown.append((run.status != "running", bool(events) and events[-1].event_type in TERMINAL_EVENTS))

    agent = agent_of(LookedAt(store, look), *ENDINGS[status], tools=[add, stop], max_iterations=1)
    try:
        await agent.run("go")
    except OSError:
        assert status == "error"
    (run,) = await store.list_runs()
    assert run.status == status
    assert set(shown) == {(False, False), (True, True)}


async def test_5_a_returned_error_has_its_text_and_is_logged_as_one(store: Any) -> None:
    refusal = LLMResponse(text="", error="the vendor's filter stopped the answer", stop_reason="content_filter")
    done = await agent_of(store, refusal).run("go")
    assert (done.status, done.error) == ("error", "the vendor's filter stopped the answer")
    run = await store.get_run(done.run_id)
    assert (run.status, run.error) == ("error", "the vendor's filter stopped the answer")
    assert await types(store, done.run_id) == ["run.started", "llm.started", "llm.completed", "run.error"]


async def test_6_a_former_owner_cannot_end_the_run_of_its_successor(store: Any) -> None:
    """Neither its error handler nor the cleanup of its stream touches a run that somebody else owns."""

    async def losing(messages: Any) -> LLMResponse:
        (run,) = await store.list_runs()
        await taken_over(store, run.id)
        raise OSError("and then the vendor went away")

    with pytest.raises(OSError, match="went away"):
        await agent_of(store, losing).run("go")
    (run,) = await store.list_runs()
    assert (run.status, run.error, run.claim_epoch) == ("running", None, 2)

    lost = asyncio.Event()

    async def lingering(messages: Any) -> LLMResponse:
        await taken_over(store, stream.run_id)
        lost.set()
        await asyncio.sleep(60)
        raise AssertionError("unreachable")

    async def read() -> None:
        async for _ in stream:
            pass

    stream = agent_of(store, lingering).stream("go")
    reading = asyncio.create_task(read())
    await lost.wait()
    await stream.aclose()
    await asyncio.wait_for(reading, 30)
    run = await store.get_run(stream.run_id)
    assert (run.status, run.claim_epoch) == ("running", 2)


async def test_12_no_submission_reaches_a_run_that_is_asked_to_cancel(store: Any) -> None:
    agent = agent_of(store, calling(("locate", {})), "never")
    paused = await agent.run("go")
    await store.request_cancel(paused.run_id)
    with pytest.raises(RunAlreadyTerminalError):
        await agent.submit_tool_results(paused.run_id, {paused.pending_tool_calls[0].id: 1})
    asked = await agent_of(store, calling(("add", {"a": 1})), "never", require_approval=["add"]).run("go")
    await store.request_cancel(asked.run_id)
    with pytest.raises(RunAlreadyTerminalError):
        await agent.submit_approval(asked.run_id, approved=True)
    assert (await store.get_run(asked.run_id)).status == "waiting_approval"


class Interposed:
    """A store where something happens between a submitter's look at the pause and its claim."""

    def __init__(self, store: Any, between: Any) -> None:
        self.wrapped = store
        self.capabilities = store.capabilities
        self.between = between

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    async def submit_and_claim(self, *given: Any, **options: Any) -> Any:
        between, self.between = self.between, None
        if between is not None:
            await between()
        return await self.wrapped.submit_and_claim(*given, **options)


async def test_13_an_answer_to_one_pause_is_not_taken_for_one_to_the_next(store: Any) -> None:
    """The same status, another pause: an approval, a text and a resume are bound to the pause that was looked at."""
    first = calling(("ask", {"question": "Delete the draft?"}))
    second = calling(("ask", {"question": "Delete everything?"}))
    agent = agent_of(store, first, second, "done")
    paused = await agent.run("go")

    async def somebody_else() -> None:
        await agent.submit_input(paused.run_id, "yes")

    late = agent_of(Interposed(store, somebody_else), "never")
    with pytest.raises(PauseStatusMismatchError):
        await late.submit_input(paused.run_id, "yes")
    run = await store.get_run(paused.run_id)
    assert (run.status, run.iteration_count) == ("waiting_human_input", 2)
    with pytest.raises(PauseStatusMismatchError):
        await agent.submit_input(paused.run_id, "yes", pause_id=paused.pause_id)
    assert (await agent.submit_input(paused.run_id, "no")).status == "success"


async def test_14_a_death_after_the_claim_loses_nothing_and_repeats_nothing(store: Any) -> None:
    ran: list[str] = []

    @dendrux.tool
    def effect() -> str:
        """An effect."""
        ran.append("effect")
        return "done"

    paused = await agent_of(store, calling(("effect", {}), ("locate", {})), tools=[effect, locate]).run("go")
    results = [{"call_id": paused.pending_tool_calls[0].id, "name": "locate", "payload": '"here"', "success": True}]
    # The process that submits dies once its claim is stored.
    assert await store.submit_and_claim(
        paused.run_id,
        expected_status="waiting_client_tool",
        submitted_data={"submitted_tool_results": results},
        submission_id="s",
    )
    epoch = await taken_over(store, paused.run_id)
    again = agent_of(store, "ok", tools=[effect, locate])
    done = await again.resume_claimed(paused.run_id, claim_epoch=epoch)
    assert (done.status, ran) == ("success", ["effect"])
    asked = again.provider.call_history[0].messages  # type: ignore[union-attr]
    assert [m.content for m in asked if m.role == "tool"] == ['"done"', '"here"']
    with pytest.raises(StaleClaimError):  # under the epoch that died
        await store.touch_progress(paused.run_id, claim_epoch=epoch - 1)


async def test_27_a_resumed_run_asks_its_model_as_it_did_before(store: Any) -> None:
    paused = await agent_of(store, calling(("locate", {}))).run("go", model="large", temperature=0.1, stop=["x"])
    again = agent_of(store, "ok")
    await again.submit_tool_results(paused.run_id, {paused.pending_tool_calls[0].id: 1})
    (asked,) = again.provider.call_history  # type: ignore[union-attr]
    assert (asked.model, asked.options) == ("large", {"temperature": 0.1, "stop": ["x"]})


async def test_28_a_resume_names_the_pause_that_it_answers(store: Any) -> None:
    agent = agent_of(store, calling(("ask", {"question": "1"}), ("ask", {"question": "2"})), "ok")
    first = await agent.run("go")
    second = await agent.submit_input(first.run_id, "one")
    await agent.submit_input(first.run_id, "two")
    events = await log(store, first.run_id)
    paused = [e for e in events if e.event_type == "run.paused"]
    resumed = [e for e in events if e.event_type == "run.resumed"]
    ids = [first.pause_id, second.pause_id]
    assert [e.data["pause_id"] for e in paused] == ids  # type: ignore[index]
    assert [e.data["pause_id"] for e in resumed] == [e.correlation_id for e in resumed] == ids  # type: ignore[index]
    pairs = await RunStore(store).get_pauses(first.run_id)
    assert [pair.user_input for pair in pairs] == ["one", "two"]
    # A pause whose resume was lost keeps its place: the next resume is not taken for its answer.
    without: list[RunEventRecord] = [e for e in events if e is not resumed[0]]
    assert [pair.user_input for pair in pauses(without)] == [None, "two"]
    shuffled = [*paused, *reversed(resumed)]
    assert [pair.user_input for pair in pauses(shuffled)] == ["one", "two"]
