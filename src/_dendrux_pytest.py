"""What pytest loads wherever dendrux is installed: the options of the kit, and the switch that loads the kit itself.

It imports nothing of dendrux until the kit is switched on, so that other pytest sessions pay nothing for it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

KIT = "dendrux.testing.store_kit"
"""Named with -p, this package switches the kit on."""
SESSION = "dendrux-store-kit-session"
"""The name under which the kit of a session is registered."""
NEEDED = {"pytest-asyncio": "pytest_asyncio", "hypothesis": "hypothesis"}
"""What the kit needs beside pytest, with the modules that show whether it is there."""
ASYNCIO = ("asyncio", "pytest_asyncio", "pytest_asyncio.plugin")
"""Names under which pytest-asyncio may be loaded."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and the setting. Adding them twice, once installed and once with -p, changes nothing."""
    group = parser.getgroup("dendrux", "dendrux store kit")
    try:
        group.addoption(
            "--dendrux-store-kit", action="store_true", help="certify the store that the fixtures of a conftest.py make"
        )
    except ValueError:
        return
    parser.addini("dendrux_store_kit", "certify the store that the dendrux fixtures make", type="bool", default=False)
    group.addoption("--dendrux-examples", type=int, metavar="N", help="examples of each machine of the store kit")
    group.addoption("--dendrux-seed", type=int, metavar="N", help="seed of the machines of the store kit")
    group.addoption(
        "--dendrux-certificate",
        metavar="FILE",
        help="write what the store kit found to this file, as JSON, and as a page beside it",
    )
    group.addoption(
        "--dendrux-matrix",
        choices=("sample", "cover", "all"),
        default="cover",
        help="cells of the pair matrix: one state for each pair of operations, all, or a third of them",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the kit when it is switched on: last, so that it has the last word on which tests are selected."""
    if not switched_on(config) or config.pluginmanager.has_plugin(SESSION):
        return
    refuse_what_cannot_work(config)
    from dendrux.testing.store_kit.plugin import Kit

    config.pluginmanager.register(Kit(config), SESSION)


def switched_on(config: pytest.Config) -> bool:
    """Whether this session certifies: being installed, or listed in pytest_plugins, is not enough."""
    named: list[str] = config.getoption("plugins", default=None) or []
    return bool(
        KIT in named or config.getoption("--dendrux-store-kit", default=False) or config.getini("dendrux_store_kit")
    )


def refuse_what_cannot_work(config: pytest.Config) -> None:
    """Stop with one sentence when something is missing, or runs that the kit cannot judge."""
    missing = [name for name, module in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise pytest.UsageError(
            f'the dendrux store kit needs {" and ".join(missing)}: pip install "dendrux[testkit]" brings what it needs'
        )
    if not any(config.pluginmanager.has_plugin(name) for name in ASYNCIO):
        raise pytest.UsageError(
            "the dendrux store kit needs pytest-asyncio, which is installed (by dendrux[testkit]) but not loaded: "
            "add -p pytest_asyncio"
        )
    if distributed(config):
        raise pytest.UsageError(
            "the dendrux store kit does not run on several workers, because its verdict is about one complete run: "
            "leave out -n, or add -p no:xdist"
        )


def distributed(config: Any) -> bool:
    """Whether pytest-xdist hands tests to workers, or this is such a worker."""
    return bool(
        hasattr(config, "workerinput")
        or config.getoption("numprocesses", default=None)
        or config.getoption("dist", default="no") != "no"
        or config.getoption("tx", default=None)
    )
