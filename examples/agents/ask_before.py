"""A tool that needs approval, and a question to a person.

Prints:
    waiting_human_input: Which lake?
    waiting_approval: drain {'lake': 'south'}
    success: I left it alone.
    drain: rejected: it is protected
"""

import asyncio

import dendrux
from dendrux.llm import ScriptedLLM, calling
from dendrux.store import RunStore

URL = "sqlite+aiosqlite:///ask.db"


@dendrux.tool(target="human")
def ask(question: str) -> str:
    """Ask the user."""


@dendrux.tool
def drain(lake: str) -> str:
    """Drain a lake."""
    raise AssertionError("nobody approved it")


async def main() -> None:
    model = ScriptedLLM(
        [calling(("ask", {"question": "Which lake?"})), calling(("drain", {"lake": "south"})), "I left it alone."]
    )
    agent = dendrux.Agent(
        prompt="You keep lakes.", tools=[ask, drain], provider=model, database_url=URL, require_approval=["drain"]
    )
    async with agent:
        run = await agent.run("Drain a lake.")
        print(f"{run.status}: {run.pending_tool_calls[0].params['question']}")
        run = await agent.submit_input(run.run_id, "the southern one", pause_id=run.pause_id)
        print(f"{run.status}: {run.pending_tool_calls[0].name} {run.pending_tool_calls[0].params}")
        run = await agent.submit_approval(
            run.run_id, approved=False, rejection_reason="it is protected", pause_id=run.pause_id
        )
        print(f"{run.status}: {run.answer}")
    async with RunStore.from_database_url(URL) as runs:
        call = (await runs.get_tool_invocations(run.run_id))[-1]
        print(f"{call.tool_name}: {call.error}")


asyncio.run(main())
