"""Checks one contract on the stores of one test, and says what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dendrux.lab.gate import Hung
from dendrux.testing.bench import Bench, Missing, Unlike, kind
from dendrux.testing.execution import Execution, Failed, Inconclusive
from dendrux.testing.store_kit.contract import Contract, NotKept, Settings, Situation
from dendrux.testing.store_kit.obligations import Declaration, Lacking, Plan, Run, Skip, fixture_rules, plan
from dendrux_model.programs import Fault, Program
from dendrux_model.world import World

PROGRAM_S: Final = 120.0
"""A program that has not ended by then hangs."""


class Finding(NamedTuple):
    """What speaks against the store: a program it failed, or a sentence."""

    text: str
    failed: Failed | None = None


class Checked(NamedTuple):
    """What became of a contract, for its test to report: nothing, a skip or a finding."""

    skip: Skip | None = None
    finding: Finding | None = None
    notes: Mapping[str, Any] = {}


async def check(contract: Contract, bench: Bench, declaration: Declaration, settings: Settings) -> Checked:
    """Check a contract, unless its declaration says otherwise. Errors that are no finding pass through."""
    planned = plan(contract, declaration)
    if not isinstance(planned, Run):
        return unchecked(planned)
    notes: dict[str, Any] = {}
    made = kind(await bench.instance())
    if declaration.kind not in (None, made):
        return Checked(finding=Finding(f"the factory made {declaration.kind}, and now {made}: one store is certified"))
    situation = Situation(
        bench=bench,
        format=declaration.run_format,
        capabilities=getattr(await bench.instance(), "capabilities", None),
        settings=settings,
        note=notes.__setitem__,
        fixtures=declaration.fixtures,
    )
    try:
        if contract.check is not None:
            await contract.check(situation)
        else:
            await run_program(contract.program or (), situation)
    except Failed as failed:
        return Checked(finding=Finding(failed.why, failed), notes=notes)
    except Inconclusive as search:
        text = f"no explanation of step {search.step} was found or ruled out within the budget of the search"
        return Checked(finding=Finding(text), notes=notes)
    except Missing as lacking:
        return unchecked(next(fixture_rules(lacking.fixture, declaration)))
    except (Hung, NotKept, Unlike) as unkept:
        return Checked(finding=Finding(str(unkept)), notes=notes)
    return Checked(notes=notes)


def unchecked(planned: Plan) -> Checked:
    """The answer for a contract that is not run."""
    if isinstance(planned, Lacking):
        return Checked(finding=Finding(planned.text))
    assert isinstance(planned, Skip)
    return Checked(skip=planned)


async def run_program(program: Program, situation: Situation) -> None:
    """Run a program of a contract."""
    await perform(program, situation.bench, situation.format)


async def perform(
    program: Program, bench: Bench, storage_format: int, *, look: bool = True, whole: bool = False
) -> Execution:
    """Run a program to its end and look at what it left; every cut it asks for must have happened."""
    execution = Execution(bench, World(new_format=storage_format), whole=whole)
    try:
        async with asyncio.timeout(PROGRAM_S) as limit:
            await execution.run(program, look=look)
    except Failed as failed:
        raise idle_injector(execution) or failed from None
    except TimeoutError:
        if not limit.expired():
            raise
        raise execution.failed(f"this step did not end within {PROGRAM_S:.0f} s") from None
    idle = idle_injector(execution)
    if idle is not None:
        raise idle
    return execution


def idle_injector(execution: Execution) -> Failed | None:
    """The finding that a cut was asked for and did not happen."""
    asked = sum(isinstance(step, Fault) for step in execution.done)
    if execution.fired >= asked:
        return None
    return execution.failed(
        f"{asked} cuts were asked for and {execution.fired} happened: the fault injector does not cut, or miscounts"
    )
