"""Two calls at once on two instances: the first waits before one of its statements while the second runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dendrux.testing.store_kit.checking import perform
from dendrux.testing.store_kit.contract import CONTRACTS, Need, Situation, contract, needs_of
from dendrux_model.operations import Operation
from dendrux_model.programs import Do, Program, Step, Together

PLACES_MAX: Final = 16
"""Statements before which the first call waits at most."""


@dataclass(frozen=True)
class Race:
    """A check that runs one race with the first call waiting before each of its statements in turn."""

    first: Operation
    second: Operation
    before: Program
    after: tuple[Step, ...]

    def program(self, place: int) -> Program:
        """The race with the first call waiting before its statement number `place`."""
        return (*self.before, Together((Do(self.first, 0, yield_at=place), Do(self.second, 1))), *self.after)

    async def __call__(self, situation: Situation) -> None:
        place = 0
        while place < PLACES_MAX:
            execution = await perform(self.program(place), situation.bench, situation.format)
            if not execution.parked:
                return
            place = max(execution.following, place + 1)


def race(
    id: str,
    promise: str,
    first: Operation,
    second: Operation,
    *,
    before: Program,
    after: tuple[Step, ...] = (),
    cause: str,
    both_ways: bool = False,
    group: str = "concurrency",
    needs: frozenset[Need] | set[Need] = frozenset(),
) -> None:
    """Add a contract; `both_ways`: and one with the second call as the one that waits.

    Any answers are right that some order of the calls gives, and then what `after` and the view show of that order.
    """
    for name, one, other in (("", first, second), ("_swapped", second, first)):
        if name and not both_ways:
            continue
        check = Race(one, other, before, after)
        added = contract(
            f"{group}.{id}{name}",
            promise,
            group=group,
            needs=needs_of(check.program(1)) | needs,
            cause=cause,
            check=check,
        )
        CONTRACTS[added.id] = replace(added, program=check.program(1))  # what is planned and reported of the contract
