"""The kit's fixtures for a store that is named on the command line, as a pytest plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector
from dendrux.testing.workshop import Engines, Workshop, in_memory


def fixtures_for(engines: Engines) -> ModuleType:
    """A plugin with every fixture that the class of these engines on their database can have."""
    plugin = ModuleType("dendrux_certify_fixtures")

    @pytest_asyncio.fixture(scope="session", loop_scope="session")
    async def shelf() -> AsyncIterator[Engines]:
        yield engines
        await engines.close()

    @pytest_asyncio.fixture
    async def workshop(shelf: Engines) -> AsyncIterator[Workshop]:
        made = Workshop(shelf)
        yield made
        await made.close()

    @pytest.fixture
    def dendrux_store_factory(workshop: Workshop) -> Callable[..., Any]:
        return workshop.fresh

    @pytest.fixture
    def dendrux_store_reopen(workshop: Workshop) -> Callable[..., Any]:
        return workshop.reopened

    @pytest.fixture
    def dendrux_store_second_instance(workshop: Workshop) -> Callable[..., Any]:
        return workshop.another

    @pytest.fixture
    def dendrux_clock(workshop: Workshop) -> SqlClock:
        return workshop.clock()

    @pytest.fixture
    def dendrux_fault_injector() -> Iterator[SqlFaultInjector]:
        injector = SqlFaultInjector()
        yield injector
        injector.close()

    found: dict[str, Any] = {
        "shelf": shelf,
        "workshop": workshop,
        "dendrux_store_factory": dendrux_store_factory,
        "dendrux_live_store_factory": dendrux_store_factory,
        "dendrux_store_reopen": dendrux_store_reopen,
        "dendrux_clock": dendrux_clock,
    }
    if not in_memory(engines.url):
        found["dendrux_store_second_instance"] = dendrux_store_second_instance
        found["dendrux_fault_injector"] = dendrux_fault_injector
    vars(plugin).update(found)
    return plugin
