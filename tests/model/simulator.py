"""A database in memory that executes the model's operations as transactions of two steps: read, then write.

At `serializable` a write happens on what was committed last. At `snapshot` it happens on what the transaction read, unless
somebody changed one of the same rows since: then it begins again. At `read_committed` it happens on what it read, and
only the columns it changes are written over what is there now. Rows are runs and blobs; run ids are unique, all other
identities are found by reading, which is what the two weaker levels get wrong.

Two more are broken on purpose: `lossy` forgets a write that it has answered, `lagging` answers reads from the past.
"""

from __future__ import annotations

from random import Random
from typing import Any, Literal

from dendrux_model.components import blobs
from dendrux_model.linearize import Call, linearize
from dendrux_model.machines.arguments import Arguments
from dendrux_model.machines.machine import applies, enabled
from dendrux_model.operations import OPERATIONS, Operation
from dendrux_model.outcomes import Outcome, Returned
from dendrux_model.possible import Possible, Violation, Worlds
from dendrux_model.values import Minted
from dendrux_model.views import view
from dendrux_model.world import World

Level = Literal["serializable", "snapshot", "read_committed", "lossy", "lagging"]


class Retry(Exception):
    """Somebody else committed first."""


class Simulator:
    """Processes that make one call after the other, interleaved by a seed."""

    def __init__(self, level: Level, seed: int, start: World, *, processes: int = 3, names: tuple[str, ...]) -> None:
        self.level = level
        self.random = Random(seed)
        self.start = start
        self.committed = [start]
        self.names = names
        self.processes = processes
        self.time = 0

    @property
    def world(self) -> World:
        return self.committed[-1]

    def run(self, calls: int) -> list[Call]:
        """The history of this many calls of each process."""
        left = [calls] * self.processes
        running: dict[int, Transaction] = {}
        history: list[Call] = []
        while any(left) or running:
            self.time += 1
            process = self.random.choice([p for p in range(self.processes) if left[p] or p in running])
            if process not in running:
                left[process] -= 1
                running[process] = Transaction(self, self.choose())
            elif running[process].go_on():
                history.append(running.pop(process).call(self.time))
        return history

    def choose(self) -> Operation:
        """An operation that would change what is there, most of the time."""
        odd = self.random.choice((0.0, 0.1, 0.5))

        def pick(options: Any) -> Any:
            return self.random.choice(options) if self.random.random() < odd else options[0]

        names = enabled(self.world, self.names) if self.random.random() < 0.7 else self.names
        made = Arguments(self.world, pick).make(self.random.choice(list(names or self.names)))
        return (
            made if applies(self.world, made) or odd else Arguments(self.world, self.random.choice).make(made_as(made))
        )


def made_as(operation: Operation) -> str:
    return type(operation).__name__


class Transaction:
    """One call: read, write, answer."""

    def __init__(self, database: Simulator, operation: Operation) -> None:
        self.database = database
        self.operation = operation
        self.invoked = database.time
        self.seen: World | None = None
        self.outcome: Outcome | None = None
        self.lost = database.level == "lossy" and database.random.random() < 0.2
        self.past = database.random.randrange(len(database.committed))

    def go_on(self) -> bool:
        """The next step; whether it was the last."""
        if self.seen is None:
            late = self.database.level == "lagging" and OPERATIONS[made_as(self.operation)].lost_ack == "read"
            self.seen = self.database.committed[self.past] if late else self.database.world
        elif self.outcome is None:
            try:
                self.write()
            except Retry:
                self.seen = None
        else:
            return True
        return False

    def write(self) -> None:
        """Commit."""
        assert self.seen is not None
        now = self.database.world
        if self.database.level not in ("snapshot", "read_committed", "lagging") or (
            self.database.level == "lagging" and OPERATIONS[made_as(self.operation)].lost_ack != "read"
        ):
            self.seen = now
        before = self.seen._replace(now=self.database.start.now + self.invoked)
        after, outcome = self.operation.step(before)
        if after is not before:
            check = first_committer_wins if self.database.level == "snapshot" else unique_ids
            check(self.seen, after, now)
            if not self.lost:
                self.database.committed.append(installed(self.seen, after, now))
        self.outcome = concrete(outcome)

    def call(self, returned: int) -> Call:
        assert self.outcome is not None
        return Call(self.operation, self.outcome, self.invoked, returned)


def first_committer_wins(seen: World, after: World, now: World) -> None:
    """Nobody may have changed a row that this transaction changes."""
    unique_ids(seen, after, now)
    then, current = {run.id: run for run in seen.runs}, {run.id: run for run in now.runs}
    for run in after.runs:
        if run.id in then and run is not then[run.id] and current[run.id] is not then[run.id]:
            raise Retry
    if seen.blobs not in (after.blobs, now.blobs):
        raise Retry


def unique_ids(seen: World, after: World, now: World) -> None:
    """A run id is a primary key."""
    born = {run.id for run in after.runs} - {run.id for run in seen.runs}
    if born & {run.id for run in now.runs}:
        raise Retry


def installed(seen: World, after: World, now: World) -> World:
    """What was committed with the columns that this transaction changed; new rows behind all others."""
    then, current = {run.id: run for run in seen.runs}, {run.id: run for run in now.runs}
    for run in after.runs:
        if run.id not in then:
            current[run.id] = run
        elif run is not then[run.id]:
            fields = zip(run._fields, run, then[run.id], strict=True)
            current[run.id] = current[run.id]._replace(**{name: new for name, new, old in fields if new != old})
    return now._replace(runs=tuple(current.values()), blobs=blobs(seen, [now, after]))


def concrete(outcome: Outcome) -> Outcome:
    """An answer as a store gives it: what it mints is some string."""
    return Returned(plain(outcome.value)) if isinstance(outcome, Returned) else outcome


def plain(value: Any) -> Any:
    if isinstance(value, Minted):
        return "minted"
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def judged(database: Simulator, history: list[Call], **budget: int) -> str:
    """The verdict on a history and on what everybody can read after it."""
    start = Possible(database.start, {})
    verdict = linearize([start], history, database.start.now + 1, **budget)
    if verdict.result != "ok":
        return verdict.result
    oracle = Worlds(database.start)
    oracle.replace(verdict.worlds)
    oracle.instant = database.start.now + verdict.instants
    for read in view([database.world, *(possible.world for possible in verdict.worlds)]):
        try:
            oracle.saw(read, concrete(read.step(database.world)[1]))
        except Violation:
            return "violation"
    return "ok"
