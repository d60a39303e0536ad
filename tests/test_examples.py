"""The examples of this repository do what their READMEs say."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BUDGETS = {"quick": ("--dendrux-examples=2", "--dendrux-matrix=sample"), "full": ()}
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


AGENTS = sorted(path.name for path in (ROOT / "examples/agents").glob("*.py"))


def test_there_are_five_agents_to_start_from() -> None:
    page = (ROOT / "examples/agents/README.md").read_text()
    assert len(AGENTS) == 5
    assert [name for name in AGENTS if f"| `{name}` |" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_prints_what_its_docstring_says(name: str, tmp_path: Path) -> None:
    program = ROOT / "examples/agents" / name
    said = ast.get_docstring(ast.parse(program.read_text())) or ""
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == textwrap.dedent(said.partition("Prints:\n")[2]) + "\n"
    assert done.stderr == ""
