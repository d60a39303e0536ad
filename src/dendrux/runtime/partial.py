"""Stores of this release with some promises off: the same calls without what belongs to those promises.

Keywords that only protect a write (claim epochs, retry ids) are left out where their flag is off. Those that carry
content (seeds, a final trace, a mapping) are refused: leaving them out would lose it. Methods of a flag that is off are
not called, even if the store has them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, NoReturn

PROTECTING: Final[dict[str, frozenset[str]]] = {
    "fenced_writes": frozenset({"claim_epoch", "parent_claim_epoch"}),
    "retry_ids": frozenset({"trace_id", "row_id", "event_id", "usage_id"}),
    "checkpointing": frozenset({"outcome", "submission_id"}),
}
"""Keywords that a call may lose without losing content, by the flag that they belong to."""

CARRYING: Final[dict[tuple[str, str], str]] = {
    ("create_run", "seed_traces"): "checkpointing",
    ("create_run", "pii_mapping"): "checkpointing",
    ("save_trace", "trace_kind"): "checkpointing",
    ("complete_tool_call", "pii_mapping"): "checkpointing",
    ("finalize_with_event", "trace"): "atomic_completion",
}
"""Keywords with content, by method, and the flag that they belong to."""

PLAIN_KINDS: Final = frozenset({"seed", "message", "observation", "final"})
"""Kinds of traces that read the same without their kind. A rewrite does not: it stands for what is before it."""

NEEDS: Final[dict[str, str]] = {
    "checkpoint_step": "checkpointing",
    "consume_submission": "checkpointing",
    "get_loop_state": "checkpointing",
    "get_traces_after": "checkpointing",
    "conversation_traces": "checkpointing",
    "start_tool_call": "atomic_completion",
    "complete_tool_call": "atomic_completion",
    "mark_lease_expired": "recovery",
    "get_lease_expired": "recovery",
    "reclaim_run": "recovery",
    "get_replayed_tool_calls": "recovery",
}
"""Methods that are not called at all unless their flag is declared; then with their whole signature."""


class NotThere(NotImplementedError, AttributeError):
    """The store has no such method. Also an AttributeError, so that whoever only asks what a store has is answered."""


def missing(store: object, method: str) -> NoReturn:
    """Refuses: NotThere naming the store and the method."""
    raise NotThere(f"{type(store).__name__} has no {method}")


def names(method: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters that a method names; none where nobody can tell."""
    try:
        return inspect.signature(method).parameters
    except (TypeError, ValueError):
        return {}


def keep(method: str, keyword: str, value: Any, flag: str) -> None:
    """Refuses: ValueError for content that a store without this flag would lose."""
    if not value or (keyword == "trace_kind" and value in PLAIN_KINDS):
        return
    raise ValueError(f"{method}: {keyword} needs a store that declares {flag}")


class Partial:
    """A store of this release with some flags off: the same calls without what belongs to those flags."""

    def __init__(self, wrapped: Any, capabilities: Any) -> None:
        self.wrapped = wrapped
        self.capabilities = capabilities

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        flag = NEEDS.get(name)
        if flag is not None and not self._has(flag):
            missing(self.wrapped, f"{name}: it does not declare {flag}")
        found = getattr(self.wrapped, name)
        return self._narrowed(name, found) if callable(found) else found

    def _has(self, flag: str) -> bool:
        return bool(getattr(self.capabilities, flag, False))

    def _narrowed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        known = names(method)
        protecting = {word: flag for flag, words in PROTECTING.items() for word in words}

        @wraps(method)  # whoever reads the signature sees the store's own
        def call(*args: Any, **keywords: Any) -> Any:
            taken = {}
            for word, value in keywords.items():
                flag = CARRYING.get((name, word))
                if flag is not None and not self._has(flag):
                    keep(name, word, value, flag)
                    continue
                flag = None if name in NEEDS else protecting.get(word)
                if flag is not None and not (self._has(flag) and word in known):
                    continue
                taken[word] = value
            return method(*args, **taken)

        return call
