"""Every store of the zoo is caught by the contract or machine that it names, and the store it was made from is not.

On SQLite the healthy store passes each contract in `tests/unit/test_contracts_sqlite.py`, and each machine in
`tests/dialects/test_certified.py`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dendrux.testing.bench import Bench
from dendrux.testing.execution import Failed
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.checking import run_program
from dendrux.testing.store_kit.contract import CONTRACTS, GROUPS, Contract, NotKept, Settings, Situation
from dialects.found import Database, Found
from zoo import matrix, red
from zoo.conftest import MakeBench
from zoo.stores import ZOO
from zoo.whole import kept

ON_SQLITE = [name for name, broken in ZOO.items() if broken.database == "sqlite"]
ON_SERVERS = [name for name, broken in ZOO.items() if broken.database != "sqlite"]

Keep = Callable[[str, object], None]
"""Keeps a property of the test."""
REWRITING_MAX = 15
ON_ITS_WAY = re.compile(r"import event\b|\bevent\.listen|before_(cursor_)?execute|do_execute")
"""How SQLAlchemy lets a statement be changed that passes."""


def killer(name: str) -> Contract:
    """The contract that a broken store names."""
    catalogue()
    return CONTRACTS[ZOO[name].killed_by]


async def caught(bench: Bench, contract: Contract, storage_format: int = 2) -> str | None:
    """Why the store of a bench fails a contract; None when it passes."""
    situation = Situation(
        bench=bench,
        format=storage_format,
        capabilities=getattr(await bench.instance(), "capabilities", None),
        settings=Settings(seed=1),
        note=lambda key, value: None,
        fixtures=frozenset(),
    )
    try:
        if contract.check is not None:
            await contract.check(situation)
        else:
            await run_program(contract.program or (), situation)
    except Failed as failed:
        return failed.why
    except NotKept as broken:
        return str(broken)
    finally:
        await bench.close()
    return None


async def recorded(name: str, bench: Bench, keep: Keep) -> None:
    """Run the named contract on a store; what went red is kept, and it must have."""
    broken = ZOO[name]
    begun = time.monotonic()
    why = await caught(bench, killer(name), broken.format)
    went_red = "" if why is None else broken.killed_by
    red.record(keep, store=name, named=broken.killed_by, red=went_red, after_s=round(time.monotonic() - begun, 1))
    assert why is not None, f"{name} ({broken.breaks}) survives {broken.killed_by}"


@pytest.mark.parametrize("name", ON_SQLITE)
async def test_the_named_contract_catches_it(name: str, bench_of: MakeBench, record_property: Keep) -> None:
    broken = ZOO[name]
    assert f"format_{3 - broken.format}" not in killer(name).needs, "its runs are of the other format"
    await recorded(name, bench_of(broken), record_property)


@pytest.mark.parametrize("name", ON_SERVERS)
async def test_a_trap_of_a_server_is_caught_there(
    name: str, found: Found, bench_on: Callable[[type, Database], Bench], record_property: Keep
) -> None:
    database = matrix.database(found, ZOO[name].database)
    await recorded(name, bench_on(ZOO[name], database), record_property)
    assert await caught(bench_on(database.kind, database), killer(name)) is None, "the healthy store fails it, too"


# -- the zoo as a whole -----------------------------------------------------------------------------------------------


def test_no_two_stores_of_a_database_are_killed_by_the_same_contract() -> None:
    """Each contract has its own store: a second one would show nothing that the first does not."""
    often = Counter((broken.database, broken.killed_by) for broken in ZOO.values())
    assert [line for line, times in often.items() if times > 1] == []


def test_every_group_has_broken_stores() -> None:
    assert {killer(name).group for name in ZOO} == set(GROUPS)
    assert len(ON_SQLITE) >= 66
    assert {ZOO[name].database for name in ON_SERVERS} == {"postgresql", "mysql", "mariadb"}


def test_machines_of_three_kinds_are_named() -> None:
    named = " ".join(killer(name).id for name in ON_SQLITE if ".stateful." in killer(name).id)
    for kind in ("recovery.stateful.leases", "concurrency.stateful.concurrent_", "crash_recovery.stateful.faults_"):
        assert kind in named


def test_what_was_measured_is_of_these_stores() -> None:
    """A store that is gone, or names another contract now, is measured again: python tests/zoo/matrix.py --whole NAME."""
    assert kept()
    for one in kept():
        assert one.wrong is None
        assert set(one.killed_by) <= matrix.contracts()
        assert one.first_red in one.killed_by


def test_few_stores_rewrite_sql() -> None:
    """Most are broken where a store means something. A statement can be changed in a hook, or on its way to the driver."""
    rewriting = {name: hooks for name, broken in ZOO.items() if (hooks := broken.rewritten())}
    assert "PostgresWithoutLocks" in rewriting
    assert len(rewriting) <= REWRITING_MAX, rewriting
    for path in sorted((Path(__file__).parent / "stores").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not ON_ITS_WAY.search(text), f"{path.name} changes statements that pass: count its stores"


def test_the_page_shows_the_zoo_as_it_is() -> None:
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.page(), "run: python tests/zoo/matrix.py"
