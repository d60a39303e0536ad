"""The log of a run: what is in it, in which order, and which method wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dendrux
from agent.flows import Audited, add, locate, store_at, types
from dendrux.llm import ScriptedLLM, calling

TWELVE = [
    "run.started",
    "llm.started",
    "llm.completed",
    "tool.started",
    "tool.completed",
    "tool.started",
    "run.paused",
    "run.resumed",
    "tool.completed",
    "llm.started",
    "llm.completed",
    "run.completed",
]
COMBINED = [3, 4, 6, 11]
"""Places in the log of what is written together with the change it describes."""


def answering() -> ScriptedLLM:
    return ScriptedLLM([calling(("add", {"a": 1, "b": 2}), ("locate", {})), "you are home"])


async def one_of_each(store: Any) -> str:
    """A run whose first turn calls a server tool and a client tool."""
    agent = dendrux.Agent(name="a", prompt="Help.", tools=[add, locate], provider=answering(), state_store=store)
    paused = await agent.run("where am I?")
    assert paused.status == "waiting_client_tool"
    (call,) = paused.pending_tool_calls
    assert (call.name, call.target) == ("locate", "client")
    done = await agent.submit_tool_results(paused.run_id, {call.id: "home"})
    assert (done.status, done.answer) == ("success", "you are home")
    return done.run_id


async def test_twelve_events_of_which_an_override_sees_eight(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db", Audited) as store:
        run_id = await one_of_each(store)
        assert await types(store, run_id) == TWELVE
        assert store.seen == [kind for place, kind in enumerate(TWELVE) if place not in COMBINED]


class Narrowed(Audited):
    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.capabilities = replace(self.capabilities, atomic_completion=False)


async def test_without_atomic_completion_tool_events_are_plain_and_ends_stay_combined(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db", Narrowed) as store:
        run_id = await one_of_each(store)
        run = await store.get_run(run_id)
        assert run.format == 1
        assert await types(store, run_id) == TWELVE
        assert store.seen == [kind for place, kind in enumerate(TWELVE) if place not in (6, 11)]


async def test_every_built_in_store_writes_the_same_log(database: Any, tmp_path: Path) -> None:
    async with database.store(tmp_path) as store:
        assert await types(store, await one_of_each(store)) == TWELVE
