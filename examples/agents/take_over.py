"""A worker that dies in the middle of a tool, and the one that takes its run over.

Prints:
    the worker died with exit code 9
    taken over under epoch 2
    success: Both are done.
    ran again: second
"""

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import dendrux
from dendrux.db.session import get_engine
from dendrux.llm import ScriptedLLM, calling
from dendrux.store import SQLiteStateStore

URL = "sqlite+aiosqlite:///take_over.db"
DIES = "--die" in sys.argv


@dendrux.tool(parallel=False)
def work(part: str) -> str:
    """Do a part of the work."""
    if DIES and part == "second":
        os._exit(9)  # as when the machine is switched off
    return f"{part} is done"


def agent(store: SQLiteStateStore, *answers: object) -> dendrux.Agent:
    return dendrux.Agent(
        name="worker", prompt="You work.", tools=[work], provider=ScriptedLLM(answers), state_store=store
    )


async def die() -> None:
    store = SQLiteStateStore(get_engine(URL))
    await agent(store, calling(("work", {"part": "first"}), ("work", {"part": "second"}))).run("Do both.")


async def take_over() -> None:
    engine = get_engine(URL)
    store = SQLiteStateStore(engine)
    # A deployment sweeps for leases older than its lease_s, 90 seconds. Here the owner is known to be dead.
    swept = await dendrux.sweep(state_store=store, stale_running=timedelta(0), on_stale="reclaim", agents=["worker"])
    for run in swept.reclaimed:
        print("taken over under epoch", run.claim_epoch)
        result = await agent(store, "Both are done.").resume_claimed(run.run_id, claim_epoch=run.claim_epoch)
        print(f"{result.status}: {result.answer}")
        for call in (await store.get_replayed_tool_calls(run.run_id)).calls:
            print("ran again:", call.params["part"])
    await store.close()
    await engine.dispose()


if DIES:
    asyncio.run(die())
else:
    worker = subprocess.run([sys.executable, Path(__file__).resolve(), "--die"], check=False)
    print("the worker died with exit code", worker.returncode)
    asyncio.run(take_over())
