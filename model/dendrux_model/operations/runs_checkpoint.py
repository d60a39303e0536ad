"""What one step of a loop produced, stored at once, and the loop's own state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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


def patched(state: Members | None, patch: dict[str, Any] | None) -> Members | None:
    """The loop state after a patch: members are set, those that are None go. An empty patch changes nothing."""
    if not patch:
        return state
    left = merged(state, members({key: value for key, value in patch.items() if value is not None}) or ())
    return tuple(member for member in left if patch.get(member[0], member) is not None)


def too_large(state: Members | None) -> bool:
    """Whether a loop state exceeds its bound."""
    text = object_text(state)
    return text is not None and len(text.text.encode()) > LOOP_STATE_MAX


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

    def step(self, world: World) -> Step:
        if too_large(patched(None, self.loop_state)):
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
        state = patched(run.loop_state, self.loop_state)
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
            updated_at=world.now,
        )
        return put(world, after), NONE

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
