"""The cells of the pair matrix: a start state, and two operations that the model enables there.

Nothing is drawn. The operations of a cell are the plain ones, with ids of their own, so that both would change the
world; and for every operation with an identity, the same call from two callers at once, as a retry that overtakes its
first attempt makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

from dendrux_model.machines.arguments import Arguments
from dendrux_model.machines.callers import own
from dendrux_model.machines.machine import applies, first
from dendrux_model.machines.starts import MACHINES_ONLY, STARTS
from dendrux_model.operations import OPERATIONS, Operation
from dendrux_model.programs import Do, Tick
from dendrux_model.world import SECOND, World

MATRIX_STARTS = tuple(name for name in STARTS if name not in MACHINES_ONLY)
"""Start states of the matrix; tenants race like runs without one."""


class Cell(NamedTuple):
    """One cell, for every statement at which the first operation can be parked."""

    start: str
    first: Operation
    second: Operation
    same: bool
    """The same call twice, rather than two calls."""

    @property
    def name(self) -> str:
        """How reports and the pinned list call it."""
        second = "itself" if self.same else self.second.method
        return f"{self.start}: {self.first.method} / {second}"


@cache
def state(start: str, storage_format: int) -> World:
    """The world after a start's program."""
    world = World(new_format=storage_format)
    for step in STARTS[start]:
        if isinstance(step, Tick):
            world = world._replace(now=world.now + int(step.seconds * SECOND))
        else:
            assert isinstance(step, Do)
            world, _ = step.operation.step(world)
    return world


def plain(world: World, name: str, number: int) -> Operation:
    """The plain operation of a class as caller number `number` makes it."""
    return own(world, Arguments(world, first).make(name), number)


def writes() -> list[str]:
    """Every operation class that can change a world."""
    return [name for name, operation in OPERATIONS.items() if operation.lost_ack != "read"]


Size = Literal["sample", "cover", "all"]
"""How much of the matrix: every third cell of `cover`, one state for each pair of operations, or every state."""


@cache
def cells(storage_format: int, size: Size) -> tuple[Cell, ...]:
    """Every ordered pair in every state where both change the world; `cover` keeps the first state of each pair."""
    if size == "sample":
        return cells(storage_format, "cover")[::3]
    return tuple(found(storage_format, size))


def found(storage_format: int, size: Literal["cover", "all"]) -> Iterator[Cell]:
    """The cells, row by row."""
    for left in writes():
        for right in writes():
            yield from pair(storage_format, left, right, size)
        if OPERATIONS[left].identity is not None:
            yield from twins(storage_format, left, size)


@cache
def call(start: str, storage_format: int, name: str, number: int) -> Operation | None:
    """The plain operation of a class in a state, for caller number `number`; None where it changes nothing."""
    world = state(start, storage_format)
    operation = plain(world, name, number)
    return operation if applies(world, operation) else None


def pair(storage_format: int, left: str, right: str, size: Literal["cover", "all"]) -> Iterator[Cell]:
    """The cells of one ordered pair of operations."""
    for start in MATRIX_STARTS:
        one, other = call(start, storage_format, left, 1), call(start, storage_format, right, 2)
        if one is not None and other is not None:
            yield Cell(start, one, other, same=False)
            if size == "cover":
                return


def twins(storage_format: int, name: str, size: Literal["cover", "all"]) -> Iterator[Cell]:
    """The cells in which one call meets itself."""
    for start in MATRIX_STARTS:
        operation = call(start, storage_format, name, 1)
        if operation is not None:
            yield Cell(start, operation, operation, same=True)
            if size == "cover":
                return
