"""The pair matrix: every ordered pair of operations on two live instances, parked at every statement.

Nothing is drawn, so a failure needs no reduction: its program is the start state and one `Together`.
"""

from __future__ import annotations

from collections.abc import Iterable

from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import Check, Situation
from dendrux_model.machines.cells import Cell, cells
from dendrux_model.machines.starts import STARTS, TIMELESS
from dendrux_model.operations import OPERATIONS
from dendrux_model.programs import Do, Program, Together
from dendrux_model.world import World

PARKS_MAX = 16
"""Statements at which one operation is parked at most; one that has more is parked at these."""


def program(cell: Cell, park_at: int) -> Program:
    """The program of a cell: the first operation stops before its statement number `park_at`, the second runs."""
    together = Together((Do(cell.first, 0, yield_at=park_at), Do(cell.second, 1)))
    return (*STARTS[cell.start], together)


async def run_cells(situation: Situation, chosen: Iterable[Cell]) -> int:
    """Run cells at every statement of their first operation. Answers how many programs that were.

    Places that a lock makes equal count as one, and views are by lot, unless every cell was asked for.
    """
    ran, every = 0, situation.settings.matrix == "all"
    for cell in chosen:
        park_at = 1  # before its first statement a call has seen nothing yet
        while park_at < PARKS_MAX:
            execution = Execution(situation.bench, World(new_format=situation.format), whole=every)
            await execution.run(program(cell, park_at))
            ran += 1
            if not execution.parked:
                break
            park_at = park_at + 1 if every else max(execution.following, park_at + 1)
    return ran


def matrix_check(name: str) -> Check:
    """The check of one row of the matrix: every cell whose first operation is of this class."""

    async def check(situation: Situation) -> None:
        row = [cell for cell in cells(situation.format, situation.settings.matrix) if is_row(cell, name)]
        if situation.bench.clock is None:
            row = [cell for cell in row if cell.start in TIMELESS]
        if situation.settings.matrix == "sample":
            situation.note("sampled", len(row))
        situation.note("cells", {cell.name for cell in row})
        ran = await run_cells(situation, row)
        situation.note("programs", ran)

    return check


def is_row(cell: Cell, name: str) -> bool:
    """Whether a cell belongs to the row of this operation class."""
    return type(cell.first) is OPERATIONS[name]
