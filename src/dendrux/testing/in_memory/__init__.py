"""A store in memory: the model's operations behind the StateStore protocol, with a clock and cuts of its own."""

from dendrux.testing.in_memory.cuts import ReferenceFaultInjector
from dendrux.testing.in_memory.data import ReferenceClock
from dendrux.testing.in_memory.store import ReferenceStore

__all__ = ["ReferenceClock", "ReferenceFaultInjector", "ReferenceStore"]
