"""Linearizability: could one order of these calls explain every answer?

The search of Wing and Gong with Lowe's memo: try every call that no unfinished call precedes, keep the worlds that
agree, never expand the same set of finished calls from the same world twice. Calls that nothing connects are searched
apart (`components.py`): a history is linearizable exactly when each of its components is. A search that runs out of
budget is UNKNOWN, which is never a pass.

Wing and Gong, "Testing and Verifying Concurrent Objects", 1993. Lowe, "Testing for linearizability", 2017.
Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects", 1990 (components).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

from dendrux_model.components import components, merged
from dendrux_model.operations import CreateRun, Known, Operation
from dendrux_model.outcomes import Outcome, Unknown
from dendrux_model.possible import Cut, Possible, explain, unique
from dendrux_model.world import World, find, put

BUDGET = 20_000
"""Steps of the model that the search of one component may take, from one world."""


Rows = tuple[Any, ...]


class Call(NamedTuple):
    """One call of a history, with the real time it was open: from its invocation to its answer."""

    operation: Operation
    observed: Outcome
    invoked: int
    returned: int
    cut: Cut | None = None
    at: int | None = None
    """The instant of the model at which it happens, whatever its place in the order. None: its number decides."""

    @property
    def over(self) -> float:
        """When it has surely happened, if it ever does: a call with an unknown outcome may come after its return."""
        return math.inf if isinstance(self.observed, Unknown) else self.returned


class Verdict(NamedTuple):
    """`ok` with every world the history can end in, `violation` with none, or `unknown`."""

    result: Literal["ok", "violation", "unknown"]
    worlds: tuple[Possible, ...] = ()
    instants: int = 0
    """How many instants of the model the history took."""


def linearize(start: Sequence[Possible], history: Sequence[Call], instant: int, budget: int = BUDGET) -> Verdict:
    """Every world in which some order of the calls, consistent with real time, gives every observed outcome.

    Calls that are several steps are taken apart. Step number i of the history happens at model instant `instant + i`,
    or when its call says, whatever its place in the order, so that equal worlds reached by different orders are
    recognised.

    Args:
        start: the worlds that are possible before the history.
        history: the calls with their answers; they need be in no order.
        budget: steps of the model that the search of one component may take, from one world.
    """
    ends: list[Possible] = []
    instants = 0
    for possible in start:
        for steps in apart(history, possible.world):
            instants = max(instants, len(steps))
            verdict = connected(possible, steps, instant, budget)
            if verdict.result == "unknown":
                return verdict
            ends.extend(verdict.worlds)
    return Verdict("ok", tuple(unique(ends)), instants) if ends else Verdict("violation", (), instants)


def apart(history: Sequence[Call], world: World) -> Iterator[list[Call]]:
    """The history with each call as the steps that it consists of, in every way to take the answers apart."""
    born = [call.operation.run_id for call in history if isinstance(call.operation, CreateRun)]
    known = Known(
        frozenset([*(run.id for run in world.runs), *born]),
        frozenset((blob.tenant_scope, blob.sha256) for blob in world.blobs),
    )
    for ways in product(*(call.operation.ways(call.observed, known) for call in history)):
        yield [
            call._replace(operation=step, observed=said)
            for call, way in zip(history, ways, strict=True)
            for step, said in way
        ]


def connected(start: Possible, steps: Sequence[Call], instant: int, budget: int) -> Verdict:
    """The verdict on a history, component by component, from one world."""
    parts = [[(i, steps[i]) for i in part] for part in components([step.operation for step in steps], start.world)]
    found = [search(start, part, instant, budget) for part in parts]
    if any(verdict.result == "violation" for verdict in found):
        return Verdict("violation")
    combinations = math.prod(len(verdict.worlds) for verdict in found)
    if combinations > budget or any(verdict.result == "unknown" for verdict in found):
        return Verdict("unknown")
    ends = (merged(start, one) for one in product(*(verdict.worlds for verdict in found)))
    together = tuple(end for end in ends if end is not None)
    return Verdict("ok", together) if together else Verdict("violation")


def search(start: Possible, calls: Sequence[tuple[int, Call]], instant: int, budget: int) -> Verdict:
    """The verdict on the calls of one component, each with its number in the history, from one world."""
    everything = (1 << len(calls)) - 1
    before = [sum(1 << j for j, (_, other) in enumerate(calls) if other.over < call.invoked) for _, call in calls]
    seen: set[object] = set()
    ends: list[Possible] = []
    open_states = [(0, start)]
    while open_states:
        done, possible = open_states.pop()
        mark = (done, possible.world._replace(now=0), frozenset(possible.clock.items()))
        if mark in seen:
            continue
        seen.add(mark)
        if done == everything:
            ends.append(possible)
            continue
        following: list[tuple[int, Possible]] = []
        for i, (number, call) in enumerate(calls):
            if done >> i & 1 or before[i] & ~done:
                continue
            if budget == 0:
                return Verdict("unknown")
            budget -= 1
            now = instant + number if call.at is None else call.at
            after = explain(possible, call.operation, call.observed, now, call.cut)
            rivals = [o for _, o in calls if o is not call and not (o.over < call.invoked or call.over < o.invoked)]
            steps = [(done | 1 << i, end) for one in after for end in listed(possible, one, call, rivals)]
            if call.operation.idle(call.observed) and any(one.clock == possible.clock for one in after):
                following = steps  # it fits here and changes nothing, so it need not be tried anywhere else
                break
            following += steps
        open_states += following
    return Verdict("ok", tuple(ends)) if ends else Verdict("violation")


def listed(before: Possible, after: Possible, call: Call, rivals: Sequence[Call]) -> Iterator[Possible]:
    """The world after a call, and the same with its rows further ahead in the list that shows them by time.

    A call stamps what it stores with a time between its invocation and its return, not with that of its place in the
    order. So its rows may come before those of calls that it overlaps, and of no others.
    """
    yield after
    kind, _ = call.operation.by_time
    if kind is None:
        return
    theirs = {row_id for other in rivals if other.operation.by_time[0] == kind for row_id in other.operation.by_time[1]}
    place = old = len(rows_of(before.world, kind, call.operation))
    rows = rows_of(after.world, kind, call.operation)
    while len(rows) > old and place > 0 and rows[place - 1].id in theirs:
        place -= 1
        yield after._replace(world=with_rows(after.world, kind, call.operation, reordered(rows, old, place)))


def reordered(rows: Rows, old: int, place: int) -> Rows:
    """The rows with those behind the `old` first ones at this place."""
    return (*rows[:place], *rows[old:], *rows[place:old])


def rows_of(world: World, kind: str, operation: Any) -> Rows:
    """The list of this kind that the operation adds to."""
    run = None if kind == "runs" else find(world, operation.run_id)
    return world.runs if kind == "runs" else () if run is None else getattr(run, kind)


def with_rows(world: World, kind: str, operation: Any, rows: Rows) -> World:
    """The world with this list in its place."""
    if kind == "runs":
        return world._replace(runs=rows)
    run = find(world, operation.run_id)
    assert run is not None
    return put(world, run._replace(**{kind: rows}))  # type: ignore[arg-type]  # one field, by its name
