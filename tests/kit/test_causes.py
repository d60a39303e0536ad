"""Where a report says to look first, the schedule of a race, and the command that runs it again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dendrux.store import SQLiteStateStore
from dendrux.testing.execution import Failed, Line
from dendrux.testing.store_kit import causes
from dendrux.testing.store_kit.causes import likely
from dendrux.testing.store_kit.report import failure, steps
from dendrux_model.outcomes import CONFLICT, FALSE, INVALID, NONE, NOT_FOUND, STALE, TRUE, Broken, Outcome, Returned
from dendrux_model.programs import Fault, Look, Step, Together
from kit import broken
from kit.conftest import Project
from kit.test_report import executed
from kit.test_verdict import SHARED
from kit.tiny import tiny

ROOT = Path(__file__).parents[2]
CALL = broken.LATE[3]
PLAIN = tiny("basic.one")


def failed(step: Step, call: str, allowed: Outcome, observed: Outcome) -> Failed:
    return Failed((step,), 1, [Line(call, (allowed,), observed, step=1)], "why")


@pytest.mark.parametrize(
    ("step", "call", "allowed", "observed", "cause"),
    [
        (CALL, "save_run_event()", STALE, Returned(5), causes.NO_FENCE),
        (CALL, "save_trace()", STALE, NONE, causes.SWALLOWED),
        (CALL, "save_trace()", NONE, STALE, causes.OWNER_REFUSED),
        (CALL, "save_trace()", CONFLICT, NONE, causes.TWICE),
        (CALL, "save_trace()", NONE, CONFLICT, causes.NOT_RECOGNISED),
        (CALL, "get_run()", NONE, NOT_FOUND, causes.NOT_FOUND_CAUSE),
        (CALL, "save_trace()", NOT_FOUND, NONE, causes.GUARD),
        (CALL, "save_trace()", NONE, Broken("KeyError"), causes.OWN_CODE),
        (CALL, "save_trace()", NONE, Broken("InterfaceError"), causes.RAISED),
        (CALL, "save_trace()", NONE, INVALID, causes.INVALID_CAUSE),
        (Fault(CALL, "after_commit", "error"), "save_trace()", NONE, STALE, causes.CUT),
        (Together((CALL, CALL)), "save_trace()", NONE, NONE, causes.RACE),
        (Look(), "get_run_events(run_id='r')", Returned([]), Returned([1]), causes.LOG),
        (CALL, "add_note(run_id='r')", Returned("full"), Returned("added"), causes.CAP),
        (CALL, "list_runs(metadata_filter={})", Returned([]), Returned(["r"]), causes.JSON),
        (CALL, "count_runs(tenant_id='t')", Returned(0), Returned(1), causes.TENANTS),
        (Look(), "get_run(run_id='r')", Returned(1), Returned(2), causes.PART),
        (CALL, "request_pause(run_id='r')", TRUE, FALSE, causes.GUARD),
    ],
)
def test_a_cause_from_the_symptom(step: Step, call: str, allowed: Outcome, observed: Outcome, cause: str) -> None:
    assert likely(PLAIN, failed(step, call, allowed, observed)) == cause


def test_a_contract_knows_better_than_a_guess_and_a_plain_answer_better_than_a_contract() -> None:
    assert likely(broken.FENCE, failed(CALL, "save_trace()", NOT_FOUND, NONE)) == "The update lacks the epoch."
    assert likely(broken.FENCE, failed(CALL, "save_trace()", NONE, STALE)) == causes.OWNER_REFUSED
    raced = Together((CALL, CALL))
    assert likely(broken.FENCE, failed(raced, "save_trace()", NONE, STALE)) == "The update lacks the epoch."
    assert likely(PLAIN, None) is None


def test_a_race_shows_who_was_parked_where(tmp_path: Path) -> None:
    found = executed(broken.Unfenced, broken.RACE, tmp_path)
    lines = failure(PLAIN, found.why, found, ()).splitlines()
    start = lines.index("schedule of the race")
    assert lines[start + 1].startswith("    A is save_trace(")
    assert lines[start + 2] == "    B is touch_progress(run_id='r') on instance 1"
    moves = lines[start + 3 :]
    assert all(re.match(r"    [AB]  \S", move) for move in moves)
    assert moves[0] == "    A  statement 1: BEGIN IMMEDIATE"
    assert moves[1].startswith("    A  parked before its statement 2: SELECT ")
    assert "    A  goes on" in moves
    assert sum(move.endswith("  ended") for move in moves) == 2
    told = list(steps(found))
    assert told[-6].startswith("   4  at once: save_trace(")
    assert told[-5] == "      alone it may say    -> refused stale_claim"
    assert told[-4] == "      the store answered  -> None"


def test_a_sound_race_has_no_answers_apart(tmp_path: Path) -> None:
    assert not any("alone" in line for line in steps(executed(SQLiteStateStore, broken.RACE, tmp_path)))


def test_what_is_no_program_can_be_run_alone(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.BROKEN]", folder=project.pytester.mkdir("store"))
    result = project.certify("store")
    command = next(line.strip() for line in result.outlines if line.strip().startswith("pytest store -p dendrux."))
    assert command == "pytest store -p dendrux.testing.store_kit -k basic.broken"
    again = project.run(*command.split()[1:])
    assert again.parseoutcomes()["failed"] == 1


def test_a_program_that_cannot_be_written_down_is_said(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.CUT]")
    (project.pytester.path / ".dendrux").write_text("in the way")
    result = project.certify()
    result.stdout.fnmatch_lines(["its program could not be written below *so there is no command that replays it"])


def test_the_table_of_rules_names_tests_that_exist() -> None:
    table = (ROOT / "tests/README.md").read_text().partition("## Rules of the verdict")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+\.py)`(?:: ((?:`test_\w+\*?`(?:, )?)+))?", table)
    assert len(named) > 20
    for file, tests in named:
        functions = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / "tests/kit" / file).read_text(), re.MULTILINE)
        assert functions, file
        for name in re.findall(r"`(test_\w+)\*?`", tests):
            assert any(function.startswith(name) for function in functions), f"{file}: {name}"
