"""An agent on a store of the earlier release, which knows no epochs, no identities and no combined methods."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dendrux
from agent.flows import add, locate
from agent.old_stores import OldestStore
from agent.test_log import TWELVE
from dendrux.llm import ScriptedLLM, calling


class Remembering(OldestStore):
    """That store with the messages it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[SimpleNamespace] = []

    async def create_run(self, run_id: str, agent_name: str, *, input_data: Any = None, **given: Any) -> Any:
        made = await super().create_run(run_id, agent_name, **given)
        self.runs[run_id].input_data = input_data
        return made

    async def save_trace(
        self, run_id: str, role: str, content: str, *, order_index: int, meta: Any = None, **blobs: Any
    ) -> None:
        assert not set(blobs) - {"blob_refs", "blob_refs_scope"}
        message = SimpleNamespace(
            id=str(order_index), role=role, content=content, order_index=order_index, meta=meta, created_at=None
        )
        self.messages.append(message)

    async def get_traces(self, run_id: str, *, limit: int | None = None, offset: int = 0) -> list[SimpleNamespace]:
        return sorted(self.messages, key=lambda message: message.order_index)[offset:][:limit]


async def test_it_runs_waits_and_goes_on() -> None:
    store = Remembering()
    answers = [calling(("add", {"a": 1}), ("locate", {})), "home"]

    def agent(*script: Any) -> dendrux.Agent:
        return dendrux.Agent(
            name="a", prompt="Help.", tools=[add, locate], provider=ScriptedLLM(script), state_store=store
        )

    paused = await agent(answers[0]).run("where?", temperature=0.5)
    assert paused.status == "waiting_client_tool"
    again = agent(answers[1])
    done = await again.submit_tool_results(paused.run_id, {paused.pending_tool_calls[0].id: "here"})
    assert (done.status, done.answer) == ("success", "home")
    assert [kind for _, _, kind, _ in store.events] == TWELVE
    assert [index for _, index, _, _ in store.events] == list(range(12))
    assert [m.role for m in store.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    (asked,) = again.provider.call_history  # type: ignore[union-attr]
    assert [m.content for m in asked.messages] == ["Help.", "where?", "", "2", '"here"']
    assert asked.options == {"temperature": 0.5}


async def test_it_is_cancelled() -> None:
    store = Remembering()
    agent = dendrux.Agent(
        name="a", prompt="Help.", tools=[locate], provider=ScriptedLLM([calling(("locate", {}))]), state_store=store
    )
    paused = await agent.run("where?")
    assert (await agent.cancel_run(paused.run_id)).status == "cancelled"
    assert store.events[-1][2] == "run.cancelled"
