"""A broken store certified as its author would: not certified, non-zero, and the named contract is on the list."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dialects.found import Found
from zoo import matrix
from zoo.stores import ZOO

TESTS = Path(__file__).resolve().parents[1]
FULL = os.environ.get("DENDRUX_BUDGET") == "full"
"""A quick run leaves the zoo to its named contracts: a whole certification of each store takes minutes."""
EVERY = 5
"""One store of so many is certified whole: those that follow each other in the zoo are broken in the same noun."""
SAMPLE = list(ZOO)[::EVERY]


if FULL:

    @pytest.mark.slow
    @pytest.mark.parametrize("name", SAMPLE)
    def test_a_broken_store_is_not_certified(
        name: str, found: Found, tmp_path: Path, record_property: Callable[[str, object], None]
    ) -> None:
        broken = ZOO[name]
        database = matrix.database(found, broken.database)
        url = [] if database.url is None else ["--url", database.url.render_as_string(hide_password=False)]
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "dendrux", "certify", f"{broken.__module__}:{name}", *url],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        record_property("certification_s", round(time.monotonic() - begun))
        assert done.returncode == 1, done.stdout + done.stderr
        assert "\n  NOT CERTIFIED" in done.stdout
        assert f"\n    {broken.killed_by}" in done.stdout, done.stdout
        lines = done.stdout.splitlines()
        record_property("killed_by", " ".join(line.strip() for line in lines if line.strip() in matrix.contracts()))
