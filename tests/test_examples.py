"""The examples of this repository do what their READMEs say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BUDGETS = {"quick": ("--dendrux-examples=6",), "full": ()}
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_custom_store_is_certified(tmp_path: Path, budget: str) -> None:
    store = shutil.copytree(ROOT / "examples/custom_store", tmp_path / "custom_store")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "dendrux.testing.store_kit", *BUDGETS[budget]],
        cwd=store,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n  CERTIFIED" in done.stdout
