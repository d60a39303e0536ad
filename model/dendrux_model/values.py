"""Plain data: how values look when the model and a store are compared.

Everything an operation answers is None, a bool, an int, a str, a JsonText, an At, a MINTED, or a list or dict of those.
JSON documents are compared as text, so that `1`, `1.0` and `true`, and the order of members, are seen.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final, NamedTuple

from dendrux.runtime.values import UsageStats


class JsonText(NamedTuple):
    """A JSON document, compared by its compact text."""

    text: str

    def __repr__(self) -> str:
        return self.text


class At(NamedTuple):
    """An instant of the model's clock. A store's clock agrees when equal instants have equal times."""

    instant: int

    def __repr__(self) -> str:
        return f"t{self.instant}"


class Minted(NamedTuple):
    """A value the store chooses: any non-empty string agrees."""

    def __repr__(self) -> str:
        return "(minted)"


MINTED: Final = Minted()


def json_text(document: Any) -> JsonText | None:
    """The compared form of a JSON document; None stays None."""
    if document is None:
        return None
    return JsonText(json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def members(document: dict[str, Any] | None) -> tuple[tuple[str, JsonText], ...] | None:
    """A JSON object as its members in order; None stays None."""
    if document is None:
        return None
    return tuple((key, json_text(value) or JsonText("null")) for key, value in document.items())


def merged(
    base: tuple[tuple[str, JsonText], ...] | None, patch: tuple[tuple[str, JsonText], ...]
) -> tuple[tuple[str, JsonText], ...]:
    """`patch` laid over `base` by top-level member: known members keep their place, new ones follow."""
    return tuple((dict(base or ()) | dict(patch)).items())


def object_text(document: tuple[tuple[str, JsonText], ...] | None) -> JsonText | None:
    """The compared form of a JSON object held as members."""
    if document is None:
        return None
    return JsonText(
        "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{value.text}" for key, value in document) + "}"
    )


class Unordered(list[Any]):
    """Rows whose order nobody promised, because the store minted what they are sorted by."""


def rows(found: list[tuple[str | None, dict[str, Any]]], offset: int, limit: int) -> list[Any]:
    """A page of rows with their ids; unordered when the store minted an id, which then ends the sort key."""
    page = [{"id": row_id or MINTED, **shown} for row_id, shown in found][offset : offset + limit]
    return Unordered(page) if any(row_id is None for row_id, _ in found) else page


def persisted_usage(usage: UsageStats) -> dict[str, Any]:
    """The part of a UsageStats that is stored: its tokens, and the cost after rounding."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cost_usd": money(usage.cost_usd),
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def decoded(payload: str) -> Any:
    """The JSON value of a tool's result; text that is not JSON, or cannot be stored, is kept as `{"raw": text}`."""
    try:
        value = json.loads(payload)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {"raw": payload}
    return value


def content_key(*parts: Any) -> str:
    """Equal for equal content only: member order does not count, the types of numbers do."""

    def plain(value: Any) -> Any:
        if isinstance(value, UsageStats):
            return persisted_usage(value)
        return {f.name: getattr(value, f.name) for f in fields(value)} if is_dataclass(value) else repr(value)

    return json.dumps(parts, sort_keys=True, separators=(",", ":"), default=plain)


def money(amount: Decimal | float | None) -> float | None:
    """US dollars as stored: six decimal places, half even."""
    if amount is None:
        return None
    return float(Decimal(str(amount)).quantize(Decimal("0.000001"), rounding=ROUND_HALF_EVEN) + 0)
