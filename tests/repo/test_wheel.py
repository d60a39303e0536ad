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


def run(*command: str | Path, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
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


def test_the_wheel_in_a_fresh_environment_certifies_a_custom_store(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=True, symlinks=True)
    binaries = home / "bin"
    done = run(binaries / "python", "-m", "pip", "install", "--quiet", f"{wheel}[testkit]", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

    store = shutil.copytree(ROOT / "examples/custom_store", tmp_path / "store")
    where = run(binaries / "python", "-c", "import dendrux; print(dendrux.__file__)", cwd=store)
    assert Path(where.stdout.strip()).is_relative_to(home)

    done = run(binaries / "pytest", "-p", "dendrux.testing.store_kit", cwd=store)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n  CERTIFIED" in done.stdout
