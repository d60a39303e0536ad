"""A connection that breaks at COMMIT, at every write of a run: the write is repeated, and stored once."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dendrux
from agent.flows import add, locate, store_at, types
from agent.test_log import TWELVE
from dendrux.errors import PersistenceError, StoreBusyError, StoreOutcomeUnknown, StoreUnavailableError
from dendrux.llm import ScriptedLLM, calling

CLAIMS = {"submit_and_claim"}


class Shaky:
    """A store whose every write fails before it goes well: its answer is lost, or nothing was written."""

    def __init__(self, store: Any, error: type[PersistenceError]) -> None:
        self.wrapped = store
        self.capabilities = store.capabilities
        self.error = error
        self.failed = False
        self.lost: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.wrapped, name)
        if not inspect.ismethod(method) or name.startswith("get_") or name in {"close", "conversation_traces", *CLAIMS}:
            return method

        @functools.wraps(method)
        async def call(*given: Any, **options: Any) -> Any:
            self.failed = not self.failed
            if self.failed:
                self.lost.add(name)
                if self.error is StoreOutcomeUnknown:
                    await method(*given, **options)
                raise self.error(operation=name)
            return await method(*given, **options)

        return call


@pytest.mark.parametrize("error", [StoreOutcomeUnknown, StoreUnavailableError, StoreBusyError])
@pytest.mark.parametrize("narrowed", [False, True], ids=["format_2", "format_1"])
async def test_every_write_is_stored_once(
    tmp_path: Path, error: Any, narrowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dendrux.runtime.recorder.PAUSES_S", (0, 0))
    async with store_at(tmp_path / "s.db") as store:
        if narrowed:
            store.capabilities = replace(store.capabilities, atomic_completion=False, recovery=False)
        shaky = Shaky(store, error)
        answers = [calling(("add", {"a": 1}), ("locate", {})), "home"]
        agent = dendrux.Agent(
            name="a", prompt="Help.", tools=[add, locate], provider=ScriptedLLM(answers), state_store=shaky
        )
        paused = await agent.run("where?")
        note = {"note_id": "n", "text": "hurry"}
        await store.add_note(paused.run_id, **note)
        done = await agent.submit_tool_results(paused.run_id, {paused.pending_tool_calls[0].id: 1})
        assert done.status == "success"
        log = await types(store, done.run_id)
        assert [kind for kind in log if kind != "inbox.delivered"] == TWELVE
        assert log.count("inbox.delivered") == 1
        traces = await store.get_traces(done.run_id)
        assert [t.role for t in traces] == ["user", "assistant", "tool", "tool", "user", "assistant"]
        assert len(await store.get_tool_calls(done.run_id)) == 2
        assert len(await store.get_llm_interactions(done.run_id)) == 2
        plain = {"save_trace", "save_tool_call", "save_usage", "save_llm_interaction"}
        combined = {"start_tool_call", "complete_tool_call", "checkpoint_step", "consume_submission"}
        both = {"create_run", "save_run_event", "pause_with_event", "finalize_with_event", "mark_notes_delivered"}
        assert shaky.lost >= both | (plain if narrowed else combined)


async def test_without_identities_an_unknown_outcome_is_not_repeated(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        store.capabilities = replace(
            store.capabilities, retry_ids=False, checkpointing=False, atomic_completion=False, recovery=False
        )
        shaky = Shaky(store, StoreOutcomeUnknown)
        agent = dendrux.Agent(prompt="Help.", provider=ScriptedLLM(["never"]), state_store=shaky)
        with pytest.raises(StoreOutcomeUnknown):
            await agent.run("go")
        assert shaky.lost == {"create_run"}
