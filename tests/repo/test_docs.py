"""The documentation names everything that is public, runs, and builds."""

from __future__ import annotations

import argparse
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dendrux import cli, errors
from dendrux.runtime.state import StateStore
from dendrux.store import SQLStateStore
from dendrux.store.binding import Operation
from repo.nouns import NOUNS, PLACES, ROOT

LIFECYCLE = {"close"}
"""Public methods that are no operation on a run."""

OPERATIONS = {name for name, value in vars(SQLStateStore).items() if isinstance(value, Operation)}


def headings(path: Path, level: int) -> set[str]:
    return set(re.findall(rf"^{'#' * level} (\w+)$", path.read_text(), re.MULTILINE))


def pages_of(operation: str) -> list[str]:
    return [noun for noun in NOUNS if operation in headings(ROOT / PLACES["documentation"].format(noun=noun), 2)]


def test_the_store_has_every_method_of_the_protocol() -> None:
    methods = {name for name in vars(StateStore) if not name.startswith("_")}
    assert methods - OPERATIONS == LIFECYCLE


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_every_operation_has_a_heading_on_the_page_of_its_noun(operation: str) -> None:
    page = PLACES["documentation"].format(noun="<noun>")
    pages = pages_of(operation)
    assert len(pages) == 1, f"{page}:1: error: `## {operation}` is on {pages or 'no page'}; it belongs on one"
    sources = [noun for noun in NOUNS if _defines(ROOT / PLACES["SQL"].format(noun=noun), operation)]
    assert sources == pages, f"{operation}: SQL in ops/{sources}, documentation on {pages}"


def _defines(path: Path, function: str) -> bool:
    return path.exists() and re.search(rf"^async def {function}\b", path.read_text(), re.MULTILINE) is not None


def test_no_page_describes_an_operation_that_does_not_exist() -> None:
    described = set().union(*(headings(ROOT / PLACES["documentation"].format(noun=noun), 2) for noun in NOUNS))
    assert described == OPERATIONS


def test_every_error_has_a_heading_and_its_code() -> None:
    page = ROOT / "docs/reference/errors.md"
    classes = {
        name: value for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert headings(page, 2) == set(classes)
    for name, value in classes.items():
        section = page.read_text().partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert f"`{value.code}`" in section, f"docs/reference/errors.md: error: {name} without its code {value.code}"


def public_hooks() -> set[str]:
    """Methods that a subclass may override: everything public of SQLStateStore that is no operation."""
    names = {name for name in dir(SQLStateStore) if not name.startswith("_")}
    return {name for name in names if inspect.isfunction(inspect.getattr_static(SQLStateStore, name))} - LIFECYCLE


def test_every_hook_has_a_heading() -> None:
    assert headings(ROOT / "docs/reference/hooks.md", 3) == public_hooks()


def test_every_command_and_option_is_described() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    commands = next(action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        assert f"## dendrux {name}" in page
        options = {option for action in command._actions for option in action.option_strings} - {"-h", "--help"}
        assert [option for option in sorted(options) if f"`{option}" not in page and f" {option} " not in page] == []


def test_the_readme_example_prints_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (program,) = [text for language, text in blocks if language == "python"]
    (printed,) = [text for language, text in blocks if language == "text"]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


def test_the_tests_on_the_page_of_the_reference_store_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/use-the-reference-store.md").read_text()
    blocks = re.findall(r"^    ```python\n(.*?)^    ```$", page, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(textwrap.dedent(block))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert f"{len(blocks)} passed" in done.stdout, done.stdout + done.stderr
    assert len(blocks) == 2


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [*sorted(path.name for path in ROOT.glob("*.md")), "tests/README.md"])
def test_links_of_the_front_pages_lead_somewhere(page: str) -> None:
    path = ROOT / page
    targets = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []
