"""The kill matrix: which store each contract kills. Run as a program, it writes the page of the documentation.

    python tests/zoo/matrix.py                      the page, from the stores and from what was measured before
    python tests/zoo/matrix.py --whole [--every N]  first certifies every store (one of N) whole on SQLite, and keeps it
    python tests/zoo/matrix.py --whole NAME ...     the same of these stores

It exits with 1 when a store survives, or is killed by other contracts than the one it names.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dendrux.testing.databases import NotFound
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import CONTRACTS, GROUPS
from dialects.found import Database, Found
from zoo.stores import ZOO
from zoo.whole import Measured, certified, how, keep, kept

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "zoo.md"
HEAD: Final = """# The zoo

A kit that nobody tried to fool proves little. `tests/zoo` holds stores that are broken on purpose: each is a built-in
store with one promise removed. Most are broken where the store means something (a guard, an assignment, a step that is
left out or committed too early, a cursor, an identity), not by rewriting its SQL.

Each names one contract or machine that must go red for it; the healthy store passes it. On one database no two stores name
the same one. The tables of the groups say which contract that is: it is what the store says of itself, and the quick suite
runs that contract on that store, prints how many of each group went red, and fails with a survivor.

What else goes red, and how soon, is measured by whole certifications with the defaults of `dendrux certify`: by
`python tests/zoo/matrix.py --whole`, which keeps its results in `tests/zoo/measured.json`, and with `DENDRUX_BUDGET=full` for
a fifth of the stores, where they are properties of the tests in a JUnit report. Both fail when a store survives or is killed
only by contracts that it does not name. [Whole certifications](#whole-certifications) has those that were kept.

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
    """The page: a table for each group, one for the traps of the servers, and what was measured."""
    return "\n".join([HEAD, *tables(), *measured_tables()])


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


# -- whole certifications ---------------------------------------------------------------------------------------------


def measured_tables() -> Iterator[str]:
    """What was measured: a row for each store, then the killing contracts store by store."""
    rows = kept()
    soon = sum(one.first_red_s is not None and one.first_red_s <= SOON_S for one in rows)
    yield "## Whole certifications\n"
    yield (
        f"Measured on SQLite, of {len(rows)} stores: every contract that failed, counted by group, and the seconds from the\n"
        f"start of the command to the line of the first one that failed. {soon} went red within {SOON_S} seconds of wall-clock time.\n"
        "Contracts run in the order of the groups, so what only a late group kills is found late. No test is decided by\n"
        f"a time.{' ' if how() else ''}{how()}\n"
    )
    yield "| store | failed | groups | first red | after s | whole s |\n|---|---|---|---|---|---|"
    for one in rows:
        first = "-" if one.first_red is None else f"`{one.first_red}`"
        yield f"| {one.store} | {len(one.killed_by)} | {by_group(one)} | {first} | {one.first_red_s} | {one.whole_s} |"
    yield "\n### What killed each\n\nThe contract that the store names comes first.\n"
    for one in rows:
        named = ZOO[one.store].killed_by
        others = [f"`{name}`" for name in one.killed_by if name != named]
        yield f"- {one.store}: **`{named}`**" + "".join(f", {name}" for name in others[:LISTED]) + more(others)
    yield ""


SOON_S: Final = 60
LISTED: Final = 12
"""So many other killers are listed of a store; the file has them all."""


def more(others: list[str]) -> str:
    """How many are left out."""
    return f" and {len(others) - LISTED} more" if len(others) > LISTED else ""


def by_group(one: Measured) -> str:
    """The failed contracts, counted by group."""
    counts = Counter(CONTRACTS[name].group for name in one.killed_by)
    return ", ".join(f"{group} {counts[group]}" for group in GROUPS if counts[group])


def measure(names: list[str], on: str | None) -> list[str]:
    """Certify these stores whole, keep what came of it, and say what is wrong."""
    catalogue()
    wrong: list[str] = []
    with TemporaryDirectory() as folder:
        for name in names:
            one = certified(name, Path(folder))
            keep([one], on)
            print(f"{name}: {len(one.killed_by)} failed ({by_group(one)}); {one.first_red} after {one.first_red_s} s")
            if one.wrong is not None:
                print(one.output)
                wrong.append(one.wrong)
    return wrong


def main(arguments: list[str]) -> int:
    """Measure what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description="Write the page of the zoo.")
    parser.add_argument("--whole", action="store_true", help="certify stores whole on SQLite first")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one store of N")
    parser.add_argument("--how", metavar="TEXT", help="a sentence for the page: on what it is measured")
    parser.add_argument("names", nargs="*", metavar="NAME", help="these stores only")
    given = parser.parse_args(arguments)
    at_home = [name for name, broken in ZOO.items() if broken.database == "sqlite"]
    if unknown := set(given.names) - set(at_home):
        parser.error(f"no store of the zoo on SQLite: {', '.join(sorted(unknown))}")
    wrong = measure(given.names or at_home[:: given.every], given.how) if given.whole else []
    PAGE.write_text(page(), encoding="utf-8")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
