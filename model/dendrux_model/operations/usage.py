"""What model calls cost: usage rows and full interactions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from dendrux.runtime.values import LLMInteractionWrite, UsageStats, UsageWrite
from dendrux_model import rules
from dendrux_model.operations.base import Operation, Step
from dendrux_model.outcomes import Returned
from dendrux_model.values import json_text, persisted_usage, rows
from dendrux_model.world import Interaction, Usage, World, find


@dataclass(frozen=True, kw_only=True)
class SaveUsage(Operation, lost_ack="identity", identity="usage_id"):
    """Store one usage row. No read of the protocol shows it."""

    run_id: str
    iteration_index: int
    usage: UsageStats
    model: str | None = None
    provider: str | None = None
    duration_ms: int | None = None
    meta: dict[str, Any] | None = None
    usage_id: str | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        return rules.append(world, self, "usage", Usage(self.usage_id, self.content))


@dataclass(frozen=True, kw_only=True)
class SaveLLMInteraction(Operation, lost_ack="identity", identity="interaction_id"):
    """Store one call of a model, as asked and as answered."""

    run_id: str
    iteration_index: int
    usage: UsageStats
    model: str | None = None
    provider: str | None = None
    duration_ms: int | None = None
    semantic_request: dict[str, Any] | None = None
    semantic_response: dict[str, Any] | None = None
    provider_request: dict[str, Any] | None = None
    provider_response: dict[str, Any] | None = None
    guardrail_findings: dict[str, Any] | None = None
    interaction_id: str | None = None
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        return rules.append(world, self, "interactions", self.row)

    @cached_property
    def row(self) -> Interaction:
        """What is stored."""
        shown = {
            "model": self.model,
            "provider": self.provider,
            "duration_ms": self.duration_ms,
            "semantic_request": json_text(self.semantic_request),
            "semantic_response": json_text(self.semantic_response),
            "provider_request": json_text(self.provider_request),
            "provider_response": json_text(self.provider_response),
            "guardrail_findings": json_text(self.guardrail_findings),
            **persisted_usage(self.usage),
        }
        return Interaction(self.interaction_id, self.content, self.iteration_index, tuple(shown.items()))


def usage_row(write: UsageWrite) -> Usage:
    """The row that another operation stores together with its own change, equal to the one of save_usage."""
    given = {f.name: getattr(write, f.name) for f in fields(write)}
    return Usage(write.usage_id, SaveUsage(run_id="", **given).content)


def interaction_row(write: LLMInteractionWrite) -> Interaction:
    """The row that another operation stores together with its own change, equal to the one of save_llm_interaction."""
    return SaveLLMInteraction(run_id="", **{f.name: getattr(write, f.name) for f in fields(write)}).row


@dataclass(frozen=True, kw_only=True)
class GetLLMInteractions(Operation, lost_ack="read"):
    """Read the model calls of a run by iteration."""

    run_id: str
    iteration_index: int | None = None
    limit: int = 1000
    offset: int = 0

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        found = [
            (row.id, {"iteration_index": row.iteration_index, **dict(row.shown)})
            for row in sorted(run.interactions if run else (), key=lambda row: (row.iteration_index, row.id or ""))
            if self.iteration_index is None or row.iteration_index == self.iteration_index
        ]
        return world, Returned(rows(found, self.offset, self.limit))
