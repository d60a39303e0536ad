"""What several processes called on one store, written down by each as it called it, and the model's word on all of it.

Every job is a history of its own: its creations and every call that names a run of it. A call that its process did not
live to see answered may have happened, at any time after it began. The instants of the model are the host's monotonic
microseconds, so a lease that somebody marked before it was over is a violation like any other.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from dendrux.runtime.state import StateStore
from dendrux.testing.driver import JSON_FIELDS, Driver, microseconds, outcome_of
from dendrux.testing.storm import BUDGET
from dendrux_model.linearize import Call, linearize
from dendrux_model.operations import (
    OPERATIONS,
    CountRuns,
    CreateRun,
    GetLeaseExpired,
    ListRuns,
    MarkLeaseExpired,
    Operation,
)
from dendrux_model.operations.leases import LeaseAlone, SweptAlone
from dendrux_model.outcomes import VALIDATION, Outcome, Refused, Returned, Unavailable, Unknown
from dendrux_model.possible import Cut, Possible, Worlds
from dendrux_model.values import At
from dendrux_model.views import view
from dendrux_model.world import World

METHODS = {operation.method: operation for operation in OPERATIONS.values()}
IN_THE_WAY = Cut(at_commit=True, lasting=True)
"""Sessions are ended again and again, so any call may have been cut and so may its repeats."""


# -- in the process that calls ----------------------------------------------------------------------------------------


class Recorded:
    """A store, and a file with each call of it twice: before it is made, and what it was answered."""

    def __init__(self, store: Any, path: Path) -> None:
        self._store = store
        self._file = path.open("ab", buffering=0)
        self._numbers = count()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in METHODS:
            return method

        @functools.wraps(method)
        async def recorded(*args: Any, **options: Any) -> Any:
            _, *names = inspect.signature(getattr(StateStore, name)).parameters
            return await self._call(name, method, dict(zip(names, args, strict=False)) | options)

        return recorded

    async def _call(self, name: str, method: Any, given: dict[str, Any]) -> Any:
        number = next(self._numbers)
        judged = Judged(given.get("validate"))
        plain = {key: value for key, value in given.items() if key != "validate"}
        self._write(number, name, plain, now_s())
        outcome: Any = Unknown()
        try:
            value = await method(**(given if judged.validate is None else {**given, "validate": judged}))
            outcome = Returned(value)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            outcome = VALIDATION if judged.refused else outcome_of(error)
            raise
        finally:
            self._write(number, judged.word, outcome)
        return value

    def _write(self, number: int, *what: Any) -> None:
        self._file.write(pickle.dumps((number, time.monotonic_ns(), *what)))


class Judged:
    """A caller's `validate`, and whether it refused."""

    def __init__(self, validate: Any) -> None:
        self.validate = validate
        self.refused = False

    def __call__(self, document: Any) -> Any:
        self.refused = True
        answer = self.validate(document)
        self.refused = False
        return answer

    @property
    def word(self) -> str | None:
        """The model's word for it."""
        if self.validate is None:
            return None
        return "refuse" if self.refused else "accept"


def now_s() -> float:
    """The wall clock, which cutoffs are said in."""
    return datetime.now(UTC).timestamp()


# -- in the process that asks the model -------------------------------------------------------------------------------


