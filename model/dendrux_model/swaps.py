"""How a mutant breaks the model: for a while another function takes the place of a rule, or of an operation's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple

from dendrux_model.operations import Operation, Step
from dendrux_model.outcomes import Outcome
from dendrux_model.world import Run, World, put

Swap = AbstractContextManager[None]


class Mutant(NamedTuple):
    """A broken model, and who has to see that it is broken."""

    name: str
    statement: str
    invariant: str | None
    """None: no invariant is broken, and the pinned numbers have to change."""
    world: str
    swap: Callable[[], Swap]


MUTANTS: Final[dict[str, Mutant]] = {}
"""By name."""


def mutant(invariant: str | None, world: str) -> Callable[[Callable[[], Swap]], Callable[[], Swap]]:
    """Enter a mutant into the table; its docstring says what is broken."""

    def enter(build: Callable[[], Swap]) -> Callable[[], Swap]:
        MUTANTS[build.__name__] = Mutant(build.__name__, (build.__doc__ or "").strip(), invariant, world, build)
        return build

    return enter


@contextmanager
def swapped(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Put `wrap(original)` in the place of an attribute for a while."""
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def instead(owner: Any, name: str, replacement: Any) -> Swap:
    """Put `replacement` in the place of an attribute for a while."""
    return swapped(owner, name, lambda _original: replacement)


def keeping(owner: Any, name: str, *fields: str) -> Swap:
    """A function that makes a run out of another forgets to change these fields."""

    def wrap(original: Callable[..., Run]) -> Callable[..., Run]:
        def made(run: Run, *rest: Any) -> Run:
            return original(run, *rest)._replace(**{field: getattr(run, field) for field in fields})

        return made

    return swapped(owner, name, wrap)


def step_of(operation: type[Operation], change: Callable[[Any, World, World, Any], Step]) -> Swap:
    """A step whose result goes through `change(operation, before, after, outcome)`."""
    return swapped(
        operation, "step", lambda original: lambda self, before: change(self, before, *original(self, before))
    )


def step_keeping(operation: type[Operation], *fields: str) -> Swap:
    """A step that forgets to change these fields of the first run."""

    def change(_op: Any, before: World, after: World, outcome: Outcome) -> Step:
        kept: dict[str, Any] = {field: getattr(before.runs[0], field) for field in fields}
        return (after if after is before else put(after, after.runs[0]._replace(**kept))), outcome

    return step_of(operation, change)


def seen_as(operation: type[Operation], disguise: Callable[[Any, Run], Run]) -> Swap:
    """A step that takes the runs of the world for something else, and so loses a guard."""

    def wrap(original: Any) -> Any:
        def step(self: Any, before: World) -> Step:
            wrong = before._replace(runs=tuple(disguise(self, run) for run in before.runs))
            after, outcome = original(self, wrong)
            return (before, outcome) if after is wrong else (after, outcome)

        return step

    return swapped(operation, "step", wrap)
