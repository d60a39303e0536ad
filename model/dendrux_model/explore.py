"""Bounded exploration: every state that a small world can reach, and every step between them.

Breadth first, so the first program found for a state is a shortest one. Refused and repeated steps answer the same world
object and cost next to nothing; a changed world is looked up, and checked for what is new in it.

    python -m dendrux_model.explore [WORLD ...]      explore these small worlds, or all of them
"""

from __future__ import annotations

import gc
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dendrux_model.branches import branch
from dendrux_model.invariants import INVARIANTS, AnswerCheck
from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome, Returned
from dendrux_model.sometimes import SOMETIMES
from dendrux_model.world import Run, World
from dendrux_model.worlds import SMALL_WORLDS, SmallWorld

Progress = Callable[["Exploration"], None]

PROGRESS_EVERY = 1024
"""States between two calls of a progress function."""


class Violation(Exception):
    """An invariant that does not hold, and a shortest way to see it."""

    def __init__(
        self, invariant: str, program: tuple[Operation, ...], outcome: Outcome | None, changes: list[str]
    ) -> None:
        self.invariant = invariant
        self.program = program
        self.outcome = outcome
        """What the last step of the program answered."""
        self.changes = changes
        """The fields that the last step changed."""
        lines = [f"{invariant} does not hold: {' '.join(INVARIANTS[invariant].statements)}"]
        lines += [f"  {number}. {step}" for number, step in enumerate(program, 1)]
        super().__init__("\n".join([*lines, f"     {outcome}", *(f"     {change}" for change in changes)]))


class Exploration:
    """What there is in a small world, as far as it was explored."""

    def __init__(self, small: SmallWorld) -> None:
        self.small = small
        self.worlds: list[World] = [small.initial()]
        self.transitions = 0
        self.depth = 0
        self.seconds = 0.0
        self.branches: set[tuple[str, str]] = set()
        """The (operation, branch) pairs that were reached."""
        self.sometimes: dict[str, tuple[Operation, ...]] = {}
        """The `sometimes` properties that were reached, each with a shortest program."""
        self.violation: Violation | None = None
        self._parents = array("l", [-1])
        self._vias = array("l", [-1])
        self._checked_runs: set[Run] = set()
        self._run_checks = [(i.name, i.run) for i in INVARIANTS.values() if i.run is not None]
        self._world_checks = [(i.name, i.world) for i in INVARIANTS.values() if i.world is not None]

    @property
    def states(self) -> int:
        """How many different worlds there are."""
        return len(self.worlds)

    @property
    def rate(self) -> float:
        """Transitions per second."""
        return self.transitions / self.seconds if self.seconds else 0.0

    def program_to(self, state: int) -> tuple[Operation, ...]:
        """A shortest program from nothing to this state, the set-up of the small world included."""
        steps: list[Operation] = []
        while state:
            steps.append(self.small.alphabet[self._vias[state]])
            state = self._parents[state]
        return (*self.small.setup, *reversed(steps))

    def run(self, progress: Progress | None = None) -> Exploration:
        """Explore until nothing is left, or an invariant does not hold."""
        started = time.perf_counter()

        def tell() -> None:
            self.seconds = time.perf_counter() - started
            if progress is not None:
                progress(self)

        with uncollected():
            try:
                self._check_state(0)
                self._walk(tell)
            except Violation as violation:
                self.violation = violation
        self.seconds = time.perf_counter() - started
        return self

    def _walk(self, tell: Callable[[], None]) -> None:
        """Leave one state after the other by every operation of the alphabet."""
        worlds, alphabet, within = self.worlds, self.small.alphabet, self.small.within
        steps = [(number, operation, operation.step) for number, operation in enumerate(alphabet)]
        known = {worlds[0]: 0}
        answers: list[list[Outcome]] = [[] for _ in alphabet]
        applied = [False] * len(alphabet)
        answer_checks = [answers_of(operation) for operation in alphabet]
        change_checks = [(i.name, i.change) for i in INVARIANTS.values() if i.change is not None]
        waiting = set(self.small.sometimes)
        state, layer = 0, 1
        while state < len(worlds):
            if state == layer:
                self.depth, layer = self.depth + 1, len(worlds)
            if state % PROGRESS_EVERY == 0:
                tell()
            before = worlds[state]
            if not within(before):
                state += 1
                continue
            self.transitions += len(steps)
            for number, operation, step in steps:
                after, outcome = step(before)
                if waiting:
                    self._watch(waiting, state, number, outcome, after)
                if outcome.__class__ is Returned:
                    for name, answer in answer_checks[number]:
                        if not answer(before, operation, outcome, after):  # type: ignore[arg-type]
                            self._fail(name, state, number, outcome, after)
                if after is before:
                    if outcome not in answers[number]:
                        answers[number].append(outcome)
                        self._reach(before, operation, outcome, after)
                    continue
                if not applied[number]:
                    applied[number] = True
                    self._reach(before, operation, outcome, after)
                for old, new in zip(before.runs, after.runs, strict=False):
                    if old is not new:
                        for name, change in change_checks:
                            if not change(old, operation, outcome, new):
                                self._fail(name, state, number, outcome, after)
                if after not in known:
                    known[after] = len(worlds)
                    worlds.append(after)
                    self._parents.append(state)
                    self._vias.append(number)
                    self._check_state(len(worlds) - 1, outcome)
            state += 1

    def _check_state(self, state: int, outcome: Outcome | None = None) -> None:
        """Check a new world: the runs that no earlier world had, and what holds across runs."""
        world = self.worlds[state]
        for run in world.runs:
            if run not in self._checked_runs:
                self._checked_runs.add(run)
                for name, holds in self._run_checks:
                    if not holds(run):
                        self._fail_at(name, state, outcome)
        for name, whole in self._world_checks:
            if not whole(world):
                self._fail_at(name, state, outcome)

    def _fail_at(self, invariant: str, state: int, outcome: Outcome | None) -> None:
        """A state breaks an invariant: show the step that led there."""
        parent = self._parents[state]
        before = self.worlds[parent] if state else World()
        changes = differences(before, self.worlds[state])
        raise Violation(invariant, self.program_to(state), outcome, changes)

    def _fail(self, invariant: str, state: int, number: int, outcome: Outcome, after: World) -> None:
        """A step breaks an invariant."""
        program = (*self.program_to(state), self.small.alphabet[number])
        raise Violation(invariant, program, outcome, differences(self.worlds[state], after))

    def _reach(self, before: World, operation: Operation, outcome: Outcome, after: World) -> None:
        """Note which way a step took."""
        self.branches.add((type(operation).__name__, branch(before, operation, outcome, after)))

    def _watch(self, waiting: set[str], state: int, number: int, outcome: Outcome, after: World) -> None:
        """Note which of the properties still waited for this step shows."""
        operation = self.small.alphabet[number]
        for name in sorted(waiting):
            if SOMETIMES[name](self.worlds[state], operation, outcome, after):
                self.sometimes[name] = (*self.program_to(state), operation)
                waiting.discard(name)


