"""What one step of a loop produced, stored at once, and the loop's own state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from dendrux.runtime.values import LLMInteractionWrite, TraceWrite, UsageStats, UsageWrite
from dendrux.vocabulary import LOOP_STATE_MAX
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.operations.pauses import totals
from dendrux_model.operations.traces import trace_rows
from dendrux_model.operations.usage import interaction_row, usage_row
from dendrux_model.outcomes import CONFLICT, INVALID, NONE, NOT_FOUND, Returned
from dendrux_model.values import members, merged, object_text
from dendrux_model.world import LastStep, Members, World, find, put

Patch = tuple[Members, frozenset[str]]
"""What a step changes of the loop state: members it sets, and keys it deletes."""


def patched(state: Members | None, patch: Patch) -> Members | None:
    """The loop state after a patch. An empty patch changes nothing."""
    settled, gone = patch
    if not settled and not gone:
        return state
    return tuple(member for member in merged(state, settled) if member[0] not in gone)


def too_large(state: Members | None) -> bool:
    """Whether a loop state exceeds its bound."""
    if state is None:
        return False
    size = sum(len(json.dumps(key, ensure_ascii=False).encode()) + 1 + encoded(value.text) for key, value in state)
    return 2 + size + max(0, len(state) - 1) > LOOP_STATE_MAX


@lru_cache(maxsize=256)
def encoded(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode())


@dataclass(frozen=True, kw_only=True)
class CheckpointStep(Operation, lost_ack="identity", identity="step_id"):
    """Format 2: store a step of the loop as a whole. The run remembers the last one, so that it can be repeated."""

    run_id: str
    step_id: str
    claim_epoch: int
    iteration_count: int
    loop_state: dict[str, Any] | None = None
    traces: tuple[TraceWrite, ...] = ()
    interaction: LLMInteractionWrite | None = None
    usage: UsageWrite | None = None
    total_usage: UsageStats | None = None

    fence_first = True
    identity_of_run = True

    def step(self, world: World) -> Step:
        if too_large(patched(None, self.patch)):
            return world, INVALID
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if run.format == 1:
            return world, INVALID
        refusal = rules.refused(run, self.claim_epoch, final=True)
        if refusal is not None:
            return world, refusal
        if run.last_step is not None and run.last_step.id == self.step_id:
            return world, NONE if run.last_step.content == self.content else CONFLICT
        if self.iteration_count < run.iteration_count:
            return world, CONFLICT
        state = patched(run.loop_state, self.patch)
        if too_large(state):
            return world, INVALID
        if not rules.free(world, run, self.rows):
            return world, CONFLICT
        after = rules.with_rows(run, self.rows)._replace(
            iteration_count=self.iteration_count,
            totals=totals(run.totals, self.total_usage),
            loop_state=state,
            last_step=LastStep(self.step_id, self.content),
            progress_at=world.now,
            lease_expired_at=None,
            updated_at=world.now,
        )
        return put(world, after), NONE

    @cached_property
    def patch(self) -> Patch:
        """What the step changes of the loop state."""
        given = self.loop_state or {}
        settled = members({key: value for key, value in given.items() if value is not None}) or ()
        return settled, frozenset(key for key, value in given.items() if value is None)

    @cached_property
    def rows(self) -> Mapping[str, tuple[Any, ...]]:
        """The rows that the step stores."""
        return {
            "traces": trace_rows(self.traces),
            "interactions": () if self.interaction is None else (interaction_row(self.interaction),),
            "usage": () if self.usage is None else (usage_row(self.usage),),
        }


@dataclass(frozen=True, kw_only=True)
class GetLoopState(Operation, lost_ack="read"):
    """Read the loop's own state; None where no step stored any."""

    run_id: str

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        return world, Returned(object_text(run.loop_state) if run else None)
