"""A real agent on the store under test: its parts, and what is said against a store on which it does not get on."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from dendrux.llm import ScriptedLLM
from dendrux.runtime.agent import Agent
from dendrux.runtime.tools import Tool, tool
from dendrux.testing.bench import Bench
from dendrux.testing.driver import new_namespace

FLOW_S: Final = 120.0
"""A flow that has not ended by then hangs."""


class Unkept(AssertionError):
    """What a store did not keep, in sentences for its author: what was asked, what came, and the run's log."""


class Flow:
    """One flow of an agent: it makes agents on the bench's stores, and compares what the store shows afterwards."""

    def __init__(self, bench: Bench, storage_format: int) -> None:
        self.bench = bench
        self.format = storage_format
        self.namespace = new_namespace()
        self.runs = 0
        self.at = "the start"
        """The step that is under way, for whoever reads the finding."""

    async def store(self) -> Any:
        """The live store."""
        return await self.bench.instance()

    async def agent(self, answers: Sequence[Any], tools: Sequence[Tool] = (), **options: Any) -> Agent:
        """An agent with a script for a model. Its run ids are of this flow, so that the kit can delete its rows."""
        store = await self.store()
        flow = self

        class FlowAgent(Agent):
            def new_run_id(self) -> str:
                flow.runs += 1
                return f"{flow.namespace}run{flow.runs}"

        given: dict[str, Any] = {"name": "agent", "prompt": "Help."} | options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a missing deployment has a contract of its own
            return FlowAgent(provider=ScriptedLLM(answers), tools=tools, state_store=store, **given)

    async def expect(self, what: str, found: Any, wanted: Any, run_id: str | None = None) -> None:
        """Compare. Raises Unkept with both values and the log of the run."""
        if found == wanted:
            return
        log = "" if run_id is None else f"; the log of the run: {await self.types(run_id)}"
        raise Unkept(f"{self.at}: {what} should be {wanted!r}, and is {found!r}{log}")

    async def types(self, run_id: str) -> list[str]:
        """The types of a run's events."""
        return [event.event_type for event in await (await self.store()).get_run_events(run_id)]

    async def log(self, run_id: str, wanted: Sequence[str]) -> None:
        """The log holds exactly these events, at places counted from 0."""
        events = await (await self.store()).get_run_events(run_id)
        await self.expect("the log", [event.event_type for event in events], list(wanted))
        places = [event.sequence_index for event in events]
        await self.expect("the places of the events", places, list(range(len(events))), run_id)

    async def conversation(self, run_id: str, wanted: Sequence[tuple[str, str]]) -> None:
        """The stored conversation, as (role, content)."""
        traces = await (await self.store()).get_traces(run_id)
        await self.expect("the conversation", [(t.role, t.content) for t in traces], list(wanted), run_id)

    async def row(self, run_id: str, **wanted: Any) -> None:
        """Fields of the run's row."""
        run = await (await self.store()).get_run(run_id)
        if run is None:
            raise Unkept(f"{self.at}: get_run finds no run {run_id}")
        await self.expect("the run", {name: getattr(run, name) for name in wanted}, wanted, run_id)


async def follow(flow: Flow, steps: Callable[[Flow], Awaitable[None]]) -> None:
    """Take a flow to its end, in time. An error that reaches the agent's caller is a finding like any other."""
    try:
        async with asyncio.timeout(FLOW_S) as limit:
            await steps(flow)
    except Unkept:
        raise
    except TimeoutError:
        if not limit.expired():
            raise
        raise Unkept(f"{flow.at}: this did not end within {FLOW_S:.0f} s") from None
    except Exception as error:
        raise Unkept(f"{flow.at}: the agent was stopped by {type(error).__name__}: {error}") from error


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(target="client")
def locate() -> str:
    """Where the user is."""
    raise AssertionError("a client's tool is never called here")