def answers_of(operation: Operation) -> list[tuple[str, AnswerCheck]]:
    """The checks that concern the answers of an operation."""
    name = type(operation).__name__
    return [
        (invariant.name, check)
        for invariant in INVARIANTS.values()
        for operations, check in invariant.answers
        if name in operations
    ]


def differences(before: World, after: World) -> list[str]:
    """The fields that differ, run by run."""
    old = {run.id: run for run in before.runs}
    found = []
    for run in after.runs:
        if run.id not in old:
            found.append(f"{run.id}: new, {run.status}")
            continue
        for field, was, now in zip(Run._fields, old[run.id], run, strict=True):
            if was != now:
                found.append(f"{run.id}.{field}: {was!r} -> {now!r}")
    return found


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the cyclic garbage collector, which would visit every world again and again and find no cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def explore(small: SmallWorld | str, progress: Progress | None = None) -> Exploration:
    """Explore a small world, by itself or by its name."""
    return Exploration(SMALL_WORLDS[small] if isinstance(small, str) else small).run(progress)


def main(names: list[str]) -> int:
    """Explore and print one line per small world; 1 when an invariant does not hold."""
    failed = False
    for name in names or list(SMALL_WORLDS):
        told = time.perf_counter()

        def tell(found: Exploration) -> None:
            nonlocal told
            if time.perf_counter() - told > 2:
                told = time.perf_counter()
                line = f"{found.small.name}: {found.states:,} states so far, depth {found.depth}"
                sys.stderr.write(line + "\n")

        found = explore(name, tell)
        sys.stdout.write(
            f"{name}: {found.states:,} states, {found.transitions:,} transitions, {found.rate:,.0f} transitions/s, "
            f"depth {found.depth}, {len(INVARIANTS)} invariants checked\n"
        )
        missing = sorted(set(found.small.sometimes) - set(found.sometimes))
        if missing:
            sys.stdout.write(f"  never reached: {', '.join(missing)}\n")
        if found.violation is not None:
            sys.stdout.write(f"{found.violation}\n")
        failed = failed or bool(missing) or found.violation is not None
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
