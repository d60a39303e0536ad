"""A worker dies at every one of its calls of the store, before it or after it; another one takes the run over and ends it.

Nothing that was completed runs again, the log has each event once and no gap, and the answer is the same.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dendrux
from agent.flows import locate, store_at, types
from agent.test_ownership import taken_over
from dendrux.llm import ScriptedLLM, calling
from dendrux.store import SQLiteStateStore


class Died(BaseException):
    """The process is gone. No `except Exception` sees it."""


class Mortal:
    """A store whose process dies at its n-th call of it, before the call or after it. Afterwards nothing gets through."""

    def __init__(self, store: Any, at: int, *, after: bool) -> None:
        self.wrapped = store
        self.capabilities = store.capabilities
        self.left = at
        self.after = after
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.wrapped, name)
        if not inspect.ismethod(method) or name.startswith("_") or name == "close":
            return method

        @functools.wraps(method)
        async def call(*given: Any, **options: Any) -> Any:
            self.calls.append(name)
            self.left -= 1
            if self.left < 0 or (self.left == 0 and not self.after):
                raise Died
            answer = await method(*given, **options)
            if self.left == 0:
                raise Died
            return answer

        return call


class Worker:
    """What a process does with its runs. Its tools' side effects are counted."""

    def __init__(self, *, gated: bool) -> None:
        self.began: Counter[int] = Counter()
        self.gated = gated

    def agent(self, store: Any) -> dendrux.Agent:
        @dendrux.tool(parallel=False)
        async def effect(number: int) -> int:
            """An effect."""
            self.began[number] += 1
            return number

        def model(messages: Any) -> Any:
            """Answers by what it is shown, so that it does not matter which process asks."""
            tools = [message for message in messages if message.role == "tool"]
            if not tools:
                return calling(("effect", {"number": 1}), ("effect", {"number": 2}), ("locate", {}))
            if len(tools) == 3:
                return calling(("effect", {"number": 3}))
            return "done: " + " ".join(message.content for message in tools)

        return dendrux.Agent(
            name="a",
            prompt="Help.",
            tools=[effect, locate],
            provider=ScriptedLLM([model] * 9),
            state_store=store,
            require_approval=["effect"] if self.gated else [],
        )

    @property
    def life(self) -> list[str]:
        """The log of a run that nothing disturbs."""
        return GATED if self.gated else LIFE


ANSWER = 'done: 1 2 "here" 3'


async def to_its_end(agent: dendrux.Agent, result: Any) -> Any:
    """Answer the client's call and the questions for approval when the run waits for them."""
    while not result.ended:
        if result.status == "waiting_client_tool":
            result = await agent.submit_tool_results(result.run_id, {result.pending_tool_calls[0].id: "here"})
        else:
            result = await agent.submit_approval(result.run_id, approved=True)
    return result


async def calls_of_a_life(path: Path, *, gated: bool) -> list[str]:
    async with store_at(path) as store:
        mortal = Mortal(store, 10_000, after=False)
        worker = Worker(gated=gated)
        agent = worker.agent(mortal)
        done = await to_its_end(agent, await agent.run("go"))
        assert done.answer == ANSWER
        assert await types(store, done.run_id) == worker.life
        return mortal.calls


LIFE = [
    "run.started",
    "llm.started",
    "llm.completed",
    *["tool.started", "tool.completed"] * 2,
    "tool.started",
    "run.paused",
    "run.resumed",
    "tool.completed",
    "llm.started",
    "llm.completed",
    "tool.started",
    "tool.completed",
    "llm.started",
    "llm.completed",
    "run.completed",
]


ASKED = ["run.paused", "run.resumed", "approval.decided"]
GATED = [
    *LIFE[:3],
    *["approval.requested"] * 2,
    *ASKED,
    *LIFE[3:13],
    "approval.requested",
    *ASKED,
    *LIFE[13:],
]


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_death_at_every_call_of_the_store(tmp_path: Path, after: bool, gated: bool, budget: str) -> None:
    quick = gated and budget == "quick"  # the plain life passes the same calls; of the gated one, every second
    calls = await calls_of_a_life(tmp_path / "life.db", gated=gated)
    assert len(calls) > 25
    replays = 0
    for at, name in list(enumerate(calls, start=1))[:: 2 if quick else 1]:
        async with store_at(tmp_path / f"{at}.db") as store:
            worker = Worker(gated=gated)
            agent = worker.agent(Mortal(store, at, after=after))
            with pytest.raises(Died):
                await to_its_end(agent, await agent.run("go"))
            runs = await store.list_runs()
            if not runs:
                assert (at, after) == (1, False), f"{name}: the run is not there"
                continue
            replays += await taken_up(store, runs[0], worker, f"{at} {name}")
    assert replays >= (1 if quick else 3)


async def taken_up(store: SQLiteStateStore, run: Any, worker: Worker, where: str) -> int:
    """Take the run over in another process and bring it to its end; how many calls were replayed."""
    agent = worker.agent(store)
    if run.status == "running":
        epoch = await taken_over(store, run.id)
        result = await agent.resume_claimed(run.id, claim_epoch=epoch)
    else:
        result = await agent.result(run.id)
    done = await to_its_end(agent, result)
    assert (done.status, done.answer) == ("success", ANSWER), where
    calls = await store.get_tool_calls(run.id)
    assert [call.result for call in sorted(calls, key=lambda c: str(c.result))] == [1, 2, 3, "here"], where
    replayed = (await store.get_replayed_tool_calls(run.id)).calls
    # A call without a stored result runs again, and is listed; nothing else does.
    again = {call.params["number"] for call in replayed if call.params}
    assert set(worker.began) == {1, 2, 3}, where
    assert {number for number, times in worker.began.items() if times > 1} <= again, where
    events = Counter(await types(store, run.id))
    extra = Counter(worker.life)
    extra["tool.started"] += len(replayed)
    beside = {"run.lease_expired", "run.reclaimed", "llm.started"}  # the model is asked again when its answer was lost
    assert {k: n for k, n in events.items() if k not in beside} == {
        k: n for k, n in extra.items() if k not in beside
    }, where
    return len(replayed)
