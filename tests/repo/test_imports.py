"""Who may import whom."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from repo.nouns import ROOT


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_import_contracts_hold() -> None:
    done = run(Path(sys.executable).with_name("lint-imports"), "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_model_is_kept_from_every_package_but_the_shared_words() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (model,) = [contract for contract in contracts if contract["id"] == "model-is-independent"]
    packages = {f"dendrux.{path.parent.name}" for path in (ROOT / "src/dendrux").glob("*/__init__.py")}
    assert packages - {"dendrux.runtime"} <= set(model["forbidden_modules"])


def test_the_bootstrap_of_pytest_imports_nothing_of_dendrux() -> None:
    names = "{name for name in sys.modules if name.split('.')[0] in {'dendrux', 'dendrux_model', 'sqlalchemy'}}"
    done = run(sys.executable, "-c", f"import sys, _dendrux_pytest; print({names})")
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


def test_a_store_at_work_imports_neither_kit_nor_model() -> None:
    names = "{name for name in sys.modules if name.startswith(('dendrux.testing', 'dendrux_model', 'hypothesis'))}"
    done = run(sys.executable, "-c", f"import sys, dendrux.store, dendrux.db.session; print({names})")
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


FIRST = """
import importlib, sys
for name in ("plugin", "catalogue", "causes", "certificate", "checking", "report", "sql"):
    for known in [known for known in sys.modules if known.partition(".")[0] == "dendrux"]:
        del sys.modules[known]
    importlib.import_module(f"dendrux.testing.store_kit.{name}")
"""
"""Whatever of the kit others import, each before anything else of it."""


def test_the_kit_can_be_entered_anywhere() -> None:
    """Its modules enter what they hold into a catalogue, so a circle shows only to whoever begins within it."""
    done = run(sys.executable, "-c", FIRST)
    assert done.returncode == 0, done.stderr
