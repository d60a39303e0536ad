"""The stores of the zoo, noun by noun; those of servers come last. `base` says what they have in common."""

from __future__ import annotations

# isort: off
from zoo.stores import (  # noqa: F401  # imported to enter what they hold into ZOO
    declaration,
    runs,
    runs_checkpoint,
    claims,
    pauses,
    finish,
    leases,
    events,
    traces,
    tool_calls,
    usage,
    notes,
    blobs,
    listing,
    delegation,
    reads,
    live,
    live_paths,
    agent,
    machines,
    servers,
)
from zoo.stores.base import ZOO

__all__ = ["ZOO"]
