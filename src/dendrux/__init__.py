"""dendrux: durable state of agent runs, with correctness that is demonstrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.6.0"

if TYPE_CHECKING:
    from dendrux.runtime.recovery import reclaim, sweep

_PLACES = {
    "reclaim": "dendrux.runtime.recovery",
    "sweep": "dendrux.runtime.recovery",
}
"""Where the names of this package come from. They are imported when they are asked for: a store needs none of them."""

__all__ = ["__version__", "reclaim", "sweep"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
