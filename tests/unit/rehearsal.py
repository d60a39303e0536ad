"""A machine on the model alone: the oracle stands in for the store, so a whole run takes seconds."""

from __future__ import annotations

from typing import Any

from dendrux.testing.store_kit.machines import Branches
from dendrux_model.branches import way
from dendrux_model.outcomes import Returned, Unknown
from dendrux_model.possible import Cut, Worlds
from dendrux_model.programs import Do, Fault, Step, Tick, Together
from dendrux_model.values import Minted
from dendrux_model.world import World


class Rehearsal:
    """A session whose store answers what the model answers, and after a cut what a correct store may answer."""

    may_restart = True

    def __init__(self, storage_format: int, branches: Branches) -> None:
        self.worlds = Worlds(World(new_format=storage_format))
        self.world = World(new_format=storage_format)
        """What is really stored: one of the possible worlds."""
        self.branches = branches

    def step(self, step: Step) -> None:
        """One more step."""
        if isinstance(step, Tick):
            self.worlds.pass_time(step.seconds)
        elif isinstance(step, Do):
            self.call(step, None)
        elif isinstance(step, Fault):
            self.call(step.do, step.point)
        elif isinstance(step, Together):
            for do in step.branches:  # one order of the calls; the store would take any
                self.call(do, None)

    def call(self, do: Do, point: str | None) -> None:
        """A call, cut at a point or not. What nobody may repeat has an unknown outcome; the rest is repeated."""
        operation = do.operation
        before = self.worlds.possible[0].world
        truth = self.world._replace(now=self.worlds.instant + 1)
        after, answer = operation.step(truth)
        cut = Cut(at_commit=True) if point is not None and after is not truth else None
        if cut is not None and not repeatable(operation):
            after, answer = after if point == "after_commit" else truth, Unknown()
        self.world = after
        answer = Returned(minted(answer.value)) if isinstance(answer, Returned) else answer
        self.worlds.saw(operation, answer, cut=cut)
        self.branches.add(way(before, operation, answer, self.worlds.possible[0].world))

    def finish(self) -> None:
        """Nothing is stored that could be looked at."""


def minted(value: Any) -> Any:
    """A value of the model as a store would give it: with a name where the store mints one."""
    if isinstance(value, Minted):
        return "minted"
    if isinstance(value, dict):
        return {key: minted(member) for key, member in value.items()}
    return [minted(item) for item in value] if isinstance(value, list) else value


def repeatable(operation: object) -> bool:
    """Whether a store may repeat a call whose acknowledgement was lost."""
    lost_ack = getattr(operation, "lost_ack", None)
    identity = getattr(operation, "identity", None)
    return lost_ack == "natural" or (lost_ack == "identity" and getattr(operation, str(identity)) is not None)
