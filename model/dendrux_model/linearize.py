"""Linearizability: could one order of these calls explain every answer?

The search of Wing and Gong with Lowe's memo: try every call that no unfinished call precedes, keep the worlds that
agree, never expand the same set of finished calls from the same world twice. A search that runs out of budget is
UNKNOWN, which is never a pass.

Wing and Gong, "Testing and Verifying Concurrent Objects", 1993. Lowe, "Testing for linearizability", 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome
from dendrux_model.possible import Cut, Possible, explain

BUDGET = 20_000
"""Steps of the model that one search may take."""


class Call(NamedTuple):
    """One call of a history, with the real time it was open: from its invocation to its answer."""

    operation: Operation
    observed: Outcome
    invoked: int
    returned: int
    cut: Cut | None = None


class Verdict(NamedTuple):
    """`ok` with every world the history can end in, `violation` with none, or `unknown`."""

    result: Literal["ok", "violation", "unknown"]
    worlds: tuple[Possible, ...] = ()


def linearize(start: Sequence[Possible], history: Sequence[Call], instant: int, budget: int = BUDGET) -> Verdict:
    """Every world in which some order of the calls, consistent with real time, gives every observed outcome.

    Call number i of the history happens at model instant `instant + i`, whatever its place in the order, so that equal
    worlds reached by different orders are recognised.
    """
    everything = (1 << len(history)) - 1
    before = [sum(1 << j for j, other in enumerate(history) if other.returned < call.invoked) for call in history]
    seen: set[tuple[int, object]] = set()
    ends: list[Possible] = []
    open_states = [(0, possible) for possible in start]
    while open_states:
        done, possible = open_states.pop()
        mark = (done, (possible.world, frozenset(possible.clock.items())))
        if mark in seen:
            continue
        seen.add(mark)
        if done == everything:
            ends.append(possible)
            continue
        for i, call in enumerate(history):
            if done >> i & 1 or before[i] & ~done:
                continue
            if budget == 0:
                return Verdict("unknown")
            budget -= 1
            after = explain(possible, call.operation, call.observed, instant + i, call.cut)
            open_states.extend((done | 1 << i, world) for world in after)
    return Verdict("ok", tuple(ends)) if ends else Verdict("violation")
