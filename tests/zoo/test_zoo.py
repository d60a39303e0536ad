"""Every store of the zoo is caught by the contract that it names, and the store it was made from is not.

On SQLite the healthy store passes each contract in `tests/unit/test_contracts_sqlite.py`.
"""

from __future__ import annotations

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
from zoo import matrix
from zoo.conftest import MakeBench
from zoo.stores import ZOO

ON_SQLITE = [name for name, broken in ZOO.items() if broken.database == "sqlite"]
ON_SERVERS = [name for name, broken in ZOO.items() if broken.database != "sqlite"]


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


@pytest.mark.parametrize("name", ON_SQLITE)
async def test_the_named_contract_catches_it(name: str, bench_of: MakeBench) -> None:
    broken = ZOO[name]
    assert f"format_{3 - broken.format}" not in killer(name).needs, "its runs are of the other format"
    why = await caught(bench_of(broken), killer(name), broken.format)
    assert why is not None, f"{name} ({broken.breaks}) survives {broken.killed_by}"


@pytest.mark.parametrize("name", ON_SERVERS)
async def test_a_trap_of_a_server_is_caught_there(
    name: str, found: Found, bench_on: Callable[[type, Database], Bench]
) -> None:
    broken = ZOO[name]
    database = matrix.database(found, broken.database)
    why = await caught(bench_on(broken, database), killer(name))
    assert why is not None, f"{name} ({broken.breaks}) survives {broken.killed_by}"
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


def test_the_page_shows_the_zoo_as_it_is() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "zoo.md"
    assert page.read_text(encoding="utf-8") == matrix.page(), "run: python tests/zoo/matrix.py"
