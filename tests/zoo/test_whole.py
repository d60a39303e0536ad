"""A broken store certified as its author would: not certified, non-zero, and the named contract is on the list."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.stores import ZOO

TESTS = Path(__file__).resolve().parents[1]
FULL = os.environ.get("DENDRUX_BUDGET") == "full"
"""A quick run leaves the zoo to its named contracts: a whole certification of each store takes minutes."""


if FULL:

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ZOO)
    def test_a_broken_store_is_not_certified(name: str, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "dendrux", "certify", f"{ZOO[name].__module__}:{name}"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "\n  NOT CERTIFIED" in done.stdout
        assert f"\n    {ZOO[name].killed_by}" in done.stdout, done.stdout
