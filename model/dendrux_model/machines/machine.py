"""The machine: a Hypothesis state machine whose one rule asks the model what could happen next.

What may be drawn depends on the model's world alone, never on the store or the clock, so an example means the same on
every store. Four times in eight an operation is drawn that the model enables, three times a branch of one, however
rare, and once a repeat of an earlier call. Drawing 0 means: the plain choice, no fault. The machine appends to the
program that it executes, so a failure is a program anybody can replay; `reduce.py` makes it small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, ClassVar, Protocol

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from dendrux_model.branches import known_branches, way
from dendrux_model.machines.arguments import Arguments
from dendrux_model.machines.arguments_leases import LEASE_S
from dendrux_model.machines.callers import own
from dendrux_model.machines.deviations import toward
from dendrux_model.machines.starts import STARTS, TIMELESS
from dendrux_model.operations import OPERATIONS, Operation
from dendrux_model.possible import Worlds
from dendrux_model.programs import Do, Fault, Program, Reopen, Step, Tick, Together
from dendrux_model.world import World

Pair = tuple[str, str]
"""An operation and a branch of it."""

STEPS = 20
"""Steps of one example at most."""

GOALS_MAX = 2
"""Branches that one choice looks for a way to."""

TRIED_FOR_ANY = 6
"""Operations that are made at most on the way to a branch that was reached before."""

MISSED_MAX = 3
"""Times that one example looks in vain for a way to a branch."""

NEVER_CUT = frozenset({"read", "paged"})
"""A page meets the runs of other examples, so what a cut hits would depend on them; contracts cut pages."""


PLACES: tuple[int | None, ...] = (None, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6)
"""Statements before which the first call of a block is parked; None: nobody waits, the calls follow each other."""


STATEMENTS_MAX = 5
"""A cut before a statement is before one of the first of this many; most transactions have no more."""

RIVALS_TRIED = 6
"""Operations that are drawn at most for one whose answer depends on whether another came first."""


class Session(Protocol):
    """One program being executed on a store, step by step, from the machine's thread."""

    @property
    def worlds(self) -> Worlds:
        """The oracle."""

    @property
    def may_restart(self) -> bool:
        """Whether one more instance can be made."""

    def step(self, step: Step) -> None:
        """Execute one more step; raises when the store fails it."""

    def finish(self) -> None:
        """Compare the whole view."""


def first(options: Sequence[Any]) -> Any:
    """The plain choice."""
    return options[0]


def applies(world: World, operation: Operation) -> bool:
    """Whether the model lets the operation change this world."""
    return operation.step(world)[0] is not world


def enabled(world: World, names: Sequence[str]) -> list[str]:
    """Classes with a plain operation that changes this world. Reads change nothing and are always enabled."""
    plain = Arguments(world, first)
    return [name for name in names if OPERATIONS[name].lost_ack == "read" or applies(world, plain.make(name))]


@cache
def pairs_of(storage_format: int, names: tuple[str, ...]) -> tuple[Pair, ...]:
    """The (operation, branch) pairs of these classes on this format."""
    return tuple(sorted(pair for pair in known_branches(storage_format) if pair[0] in names))


class Choices:
    """What the steps of one example call.

    Args:
        goals: the pairs that no example before this one reached. reached: grows by what this one reaches.
        calls: how often each class was called before this example. all_calls: grows by what this one calls.
    """

    def __init__(
        self,
        random: Random,
        names: Sequence[str],
        goals: Iterable[Pair],
        reached: set[Pair],
        calls: Counter[str],
        all_calls: Counter[str],
    ) -> None:
        self.random = random
        self.calls = Counter(calls)
        self.all_calls = all_calls
        self.names = tuple(names)
        self.goals = sorted(goals)
        self.reached = reached
        self.called: list[Operation] = []
        self.missed: Counter[Pair] = Counter()

    def choose(self, world: World) -> Operation:
        """Something the model enables, a branch that was not reached yet, or a repeat of an earlier call.

        Of what is enabled every second choice is what was called least: what few worlds enable, such as taking a run
        over, is called when it can be.
        """
        mood = self.random.randrange(8)
        if mood == 0 and self.called:
            return self.random.choice(self.called)
        operation = self.toward_goal(world) if mood < 4 else None
        if operation is None:
            pool = enabled(world, self.names) or list(self.names)
            name = self.random.choice(pool) if mood % 2 else min(pool, key=lambda name: (self.calls[name], name))
            operation = draw(self.random, world, name)
        self.note(world, operation)
        return operation

    def block(self, world: World, instances: int) -> Together:
        """Calls at once, each on an instance of its own; the first is parked before one of its statements.

        They are chosen for the same world, so that each of them alone would mean something. As a rule every caller has
        ids of its own; otherwise two may be one call, as a retry that overtakes its first attempt.
        """
        made = [self.write(world)]
        for _ in range(1 if instances == 2 else self.random.choice((1, 1, 2))):
            made.append(self.rival(world, made[0]))
        if self.random.randrange(4):
            made = [own(world, operation, caller) for caller, operation in enumerate(made, start=1)]
        for operation in made:
            self.note(world, operation)
        parked, *others = (Do(operation, instance) for instance, operation in enumerate(made))
        return Together((replace(parked, yield_at=self.random.choice(PLACES)), *others))

    def alone(self, operation: Operation, faults: Sequence[tuple[str, str]], instances: int) -> Step:
        """The operation with nobody beside it: every second write is cut, where there are faults."""
        cut = self.random.randrange(2 * len(faults) + 1)
        if 0 < cut <= len(faults) and operation.lost_ack not in NEVER_CUT:
            point, kind = faults[cut - 1]
            after = self.random.randrange(STATEMENTS_MAX) if point == "statement" else 0
            return Fault(Do(operation), point, kind, after)  # type: ignore[arg-type]
        return Do(operation, self.random.randrange(instances))

    def write(self, world: World) -> Operation:
        """An operation that the model enables, anything but a read."""
        pool = [name for name in enabled(world, self.names) if OPERATIONS[name].lost_ack != "read"]
        return draw(self.random, world, self.random.choice(pool or self.names))

    def rival(self, world: World, operation: Operation) -> Operation:
        """A write that gets in this one's way, when a few tries find one: every second try, one of the same class."""
        found, after = operation, own(world, operation, 1).step(world)[0]
        for _ in range(RIVALS_TRIED):
            alike = self.random.randrange(2)
            found = draw(self.random, world, type(operation).__name__) if alike else self.write(world)
            call = own(world, found, 2)
            if call.step(after)[1] != call.step(world)[1]:
                break
        return found

    def toward_goal(self, world: World) -> Operation | None:
        """A branch that was not reached yet, the first of a few that there is a way to from here; else any."""
        for goal in self.random.sample(self.goals, min(GOALS_MAX, len(self.goals))):
            operation = toward(world, *goal, self.random)
            if operation is not None:
                return operation
            self.missed[goal] += 1
            if self.missed[goal] == MISSED_MAX:
                self.goals.remove(goal)
        known = pairs_of(world.new_format, self.names)
        return toward(world, *self.random.choice(known), self.random, tries=TRIED_FOR_ANY)

    def note(self, world: World, operation: Operation) -> None:
        """Remember what is called, for repeats, and the way that the model takes."""
        for calls in (self.calls, self.all_calls):
            calls[type(operation).__name__] += 1
        if operation.lost_ack != "read":
            self.called.append(operation)
        after, outcome = operation.step(world)
        pair = way(world, operation, outcome, after)
        self.reached.add(pair)
        if pair in self.goals:
            self.goals.remove(pair)


