"""Every way through an operation that the model has from here: what machines draw refusals from.

A pool's first choice is the plain one. Deviating from it in one place, or in two, reaches almost every branch of an
operation; grouping the results by branch lets a machine draw a rare refusal as often as a common one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dendrux_model.branches import branch
from dendrux_model.machines.arguments import Arguments
from dendrux_model.operations import Operation
from dendrux_model.world import World

TRIED_MAX = 300
"""Operations that are made at most for one choice."""


def made(world: World, name: str, odd: Mapping[int, int]) -> tuple[Operation, list[int]]:
    """An operation with other than plain choices at some places, and how many options each place had."""
    sizes: list[int] = []

    def pick(options: Sequence[Any]) -> Any:
        place = len(sizes)
        sizes.append(len(options))
        return options[min(odd.get(place, 0), len(options) - 1)]

    return Arguments(world, pick).make(name), sizes


def deviating(world: World, name: str) -> Iterator[Operation]:
    """The plain operation, then those that deviate in one place, then in two."""
    plain, sizes = made(world, name, {})
    yield plain
    places = [(place, option) for place, size in enumerate(sizes) for option in range(1, size)]
    singles = {one: made(world, name, dict([one])) for one in places}
    yield from (operation for operation, _ in singles.values())
    for (place, option), (_, after) in singles.items():
        for other in range(place + 1, len(after)):
            for another in range(1, min(after[other], 3)):
                yield made(world, name, {place: option, other: another})[0]


def by_branch(world: World, name: str) -> dict[str, list[Operation]]:
    """Operations of this class by the branch that they take in this world."""
    found: dict[str, list[Operation]] = {}
    for number, operation in enumerate(deviating(world, name)):
        if number == TRIED_MAX:
            break
        after, outcome = operation.step(world)
        found.setdefault(branch(world, operation, outcome, after), []).append(operation)
    return found
