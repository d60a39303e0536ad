"""Budgets of the whole suite, and the databases it runs on.

DENDRUX_BUDGET is `quick` (the default) or `full` (`make full`). DENDRUX_TEST_<NAME>_URL names a server;
DENDRUX_TEST_REQUIRE lists the servers without which nothing is run.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dendrux.store.factory import BUILT_IN
from dendrux.testing.databases import NotFound
from dialects.found import DATABASES, Database, Found, required
from zoo.red import KillMatrix

BUDGET = os.environ.get("DENDRUX_BUDGET", "quick")

_COMMON = settings(
    deadline=None,  # a step may wait for a lock
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.register_profile("quick", _COMMON, derandomize=True)
settings.register_profile("full", _COMMON, max_examples=2000)


def pytest_configure(config: pytest.Config) -> None:
    if BUDGET not in {"quick", "full"}:
        raise pytest.UsageError(f"DENDRUX_BUDGET={BUDGET!r}: known are quick and full")
    settings.load_profile(BUDGET)
    config.pluginmanager.register(KillMatrix())


FOUND = Found()


def pytest_sessionstart() -> None:
    """Without what is required, no test of this session would mean anything."""
    try:
        missing = FOUND.missing(required())
    except ValueError as wrong:
        raise pytest.UsageError(str(wrong)) from None
    if missing:
        raise pytest.UsageError("\n".join(missing))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the session that reports what it did not find."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not_found"] = list(FOUND.report())


NOT_FOUND: set[str] = set()
"""What workers did not find."""


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    NOT_FOUND.update(getattr(node, "workeroutput", {}).get("not_found", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what was looked for and not found: tests that say `database` were skipped there."""
    lines = sorted(NOT_FOUND.union(FOUND.report()))
    if lines:
        terminalreporter.write_sep("=", "databases that were not found")
    for line in lines:
        terminalreporter.write_line(line)


def pytest_unconfigure() -> None:
    FOUND.close()


@pytest.fixture(scope="session")
def found() -> Found:
    """The servers of this session."""
    return FOUND


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Database:
    """Each database in turn, with its built-in store; those only that the test's marks allow."""
    names = {name for mark in request.node.iter_markers("only") for name in mark.args}
    if names and request.param not in names:
        pytest.skip(f"speaks to {' and '.join(sorted(names))} in its own words")
    traits = {trait for mark in request.node.iter_markers("requires") for trait in mark.args}
    if lacking := sorted(trait for trait in traits if not getattr(BUILT_IN[request.param], trait)):
        pytest.skip(f"{request.param}: no {', '.join(lacking)}")
    try:
        return FOUND.database(request.param)
    except NotFound:
        pytest.skip(f"{request.param} was not found: the end of the report says where it was looked for")


@pytest.fixture(scope="session")
def budget() -> str:
    """`quick` or `full`: tests scale their numbers by it."""
    return BUDGET
