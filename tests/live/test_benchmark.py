"""The benchmark runs, with small numbers; what it measures is nobody's assertion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_benchmark_runs(postgres_url, found):
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    server = found.server("postgresql").url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "live.py", "--quick"],
        env={**os.environ, "PYTHONPATH": path, "DENDRUX_TEST_POSTGRESQL_URL": server},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("times as long at the median", "a write takes", "a follower that shares costs"):
        assert words in done.stdout