@dataclass
class History:
    """The calls of every process that wrote to this folder, by the run that they are about."""

    folder: Path
    calls: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[str, str] = field(default_factory=dict)
    """The idempotency key that each run id was created under, whether it became a run or not."""
    unsure: list[Call] = field(default_factory=list)
    """Marks of which nobody knows whether they happened, for any run."""
    driver: Driver = field(default_factory=Driver)

    def __post_init__(self) -> None:
        for path in self.folder.glob("*.calls"):
            self.read(path)

    def read(self, path: Path) -> None:
        """Add what one process wrote."""
        begun: dict[int, tuple[int, str, dict[str, Any], float]] = {}
        for number, at, *what in lines(path):
            if len(what) == 3:
                begun[number] = (at, *what)
            else:
                invoked, name, given, called_s = begun.pop(number)
                word, outcome = what
                self.add(name, given | ({} if word is None else {"validate": word}), outcome, called_s, (invoked, at))
        for invoked, name, given, called_s in begun.values():
            self.add(name, given, Unknown(), called_s, (invoked, invoked))

    def add(self, name: str, given: dict[str, Any], outcome: Outcome, called_s: float, span: tuple[int, int]) -> None:
        """One call, as the steps that it is for each run."""
        if METHODS[name].lost_ack == "read" and not isinstance(outcome, Returned | Refused):
            return  # it says nothing
        if name == "mark_lease_expired":
            age = int(called_s - given["cutoff"].timestamp())
            self.add_marks(MarkLeaseExpired(cutoff_s=age), outcome, span)
        elif name == "get_lease_expired":
            assert isinstance(outcome, Returned)
            read = GetLeaseExpired()
            for lease in outcome.value:
                told = {
                    "claim_epoch": lease.claim_epoch,
                    "expired_at": At(microseconds(lease.expired_at)),
                    "reclaim_count": lease.reclaim_count,
                }
                self.keep(lease.run_id, LeaseAlone(read=read, run_id=lease.run_id), Returned(told), span)
        elif METHODS[name] not in (ListRuns, CountRuns):
            operation = METHODS[name].called({key: frozen(key, value) for key, value in given.items()})
            if isinstance(outcome, Returned):
                outcome = Returned(self.driver.shown(operation, outcome.value))
            run_id = operation.run_id  # type: ignore[attr-defined]  # an agent without children names one run a call
            if isinstance(operation, CreateRun):
                assert operation.idempotency_key is not None
                self.jobs[run_id] = operation.idempotency_key
            self.keep(run_id, operation, outcome, span)

    def add_marks(self, sweep: MarkLeaseExpired, outcome: Outcome, span: tuple[int, int]) -> None:
        """What a page of marks did to each run that it names. Of the others it says too little."""
        if not isinstance(outcome, Returned):
            if isinstance(outcome, Unknown):
                self.unsure.append(call_of(SweptAlone(sweep=sweep, run_id=""), outcome, span))
            return
        for run_id in outcome.value.marked:
            told = {"marked": [run_id], "finalised": {}, "failed": {}}
            self.keep(run_id, SweptAlone(sweep=sweep, run_id=run_id), Returned(told), span)
        for failed in outcome.value.failed:
            if failed.code == Unknown().code:
                self.keep(failed.run_id, SweptAlone(sweep=sweep, run_id=failed.run_id), Unknown(), span)

    def keep(self, run_id: str, operation: Operation, outcome: Outcome, span: tuple[int, int]) -> None:
        """One step for one run."""
        self.calls[run_id].append(call_of(operation, outcome, span))

    def of(self, job: str) -> list[Call]:
        """Every call about this job in the order in which they began, each at an instant of its own."""
        found = [call for run_id, calls in self.calls.items() if self.jobs.get(run_id) == job for call in calls]
        return in_order(found)

    def with_unsure_marks(self, calls: Iterable[Call], run_id: str) -> list[Call]:
        """The same with every mark that may have been of this run."""
        unsure = [
            call._replace(operation=replace(call.operation, run_id=run_id))  # type: ignore[call-arg]  # SweptAlone
            for call in self.unsure
        ]
        return in_order([*calls, *unsure])


def in_order(calls: Iterable[Call]) -> list[Call]:
    """Calls in the order in which they began, each at an instant of its own."""
    ordered: list[Call] = []
    for call in sorted(calls, key=lambda call: call.invoked):
        earliest = (ordered[-1].at or 0) + 1 if ordered else 0
        ordered.append(call._replace(at=max(call.invoked // 1000, earliest)))
    return ordered


def lines(path: Path) -> Iterator[tuple[Any, ...]]:
    """What one process wrote; the last line may be cut short."""
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return


def call_of(operation: Operation, outcome: Outcome, span: tuple[int, int]) -> Call:
    """A step with the time it was open and what may have been in its way."""
    cut = IN_THE_WAY if isinstance(outcome, Unknown | Unavailable) else None
    return Call(operation, outcome, *span, cut)


def frozen(name: str, value: Any) -> Any:
    """An argument as the model takes it: lists of rows and ids are tuples."""
    return tuple(value) if isinstance(value, list) and name not in JSON_FIELDS else value


def marks(calls: Iterable[Call]) -> int:
    """How many of these calls surely marked the lease of a run."""
    return sum(isinstance(call.operation, SweptAlone) and isinstance(call.observed, Returned) for call in calls)


async def explained(calls: Sequence[Call], store: Any, driver: Driver) -> None:
    """Some order of the calls explains every answer, and what stands stored afterwards. Raises AssertionError."""
    verdict = linearize([Possible(World(new_format=2), {})], calls, 0, BUDGET)
    assert verdict.result == "ok", "\n".join([verdict.result, *map(shown, calls)])
    worlds = Worlds(World())
    worlds.instant = time.monotonic_ns() // 1000
    worlds.replace(verdict.worlds)
    every = view([possible.world for possible in worlds.possible])
    for read in every:
        if not isinstance(read, CountRuns):  # which counts other jobs too
            value = await getattr(store, read.method)(**read.arguments())
            worlds.saw(read, Returned(driver.shown(read, value)))


def shown(call: Call) -> str:
    """One call for people."""
    return f"{call.invoked / 1e9:.4f} to {call.returned / 1e9:.4f}  {call.operation}  {call.observed}"
