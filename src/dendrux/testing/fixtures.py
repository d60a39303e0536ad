"""The kit's fixtures for a store that is named on the command line, as a pytest plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from dendrux.store import SQLStateStore
from dendrux.testing.store_kit.sql import SqlClock, SqlFaultInjector
from dendrux.testing.workshop import Engines, Workshop, in_memory, url_of


def fixtures_for(store_class: type[SQLStateStore], url: str | None, folder: Path) -> ModuleType:
    """A plugin with every fixture that this class on this database can have."""
    plugin = ModuleType("dendrux_certify_fixtures")
    engines = Engines(store_class, url_of(url), folder)

    @pytest_asyncio.fixture
    async def workshop() -> AsyncIterator[Workshop]:
        made = Workshop(engines)
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
