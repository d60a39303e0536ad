"""The kit's fixtures for ReferenceStore, as a pytest plugin: `-p dendrux.testing.reference`, or in pytest_plugins.

A project that gives `dendrux_reference_class`, a subclass of ReferenceStore, certifies that class instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dendrux.testing.in_memory import ReferenceClock, ReferenceFaultInjector, ReferenceStore


@pytest.fixture
def dendrux_reference_class() -> type[ReferenceStore]:
    """The class that the other fixtures make stores of."""
    return ReferenceStore


@pytest.fixture
def dendrux_clock() -> ReferenceClock:
    """A clock that moves forward, shared by all stores of a test."""
    return ReferenceClock()


@pytest.fixture
def dendrux_store_factory(
    dendrux_reference_class: type[ReferenceStore], dendrux_clock: ReferenceClock
) -> Callable[..., ReferenceStore]:
    """Makes a store over empty data."""

    def make(live_updates: Any = None) -> ReferenceStore:
        return dendrux_reference_class(clock=dendrux_clock, live_updates=live_updates)

    return make


@pytest.fixture
def dendrux_live_store_factory(dendrux_store_factory: Callable[..., ReferenceStore]) -> Callable[..., ReferenceStore]:
    """Makes a store over empty data that announces its changes."""
    return dendrux_store_factory


@pytest.fixture
def dendrux_store_reopen(
    dendrux_reference_class: type[ReferenceStore],
) -> Callable[[ReferenceStore], ReferenceStore]:
    """Makes the store of a restarted process, as far as data in memory have one."""
    return lambda store: dendrux_reference_class(data_of=store)


@pytest.fixture
def dendrux_store_second_instance(
    dendrux_store_reopen: Callable[[ReferenceStore], ReferenceStore],
) -> Callable[[ReferenceStore], ReferenceStore]:
    """Makes another store over the same data."""
    return dendrux_store_reopen


@pytest.fixture
def dendrux_fault_injector() -> Iterator[ReferenceFaultInjector]:
    """Cuts writes before and after the world is replaced."""
    injector = ReferenceFaultInjector()
    yield injector
    injector.close()
