"""Bounded exploration: every state that a small world can reach, and every step between them.

Breadth first, so the first program found for a state is a shortest one. Refused and repeated steps answer the same
world object and cost next to nothing; a changed world is looked up, and checked for what is new in it.

    python -m dendrux_model.explore [WORLD ...]      explore these small worlds, or all of them
"""

from __future__ import annotations

import gc
import sys
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from dendrux_model.branches import branch
from dendrux_model.invariants import INVARIANTS, AnswerCheck, Check, name_of
from dendrux_model.operations import OPERATIONS, Operation
from dendrux_model.outcomes import NONE, Outcome, Refused
from dendrux_model.sometimes import SOMETIMES
from dendrux_model.world import Run, World
from dendrux_model.worlds import SMALL_WORLDS, SmallWorld

Progress = Callable[["Exploration"], None]

PROGRESS_EVERY = 1024
"""States between two calls of a progress function."""


class Violation(Exception):
    """An invariant that does not hold, and a shortest way to see it."""

    def __init__(self, check: Check, program: tuple[Operation, ...], outcome: Outcome, changes: list[str]) -> None:
        self.invariant = name_of(check)
        self.program = program
        self.outcome = outcome
        """What the last step of the program answered."""
        self.changes = changes
        """What the last step changed, field by field."""
        lines = [f"{self.invariant} does not hold: {check.__doc__}"]
        lines += [f"  {number}. {step}" for number, step in enumerate(program, 1)]
        super().__init__("\n".join([*lines, f"     {outcome}", *(f"     {change}" for change in changes)]))


class Exploration:
    """What there is in a small world, as far as it was explored."""

    def __init__(self, small: SmallWorld, invariants: Collection[str] = INVARIANTS) -> None:
        self.small = small
        self.invariants = [INVARIANTS[name] for name in invariants]
        self.worlds: list[World] = [small.initial()]
        self.transitions = 0
        """How many steps were taken: every operation in every world that was left."""
        self.applied = 0
        """How many of them changed the world."""
        self.refused = 0
        """How many of them were refused."""
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
        self._run_checks = [check for invariant in self.invariants for check in invariant.runs]
        self._world_checks = [check for invariant in self.invariants for check in invariant.worlds]

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
                self._check_state(0, NONE)
                self._walk(tell)
            except Violation as violation:
                self.violation = violation
        self.seconds = time.perf_counter() - started
        return self

    def _walk(self, tell: Callable[[], None]) -> None:
        """Leave one state after the other by every operation of the alphabet."""
        worlds, alphabet, within = self.worlds, self.small.alphabet, self.small.within
        steps = [(number, operation, operation.step) for number, operation in enumerate(alphabet)]
        known = {worlds[0]}
        answers: list[list[Outcome]] = [[] for _ in alphabet]
        """What each operation answered without an effect; there are few different answers."""
        effective = [False] * len(alphabet)
        answer_checks = [self._answers_of(operation) for operation in alphabet]
        change_checks = [check for invariant in self.invariants for check in invariant.changes]
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
                if outcome.__class__ is Refused:
                    self.refused += 1
                else:
                    for answer in answer_checks[number]:
                        if not answer(before, operation, outcome, after):
                            self._fail(answer, state, number, outcome, after)
                if after is before:
                    if outcome not in answers[number]:
                        answers[number].append(outcome)
                        self._reach(before, operation, outcome, after)
                    continue
                self.applied += 1
                if not effective[number] or getattr(outcome, "value", None).__class__ is dict:
                    effective[number] = True
                    self._reach(before, operation, outcome, after)
                for old, new in zip(before.runs, after.runs, strict=False):
                    if old is not new:
                        for change in change_checks:
                            if not change(old, operation, outcome, new):
                                self._fail(change, state, number, outcome, after)
                if after not in known:
                    known.add(after)
                    worlds.append(after)
                    self._parents.append(state)
                    self._vias.append(number)
                    self._check_state(len(worlds) - 1, outcome)
            state += 1

    def _answers_of(self, operation: Operation) -> list[AnswerCheck]:
        """The checks that concern the answers of an operation."""
        name = type(operation).__name__
        return [check for invariant in self.invariants for names, check in invariant.answers if name in names]

    def _check_state(self, state: int, outcome: Outcome) -> None:
        """Check a new world: the runs that no earlier world had, and what holds across runs."""
        world = self.worlds[state]
        for run in world.runs:
            if run not in self._checked_runs:
                self._checked_runs.add(run)
                for holds in self._run_checks:
                    if not holds(run):
                        self._fail_at(holds, state, outcome)
        for whole in self._world_checks:
            if not whole(world):
                self._fail_at(whole, state, outcome)

    def _fail_at(self, check: Check, state: int, outcome: Outcome) -> None:
        """A state breaks an invariant: show the step that led there."""
        before = self.worlds[self._parents[state]] if state else World()
        raise Violation(check, self.program_to(state), outcome, differences(before, self.worlds[state]))

    def _fail(self, check: Check, state: int, number: int, outcome: Outcome, after: World) -> None:
        """A step breaks an invariant."""
        program = (*self.program_to(state), self.small.alphabet[number])
        raise Violation(check, program, outcome, differences(self.worlds[state], after))

    def _reach(self, before: World, operation: Operation, outcome: Outcome, after: World) -> None:
        """Note which way a step took; the passing of time is no call."""
        if type(operation).__name__ in OPERATIONS:
            self.branches.add((type(operation).__name__, branch(before, operation, outcome, after)))

    def _watch(self, waiting: set[str], state: int, number: int, outcome: Outcome, after: World) -> None:
        """Note which of the properties still waited for this step shows."""
        operation = self.small.alphabet[number]
        for name in sorted(waiting):
            if SOMETIMES[name](self.worlds[state], operation, outcome, after):
                self.sometimes[name] = (*self.program_to(state), operation)
                waiting.discard(name)


def differences(before: World, after: World) -> list[str]:
    """What differs, run by run and field by field."""
    old = {run.id: run for run in before.runs}
    found = []
    for run in after.runs:
        if run.id not in old:
            found.append(f"{run.id}: new, {run.status}")
            continue
        was: Any
        now: Any
        for field, was, now in zip(Run._fields, old[run.id], run, strict=True):
            if was == now:
                continue
            added = isinstance(was, tuple) and isinstance(now, tuple) and now[: len(was)] == was
            change = f"+ {', '.join(map(repr, now[len(was) :]))}" if added else f"{was!r} -> {now!r}"
            found.append(f"{run.id}.{field}: {change if len(change) <= 100 else change[:100] + ' ...'}")
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


def explore(name: str, *, invariants: Collection[str] = INVARIANTS, progress: Progress | None = None) -> Exploration:
    """Explore a small world, checking these invariants."""
    return Exploration(SMALL_WORLDS[name], invariants).run(progress)


def main(names: list[str]) -> int:
    """Explore and print one line per small world; 1 when an invariant does not hold or a property is never reached."""
    unknown = [name for name in names if name not in SMALL_WORLDS]
    if unknown:
        sys.stderr.write(f"no small world is called {', '.join(unknown)}; there are {', '.join(SMALL_WORLDS)}\n")
        return 2
    failed = False
    for name in names or list(SMALL_WORLDS):
        told = time.perf_counter()

        def tell(found: Exploration) -> None:
            nonlocal told
            if time.perf_counter() - told > 2:
                told = time.perf_counter()
                line = f"{found.small.name}: {found.states:,} states so far, depth {found.depth}"
                sys.stderr.write(line + "\n")

        found = explore(name, progress=tell)
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
