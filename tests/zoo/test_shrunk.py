"""What a machine prints of a broken store cannot be made shorter, and says so again when it is replayed."""

from __future__ import annotations

import pytest

from dendrux.testing.execution import Failed
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import Settings, Situation
from dendrux.testing.store_kit.machines import outcome
from dendrux_model.programs import Look, from_json, to_json
from zoo.conftest import MakeBench
from zoo.stores import ZOO

FOUND = {
    "EpochRaisedTwice": "basic.stateful.sequential_pauses",
    "IdentityIgnored": "fenced_writes.stateful.sequential_evidence",
    "RefusesOwners": "fenced_writes.stateful.sequential_evidence",
    "BlindRetry": "crash_recovery.stateful.faults_pauses",
    "EventInItsOwnTransaction": "crash_recovery.stateful.faults_pauses",
}
"""Broken stores with the machine that finds them."""

MACHINES = {contract.id: contract for contract in catalogue() if ".stateful." in contract.id}


@pytest.mark.parametrize(("name", "machine"), FOUND.items())
async def test_no_step_of_a_shrunk_program_can_be_left_out(name: str, machine: str, bench_of: MakeBench) -> None:
    bench = bench_of(ZOO[name])
    settings = Settings(seed=7, examples=300)
    situation = Situation(
        bench=bench,
        format=ZOO[name].format,
        capabilities=None,
        settings=settings,
        note=lambda key, value: None,
        fixtures={},
    )
    check = MACHINES[machine].check
    assert check is not None
    with pytest.raises(Failed) as found:
        await check(situation)
    program = from_json(to_json(found.value.program))
    assert await outcome(situation, program) is not None, "the program does not fail when it is read back"
    if isinstance(program[-1], Look):
        program = program[:-1]  # a program is looked at after its last step, whether it says so or not
    for place in range(len(program)):
        shorter = program[:place] + program[place + 1 :]
        assert await outcome(situation, shorter) is None, f"{name}: step {place + 1} of {len(program)} plays no part"
    await bench.close()
