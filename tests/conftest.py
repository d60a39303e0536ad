"""Budgets of the whole suite: DENDRUX_BUDGET is `quick` (the default) or `full` (`make full`)."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

BUDGET = os.environ.get("DENDRUX_BUDGET", "quick")

_COMMON = settings(
    deadline=None,  # a step may wait for a lock
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.register_profile("quick", _COMMON, derandomize=True)
settings.register_profile("full", _COMMON, max_examples=2000)


def pytest_configure() -> None:
    if BUDGET not in {"quick", "full"}:
        raise pytest.UsageError(f"DENDRUX_BUDGET={BUDGET!r}: known are quick and full")
    settings.load_profile(BUDGET)


@pytest.fixture(scope="session")
def budget() -> str:
    """`quick` or `full`: tests scale their numbers by it."""
    return BUDGET
