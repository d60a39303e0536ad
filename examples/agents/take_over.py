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
from datetime import UTC, datetime, timedelta
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
    # A deployment sweeps for leases older than its lease_s. Here the owner is known to be dead.
    await store.mark_lease_expired(cutoff=datetime.now(UTC) + timedelta(seconds=1))
    for lease in await store.get_lease_expired():
        epoch = await store.reclaim_run(lease.run_id, expected_epoch=lease.claim_epoch)
        print("taken over under epoch", epoch)
        result = await agent(store, "Both are done.").resume_claimed(lease.run_id, claim_epoch=epoch)
        print(f"{result.status}: {result.answer}")
        for call in (await store.get_replayed_tool_calls(lease.run_id)).calls:
            print("ran again:", call.params["part"])
    await store.close()
    await engine.dispose()


if DIES:
    asyncio.run(die())
else:
    worker = subprocess.run([sys.executable, Path(__file__).resolve(), "--die"], check=False)
    print("the worker died with exit code", worker.returncode)
    asyncio.run(take_over())
