"""The cells of the crash matrix are the pinned ones, every one of them belongs to a contract, and every cut is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dendrux.testing.bench import Bench
from dendrux.testing.execution import Failed
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import CONTRACTS, Settings, Situation
from dendrux.testing.store_kit.contracts._crashes import CUT, FORMS_OF_SERVERS, Crash, cells_of, known_cells, refused_on
from dendrux.testing.store_kit.contracts._samples import SAMPLES, samples
from dendrux.testing.store_kit.sql import SqlFaultInjector
from dendrux_model.machines.cells import writes
from dendrux_model.operations import OPERATIONS
from dialects.found import Database

PINNED = Path(__file__).with_name("cells.txt")


def listed() -> str:
    """Every cell, a line each."""
    return "".join(f"format {form}: {name}\n" for form in (1, 2) for name in known_cells(form))


def test_the_cells_are_the_pinned_ones() -> None:
    """A changed list is a changed kit: look at the difference, then write `listed()` into the file."""
    assert listed() == PINNED.read_text(encoding="utf-8")


def test_every_cell_is_cut_by_one_contract() -> None:
    catalogue()
    checks = [contract.check for contract in CONTRACTS.values() if isinstance(contract.check, Crash)]
    cut = [f"{check.sample.method}: {point} {form}" for check in checks for point, form in check.family.cells]
    assert len(cut) == len(set(cut))
    assert set(cut) == {name for form in (1, 2) for name in known_cells(form)}


def test_every_write_has_every_point_and_one_form_of_servers_at_each() -> None:
    methods = {OPERATIONS[name].method for name in writes()}
    assert {sample.method for sample in samples() if sample.operation.lost_ack != "read"} == methods
    for name in writes():
        cells = cells_of(SAMPLES[name])
        for point in ("statement", "before_commit", "after_commit"):
            forms = [cell.form for cell in cells if cell.point == point]
            assert {"error", "invalidated", "cancel"} < set(forms)
            assert len(set(forms) & FORMS_OF_SERVERS) == 1


def test_a_write_without_a_format_is_said_to_have_none() -> None:
    legacy = SAMPLES["PauseRun"]
    assert refused_on(legacy) == 2
    assert not any(name.startswith("pause_run:") for name in known_cells(2))


async def checked(database: Database, folder: Path, contract: str, injector: Any = None) -> dict[str, Any]:
    """What the check of a contract notes, on the built-in store."""
    notes: dict[str, Any] = {}
    async with database.store(folder) as store:
        bench = Bench(lambda: store, injector=injector or SqlFaultInjector())
        situation = Situation(
            bench=bench, format=2, capabilities=None, settings=Settings(), note=notes.__setitem__, fixtures=frozenset()
        )
        check = CONTRACTS[contract].check
        assert check is not None
        try:
            await check(situation)
        finally:
            await bench.close()
    return notes


@pytest.mark.parametrize("family", ["statements", "cancelled", "before_commit_error"])
async def test_a_check_notes_what_it_cut(database: Database, tmp_path: Path, family: str) -> None:
    catalogue()
    notes = await checked(database, tmp_path, f"crash_recovery.save_run_event.{family}")
    assert (
        notes[CUT]
        == {
            "statements": {"save_run_event: statement error", "save_run_event: statement invalidated"},
            "cancelled": {f"save_run_event: {at} cancel" for at in ("statement", "before_commit", "after_commit")},
            "before_commit_error": {"save_run_event: before_commit error"},
        }[family]
    )


class Asleep(SqlFaultInjector):
    """Arms nothing after the first statement."""

    def arm(self, store: Any, point: str, *, kind: str = "error", after: int = 0, sticky: bool = False) -> None:
        super().arm(store, point, kind=kind, after=after + 1000 * (after > 0), sticky=sticky)


@pytest.mark.only("sqlite")
async def test_a_cut_that_did_not_happen_is_no_pass(database: Database, tmp_path: Path) -> None:
    catalogue()
    with pytest.raises(Failed, match="1 cuts were asked for and 0 happened"):
        await checked(database, tmp_path, "crash_recovery.save_run_event.statements", Asleep())
