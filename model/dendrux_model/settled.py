"""Worlds that nothing can tell apart any more, made equal.

Calls that overlap leave many worlds: which of them wrote last, and so gave a run its time; in which order rows came
that every read sorts by something else. Between two rounds none of that makes a difference, and without forgetting it
a long history of short rounds would have more worlds with every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome
from dendrux_model.possible import Possible, Worlds
from dendrux_model.world import Blob, Run, World


def settle(worlds: Worlds, since: int, seen: Sequence[tuple[Operation, Outcome]]) -> None:
    """Take all instants after `since` for one, as far as calls overwrite them, and learn its times from what was seen.

    Args:
        seen: reads of everything, made while nobody wrote, with their answers.
    """
    now = worlds.instant
    worlds.replace(
        Possible(
            settled(possible.world, since, now),
            {place: time for place, time in possible.clock.items() if place[1] <= since},
        )
        for possible in worlds.possible
    )
    for read, answer in seen:
        worlds.saw(read, answer)


def settled(world: World, since: int, now: int) -> World:
    """The world with the times that calls after `since` may have overwritten at one instant, and hidden orders gone."""

    def late(instant: int | None) -> Any:
        return now if instant is not None and instant > since else instant

    def run(one: Run) -> Run:
        return one._replace(
            progress_at=late(one.progress_at),
            updated_at=late(one.updated_at),
            paused_at=late(one.paused_at),
            lease_expired_at=late(one.lease_expired_at),
            traces=by_id(one.traces),
            usage=by_id(one.usage),
            interactions=by_id(one.interactions),
            blob_refs=tuple(sorted(one.blob_refs)),
        )

    def blob(one: Blob) -> Blob:
        return one._replace(put_at=late(one.put_at), purged_at=late(one.purged_at))

    return world._replace(
        runs=tuple(map(run, world.runs)), blobs=tuple(sorted(map(blob, world.blobs), key=lambda one: one[:2])), now=now
    )


def by_id(rows: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rows that no read shows in the order in which they came."""
    return tuple(sorted(rows, key=lambda row: (row.id or "", row.content)))
