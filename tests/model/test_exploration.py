"""What exploration finds is pinned: a changed number is a changed specification."""

from __future__ import annotations

import pytest

import dendrux_model.mutants  # noqa: F401  # fills MUTANTS
from dendrux_model.branches import BRANCHES, BRANCHES_OF_FORMAT, KNOWN_BRANCHES, known_branches
from dendrux_model.explore import Exploration, explore, main
from dendrux_model.operations import OPERATIONS
from dendrux_model.sometimes import SOMETIMES
from dendrux_model.swaps import MUTANTS
from dendrux_model.worlds import SMALL_WORLDS

PINNED = {
    "two_owners": (11_708, 339_532, 42_019, 161_492),
    "two_owners_format_1": (56_752, 1_872_816, 250_557, 944_207),
    "inbox": (2_888, 63_536, 4_342, 25_644),
    "inbox_format_1": (2_888, 63_536, 4_342, 25_644),
    "identities": (3_320, 96_280, 8_845, 57_786),
    "identities_format_1": (45_416, 895_230, 120_099, 469_224),
    "bookkeeping": (922, 47_022, 3_966, 29_616),
    "bookkeeping_format_1": (2_122, 108_222, 9_540, 66_404),
    "tenants": (5_304, 275_808, 15_772, 97_908),
    "tenants_format_1": (5_304, 275_808, 15_772, 97_908),
    "family": (6_048, 133_056, 16_256, 48_407),
    "family_format_1": (6_048, 133_056, 16_256, 48_407),
    "pages": (1_536, 73_728, 10_108, 6_996),
    "pages_format_1": (1_536, 73_728, 10_108, 6_996),
    "handed_over": (474, 5_576, 633, 2_437),
    "handed_over_format_1": (34, 390, 45, 236),
    "steps": (798, 19_152, 1_719, 8_788),
    "steps_format_1": (12, 288, 20, 144),
    "leases": (17_020, 162_306, 36_336, 20_566),
    "leases_format_1": (5_592, 56_610, 12_212, 7_469),
    "tools": (1_280, 40_960, 2_070, 26_658),
    "tools_format_1": (40, 1_280, 76, 896),
    "images": (9_523, 238_075, 31_842, 89_723),
    "images_format_1": (9_523, 238_075, 34_365, 87_200),
}
"""States, transitions, and how many of the transitions changed the world and were refused."""


FORMAT_2_ONLY = {
    "replay_under_a_third_epoch",
    "slow_owner_keeps_the_run",
    "former_owner_still_writes",
    "consumed_after_a_crash",
    "handed_out_again",
}
"""Properties about operations that runs of format 1 do not have."""


def numbers(found: Exploration) -> tuple[int, int, int, int]:
    return found.states, found.transitions, found.applied, found.refused


def test_every_small_world_is_pinned():
    assert set(PINNED) == set(SMALL_WORLDS)


@pytest.mark.parametrize("name", SMALL_WORLDS)
def test_no_invariant_breaks_and_the_numbers_are_the_pinned_ones(name, explored):
    found = explored(name)
    assert found.violation is None, str(found.violation)
    assert numbers(found) == PINNED[name]


@pytest.mark.parametrize("name", SMALL_WORLDS)
def test_the_program_to_a_state_leads_there(name, explored):
    found = explored(name)
    small = found.small
    for state in range(0, found.states, max(1, found.states // 50)):
        program = found.program_to(state)
        world = small.initial()
        for operation in program[len(small.setup) :]:
            world, _ = operation.step(world)
        assert world == found.worlds[state]


@pytest.mark.parametrize("storage_format", [1, 2])
def test_the_known_branches_are_those_that_exploration_reaches(storage_format, explored):
    worlds = [name for name, small in SMALL_WORLDS.items() if small.format == storage_format]
    reached = set().union(*(explored(name).branches for name in worlds))
    assert reached == known_branches(storage_format)


def test_every_operation_has_branches():
    named = set(BRANCHES).union(*BRANCHES_OF_FORMAT.values())
    assert named == set(OPERATIONS)
    assert {name for name, _ in KNOWN_BRANCHES} == set(OPERATIONS)


@pytest.mark.parametrize("name", SMALL_WORLDS)
def test_what_must_happen_sometimes_happens(name, explored):
    found = explored(name)
    assert set(found.sometimes) == set(found.small.sometimes)


@pytest.mark.parametrize("storage_format", [1, 2])
def test_every_sometimes_property_is_asked_for_on_this_format(storage_format):
    asked = {name for small in SMALL_WORLDS.values() if small.format == storage_format for name in small.sometimes}
    assert asked == set(SOMETIMES) - (FORMAT_2_ONLY if storage_format == 1 else set())


def test_a_sometimes_property_comes_with_its_shortest_program(explored):
    program = [str(operation) for operation in explored("two_owners").sometimes["cancel_while_paused"]]
    assert [step.split("(")[0] for step in program] == ["create_run", "pause_with_event", "request_cancel"]


def test_the_command_prints_a_line_for_a_world_and_a_violation(capsys):
    assert main(["inbox"]) == 0
    assert "inbox: 2,888 states, 63,536 transitions," in capsys.readouterr().out
    with MUTANTS["cap_off_by_one"].swap():
        assert main(["inbox"]) == 1
    assert "note_cap does not hold" in capsys.readouterr().out


def test_the_command_names_the_worlds_there_are(capsys):
    assert main(["nowhere"]) == 2
    assert "no small world is called nowhere; there are two_owners, " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["family"])
def test_without_invariants_the_same_states_are_found(name):
    assert numbers(explore(name, invariants=())) == PINNED[name]
