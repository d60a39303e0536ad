"""Owning a run: a lost claim stops the work and leaves nothing, an unknown one begins none, heartbeats keep it."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dendrux
from agent.flows import add, locate, log, store_at, types
from dendrux.errors import RunAlreadyClaimedError, RunAlreadyTerminalError, StaleClaimError, StoreOutcomeUnknown
from dendrux.llm import LLMResponse, ScriptedLLM, calling
from dendrux.store import SQLiteStateStore


def agent_of(store: Any, *answers: Any, **options: Any) -> dendrux.Agent:
    given = {"name": "a", "prompt": "Help.", "tools": [add, locate], **options}
    return dendrux.Agent(provider=ScriptedLLM(answers), state_store=store, **given)


async def taken_over(store: Any, run_id: str) -> int:
    """What recovery does with a run whose owner is thought dead: the new epoch.

    The owner lives and renews meanwhile: a renewed lease is no longer expired, so recovery sweeps again.
    """
    while True:
        await store.mark_lease_expired(cutoff=datetime.now(UTC) + timedelta(hours=1))
        for lease in await store.get_lease_expired():
            if lease.run_id != run_id:
                continue
            epoch = await store.reclaim_run(run_id, expected_epoch=lease.claim_epoch)
            if epoch is not None:
                return int(epoch)


async def seen(store: Any, run_id: str) -> list[Any]:
    """Everything that a former owner could have changed."""
    return [
        await store.get_run(run_id),
        await store.get_run_events(run_id),
        await store.get_traces(run_id),
        await store.get_tool_calls(run_id),
        await store.get_llm_interactions(run_id),
        await store.get_loop_state(run_id),
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stale_claim_stops_the_loop_and_leaves_nothing(tmp_path: Path, stream: bool) -> None:
    async with store_at(tmp_path / "s.db") as store:
        after: list[Any] = []

        async def losing(messages: Any) -> LLMResponse:
            (run,) = await store.list_runs()
            await taken_over(store, run.id)
            after.extend(await seen(store, run.id))
            return calling(("add", {"a": 1}))

        agent = agent_of(store, losing, "never")
        if stream:
            last = [event async for event in agent.stream("go")][-1]
            error: Any = last.error
            assert isinstance(error, StaleClaimError)
        else:
            with pytest.raises(StaleClaimError) as raised:
                await agent.run("go")
            error = raised.value
        (run,) = await store.list_runs()
        assert error.run_id == run.id
        assert await seen(store, run.id) == after
        assert (run.status, run.claim_epoch) == ("running", 2)


async def test_a_run_that_a_sweep_ended_stops_the_loop(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:

        async def swept(messages: Any) -> LLMResponse:
            await store.sweep_stale_runs(older_than=timedelta(0))
            return LLMResponse(text="too late")

        with pytest.raises(RunAlreadyTerminalError):
            await agent_of(store, swept).run("go")
        (run,) = await store.list_runs()
        assert (run.status, run.failure_reason) == ("error", "stale_running")
        assert (await types(store, run.id))[-1] == "run.interrupted"


class Doubtful(SQLiteStateStore):
    """A store whose claims land without an answer."""

    async def submit_and_claim(self, *given: Any, **options: Any) -> int | None:
        await super().submit_and_claim(*given, **options)
        raise StoreOutcomeUnknown(operation="submit_and_claim")


async def test_an_unknown_claim_is_never_worked_on(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        paused = await agent_of(store, calling(("locate", {}))).run("go")
        agent = agent_of(Doubtful(store._engine), "never")
        before = await types(store, paused.run_id)
        with pytest.raises(StoreOutcomeUnknown):
            await agent.submit_tool_results(paused.run_id, {paused.pending_tool_calls[0].id: "here"})
        assert agent.provider.call_history == []  # type: ignore[union-attr]
        run = await store.get_run(paused.run_id)
        assert (run.status, await types(store, paused.run_id)) == ("running", before)
        # What was submitted is not lost: whoever takes the run over finds it.
        epoch = await taken_over(store, paused.run_id)
        done = await agent_of(store, "found").resume_claimed(paused.run_id, claim_epoch=epoch)
        assert (done.status, done.answer) == ("success", "found")
        (call,) = await store.get_tool_calls(paused.run_id)
        assert call.result == "here"
        assert (await types(store, paused.run_id)).count("run.resumed") == 1


async def test_of_two_submitters_one_works(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        paused = await agent_of(store, calling(("locate", {}))).run("go")
        results = {paused.pending_tool_calls[0].id: "here"}
        agents = [agent_of(store, "done") for _ in range(2)]
        outcomes = await asyncio.gather(
            *(agent.submit_tool_results(paused.run_id, results) for agent in agents), return_exceptions=True
        )
        won = [one for one in outcomes if not isinstance(one, BaseException)]
        (lost,) = [one for one in outcomes if isinstance(one, BaseException)]
        assert [one.status for one in won] == ["success"]
        assert isinstance(lost, RunAlreadyClaimedError | RunAlreadyTerminalError)
        assert sum(len(agent.provider.call_history) for agent in agents) == 1  # type: ignore[union-attr]


class Counting(SQLiteStateStore):
    """A store that knows when three heartbeats have come, and how they moved the lease."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.renewed: list[datetime] = []
        self.three = threading.Event()

    async def touch_progress(self, run_id: str, *, claim_epoch: int | None = None) -> bool:
        held = await super().touch_progress(run_id, claim_epoch=claim_epoch)
        run = await self.get_run(run_id)
        assert run is not None
        assert run.last_progress_at is not None
        self.renewed.append(run.last_progress_at)
        if len(self.renewed) == 3:
            self.three.set()
        return held


