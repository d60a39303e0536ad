"""The view in turn leaves out no read that shows something, and leaves out no other read for good."""

from __future__ import annotations

import pytest

from dendrux_model.views import shows_nothing, view

READS = 10
"""Reads of one run in the whole view."""


@pytest.mark.parametrize("name", ["two_owners", "inbox", "identities", "family"])
def test_in_turn_every_read_is_made_and_what_shows_something_always(name, explored):
    found = explored(name)
    spared = set()
    for state in range(0, found.states, found.states // 20):
        worlds = [found.worlds[state], found.worlds[0]]
        whole = view(worlds)
        turns = [view(worlds, turn) for turn in range(READS)]
        assert {read for turn in turns for read in turn} == set(whole)
        for turn in turns:
            missing = [read for read in whole if read not in turn]
            assert all(shows_nothing(read, world) for read in missing for world in worlds)
            spared.update(type(read).__name__ for read in missing)
    assert "GetRun" not in spared
    assert "GetNotes" in spared


def test_the_same_turn_makes_the_same_reads(explored):
    worlds = [explored("family").worlds[-1]]
    assert view(worlds, 7) == view(worlds, 7)
    assert view(worlds, 7) != view(worlds, 8)
