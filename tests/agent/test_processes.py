"""Three workers on one PostgreSQL, of which somebody kills and stops one after the other, and ends the server's sessions.

Every run ends, no completed call runs again, calls that began more than once are those that the store lists, every log
is whole, and the model explains every answer that a worker got and what stands stored at the end.
`DENDRUX_BUDGET=full` runs 200 runs, and is void unless enough was disturbed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from agent.history import History, explained, marks
from agent.worker import LEASE_S, PARTS
from dendrux.testing.driver import Driver
from dendrux.vocabulary import TERMINAL_STATUSES
from dendrux_model.linearize import Call
from dendrux_model.operations import CompleteToolCall
from dendrux_model.outcomes import Unknown

HERE = Path(__file__).parent
WORKERS = 3
DEADLINE_S = {"quick": 150, "full": 1500}
RUNS = {"quick": 15, "full": 200}
LONGEST_S = {"quick": 0.1, "full": 1.0}
"""How long a tool may take."""


class Workers:
    """The processes, and what is done to them."""

    def __init__(self, url: str, folder: Path, jobs: int, longest_s: float) -> None:
        self.command = [sys.executable, str(HERE / "worker.py"), url, str(folder), str(jobs), str(longest_s)]
        self.errors = (folder / "errors").open("ab")
        self.alive = [self.start() for _ in range(WORKERS)]
        self.done: Counter[str] = Counter()

    def start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
        return subprocess.Popen(self.command, stderr=self.errors, env=env)

    def kill(self) -> None:
        """End a process as a power cut does, and start another one."""
        place = random.randrange(WORKERS)
        self.alive[place].kill()
        self.alive[place].wait()
        self.alive[place] = self.start()
        self.done["killed"] += 1

    async def stop(self) -> None:
        """Let a process sleep for longer than its leases, and wake it up."""
        process = random.choice(self.alive)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_S * 2)
        process.send_signal(signal.SIGCONT)
        self.done["stopped"] += 1

    def close(self) -> None:
        for process in self.alive:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self.errors.close()


@contextlib.contextmanager
def workers(url: str, folder: Path, jobs: int, longest_s: float) -> Iterator[Workers]:
    made = Workers(url, folder, jobs, longest_s)
    try:
        yield made
    finally:
        made.close()


async def end_sessions(engine: Any) -> None:
    """Let the server end every other session on this database, wherever its transaction is."""
    async with engine.connect() as connection:
        await connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )


async def trouble(at_work: Workers, engine: Any) -> AsyncIterator[None]:
    """One disturbance after the other."""
    while True:
        await asyncio.sleep(random.uniform(0.2, 1.0))
        kind = random.choice(["kill", "stop", "sessions", "sessions"])
        if kind == "kill":
            at_work.kill()
        elif kind == "stop":
            await at_work.stop()
        else:
            await end_sessions(engine)
            at_work.done["sessions"] += 1
        yield


@pytest.mark.slow
@pytest.mark.only("postgresql")
async def test_every_run_ends_and_nothing_completed_runs_again(
    database: Any, tmp_path: Path, budget: str, record_property: Any
) -> None:
    jobs = RUNS[budget]
    async with database.engine(tmp_path) as engine:
        store = database.kind(engine)
        url = database.url.render_as_string(hide_password=False)
        until = time.monotonic() + DEADLINE_S[budget]
        with workers(url, tmp_path, jobs, LONGEST_S[budget]) as at_work:
            async for _ in trouble(at_work, engine):
                ended = await store.count_runs(status=sorted(TERMINAL_STATUSES))
                if ended == jobs:
                    break
                assert time.monotonic() < until, f"{ended} of {jobs} ended; {at_work.done}; {errors(tmp_path)}"
        begun, said = told(tmp_path / "log")
        replays = await whole(store, jobs, begun)
        unanswered = await agreed(store, tmp_path)
        disturbed = at_work.done | said | {"unanswered": unanswered, "replays": replays}
        record_property("disturbed", dict(disturbed))
        if budget == "full":
            least = {"taken": 30, "unknown": 10, "replays": 10}
            assert all(disturbed[what] >= number for what, number in least.items()), f"void: {disturbed}"


def told(log: Path) -> tuple[Counter[tuple[str, int]], Counter[str]]:
    """How often each call of each run began to act, and what else the workers said."""
    begun: Counter[tuple[str, int]] = Counter()
    said: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        words = line.split()
        said[words[0]] += 1
        if words[0] == "begin":
            begun[words[3], int(words[2])] += 1
    return begun, said


async def whole(store: Any, jobs: int, begun: Counter[tuple[str, int]]) -> int:
    """Every run as it has to stand; how many calls were replayed."""
    runs = await store.list_runs(limit=1000)
    assert len(runs) == jobs
    replays = 0
    for run in runs:
        assert (run.status, run.answer) == ("success", "done"), run
        events = await store.get_run_events(run.id)
        assert [event.sequence_index for event in events] == list(range(len(events)))
        kinds = Counter(event.event_type for event in events)
        assert (kinds["run.started"], kinds["run.completed"], events[-1].event_type) == (1, 1, "run.completed")
        calls = {call.params.get("part"): call for call in await store.get_tool_calls(run.id)}
        assert sorted(calls, key=str) == sorted([*range(PARTS), None], key=str)
        listed = {call.params["part"]: call.attempt for call in (await store.get_replayed_tool_calls(run.id)).calls}
        replays += len(listed)
        for part in range(PARTS):
            times = begun[run.id, part]
            assert 1 <= times <= listed.get(part, 1), f"{run.id}: part {part} began {times} times; replayed: {listed}"
            assert calls[part].completed
        assert kinds["llm.completed"] == run.iteration_count == PARTS + 2
        assert kinds["tool.completed"] == PARTS + 1
        traces = [trace.role for trace in await store.get_traces(run.id)]
        assert traces == ["user", *["assistant", "tool"] * (PARTS + 1), "assistant"]
    return replays


async def agreed(store: Any, folder: Path) -> int:
    """The model's word on each job; how many of all calls nobody knows the outcome of."""
    history = History(folder)
    unanswered = 0
    for run in await store.list_runs(limit=1000):
        calls = history.of(history.jobs[run.id])
        events = await store.get_run_events(run.id)
        if sum(event.event_type == "run.lease_expired" for event in events) > marks(calls):
            calls = history.with_unsure_marks(calls, run.id)
        await explained(calls, store, history.driver)
        unsure = [call for call in calls if isinstance(call.observed, Unknown)]
        unanswered += len(unsure)
        if not unsure:
            await refuted(calls, store, history.driver)
    return unanswered


async def refuted(calls: list[Call], store: Any, driver: Driver) -> None:
    """The model does not explain everything: without its last result, whose answer is known, this history has none."""
    last = max(number for number, call in enumerate(calls) if isinstance(call.operation, CompleteToolCall))
    with pytest.raises(AssertionError):
        await explained([*calls[:last], *calls[last + 1 :]], store, driver)


def errors(folder: Path) -> str:
    """The end of what the workers complained of."""
    return (folder / "errors").read_text()[-2000:]
