"""The kit on stores that send no SQL: the reference store is certified, and broken ones are not."""

from __future__ import annotations

import pytest

from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import GROUPS
from dendrux.testing.store_kit.obligations import Declaration, Skip, plan
from dendrux.vocabulary import CAPABILITIES
from dendrux_model.programs import Fault, Together
from kit.conftest import Project, line, summary, verdict

FIXTURES = ("-p", "dendrux.testing.reference")
BROKEN = """
import pytest
from kit import broken_reference

@pytest.fixture
def dendrux_reference_class():
    return broken_reference.{name}
"""
CAVEAT = "unverified: save_usage retry identity"
"""What the protocol cannot show."""
RACES = "concurrency"
"""Of several processes, or of statements: a store in the memory of one process has neither."""
REDUCED = "reduced budget: 1 examples"
"""What a quick run does not pay for."""


def test_the_reference_store_is_certified(project: Project, budget: str) -> None:
    """In every group but that of races. With the full budget machines run as many examples as for any author."""
    full = budget == "full"
    result = project.certify(*FIXTURES, *([] if full else ["--dendrux-examples=1"]))
    assert result.ret == 0, "\n".join(summary(result))
    certified, _, caveats = verdict(result).partition(" (caveats: ")
    assert certified.removeprefix("CERTIFIED with caveats: ").split(", ") == [
        group for group in GROUPS if group != RACES
    ]
    assert line(result, RACES).endswith("skipped")
    assert "passed" not in line(result, RACES)
    for caveat in caveats.removesuffix(")").split("; "):
        assert caveat.startswith((CAVEAT,) if full else (CAVEAT, REDUCED)), caveat


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        ("Unfenced", "fenced_writes.save_run_event.refuses_old_epoch"),
        ("Forgetful", "retry_ids.save_run_event.stored_once"),
    ],
)
def test_broken_ones_are_not(project: Project, name: str, contract: str) -> None:
    project.pytester.makeconftest(BROKEN.format(name=name))
    result = project.certify(*FIXTURES, "-k", "save_run_event")
    group = contract.partition(".")[0]
    assert result.ret == 1
    assert any(line.strip().startswith(f"{contract}:") for line in summary(result)), summary(result)
    assert verdict(result).startswith("NOT CERTIFIED")
    assert f"{group}: " in verdict(result)
    assert "dendrux replay" not in result.stdout.str(), "it makes stores over an engine"
    assert f"-k {contract}" in result.stdout.str()


# -- what needs SQL ---------------------------------------------------------------------------------------------------

STORE = Declaration(
    name="S",
    module="m",
    deployment="multi_server",
    capabilities=CAPABILITIES,
    format=2,
    sql=False,
    disconnect_forms=("invalidated",),
    fixtures=frozenset(
        f"dendrux_{name}"
        for name in ("store_factory", "store_reopen", "store_second_instance", "clock", "fault_injector")
    ),
)
"""A store that several servers share and that is no SQLStateStore."""


def test_what_watches_statements_is_skipped_where_there_are_none() -> None:
    for contract in catalogue():
        watched = any(
            isinstance(step, Together) or (isinstance(step, Fault) and step.point == "statement" and step.after)
            for step in contract.program or ()
        )
        skipped = isinstance(plan(contract, STORE), Skip)
        assert not watched or skipped, contract.id
        if "sql" in contract.needs:
            found = plan(contract, STORE)
            assert isinstance(found, Skip), contract.id
            assert found.reason == "ordinary", contract.id


def test_every_promise_is_checked_without_sql_but_races() -> None:
    """A group of a store without SQL is never empty, and most of what is promised needs none; cancelled reads do."""
    for group in ("basic", *CAPABILITIES, "concurrency", "crash_recovery"):
        mine = [contract for contract in catalogue() if contract.group == group]
        without = [contract for contract in mine if "sql" not in contract.needs]
        assert without, group
        assert group == "concurrency" or len(without) > len(mine) * 3 / 5, group
