"""Every database that is found certifies its built-in store: all contracts once, as a user would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL

from dendrux.testing.databases import variable
from dialects.found import Database, Found

LONGEST_S = 1200
EXAMPLES = {"quick": ["--examples", "2", "--matrix", "sample"], "full": []}
"""Examples of each machine; the whole pair matrix runs on SQLite."""

pytestmark = pytest.mark.slow


def test_the_built_in_store_is_certified(database: Database, found: Found, budget: str, tmp_path: Path) -> None:
    if database.name == "sqlite" and budget == "quick":
        pytest.skip("contract by contract in tests/unit/test_contracts_sqlite.py, and whole by `make certify`")
    certify(database.name, None if database.name == "sqlite" else found.server(database.name).url, budget, tmp_path)


if os.environ.get("DENDRUX_BUDGET") == "full":

    def test_postgresql_is_certified_through_its_other_driver(found: Found, budget: str, tmp_path: Path) -> None:
        url = found.server("postgresql").url.set(drivername="postgresql+psycopg")
        certify("postgresql", url, budget, tmp_path)


def certify(name: str, url: URL | None, budget: str, tmp_path: Path) -> None:
    """The command as a user gives it, with the server where it is looked for."""
    named = {} if url is None else {variable(name): url.render_as_string(hide_password=False)}
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-m", "dendrux", "certify", name, *EXAMPLES[budget]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, **named},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n  CERTIFIED" in done.stdout
