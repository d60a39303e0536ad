"""A stream, a note, and a cancellation from outside.

Prints:
    text: Let me count the fish.
    count: 5
    text: And again.
    count: 5
    run_cancelled
    the model was told: NOTE FROM USER: only the big ones
"""

import asyncio

import dendrux
from dendrux.llm import ScriptedLLM, calling
from dendrux.runtime.results import RunEventType


@dendrux.tool
async def count(pond: str) -> int:
    """Count the fish of a pond, which takes its time."""
    await asyncio.sleep(0.5)
    return len(pond)


async def main() -> None:
    model = ScriptedLLM(
        [
            calling(("count", {"pond": "upper"}), text="Let me count the fish."),
            calling(("count", {"pond": "lower"}), text="And again."),
            "never said",
        ]
    )
    async with dendrux.Agent(prompt="You count fish.", tools=[count], provider=model) as agent:
        async with agent.stream("How many fish?") as stream:
            async for event in stream:
                if event.type is RunEventType.TEXT_DELTA:
                    print("text:", event.text)
                elif event.type is RunEventType.TOOL_USE_START and event.iteration == 1:
                    await agent.submit_note(stream.run_id, "only the big ones")  # read before the next turn
                elif event.type is RunEventType.TOOL_USE_START:
                    await agent.cancel_run(stream.run_id)  # seen when the tool is done
                elif event.type is RunEventType.TOOL_RESULT:
                    print("count:", event.tool_result.payload)
                elif event.type is RunEventType.RUN_CANCELLED:
                    print(event.type.value)
        told = [message.content for message in model.call_history[-1].messages if "NOTE" in message.content]
        print("the model was told:", told[0].replace("\n", " "))


asyncio.run(main())
