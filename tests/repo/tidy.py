"""House rules that no other tool checks. Each finding is one line: `path:line: error: what is wrong and what to do`."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = (".ci", "docs", "examples", "migrations", "model", "src", "tests")
SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".ini", ".cfg", ".sql", ".json", ".txt", ".race", ".sh", ""}
SKIPPED = {"__pycache__", "build", "dist", ".venv"}

DATABASE_NAME = re.compile(r"sqlite|postgres|mysql|mariadb", re.IGNORECASE)
ABSOLUTE_PATH = re.compile(r"""(?<![\w.:/~$\])}])/(?:home|root|Users|work|opt|srv|mnt|tmp|var|usr|private)/""")
REGISTRY_HOST = re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian|proxy\.golang|ghcr\.io|docker\.io")
OPEN_END = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b(?!\(#\d+\))")


@dataclass(frozen=True)
class Rules:
    """The bounds and the reasoned exceptions of `[tool.dendrux.tidy]`."""

    file_lines: int = 500
    function_lines: int = 70
    long_files: dict[str, int] = field(default_factory=dict)
    long_functions: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path = ROOT) -> Rules:
        table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["dendrux"]["tidy"]
        exceptions = {}
        for kind in ("long-files", "long-functions"):
            for name, entry in table.get(kind, {}).items():
                if not entry.get("reason", "").strip():
                    raise ValueError(f"pyproject.toml: tool.dendrux.tidy.{kind}.{name!r} has no reason")
            exceptions[kind] = {name: entry["lines"] for name, entry in table.get(kind, {}).items()}
        return cls(table["file-lines"], table["function-lines"], exceptions["long-files"], exceptions["long-functions"])


def texts(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Every text file of the repository as (path relative to the root, content)."""
    files = [path for path in root.iterdir() if path.is_file() and not path.name.startswith((".", "dendrux-failure-"))]
    for folder in FOLDERS:
        files += [path for path in (root / folder).rglob("*") if path.is_file()]
    for path in sorted(files):
        name = path.relative_to(root)
        if path.suffix in SUFFIXES and SKIPPED.isdisjoint(name.parts):
            yield name.as_posix(), path.read_text(encoding="utf-8")


def check(path: str, text: str, rules: Rules) -> list[str]:
    """Every finding in one file."""
    found = list(_length(path, text, rules)) + list(_lines(path, text))
    if path.endswith(".py"):
        found += _functions(path, text, rules)
    return found


def unused(sources: dict[str, str], rules: Rules) -> list[str]:
    """Exceptions that nothing needs any more."""
    found = [
        f"pyproject.toml:1: error: long-files lists {path}, which is not longer than {rules.file_lines}"
        for path in rules.long_files
        if len(sources.get(path, "").splitlines()) <= rules.file_lines
    ]
    for name in rules.long_functions:
        path, _, function = name.partition("::")
        sizes = {known: size for known, _, size in _sizes(sources.get(path, ""))}
        if sizes.get(function, 0) <= rules.function_lines:
            found.append(
                f"pyproject.toml:1: error: long-functions lists {name}, which is not longer than {rules.function_lines}"
            )
    return found


def _length(path: str, text: str, rules: Rules) -> Iterator[str]:
    if not path.endswith((".py", ".md", ".sql")):
        return
    lines, allowed = len(text.splitlines()), rules.long_files.get(path, rules.file_lines)
    if lines > allowed:
        yield f"{path}:{allowed + 1}: error: {lines} lines, at most {allowed}: split the file by what its parts decide"


def _lines(path: str, text: str) -> Iterator[str]:
    in_operations = path.startswith("src/dendrux/store/ops/")
    for number, line in enumerate(text.splitlines(), start=1):
        at = f"{path}:{number}: error:"
        if in_operations and (name := DATABASE_NAME.search(line)):
            yield f"{at} an operation names {name.group()}: ask the transaction for a hook or a trait"
        if (where := ABSOLUTE_PATH.search(line)) and not line.startswith("#!"):
            yield f"{at} absolute path {where.group()}...: paths are relative to the repository or made by the test"
        if host := REGISTRY_HOST.search(line):
            yield f"{at} package registry {host.group()}: leave the choice of a registry to whoever installs"
        if word := OPEN_END.search(line):
            yield f"{at} {word.group()} without an issue: write {word.group()}(#12), or do it now"


def _functions(path: str, text: str, rules: Rules) -> Iterator[str]:
    for name, line, size in _sizes(text):
        allowed = rules.long_functions.get(f"{path}::{name}", rules.function_lines)
        if size > allowed:
            yield f"{path}:{line}: error: {name} has {size} lines, at most {allowed}: name its parts"


def _sizes(text: str) -> Iterator[tuple[str, int, int]]:
    """(qualified name, line, number of lines) of each function; a nested one counts in its parent too."""
    stack: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
    while stack:
        prefix, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}".lstrip(".")
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, child.lineno, (child.end_lineno or child.lineno) - child.lineno + 1
            stack.append((name, child))
