"""Projects of their own in which pytest runs the kit, mostly with a tiny catalogue."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from dendrux.testing.store_kit import plugin  # imported once, not once per project

INSTALLED = any(point.value == "_dendrux_pytest" for point in entry_points(group="pytest11"))
OPTIONS = () if INSTALLED else ("-p", "_dendrux_pytest")
"""What brings the options of the kit where dendrux is not installed."""

CONFTEST = """
import pytest
from kit import tiny
from dendrux.testing.store_kit import plugin

def pytest_sessionstart(session):
    small = {catalogue}
    plugin.catalogue = lambda: small

class Store(tiny.Fake):
    {body}

@pytest.fixture
def dendrux_store_factory():
    return lambda: Store({declared})
"""
FIXTURES = {
    "second": "@pytest.fixture\ndef dendrux_store_second_instance(): return lambda store: store\n",
    "reopen": "@pytest.fixture\ndef dendrux_store_reopen(): return lambda store: store\n",
    "clock": "@pytest.fixture\ndef dendrux_clock(): return tiny.Clock()\n",
    "injector": "@pytest.fixture\ndef dendrux_fault_injector(): return tiny.Injector()\n",
    "live": "@pytest.fixture\ndef dendrux_live_store_factory(): return lambda live: None\n",
}
EVERYTHING = tuple(FIXTURES)


class Project:
    """A folder with a conftest.py, in which the kit can be run."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path))
        pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    def conftest(
        self,
        declared: str = "",
        *,
        fixtures: tuple[str, ...] = EVERYTHING,
        catalogue: str = "tiny.TINY",
        body: str = "format = 1",
        more: str = "",
        folder: Path | None = None,
    ) -> None:
        """Write the conftest.py of a store with this declaration and these fixtures."""
        text = CONFTEST.format(declared=declared, catalogue=catalogue, body=body)
        path = (folder or self.pytester.path) / "conftest.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "".join(FIXTURES[name] for name in fixtures) + more)

    def certify(self, *arguments: str | Path) -> pytest.RunResult:
        """Run the kit here, switched on with -p."""
        return self.pytester.runpytest_inprocess(
            "--assert=plain", "-p", "dendrux.testing.store_kit", *map(str, arguments)
        )

    def run(self, *arguments: str | Path) -> pytest.RunResult:
        """Run pytest here as if dendrux were installed."""
        return self.pytester.runpytest_inprocess("--assert=plain", *OPTIONS, *map(str, arguments))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(plugin, "catalogue", plugin.catalogue)  # put back what the conftest.py of a project replaces
    return Project(pytester, monkeypatch)


def summary(result: pytest.RunResult) -> list[str]:
    """The lines of the summary."""
    lines = result.outlines
    start = next(i for i, line in enumerate(lines) if "dendrux store kit: certification summary" in line)
    kept = []
    for line in lines[start + 1 :]:
        if line.startswith(("=", "!")):
            break
        kept.append(line)
    return kept


def verdict(result: pytest.RunResult) -> str:
    """The last line of the summary."""
    return summary(result)[-1].strip()


def line(result: pytest.RunResult, group: str) -> str:
    """What the summary says of a group."""
    return next(text[19:].strip() for text in summary(result) if text.startswith(f"  {group} "))
