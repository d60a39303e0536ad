"""The report of a failed contract: what a store's author reads."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dendrux.cli import main
from dendrux.store import SQLiteStateStore
from dendrux.testing.execution import Failed
from dendrux.testing.raised import described
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.checking import check, perform
from dendrux.testing.store_kit.contract import Settings
from dendrux.testing.store_kit.fixtures import declaration_of
from dendrux.testing.store_kit.plugin import importable
from dendrux.testing.store_kit.report import failure, short, steps
from dendrux.testing.workshop import Engines, Workshop
from dendrux_model.operations import CreateRun, SaveRunEvent
from dendrux_model.programs import Do, Fault, Look, Program, Reopen, Step, Tick, Together, from_json, to_json
from kit import broken

CREATE = Do(CreateRun(run_id="r", agent_name="a"))
EVENT = SaveRunEvent(run_id="r", event_type="x", event_id="e")
EVERY_STEP = (
    CREATE,
    Fault(Do(EVENT), "after_commit", "invalidated"),
    Tick(60.0),
    Reopen(0),
    Together((Do(EVENT, 0, yield_at=1), Do(EVENT, 1))),
    Do(EVENT, 1),
    Look(),
)


class Forgetful(SQLiteStateStore):
    """Forgets the agent's name of what it shows."""

    async def get_run(self, run_id: str, **scope: object) -> object:  # type: ignore[override]
        run = await super().get_run(run_id, **scope)  # type: ignore[arg-type]
        if run is not None:
            object.__setattr__(run, "answer", "42")
        return run


def executed(store_class: type[SQLiteStateStore], program: Program, folder: Path) -> Failed:
    """What a program did: its failure, or a record of every step without one."""

    async def run() -> Failed:
        workshop = Workshop(Engines(store_class, None, folder))
        bench = workshop.bench()
        try:
            return (await perform(program, bench, 2)).failed("")
        except Failed as failed:
            return failed
        finally:
            await bench.close()
            await workshop.close()

    return asyncio.run(run())


def test_every_kind_of_step_in_words(tmp_path: Path) -> None:
    event = "save_run_event(run_id='r', event_type='x', event_id='e')"
    lines = list(steps(executed(SQLiteStateStore, EVERY_STEP, tmp_path)))
    assert [line for line in lines if line[3].isdigit()] == [
        "   1  create_run(run_id='r', agent_name='a')",
        f"   2  {event}, cut at after_commit (invalidated)",
        "   3  60 s pass",
        "   4  instance 0 restarts",
        f"   5  at once: {event}, parked before its statement 2",
        f"   5  at once: {event} on instance 1",
        f"   6  {event} on instance 1",
        lines[-1],
    ]
    assert lines[-1].startswith("   7  look at everything: ")
    assert lines[-1].endswith(" reads agree")


def test_a_look_shows_only_what_differs(tmp_path: Path) -> None:
    failed = executed(Forgetful, (CREATE,), tmp_path)
    text = failure(broken.FENCE, failed.why, failed, ("replay it with", "    a command"))
    lines = text.splitlines()
    assert lines[0] == "The promise of fenced_writes.save_trace."
    assert "first difference  answer: the model has None, the store '42'" in lines
    assert "likely cause      The update lacks the epoch." in lines
    assert any(line.startswith("    SELECT ") for line in lines)
    assert lines[-2:] == ["replay it with", "    a command"]
    shown = [line for line in lines if line.startswith("   2  ")]
    assert len(shown) == 2
    assert shown[1] == "   2  get_run(run_id='r')"


def test_long_values_are_cut() -> None:
    assert short("a\n  b") == "a b"
    assert short("x" * 1000) == "x" * 300 + " ..."


def test_programs_survive_a_file() -> None:
    assert from_json(to_json(EVERY_STEP)) == EVERY_STEP


def test_a_replay_has_faults_time_restarts_and_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("all.json").write_text(to_json(EVERY_STEP))
    assert main(["replay", "all.json", "--store", "sqlite"]) == 0
    assert "model and store agree at every step" in capsys.readouterr().out
    assert main(["replay", "all.json", "--store", "sqlite", "--url", "sqlite+aiosqlite:///:memory:"]) == 2
    assert "a store in memory cannot replay this program" in capsys.readouterr().err


# -- what the store's own code raised ---------------------------------------------------------------------------------


class Mistaken(SQLiteStateStore):
    """Has a mistake in each of two methods of its own."""

    async def get_run(self, run_id: str, **scope: object) -> object:  # type: ignore[override]
        return {}["typo"]

    async def save_run_event(self, run_id: str, *, event_type: str) -> int:  # type: ignore[override]
        return await super().save_run_event(run_id, event_type=event_type)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Look(), r"it raised KeyError: 'typo' \(test_report.py, line \d+, in get_run\)$"),
        (Do(EVENT), r"it raised TypeError: .*save_run_event\(\) got an unexpected keyword argument .*$"),
    ],
)
def test_a_mistake_of_the_stores_own_code_is_told_with_its_line(tmp_path: Path, step: Step, told: str) -> None:
    assert re.search(told, executed(Mistaken, (CREATE, step), tmp_path).why)


class DriverError(Exception):
    """As a driver raises it."""


def test_the_words_of_a_driver_are_not_told() -> None:
    with pytest.raises(DriverError) as raised:
        raise DriverError("secret")
    assert re.fullmatch(r"DriverError \(test_report.py, line \d+, in test_.*\)", described(raised.value))


def test_a_replay_command_names_the_folder_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("my_store", "my_store.py"), ("pack.stores", "pack/stores.py"), ("pack", "pack/__init__.py")):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / "tests" / file)
        monkeypatch.setitem(sys.modules, name, module)
        store = type("Mine", (), {"__module__": name})()
        assert importable(store, tmp_path / "tests") == ""
        assert importable(store, tmp_path) == "PYTHONPATH=tests "
        assert importable(store, tmp_path / "other") == f"PYTHONPATH={tmp_path / 'tests'} "
    assert importable(SQLiteStateStore.__new__(SQLiteStateStore), tmp_path) == ""


async def test_what_was_tried_beside_a_program_is_no_replay(tmp_path: Path) -> None:
    (contract,) = (c for c in catalogue() if c.id == "basic.save_run_event.bad_arguments")

    class Gullible(SQLiteStateStore):
        async def save_run_event(self, run_id: str, **given: Any) -> Any:  # type: ignore[override]
            return await super().save_run_event(run_id, **given | {"iteration_index": 0})

    workshop = Workshop(Engines(Gullible, None, tmp_path))
    bench = workshop.bench()
    try:
        checked = await check(contract, bench, await declaration_of(bench, frozenset()), Settings())
    finally:
        await bench.close()
        await workshop.close()
    assert checked.finding is not None
    assert checked.finding.failed is not None
    assert not checked.finding.failed.replayable
