"""Bounds of an agent: how large what it stores may be, and what a run may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Final, Literal

from dendrux.runtime.values import JsonObject, UsageRollup, UsageStats

WORST_BYTES: Final = 7
"""Bytes of a statement that one byte of text can take: U+0001 is six characters of JSON, one of them a backslash that a
client doubles when it writes the statement out."""

BESIDE: Final = 256 * 1024
"""Bytes of a statement beside its large text: names, keys, ids, a loop state of ordinary size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an agent stores at most in one piece, in bytes of UTF-8. What is larger is refused before it is stored."""

    max_input_bytes: int = 512 * 1024
    """The input of a run with its history, metadata and options."""
    max_response_bytes: int = 512 * 1024
    """One response of a model: its text with the arguments of its calls, and the vendor's answer kept beside it."""
    max_tool_result_bytes: int = 1024 * 1024
    """The result of one tool call, and all that is submitted to a paused run at once."""
    max_tool_calls_per_turn: int = 64
    max_parallel_tools: int = 8
    """Server tools of one turn that run at the same time."""
    max_note_bytes: int = 32 * 1024
    max_note_metadata_bytes: int = 8 * 1024
    max_pending_notes: int = 100
    conversation_page_bytes: int = 1024 * 1024
    """How much of a conversation is read at once when a run is taken up again."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ValueError(f"Limits.{field.name} must be an integer of 1 or more, not {value!r}")

    @property
    def largest_statement(self) -> int:
        """A worst-case estimate, in bytes, of the largest statement that these limits allow.

        A response is stored in one row with the vendor's answer, each bounded by `max_response_bytes`.
        """
        return BESIDE + WORST_BYTES * max(
            self.max_input_bytes, 2 * self.max_response_bytes, self.max_tool_result_bytes, self.max_note_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may use. Looked at after every response; acted on before the next one is asked for."""

    max_tokens: int | None = None
    max_cost_usd: Decimal | float | None = None
    warn_at: tuple[float, ...] = (0.5, 0.75, 0.9)
    """Parts of a maximum at which the log gets a `budget.threshold`."""
    on_exceed: Literal["warn", "pause", "cancel"] = "warn"
    include_children: bool = True
    """Whether runs that this one delegated to count."""

    def __post_init__(self) -> None:
        if self.max_tokens is None and self.max_cost_usd is None:
            raise ValueError("a Budget needs max_tokens or max_cost_usd")
        for name in ("max_tokens", "max_cost_usd"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Budget.{name} must be more than 0, not {value!r}")
        if not all(0 < part < 1 for part in self.warn_at):
            raise ValueError("Budget.warn_at holds parts between 0 and 1")
        if self.on_exceed not in ("warn", "pause", "cancel"):
            raise ValueError(f"Budget.on_exceed must be warn, pause or cancel, not {self.on_exceed!r}")

    def measured(self, used: UsageRollup) -> list[tuple[str, float, float]]:
        """Each limited metric as (name, used, maximum). A cost counts as far as it is known."""
        found: list[tuple[str, float, float]] = []
        if self.max_tokens is not None:
            found.append(("tokens", used.input_tokens + used.output_tokens, self.max_tokens))
        if self.max_cost_usd is not None:
            found.append(("cost_usd", used.known_cost_usd, float(self.max_cost_usd)))
        return found

    def crossed(self, used: UsageRollup) -> list[JsonObject]:
        """Every mark that this usage has reached, in a form that can be stored: each is told once in a run's life."""
        marks: list[JsonObject] = []
        for metric, value, maximum in self.measured(used):
            marks += [
                {"metric": metric, "fraction": part, "used": value, "max": maximum}
                for part in sorted(self.warn_at)
                if value >= part * maximum
            ]
            if value >= maximum:
                marks.append({"metric": metric, "fraction": 1.0, "used": value, "max": maximum})
        return marks

    def exceeded(self, used: UsageRollup) -> JsonObject | None:
        """The first metric that has reached its maximum; None while there is room."""
        for metric, value, maximum in self.measured(used):
            if value >= maximum:
                return {"metric": metric, "used": value, "max": maximum}
        return None


def rollup(usage: UsageStats, calls: int = 1) -> UsageRollup:
    """The usage of calls as a sum that budgets compare."""
    return UsageRollup(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
        known_cost_usd=0.0 if usage.cost_usd is None else float(usage.cost_usd),
        unpriced_calls=calls if usage.cost_usd is None else 0,
        llm_calls=calls,
    )


def added(total: UsageStats, more: UsageStats, *, first: bool) -> UsageStats:
    """The sum of two. A cost is known only when both are; `first` says that the total is of no call yet."""
    known = total.cost_usd is not None or first
    cost = (
        Decimal(str(total.cost_usd or 0)) + Decimal(str(more.cost_usd)) if known and more.cost_usd is not None else None
    )
    return UsageStats(
        input_tokens=total.input_tokens + more.input_tokens,
        output_tokens=total.output_tokens + more.output_tokens,
        total_tokens=total.total_tokens + (more.total_tokens or more.input_tokens + more.output_tokens),
        cost_usd=cost,
        cache_read_input_tokens=_sum(total.cache_read_input_tokens, more.cache_read_input_tokens),
        cache_creation_input_tokens=_sum(total.cache_creation_input_tokens, more.cache_creation_input_tokens),
        reasoning_tokens=_sum(total.reasoning_tokens, more.reasoning_tokens),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
