"""A way to a branch of an operation: how machines find a refusal that chance would seldom meet.

A pool's first choice is the plain one. Deviating from it in one place, or in two, reaches almost every branch of an
operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any

from dendrux_model.branches import branch
from dendrux_model.machines.arguments import Arguments
from dendrux_model.operations import Operation
from dendrux_model.world import World

TRIED_MAX = 24
"""Operations that are made at most on the way to one branch."""


def made(world: World, name: str, odd: Mapping[int, int]) -> tuple[Operation, list[int]]:
    """An operation with other than plain choices at some places, and how many options each place had."""
    sizes: list[int] = []

    def pick(options: Sequence[Any]) -> Any:
        place = len(sizes)
        sizes.append(len(options))
        return options[min(odd.get(place, 0), len(options) - 1)]

    return Arguments(world, pick).make(name), sizes


def deviating(world: World, name: str, random: Random) -> Iterator[Operation]:
    """The plain operation, then every one that deviates in one place, each before one that does so in a second."""
    plain, sizes = made(world, name, {})
    yield plain
    places = [(place, option) for place, size in enumerate(sizes) for option in range(1, size)]
    random.shuffle(places)
    for place, option in places:
        operation, after = made(world, name, {place: option})
        yield operation
        others = [other for other in range(place + 1, len(after)) if after[other] > 1]
        if others:
            other = random.choice(others)
            yield made(world, name, {place: option, other: random.randrange(1, after[other])})[0]


def toward(world: World, name: str, word: str, random: Random, tries: int = TRIED_MAX) -> Operation | None:
    """An operation of this class that takes this branch in this world, if one is found soon."""
    for operation in islice(deviating(world, name, random), tries):
        after, outcome = operation.step(world)
        if branch(world, operation, outcome, after) == word:
            return operation
    return None
