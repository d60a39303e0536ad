"""The contracts tell a broken model from the healthy one, as they would tell a store that is broken in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

import dendrux_model.mutants  # noqa: F401  # enters the mutants into their table
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contracts._formats import ByFormat
from dendrux.testing.store_kit.contracts._samples import samples
from dendrux_model.operations import OPERATIONS, Operation
from dendrux_model.outcomes import Outcome, Returned
from dendrux_model.programs import Do, Fault, Look, Program, Reopen, Tick, Together, calls, timed
from dendrux_model.swaps import MUTANTS, Mutant, swapped
from dendrux_model.views import view
from dendrux_model.world import SECOND, Run, World, find, put


@cache
def programs() -> tuple[tuple[str, int, Program], ...]:
    """Every program of the catalogue with the formats it is about, short ones first."""
    found: list[tuple[str, int, Program]] = []
    for contract in catalogue():
        if isinstance(contract.check, ByFormat):
            found += [(contract.id, 1, contract.check.one), (contract.id, 2, contract.check.two)]
        elif contract.check is None and contract.program:
            formats = (form for form in (1, 2) if f"format_{3 - form}" not in contract.needs)
            found += [(contract.id, form, contract.program) for form in formats]
    return tuple(sorted(found, key=lambda entry: sum(1 for _ in calls(entry[2]))))


def history(program: Program, form: int) -> list[Outcome]:
    """What the model answers to the calls of a program, one after the other, and to the looks in between."""
    world, answers = World(new_format=form), []
    instant = 0
    for step in (*program, Look()):
        instant += int(step.seconds * SECOND) if isinstance(step, Tick) else 1
        if isinstance(step, Tick | Reopen):
            continue
        if isinstance(step, Look):
            todo: list[Operation] = view([world])
        elif isinstance(step, Together):
            todo = [do.operation for do in step.branches]
        else:
            assert isinstance(step, Do | Fault)
            todo = [(step.do if isinstance(step, Fault) else step).operation]
        for operation in todo:
            world, outcome = operation.step(world._replace(now=instant))
            answers.append(outcome)
    return answers


def killers(break_it: Callable[[], Any], method: str | None = None) -> Iterator[str]:
    """The contracts whose program the broken model answers otherwise."""
    for name, form, program in programs():
        if method is not None and all(call.operation.method != method for call in calls(program)):
            continue
        right = history(program, form)
        try:
            with break_it():
                wrong = history(program, form)
        except IndexError:  # the mutant expects a world with runs in it
            continue
        if wrong != right:
            yield name


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_contract_sees_what_the_invariants_see(mutant: Mutant) -> None:
    assert next(killers(mutant.swap), None), mutant.statement


# -- every effect of every operation ----------------------------------------------------------------------------------

HIDDEN = {("save_usage", "usage")}
"""Effects that no read shows."""


def forgetting(operation: type[Operation], field: str) -> Callable[[], Any]:
    """The operation leaves one field of its run as it was."""

    def wrap(original: Any) -> Any:
        def step(self: Any, before: World) -> tuple[World, Outcome]:
            after, outcome = original(self, before)
            old, new = find(before, self.run_id), find(after, self.run_id)
            if old is None or new is None or after is before:
                return after, outcome
            return put(after, new._replace(**{field: getattr(old, field)})), outcome

        return step

    return lambda: swapped(operation, "step", wrap)


def effects() -> Iterator[tuple[str, str]]:
    """Each operation with each field of a run that it changes somewhere in the contracts."""
    seen: set[tuple[str, str]] = set()
    for _, form, program in programs():
        world = World(new_format=form)
        for instant, call in timed(program):
            before = world._replace(now=instant)
            world = call.operation.step(before)[0]
            run_id = getattr(call.operation, "run_id", None)
            old, new = (find(some, run_id or "") for some in (before, world))
            if world is before or old is None or new is None:
                continue
            seen |= {(type(call.operation).__name__, f) for f in Run._fields if getattr(old, f) != getattr(new, f)}
    yield from sorted(seen)


@pytest.mark.parametrize(("name", "field"), list(effects()))
def test_a_forgotten_effect_is_seen(name: str, field: str) -> None:
    method = OPERATIONS[name].method
    if (method, field) in HIDDEN:
        return
    assert next(killers(forgetting(OPERATIONS[name], field), method), None), f"{method} may forget {field}"


def misspeaking(operation: type[Operation]) -> Callable[[], Any]:
    """The operation does what it should and answers None."""

    def wrap(original: Any) -> Any:
        return lambda self, before: (original(self, before)[0], Returned(None))

    return lambda: swapped(operation, "step", wrap)


def doing_nothing(operation: type[Operation]) -> Callable[[], Any]:
    """The operation answers what it should and does nothing."""

    def wrap(original: Any) -> Any:
        return lambda self, before: (before, original(self, before)[1])

    return lambda: swapped(operation, "step", wrap)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_answer_is_seen(name: str) -> None:
    found = next(killers(misspeaking(OPERATIONS[name]), OPERATIONS[name].method), None)
    assert found, f"nothing looks at the answer of {name}"


@pytest.mark.parametrize("sample", [s for s in samples() if s.operation.lost_ack != "read"], ids=lambda s: s.method)
def test_an_effect_is_seen(sample: Any) -> None:
    kind = type(sample.operation)
    assert next(killers(doing_nothing(kind), sample.method), None), f"nothing looks at what {sample.method} does"
