"""The kill matrix: which store each contract kills. Run as a program, it writes the page of the documentation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dendrux.testing.databases import NotFound
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import CONTRACTS, GROUPS
from dialects.found import Database, Found
from zoo.stores import ZOO

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "zoo.md"
HEAD: Final = """# The zoo

A kit that nobody tried to fool proves little. `tests/zoo` holds stores that are broken on purpose: each is a built-in
store with one promise removed. Most are broken where the store means something (a guard, an assignment, a step that is
left out or committed too early, a cursor, an identity), not by rewriting its SQL.

Each names one contract that must go red for it; the healthy store passes it. On one database no two stores name the same
contract. The quick suite runs the named contract on each. With `DENDRUX_BUDGET=full` a fifth of the stores is certified as
their authors would certify them: the verdict must be `NOT CERTIFIED`, and the contract on the list of what failed. How long
that took and everything that killed the store are properties of the test in a JUnit report.

This page is written by `python tests/zoo/matrix.py`, and a test fails when it is not up to date.
"""
SERVERS: Final = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}


def database(found: Found, name: str) -> Database:
    """The session's database of this name; a test is skipped without it."""
    try:
        return found.database(name)
    except NotFound:
        pytest.skip(f"{name} was not found: the end of the report says where it was looked for")


def contracts() -> frozenset[str]:
    """The ids of every contract."""
    return frozenset(contract.id for contract in catalogue())


def page() -> str:
    """The page: a table for each group, then one for the traps of the servers."""
    return "\n".join([HEAD, *tables()])


def tables() -> Iterator[str]:
    """The lines of the tables."""
    catalogue()
    at_home = [name for name, broken in ZOO.items() if broken.database == "sqlite"]
    for group in GROUPS:
        members = [name for name in at_home if CONTRACTS[ZOO[name].killed_by].group == group]
        if members:
            yield f"## {group}\n\n| store | what it breaks | killed by |\n|---|---|---|"
            yield from map(line, members)
            yield ""
    yield "## Traps of the servers\n\n| store | database | what it breaks | killed by |\n|---|---|---|---|"
    for name, broken in ZOO.items():
        if broken.database in SERVERS:
            yield f"| {name} | {SERVERS[broken.database]} | {broken.breaks} | `{broken.killed_by}` |"
    yield f"\n{len(ZOO)} stores, {len(at_home)} of them on SQLite.\n"


def line(name: str) -> str:
    """One store."""
    return f"| {name} | {ZOO[name].breaks} | `{ZOO[name].killed_by}` |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
