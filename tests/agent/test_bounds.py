"""Bounds that hold whatever happens: of a lease, of an ending, of a family's depth, of what is stored in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import dendrux
from agent.flows import add, ask, locate, store_at
from agent.test_ownership import taken_over
from agent.virtual import run as in_virtual_time
from dendrux.errors import ModelError, StaleClaimError
from dendrux.llm import LLMResponse, Message, ScriptedLLM, ToolCall, calling
from dendrux.runtime.context import current
from dendrux.runtime.lease import LAST_WORDS_S, Lease
from dendrux.testing import ReferenceStore

NAN = float("nan")
HALF = "\ud800"
MEGABYTE = 1024 * 1024


def agent_of(store: Any, *answers: Any, **options: Any) -> dendrux.Agent:
    given = {"name": "a", "prompt": "Help.", "tools": [add, locate], **options}
    return dendrux.Agent(provider=ScriptedLLM(answers), state_store=store, **given)


# -- time -------------------------------------------------------------------------------------------------------------


def stopped_at(touch: Callable[[], Awaitable[bool]], heartbeat_s: float) -> float:
    """When work under a lease of three seconds is stopped, which is lost then and leaves nothing running."""
    stopped: list[float] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.append(asyncio.get_running_loop().time())

    async def held() -> None:
        with pytest.raises(StaleClaimError):
            await Lease("r", touch, lease_s=3.0, heartbeat_s=heartbeat_s).hold(work())
        assert len(asyncio.all_tasks()) == 1

    in_virtual_time(held())
    (at,) = stopped
    return at


@pytest.mark.parametrize("heartbeat_s", [0.9, 0.7, 0.1])
def test_work_stops_when_the_lease_is_over_although_the_heartbeat_still_waits(heartbeat_s: float) -> None:
    async def touch() -> bool:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(LAST_WORDS_S - 1)  # a store lets a statement in flight end
            raise
        raise AssertionError("unreachable")

    assert stopped_at(touch, heartbeat_s) == 3.0


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    calls = iter((1, 2))

    async def touch() -> bool:
        await asyncio.sleep(0.5 if next(calls, None) else 1000)
        return True

    assert stopped_at(touch, 1.0) == 5.5  # asked for at 1 and 2.5, and at 4 in vain


def test_failing_heartbeats_stop_the_work_at_the_end_of_the_lease() -> None:
    async def touch() -> bool:
        raise TimeoutError

    assert stopped_at(touch, 0.8) == 3.0  # not 3.2, when the next heartbeat was due


def test_a_cancelled_run_waits_for_its_end_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*args: Any, **options: Any) -> Any:
        await asyncio.sleep(1000)

    async def model(messages: Any) -> LLMResponse:
        await asyncio.sleep(1000)
        raise AssertionError("unreachable")

    async def cancelled() -> float:
        loop, store = asyncio.get_running_loop(), ReferenceStore()
        agent = agent_of(store, model)
        monkeypatch.setattr(store, "finalize_with_event", hangs)
        task = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(1)
        task.cancel()  # a second one ends it no earlier and no later
        with pytest.raises(asyncio.CancelledError):
            await task
        return loop.time()

    assert in_virtual_time(cancelled()) == 1 + LAST_WORDS_S


# -- families ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["paused", "reclaimed"])
async def test_the_depth_of_a_run_binds_whoever_takes_it_up(tmp_path: Path, how: str) -> None:
    seen: list[int | None] = []

    @dendrux.tool
    async def depth() -> int:
        """How deep runs below this one may go."""
        around = current()
        assert around is not None
        seen.append(around.max_depth)
        return 1

    async with store_at(tmp_path / "s.db") as store:

        async def losing(messages: Any) -> LLMResponse:
            (run,) = await store.list_runs()
            lost.append((run.id, await taken_over(store, run.id)))
            return calling(("depth", {}))

        lost: list[tuple[str, int]] = []
        tools = [depth, locate]
        if how == "paused":
            agent = agent_of(store, calling(("locate", {})), calling(("depth", {})), "done", tools=tools)
            paused = await agent.run("go", max_delegation_depth=1)
            answers = {call.id: "here" for call in paused.pending_tool_calls}
            await agent.submit_tool_results(paused.run_id, answers)
        else:
            with pytest.raises(StaleClaimError):
                await agent_of(store, losing, tools=tools).run("go", max_delegation_depth=1)
            ((run_id, epoch),) = lost
            agent = agent_of(store, calling(("depth", {})), "done", tools=tools)
            await agent.resume_claimed(run_id, claim_epoch=epoch)
    assert seen == [1]


# -- size -------------------------------------------------------------------------------------------------------------


async def test_a_run_with_a_large_result_is_retried(tmp_path: Path) -> None:
    @dendrux.tool
    def read() -> str:
        """Something large."""
        return "x" * (600 * 1024)

    async with store_at(tmp_path / "s.db") as store:
        first = await agent_of(store, calling(("read", {})), "read", tools=[read]).run("go")
        again = await agent_of(store, "read again", tools=[read]).retry(first.run_id)
        assert again.answer == "read again"


async def test_all_that_a_run_begins_with_counts(tmp_path: Path) -> None:
    large = "x" * MEGABYTE
    calls = [
        Message(role="assistant", content="", tool_calls=(ToolCall(name="add", id="c", params={"a": large}),)),
        Message(role="tool", content="1", call_id="c", name="add"),
    ]
    async with store_at(tmp_path / "s.db") as store:
        agent = agent_of(store, "never")
        for given in (
            {"metadata": {"large": large}},
            {"option": large},
            {"history": [Message(role="user", content=large)]},
            {"history": calls},
        ):
            with pytest.raises(ValueError, match="max_input_bytes"):
                await agent.run("go", **given)
        assert await store.count_runs() == 0


# -- what cannot be stored --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        calling(("", {})),
        calling(("n" * 256, {})),
        calling(("add", {"a": NAN})),
        calling(("add", {"a": HALF})),
        LLMResponse(text="fine", stop_reason=HALF),
        LLMResponse(text=HALF),
    ],
    ids=["no_name", "long_name", "nan", "half", "stop_reason", "text"],
)
async def test_a_response_that_cannot_be_stored_ends_the_run_with_a_model_error(tmp_path: Path, answer: Any) -> None:
    async with store_at(tmp_path / "s.db") as store:
        with pytest.raises(ModelError):
            await agent_of(store, answer).run("go")
        (run,) = await store.list_runs()
        assert run.status == "error"
        assert run.error.startswith("ModelError: ")


@pytest.mark.parametrize("beside", [{"score": NAN}, {"text": HALF}, {"more": object()}])
async def test_a_vendors_answer_that_cannot_be_stored_is_left_out(tmp_path: Path, beside: Any) -> None:
    async with store_at(tmp_path / "s.db") as store:
        done = await agent_of(store, LLMResponse(text="fine", provider_response=beside)).run("go")
        (row,) = await store.get_llm_interactions(done.run_id)
        assert (done.answer, row.provider_response) == ("fine", None)


async def test_an_answer_that_cannot_be_stored_is_refused_and_can_be_given_again(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        agent = agent_of(store, calling(("ask", {"question": "why?"})), "done", tools=[ask])
        paused = await agent.run("go")
        with pytest.raises(ValueError, match="what is submitted cannot be stored"):
            await agent.submit_input(paused.run_id, HALF)
        assert (await agent.submit_input(paused.run_id, "because")).answer == "done"
