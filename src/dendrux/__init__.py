"""dendrux: durable state of agent runs, with correctness that is demonstrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.6.0"

if TYPE_CHECKING:
    from dendrux.runtime.agent import Agent, run
    from dendrux.runtime.limits import Budget, Limits
    from dendrux.runtime.recovery import reclaim, sweep
    from dendrux.runtime.tools import tool

_PLACES = {
    "Agent": "dendrux.runtime.agent",
    "Budget": "dendrux.runtime.limits",
    "Limits": "dendrux.runtime.limits",
    "reclaim": "dendrux.runtime.recovery",
    "run": "dendrux.runtime.agent",
    "sweep": "dendrux.runtime.recovery",
    "tool": "dendrux.runtime.tools",
}
"""Where the names of this package come from. They are imported when they are asked for: a store needs no agent."""

__all__ = ["Agent", "Budget", "Limits", "__version__", "reclaim", "run", "sweep", "tool"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
