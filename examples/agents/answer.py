"""A tool, an answer, and what the store knows afterwards.

Prints:
    success: The northern lake is 41 metres deep.
    tool depth {'lake': 'north'} -> 41
    run.started, llm.started, llm.completed, tool.started, tool.completed, llm.started, llm.completed, run.completed
"""

import asyncio

import dendrux
from dendrux.llm import ScriptedLLM, calling
from dendrux.store import RunStore

URL = "sqlite+aiosqlite:///answer.db"


@dendrux.tool
def depth(lake: str) -> int:
    """Depth of a lake in metres."""
    return {"north": 41, "south": 12}[lake]


async def main() -> None:
    model = ScriptedLLM([calling(("depth", {"lake": "north"})), "The northern lake is 41 metres deep."])
    async with dendrux.Agent(prompt="You know lakes.", tools=[depth], provider=model, database_url=URL) as agent:
        result = await agent.run("How deep is the northern lake?", metadata={"thread": "lakes"})
        print(f"{result.status}: {result.answer}")
    async with RunStore.from_database_url(URL) as runs:
        for call in await runs.get_tool_invocations(result.run_id):
            print("tool", call.tool_name, call.params, "->", call.result)
        print(", ".join(event.event_type for event in await runs.get_events(result.run_id)))


asyncio.run(main())
