"""A run that waits for its client, and goes on in another process.

Prints:
    waiting_client_tool: position
    success: You are at the northern lake.
"""

import asyncio

import dendrux
from dendrux.llm import ScriptedLLM, calling
from dendrux.runtime.results import RunResult

URL = "sqlite+aiosqlite:///wait.db"


@dendrux.tool(target="client")
def position() -> str:
    """Where the user is. The client answers; this is never called."""


def agent(*answers: object) -> dendrux.Agent:
    """The same agent in every process. Its name says whose runs it may go on with."""
    return dendrux.Agent(
        name="guide", prompt="You know lakes.", tools=[position], provider=ScriptedLLM(answers), database_url=URL
    )


async def asked() -> RunResult:
    async with agent(calling(("position", {}))) as first:
        return await first.run("Where am I?")


async def answered(run_id: str, call_id: str, pause_id: str) -> None:
    async with agent("You are at the northern lake.") as second:
        result = await second.submit_tool_results(run_id, {call_id: {"lake": "north"}}, pause_id=pause_id)
        print(f"{result.status}: {result.answer}")


waiting = asyncio.run(asked())
print(f"{waiting.status}: {waiting.pending_tool_calls[0].name}")
asyncio.run(answered(waiting.run_id, waiting.pending_tool_calls[0].id, waiting.pause_id))
