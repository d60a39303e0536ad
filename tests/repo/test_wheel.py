"""What is published works: the wheel alone, in an environment of its own, certifies a custom store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from repo.nouns import NOUNS, ROOT

pytestmark = pytest.mark.slow
FULL = os.environ.get("DENDRUX_BUDGET") == "full"
"""A quick run leaves the built-in store to tests/unit/test_contracts_sqlite.py."""


def run(*command: str | Path, cwd: Path, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = target.glob("dendrux-0.6.0-*.whl")
    return path


def test_the_wheel_holds_three_packages_and_the_bootstrap(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {
        "dendrux",
        "dendrux_model",
        "dendrux_migrations",
        "_dendrux_pytest.py",
        "dendrux-0.6.0.dist-info",
    }
    assert {"dendrux/py.typed", "dendrux_model/py.typed"} <= set(names)
    assert {f"dendrux/testing/store_kit/contracts/{noun}.py" for noun in NOUNS} <= set(names)


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment that holds the wheel, its extra `testkit`, and nothing of this checkout."""
    home = tmp_path_factory.mktemp("env")
    venv.create(home, with_pip=True, symlinks=True)
    done = run(home / "bin/python", "-m", "pip", "install", "--quiet", f"{wheel}[testkit]", cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    where = run(home / "bin/python", "-c", "import dendrux; print(dendrux.__file__)", cwd=home)
    assert Path(where.stdout.strip()).is_relative_to(home)
    return home / "bin"


if FULL:

    def test_the_installed_wheel_certifies_the_built_in_store(binaries: Path, tmp_path: Path) -> None:
        done = run(binaries / "dendrux", "certify", "sqlite", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "\n  CERTIFIED" in done.stdout


def test_the_installed_wheel_finds_the_fixtures_of_a_custom_store(binaries: Path, tmp_path: Path) -> None:
    store = shutil.copytree(ROOT / "examples/custom_store", tmp_path / "store")
    done = run(binaries / "pytest", "-p", "dendrux.testing.store_kit", "-k", "declaration or save_trace", cwd=store)
    assert "\nLedgerStore (deployment=single_host" in done.stdout, done.stdout + done.stderr
    assert "NOT CERTIFIED (incomplete run)" in done.stdout
    assert " failed" not in done.stdout
    assert done.returncode != 0
