"""Every store of the zoo is caught by the contract that it names, and the store it was made from is not."""

from __future__ import annotations

import pytest

from dendrux.store import SQLiteStateStore
from dendrux.testing.execution import Failed
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.checking import run_program
from dendrux.testing.store_kit.contract import Contract, NotKept, Settings, Situation
from zoo.conftest import MakeBench
from zoo.stores import ZOO


def killers(prefix: str, form: int = 2) -> list[Contract]:
    """The contracts that a broken store names, by the beginning of their ids, for runs of this format."""
    other = f"format_{3 - form}"
    return [one for one in catalogue() if f"{one.id}.".startswith(f"{prefix}.") and other not in one.needs]


async def caught(make: MakeBench, store_class: type[SQLiteStateStore], contract: Contract) -> str | None:
    """Why a store fails a contract; None when it passes."""
    bench = make(store_class)
    situation = Situation(
        bench=bench,
        format=getattr(store_class, "format", 2),
        capabilities=None,
        settings=Settings(seed=1),
        note=lambda key, value: None,
        fixtures={},
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


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ZOO)
async def test_the_named_contract_catches_it(name: str, bench_of: MakeBench) -> None:
    broken = ZOO[name]
    contracts = killers(broken.killed_by, broken.format)
    assert contracts, f"no contract begins with {broken.killed_by}"
    found = {contract.id: await caught(bench_of, broken, contract) for contract in contracts}
    assert any(found.values()), f"{name} ({broken.breaks}) survives {', '.join(found)}"


@pytest.mark.asyncio
@pytest.mark.parametrize("prefix", sorted({broken.killed_by for broken in ZOO.values()}))
async def test_the_healthy_store_passes_the_same_contracts(prefix: str, bench_of: MakeBench) -> None:
    for contract in killers(prefix):
        assert await caught(bench_of, SQLiteStateStore, contract) is None
