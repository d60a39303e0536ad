"""The log of a run: events with gapless indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dendrux.runtime.values import EventWrite
from dendrux.vocabulary import RESERVED_EVENTS
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import INVALID, Returned
from dendrux_model.values import MINTED, json_text
from dendrux_model.world import Event, Run, World, find


def event_row(write: EventWrite, content: str, event_id: str | None) -> Event:
    """What an operation stores that writes an event together with something else."""
    data = json_text(write.data)
    return Event(event_id, content, write.event_type, write.iteration_index, write.correlation_id, data)


@dataclass(frozen=True, kw_only=True)
class SaveRunEvent(Operation, lost_ack="identity", identity="event_id"):
    """Append an event; it takes the next index inside its own insert."""

    run_id: str
    event_type: str
    iteration_index: int = 0
    correlation_id: str | None = None
    data: dict[str, Any] | None = None
    event_id: str | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is not None and run.format == 2 and self.event_type in RESERVED_EVENTS:
            return world, INVALID
        return rules.append(world, self, "events", self.row, final=True)

    @cached_property
    def row(self) -> Event:
        """What is stored."""
        data = json_text(self.data)
        return Event(self.event_id, self.content, self.event_type, self.iteration_index, self.correlation_id, data)


@dataclass(frozen=True, kw_only=True)
class GetRunEvents(Operation, lost_ack="read"):
    """Read the log in order, from a cursor on."""

    run_id: str
    after_sequence_index: int | None = None
    limit: int = 1000
    event_types: Sequence[str] | None = None

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, Returned([])
        after = -1 if self.after_sequence_index is None else self.after_sequence_index
        return world, Returned(shown(run, after, self.event_types)[: self.limit])


def shown(run: Run, after: int, event_types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The log of a run above an index, as its records show it."""
    return [
        {
            "id": event.id or MINTED,
            "sequence_index": index,
            "event_type": event.event_type,
            "iteration_index": event.iteration_index,
            "correlation_id": event.correlation_id,
            "data": event.data,
        }
        for index, event in enumerate(run.events)
        if index > after and (event_types is None or event.event_type in event_types)
    ]


@dataclass(frozen=True, kw_only=True)
class GetEventsForRuns(Operation, lost_ack="read"):
    """Read on in several logs at once; a run without new events is absent."""

    heads: Mapping[str, int]
    limit_per_run: int = 100

    def step(self, world: World) -> Step:
        found = {run.id: shown(run, self.heads[run.id]) for run in world.runs if run.id in self.heads}
        return world, Returned({run_id: page[: self.limit_per_run] for run_id, page in found.items() if page})
