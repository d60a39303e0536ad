"""A certificate cannot be had by choosing contracts, saving budget, mixing stores or pretending to cut."""

from __future__ import annotations

from typing import Any

import pytest

from dendrux.store import SQLiteStateStore
from dendrux.testing.bench import Bench
from dendrux.testing.execution import Failed
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.checking import perform
from dendrux.testing.store_kit.obligations import Declaration
from dendrux.testing.store_kit.verdict import Examined, Result, judge
from dendrux_model.operations import CreateRun
from dendrux_model.programs import Do, Fault
from kit.conftest import Project, summary, verdict
from kit.test_verdict import SHARED
from zoo.conftest import MakeBench, bench_of

__all__ = ["bench_of"]

CHOOSES = """
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config):
    from dendrux.testing.store_kit.collect import KIT
    config.stash[KIT].chosen = tiny.TINY[:4]
"""
OTHER = """
class Strict(Store): ...
@pytest.fixture
def dendrux_store_second_instance(): return lambda store: Strict(deployment='single_host')
"""


def test_nobody_chooses_the_contracts(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.BROKEN]", more=CHOOSES)
    assert verdict(project.certify()) == "NOT CERTIFIED: basic: 1 failed"


def test_a_reduced_budget_is_a_caveat() -> None:
    machine = next(c for c in catalogue() if ".stateful." in c.id)
    results = {machine.id: Result(outcome="passed", notes={"reduced": 3})}
    shown = judge(Examined(Declaration(name="S", module="m"), [machine], results))
    assert "reduced budget: 3 examples per machine" in shown.caveats


def test_a_sampled_matrix_is_a_caveat() -> None:
    row = next(c for c in catalogue() if ".pair_matrix." in c.id)
    results = {row.id: Result(outcome="passed", notes={"sampled": 7, "cells": {"one"}})}
    shown = judge(Examined(Declaration(name="S", module="m"), [row], results))
    assert "pair matrix: every third cell only" in shown.caveats


def test_another_class_is_another_store(project: Project) -> None:
    asks = "async def asks(situation): await situation.bench.instance(1)\n"
    more = asks + OTHER
    listed = "[*tiny.TINY, tiny.tiny('basic.second', check=asks, needs={'second_instance'})]"
    project.conftest(SHARED, catalogue=listed, more=more)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: basic: 1 failed", summary(result)
    result.stdout.fnmatch_lines(["*Store with*and then*Strict with*one store is certified*"])


class Pretends:
    """Says that it cut, and lets everything pass."""

    def arm(self, store: Any, point: str, **given: Any) -> None: ...

    def fired(self, store: Any) -> int:
        return 1

    def disarm(self, store: Any) -> None: ...


@pytest.mark.asyncio
async def test_a_cut_that_nobody_saw(bench_of: MakeBench) -> None:
    bench: Bench = bench_of(SQLiteStateStore)
    bench.injector = Pretends()
    with pytest.raises(Failed, match="reports a cut, and no statement of the store failed"):
        await perform((Fault(Do(CreateRun(run_id="r", agent_name="a")), "after_commit", "error"),), bench, 1)
    await bench.close()
