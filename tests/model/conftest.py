"""Explorations are shared by the tests of a session: each small world is explored once."""

from __future__ import annotations

from functools import cache

import pytest

from dendrux_model.explore import Exploration, explore


@pytest.fixture(scope="session")
def explored():
    """The exploration of a small world by name."""

    @cache
    def whole(name: str) -> Exploration:
        return explore(name)

    return whole
