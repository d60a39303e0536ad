"""Two calls at once on two instances: the first waits before one of its statements while the second runs."""

from __future__ import annotations

from typing import Final

from dendrux.testing.store_kit.contract import contract
from dendrux_model.operations import Operation
from dendrux_model.programs import Do, Program, Step, Together

PLACES: Final = range(4)
"""The statements before which the first call waits; most operations send fewer."""


def race(
    id: str,
    promise: str,
    first: Operation,
    second: Operation,
    *,
    before: Program,
    after: tuple[Step, ...] = (),
    cause: str,
    both_ways: bool = False,
) -> None:
    """Add a contract per place in the first call; `both_ways`: also with the second call as the one that waits.

    Any answers are right that some order of the calls gives, and then what `after` and the view show of that order.
    """
    for place in PLACES:
        for name, one, other in (("", first, second), ("_swapped", second, first)):
            if name and not both_ways:
                continue
            contract(
                f"concurrency.{id}{name}_at_{place}",
                promise,
                *before,
                Together((Do(one, 0, yield_at=place), Do(other, 1))),
                *after,
                group="concurrency",
                cause=cause,
            )