def build(
    begin: Callable[[], Session],
    *,
    names: Sequence[str],
    faults: Sequence[tuple[str, str]] = (),
    reopens: bool = False,
    ticks: bool = False,
    instances: int = 1,
    starts: Sequence[str] = (),
    record: Callable[[Session], None] = lambda session: None,
) -> type[RuleBasedStateMachine]:
    """A machine over these operations, on sessions that `begin` starts.

    Args:
        faults: (point, kind) pairs that may cut a write, before any of its statements or at COMMIT; none for a machine
            without faults.
        ticks: whether time passes; without it, machines begin where none has. starts: where (none: anywhere).
        instances: live ones, between two and three; every second step is a block of calls at once.
        record: called with every session that ended well.
    """

    class Machine(RuleBasedStateMachine):
        wanted: ClassVar[dict[int, tuple[int, frozenset[Pair], Counter[str]]]] = {}
        """For each example's seed its number, what those before it left to reach, and what they called: it can be run
        again."""
        reached: ClassVar[set[Pair]] = set()
        calls: ClassVar[Counter[str]] = Counter()

        def __init__(self) -> None:
            super().__init__()
            self.session = begin()

        @property
        def world(self) -> World:
            """The world that choices are made for: the first of the possible ones."""
            worlds = self.session.worlds
            return worlds.possible[0].world._replace(now=worlds.instant)

        @initialize(seed=st.integers(0, 2**64 - 1))
        def begin_somewhere(self, seed: int) -> None:
            self.random = Random(seed)  # noqa: S311  # draws programs, keeps no secret
            pairs = pairs_of(self.world.new_format, tuple(names))
            so_far = (len(self.wanted), frozenset(pairs) - self.reached, Counter(self.calls))
            number, left, calls = self.wanted.setdefault(seed, so_far)
            self.choices = Choices(self.random, names, left, self.reached, calls, self.calls)
            begins = starts or tuple(STARTS if ticks else TIMELESS)
            program: Program = STARTS[begins[number % len(begins)]]
            for step in program:
                self.session.step(step)

        @rule()
        def call(self) -> None:
            if ticks and self.random.randrange(6) == 0:
                self.session.step(Tick(self.random.choice((LEASE_S, LEASE_S // 2, 10 * LEASE_S))))
            if instances > 1 and self.random.randrange(2):
                self.session.step(self.choices.block(self.world, instances))
                return
            operation = self.choices.choose(self.world)
            if reopens and self.random.randrange(16) == 0 and self.session.may_restart:
                self.session.step(Reopen())
            self.session.step(self.choices.alone(operation, faults, instances))

        def teardown(self) -> None:
            self.session.finish()
            record(self.session)

    return Machine


def draw(random: Random, world: World, name: str) -> Operation:
    """An operation of this class: one that changes the world when two tries find it."""
    operation = Arguments(world, random.choice).make(name)
    if OPERATIONS[name].lost_ack == "read" or applies(world, operation):
        return operation
    # Second try: every choice plain, which leaves the operation enabled.
    return Arguments(world, first).make(name)


def search(machine: type[RuleBasedStateMachine], *, examples: int, seed: int | None, steps: int = STEPS) -> None:
    """Run a machine. Raises what its session raised for the first failing example, unshrunk."""
    if seed is not None:
        machine._hypothesis_internal_use_seed = seed  # what @seed sets
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=False,
            report_multiple_bugs=False,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