async def test_heartbeats_go_on_while_a_tool_blocks_a_thread(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db", Counting) as store:

        @dendrux.tool
        def block() -> str:
            """Blocks its thread until three heartbeats were seen."""
            assert store.three.wait(30)
            return "ok"

        agent = agent_of(store, calling(("block", {})), "ok", tools=[block], lease_s=3, heartbeat_s=0.05)
        done = await agent.run("go")
        assert (done.status, done.steps[0].results[0].payload) == ("success", '"ok"')
        assert store.renewed[0] < store.renewed[1] < store.renewed[2]


async def test_a_heartbeat_that_finds_the_run_lost_stops_the_work(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:

        async def endless(messages: Any) -> LLMResponse:
            (run,) = await store.list_runs()
            await taken_over(store, run.id)
            await asyncio.sleep(60)
            raise AssertionError("unreachable")

        began = time.monotonic()
        with pytest.raises(StaleClaimError):
            await agent_of(store, endless, lease_s=3, heartbeat_s=0.05).run("go")
        assert time.monotonic() - began < 30
        (run,) = await store.list_runs()
        assert run.status == "running"


class Unreachable(SQLiteStateStore):
    """A store whose heartbeats fail."""

    async def touch_progress(self, run_id: str, *, claim_epoch: int | None = None) -> bool:
        raise StoreOutcomeUnknown(operation="touch_progress")


async def test_work_stops_when_the_lease_is_over_without_a_renewal(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db", Unreachable) as store:

        async def endless(messages: Any) -> LLMResponse:
            await asyncio.sleep(60)
            raise AssertionError("unreachable")

        with pytest.raises(StaleClaimError, match="could not be renewed"):
            await agent_of(store, endless, lease_s=0.3, heartbeat_s=0.05).run("go")


async def test_a_heartbeat_longer_than_a_third_of_the_lease_is_refused(tmp_path: Path) -> None:
    for lease_s, heartbeat_s in ((9, 3.1), (0, 0), (9, 0), (9, -1)):
        with pytest.raises(ValueError, match="_s"):
            dendrux.Agent(prompt="Help.", lease_s=lease_s, heartbeat_s=heartbeat_s)
    dendrux.Agent(prompt="Help.", lease_s=9, heartbeat_s=3)


async def test_a_plain_tool_that_hangs_times_out(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        release = threading.Event()

        @dendrux.tool(timeout_seconds=0.1)
        def hang() -> None:
            """Hangs."""
            release.wait(60)

        @dendrux.tool(timeout_seconds=0.1)
        async def wait() -> None:
            """Waits."""
            await asyncio.sleep(60)

        try:
            agent = agent_of(store, calling(("hang", {}), ("wait", {})), "sorry", tools=[hang, wait])
            done = await agent.run("go")
        finally:
            release.set()
        assert done.status == "success"
        assert [(r.outcome, r.error) for r in done.steps[0].results] == [("timeout", "timed out after 0.1 s")] * 2
        assert {call.outcome for call in await store.get_tool_calls(done.run_id)} == {"timeout"}
        await log(store, done.run_id)
