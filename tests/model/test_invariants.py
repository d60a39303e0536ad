"""Every invariant of the contract is in the table, and sees the mutants that break it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dendrux_model.mutants
from dendrux_model.explore import explore
from dendrux_model.invariants import INVARIANTS, broken_by_state, broken_by_step
from dendrux_model.outcomes import Returned
from dendrux_model.shown import broken_between, broken_by_view, shown_world
from dendrux_model.sometimes import SOMETIMES
from dendrux_model.swaps import MUTANTS
from dendrux_model.views import view
from dendrux_model.worlds import SMALL_WORLDS

SEMANTICS = Path(__file__).parents[2] / "docs/explanation/semantics.md"

OTHER_NOUNS: set[str] = set()
"""Invariants of the contract about nouns that this version does not have."""

BREAKING = [mutant for mutant in MUTANTS.values() if mutant.invariant is not None]
UNSEEN = [mutant for mutant in MUTANTS.values() if mutant.invariant is None]


def of_the_contract() -> list[str]:
    """The names in the table of section 2, in order."""
    section = SEMANTICS.read_text().split("## 2. Invariants")[1].split("## 3.")[0]
    return re.findall(r"^\| ([a-z_]+) \|", section, flags=re.MULTILINE)[1:]


def test_the_table_has_the_invariants_of_the_contract_in_its_order():
    assert list(INVARIANTS) == [name for name in of_the_contract() if name not in OTHER_NOUNS]


@pytest.mark.parametrize("name", INVARIANTS)
def test_every_check_of_an_invariant_says_in_a_sentence_what_holds(name):
    invariant = INVARIANTS[name]
    checks = len(invariant.runs) + len(invariant.worlds) + len(invariant.changes) + len(invariant.answers)
    assert len(invariant.statements) == checks > 0
    assert all(statement.endswith(".") for statement in invariant.statements)


def test_every_sometimes_property_says_in_a_sentence_what_is_shown():
    assert all((seen.__doc__ or "").endswith(".") for seen in SOMETIMES.values())


def test_every_invariant_has_a_mutant():
    assert {mutant.invariant for mutant in BREAKING} == set(INVARIANTS)


@pytest.mark.parametrize("mutant", BREAKING, ids=lambda mutant: mutant.name)
def test_the_invariant_alone_sees_its_mutant(mutant):
    with mutant.swap():
        found = explore(mutant.world, invariants=[mutant.invariant])
    violation = found.violation
    assert violation is not None, f"{mutant.invariant} does not see: {mutant.statement}"
    assert violation.invariant == mutant.invariant
    assert violation.program[: len(found.small.setup)] == found.small.setup
    assert str(violation).startswith(f"{mutant.invariant} does not hold: ")


@pytest.mark.parametrize("mutant", UNSEEN, ids=lambda mutant: mutant.name)
def test_the_pinned_numbers_see_the_other_mutants(mutant, explored):
    sound = explored(mutant.world)
    with mutant.swap():
        found = explore(mutant.world)
    assert found.violation is None, f"{found.violation.invariant} sees this mutant and should be named by it"
    assert (found.states, found.applied, found.refused) != (sound.states, sound.applied, sound.refused)


def test_a_mutant_is_gone_after_its_exploration():
    with MUTANTS["fence_dropped"].swap():
        assert explore("two_owners", invariants=["stale_leaves_nothing"]).violation is not None
    assert explore("inbox").violation is None
    assert dendrux_model.mutants.rules.stale.__name__ == "stale"


def test_a_violation_shows_the_shortest_program_and_the_fields_that_differ():
    with MUTANTS["document_kept_at_the_end"].swap():
        violation = explore("two_owners").violation
    assert [operation.method for operation in violation.program] == [
        "create_run",
        "pause_with_event",
        "finalize_with_event",
    ]
    assert "r1.status: 'waiting_approval' -> 'cancelled'" in violation.changes
    assert not any(change.startswith("r1.pause_document") for change in violation.changes)


@pytest.mark.parametrize(
    "mutant", [MUTANTS["fence_dropped"], MUTANTS["stamp_overwritten"]], ids=lambda mutant: mutant.name
)
def test_a_step_at_a_time_finds_the_same_violation(mutant):
    small = SMALL_WORLDS[mutant.world]
    with mutant.swap():
        program = explore(mutant.world).violation.program[len(small.setup) :]
        world = small.initial()
        for operation in program:
            before = world
            world, outcome = operation.step(before)
            broken = broken_by_state(world) + broken_by_step(before, operation, outcome, world)
            assert bool(broken) == (operation is program[-1])
    assert mutant.invariant in broken


# -- over what a store shows ------------------------------------------------------------------------------------------


def answers(world):
    """Everything the protocol shows of a world."""
    return [(read, read.step(world)[1]) for read in view([world])]


@pytest.mark.parametrize("name", ["two_owners", "two_owners_format_1", "inbox", "tenants", "identities"])
def test_the_invariants_hold_over_what_is_shown_of_explored_worlds(name, explored):
    found = explored(name)
    for state in range(0, found.states, max(1, found.states // 100)):
        world = found.worlds[state]
        assert broken_by_view(answers(world)) == []
        shown = shown_world(answers(world))
        assert [run.status for run in shown.runs] == [run.status for run in sorted(world.runs, key=lambda run: run.id)]


def test_a_shown_log_with_a_gap_is_seen(explored):
    world = next(w for w in explored("two_owners").worlds if len(w.runs[0].events) > 2)
    seen = [
        (read, Returned(outcome.value[:1] + outcome.value[2:]) if read.method == "get_run_events" else outcome)
        for read, outcome in answers(world)
    ]
    assert "events_gapless" in broken_by_view(seen)


def test_a_shown_flag_on_an_ended_run_is_seen(explored):
    world = next(w for w in explored("two_owners").worlds if w.runs[0].status == "cancelled")
    seen = [
        (read, Returned({**outcome.value, "cancel_requested": True}) if read.method == "get_run" else outcome)
        for read, outcome in answers(world)
    ]
    assert broken_by_view(seen) == ["flags_only_while_open"]


def test_an_event_that_vanished_between_two_views_is_seen(explored):
    worlds = [w for w in explored("two_owners").worlds if len(w.runs[0].events) == 1]
    longer, shorter = shown_world(answers(worlds[0])), shown_world(answers(explored("two_owners").worlds[0]))
    assert broken_between(shorter, longer) == []
    assert broken_between(longer, shorter) == ["events_append_only"]
