"""The machine: a Hypothesis state machine whose one rule asks the model what could happen next.

What may be drawn depends on the model's world alone, never on the store or the clock, so an example means the same on
every store. Four times in eight an operation is drawn that the model enables, three times a branch of one, however
rare, and once a repeat of an earlier call. Drawing 0 means: the plain choice, no fault. The machine appends to the
program that it executes, so a failure is a program anybody can replay; `reduce.py` makes it small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from dendrux_model.machines.arguments import Arguments
from dendrux_model.machines.arguments_leases import LEASE_S
from dendrux_model.machines.deviations import by_branch
from dendrux_model.machines.starts import STARTS, TIMELESS
from dendrux_model.operations import OPERATIONS, Operation
from dendrux_model.possible import Worlds
from dendrux_model.programs import Do, Fault, Program, Reopen, Step, Tick
from dendrux_model.world import World

STEPS = 20
"""Steps of one example at most."""

NEVER_CUT = frozenset({"read", "paged"})
"""A page meets the runs of other examples, so what a cut hits would depend on them; contracts cut pages."""


class Session(Protocol):
    """One program being executed on a store, step by step, from the machine's thread."""

    @property
    def worlds(self) -> Worlds:
        """The oracle."""

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


def build(
    begin: Callable[[], Session],
    *,
    names: Sequence[str],
    faults: Sequence[tuple[str, str]] = (),
    reopens: bool = False,
    ticks: bool = False,
    starts: Sequence[str] = (),
    record: Callable[[Session], None] = lambda session: None,
) -> type[RuleBasedStateMachine]:
    """A machine over these operations, on sessions that `begin` starts.

    Args:
        faults: (point, kind) pairs that may cut a write; none for a machine without faults.
        ticks: whether time passes; without it, machines begin where none has. starts: where (none: anywhere).
        record: called with every session that ended well.
    """

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.session = begin()
            self.called: list[Operation] = []

        @property
        def world(self) -> World:
            """The world that choices are made for: the first of the possible ones."""
            worlds = self.session.worlds
            return worlds.possible[0].world._replace(now=worlds.instant)

        @initialize(start=st.sampled_from(sorted(starts or (STARTS if ticks else TIMELESS))))
        def begin_somewhere(self, start: str) -> None:
            program: Program = STARTS[start]
            for step in program:
                self.session.step(step)

        @rule(data=st.data())
        def call(self, data: st.DataObject) -> None:
            if ticks and data.draw(st.integers(0, 5)) == 5:
                self.session.step(Tick(data.draw(st.sampled_from((LEASE_S, LEASE_S // 2, 10 * LEASE_S)))))
            operation = self.choose(data)
            if reopens and data.draw(st.integers(0, 15)) == 15:
                self.session.step(Reopen())
            cut = data.draw(st.integers(0, 2 * len(faults))) if faults else 0
            if 0 < cut <= len(faults) and operation.lost_ack not in NEVER_CUT:
                point, kind = faults[cut - 1]
                self.session.step(Fault(Do(operation), point, kind))  # type: ignore[arg-type]
            else:
                self.session.step(Do(operation))

        def choose(self, data: st.DataObject) -> Operation:
            """Something the model enables, any branch of anything, or a repeat of an earlier call."""
            mood = data.draw(st.integers(0, 7))
            if mood == 4 and self.called:
                return data.draw(st.sampled_from(self.called))
            if mood > 4:
                ways = by_branch(self.world, data.draw(st.sampled_from(list(names))))
                operation = data.draw(st.sampled_from(ways[data.draw(st.sampled_from(sorted(ways)))]))
            else:
                pool = enabled(self.world, names) or list(names)
                operation = draw(data, self.world, data.draw(st.sampled_from(pool)))
            if operation.lost_ack != "read":
                self.called.append(operation)
            return operation

        def teardown(self) -> None:
            self.session.finish()
            record(self.session)

    return Machine


def draw(data: st.DataObject, world: World, name: str) -> Operation:
    """An operation of this class: one that changes the world when two tries find it."""

    def pick(options: Sequence[Any]) -> Any:
        return options[data.draw(st.integers(0, len(options) - 1))] if len(options) > 1 else options[0]

    operation = Arguments(world, pick).make(name)
    if OPERATIONS[name].lost_ack == "read" or applies(world, operation):
        return operation
    # Second try: every choice plain but for the contents, which leaves the operation enabled.
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
