"""Content equality: the sha256 of what a caller stored, so that equal content is one comparison of one column."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

from dendrux.db.types import canonical
from dendrux.runtime.values import UsageStats
from dendrux.store.ids import MintedId


def content_digest(operation: str, **content: Any) -> str:
    """The digest of everything persisted that the caller passed.

    Object members are sorted, array order is kept, `1`, `1.0` and `true` differ, text counts exactly. The operation is
    part of it: the same id used by another operation is other content.
    """
    return hashlib.sha256(canonical([operation, _plain(content)]).encode()).hexdigest()


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    return {name: usage_columns(value) if isinstance(value, UsageStats) else value for name, value in content.items()}


def given(write: Any) -> dict[str, Any] | None:
    """What a caller gave of a row inside a larger write: an id that the store minted counts as left out."""
    if write is None:
        return None
    content = _plain({field.name: getattr(write, field.name) for field in fields(write)})
    return {name: None if isinstance(value, MintedId) else value for name, value in content.items()}


def usage_columns(usage: UsageStats) -> dict[str, Any]:
    """The persisted part of a UsageStats: `cost_source` is not, and the cost counts as it is rounded."""
    cost = usage.cost_usd  # rounded already
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cost_usd": None if cost is None else float(cost),
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
