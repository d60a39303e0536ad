"""Every database that is found certifies its built-in store: all contracts once, as a user would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from dendrux.testing.databases import Server, variable
from dialects.found import DATABASES, Database, Found

AT_ONCE = 2
"""Certifications that run side by side, in processes of their own."""
LONGEST_S = 1200

pytestmark = pytest.mark.slow


class Certified(NamedTuple):
    """What a certification said."""

    code: int
    out: str


class Certifications:
    """Runs of `dendrux certify`, all begun when the first is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.threads = ThreadPoolExecutor(AT_ONCE)
        self.begun: dict[str, Future[Certified]] = {}

    def begin(self, name: str, server: Server | None) -> None:
        """Certify the store of a database, the server of a database being known already."""
        if name not in self.begun:
            self.begun[name] = self.threads.submit(self.run, name, server)

    def run(self, name: str, server: Server | None) -> Certified:
        path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
        named = {} if server is None else {variable(name): server.url.render_as_string(hide_password=False)}
        done = subprocess.run(
            [sys.executable, "-m", "dendrux", "certify", name],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, **named},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        return Certified(done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def certifications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certifications]:
    made = Certifications(tmp_path_factory.mktemp("certified"))
    yield made
    made.threads.shutdown(cancel_futures=True)


def test_the_built_in_store_is_certified(
    database: Database, found: Found, certifications: Certifications, budget: str
) -> None:
    if database.name == "sqlite" and budget == "quick":
        pytest.skip("contract by contract in tests/unit/test_contracts_sqlite.py, and whole by `make certify`")
    for name in DATABASES:
        if name != "sqlite" and found.look(name) is None:
            certifications.begin(name, found.server(name))
    if database.name == "sqlite":
        certifications.begin("sqlite", None)
    code, out = certifications.begun[database.name].result()
    assert code == 0, out
    assert "\n  CERTIFIED" in out
