"""Makes a failing program small: no step of the result can be left out, no fault, no argument that plays no part.

Works on the program, not on the draws that made it: a step means the same whatever stands before it, so leaving one out
never changes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace

from dendrux_model.programs import Do, Fault, Program, Step, Together

Fails = Callable[[Program], bool]
"""Whether a program still fails, in the same way."""

RUNS_MAX = 400
"""Programs tried by one reduction at most."""


def reduce(program: Program, fails: Fails, *, runs: int = RUNS_MAX) -> Program:
    """The smallest program found: first fewer steps, then plainer ones, until nothing more can go."""
    left = runs
    changed = True
    while changed and left > 0:
        changed = False
        for candidate in smaller(program):
            left -= 1
            if fails(candidate):
                program, changed = candidate, True
                break
            if left == 0:
                break
    return program


def smaller(program: Program) -> Iterator[Program]:
    """Programs one change simpler, the greatest savings first."""
    size = len(program)
    chunk = size // 2
    while chunk > 1:
        for start in range(size - chunk, -1, -chunk):
            yield program[:start] + program[start + chunk :]
        chunk //= 2
    for place in range(size - 1, -1, -1):
        yield program[:place] + program[place + 1 :]
    for place in range(size - 1, -1, -1):
        for step in plainer(program[place]):
            yield (*program[:place], step, *program[place + 1 :])


def plainer(step: Step) -> Iterator[Step]:
    """Forms of a step that say less: without its fault, its company or its switch, with arguments left out."""
    if isinstance(step, Fault):
        yield step.do
        for do in plainer(step.do):
            if isinstance(do, Do):
                yield replace(step, do=do)
    elif isinstance(step, Together):
        yield from smaller_block(step)
    elif isinstance(step, Do):
        if step.instance:
            yield replace(step, instance=0)
        for field in fields(step.operation):
            value = getattr(step.operation, field.name)
            if field.default is not MISSING and value != field.default:
                yield replace(step, operation=replace(step.operation, **{field.name: field.default}))


def smaller_block(block: Together) -> Iterator[Step]:
    """Calls at once that say less: fewer of them, parked earlier, or each with less."""
    first, *others = block.branches
    for left_out in range(len(others)):
        rest = others[:left_out] + others[left_out + 1 :]
        yield Together((first, *rest)) if rest else first
    for place in range(first.yield_at or 0):
        yield Together((replace(first, yield_at=place or None), *others))
    for number, do in enumerate(block.branches):
        for less in plainer(do):
            if isinstance(less, Do) and less.instance == do.instance:
                yield Together((*block.branches[:number], less, *block.branches[number + 1 :]))
