"""The view after operations leaves out no read that one of them can change, and no other read for good."""

from __future__ import annotations

from collections import defaultdict

import pytest

from dendrux_model.operations import OPERATIONS
from dendrux_model.views import WRITERS, view
from dendrux_model.worlds import SMALL_WORLDS

STATES = 3000
"""States of a small world, of which every tenth is left by every operation."""


def states(small):
    """The first states of a small world, breadth first."""
    found, seen = [small.initial()], set()
    for world in found:
        if len(found) > STATES:
            break
        for operation in small.alphabet:
            after, _ = operation.step(world)
            if after not in seen and small.within(after):
                seen.add(after)
                found.append(after)
    return found


def changed(world, after):
    """The kinds of reads of runs that show another thing afterwards, a new run's first things among them."""
    shown = {read: read.step(world)[1] for read in view([world])}
    for read in view([after]):
        answer = read.step(after)[1]
        if type(read) in WRITERS and shown.get(read, answer if not answer.value else None) != answer:
            yield type(read)


@pytest.mark.parametrize("name", SMALL_WORLDS)
def test_the_writers_of_a_read_are_all_that_change_it(name):
    small = SMALL_WORLDS[name]
    writers = defaultdict(set)
    for world in states(small)[::10]:
        for operation in small.alphabet:
            after, _ = operation.step(world)
            if after is not world:
                for read in changed(world, after):
                    writers[read].add(operation.method)
    for read, methods in writers.items():
        assert methods <= WRITERS[read], f"{read.__name__} is changed by {sorted(methods - WRITERS[read])}"


def test_the_writers_are_operations():
    assert set().union(*WRITERS.values()) <= {operation.method for operation in OPERATIONS.values()}


def test_of_the_other_reads_each_has_its_turn(explored):
    worlds = [explored("family").worlds[-1]]
    whole, called = view(worlds), {"add_note"}
    turns = [view(worlds, called, turn) for turn in range(len(WRITERS))]
    assert {read for turn in turns for read in turn} == set(whole)
    for turn in turns:
        left_out = {type(read) for read in whole if read not in turn}
        assert left_out < set(WRITERS)
        assert not [read for read in left_out if called & WRITERS[read]]
    assert turns[0] != turns[1]
    assert view(worlds, called, 7) == view(worlds, called, 7)
