"""A worker process: runs jobs, answers runs that wait, takes over runs whose owner fell silent, until a file appears.

Every line it writes to its log is one append, so that the lines of several workers do not mix:
`begin <job> <part> <run>` when a tool starts to act, `taken <run>`, `unknown <claim>`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import URL, NullPool, event

import dendrux
from agent.history import Recorded
from dendrux.db.session import get_engine
from dendrux.errors import PersistenceError, StoreOutcomeUnknown
from dendrux.lab.proxy import Proxy
from dendrux.llm import ScriptedLLM, calling
from dendrux.runtime.context import current
from dendrux.store import PostgresStateStore, store_for_engine

LEASE_S = 1.5
PARTS = 3
CUT = 0.15
"""How many of the claims lose their answer."""


class LosesAnswers:
    """A way to the database on which the answer to the next COMMIT is cut off: the claim may have happened."""

    def __init__(self, url: URL) -> None:
        self.proxy = Proxy((url.host or "127.0.0.1", url.port or 5432))
        self.engine = get_engine(url.set(host="127.0.0.1", port=self.proxy.port), poolclass=NullPool)
        self.armed = False
        event.listen(self.engine.sync_engine, "commit", self.cut)

    def cut(self, connection: Any) -> None:
        """COMMIT is about to be sent."""
        if self.armed:
            self.armed = False
            self.proxy.mode = "cut_answer"

    async def claim(self, method: str, run_id: str, *given: Any, **options: Any) -> Any:
        """A claim whose answer is lost."""
        store = store_for_engine(self.engine)
        try:
            await store.get_run(run_id)  # what a first use checks is not what is cut
            self.armed = True
            return await getattr(store, method)(run_id, *given, **options)
        finally:
            await self.engine.dispose()


class Shaken(PostgresStateStore):
    """The built-in store, some of whose claims are cut."""

    async def submit_and_claim(self, run_id: str, **given: Any) -> int | None:
        return await self.perhaps("submit_and_claim", super().submit_and_claim, run_id, **given)

    async def reclaim_run(self, run_id: str, **given: Any) -> int | None:
        return await self.perhaps("reclaim_run", super().reclaim_run, run_id, **given)

    async def perhaps(self, method: str, claim: Any, run_id: str, **given: Any) -> Any:
        """The claim, or the claim on a way that loses its answer."""
        if random.random() < CUT:
            return await LosesAnswers(self._engine.url).claim(method, run_id, **given)
        return await claim(run_id, **given)


class Worker:
    """One process's share of the jobs."""

    def __init__(self, url: str, folder: Path, jobs: int, longest_s: float) -> None:
        self.engine = get_engine(url, pool_size=4)
        self.store: Any = Recorded(Shaken(self.engine), folder / f"{os.getpid()}.calls")
        self.folder = folder
        self.longest_s = longest_s
        self.jobs = jobs
        self.handle = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, *words: object) -> None:
        """One line of the log."""
        os.write(self.handle, (" ".join(map(str, words)) + "\n").encode())

    def agent(self) -> dendrux.Agent:
        """The agent of every worker: its model's answers follow from the conversation alone."""

        @dendrux.tool(parallel=False)
        async def act(job: int, part: int) -> str:
            """Act, which is seen in the log."""
            around = current()
            assert around is not None
            self.say("begin", job, part, around.run_id)
            await asyncio.sleep(random.uniform(0, self.longest_s))
            return f"{job}.{part}"

        @dendrux.tool(target="client")
        def confirm(job: int) -> str:
            """Confirm."""
            raise AssertionError("never called here")

        def model(messages: Any) -> Any:
            job = int(messages[1].content.removeprefix("job "))
            done = [message for message in messages if message.role == "tool"]
            if len(done) < PARTS:
                return calling(("act", {"job": job, "part": len(done)}))
            if len(done) == PARTS:
                return calling(("confirm", {"job": job}))
            return "done"

        return dendrux.Agent(
            name="worker",
            prompt="Work.",
            tools=[act, confirm],
            provider=ScriptedLLM([model] * 1000),
            state_store=self.store,
            lease_s=LEASE_S,
        )

    async def work(self) -> None:
        """Whatever there is to do, in any order, until everything is done."""
        while not (self.folder / "stop").exists():
            await asyncio.gather(self.begin(), self.answer(), self.recover())
            await asyncio.sleep(0.05)
        await self.engine.dispose()

    async def tried(self, work: Any) -> None:
        """Work that may be refused, lost or cut: the run is somebody's, and recovery finds what is nobody's."""
        try:
            await work
        except StoreOutcomeUnknown as unknown:
            if unknown.operation in ("submit_and_claim", "reclaim_run"):
                self.say("unknown", unknown.operation)
        except (PersistenceError, RuntimeError, ValueError, LookupError, OSError):
            return

    async def begin(self) -> None:
        """Begin some jobs that nobody began; the key of a job makes its run one."""
        for job in random.sample(range(self.jobs), 3):
            await self.tried(self.agent().run(f"job {job}", idempotency_key=f"job-{job}"))

    async def answer(self) -> None:
        """Answer the clients' calls of runs that wait."""
        await self.tried(self._answer())

    async def _answer(self) -> None:
        for run in (await self.store.list_runs(status="waiting_client_tool", limit=5))[:3]:
            agent = self.agent()
            stands = await agent.result(run.id)
            answers = {call.id: "yes" for call in stands.pending_tool_calls}
            await self.tried(agent.submit_tool_results(run.id, answers, pause_id=stands.pause_id))

    async def recover(self) -> None:
        """Mark leases that are over, and take some of their runs."""
        await self.tried(self._recover())

    async def _recover(self) -> None:
        await self.store.mark_lease_expired(cutoff=datetime.now(UTC) - timedelta(seconds=LEASE_S))
        for lease in (await self.store.get_lease_expired(limit=10))[:3]:
            await self.tried(self._reclaim(lease))

    async def _reclaim(self, lease: Any) -> None:
        epoch = await self.store.reclaim_run(lease.run_id, expected_epoch=lease.claim_epoch)
        if epoch is not None:
            self.say("taken", lease.run_id)
            await self.agent().resume_claimed(lease.run_id, claim_epoch=epoch)


async def main() -> None:
    url, folder, jobs, longest_s = sys.argv[1:]
    await Worker(url, Path(folder), int(jobs), float(longest_s)).work()


if __name__ == "__main__":
    asyncio.run(main())
