"""Tools for testing: a store in memory, a driver for programs of the model, fault injection, the certification kit."""

from dendrux.testing.in_memory import ReferenceClock, ReferenceFaultInjector, ReferenceStore

__all__ = ["ReferenceClock", "ReferenceFaultInjector", "ReferenceStore"]
