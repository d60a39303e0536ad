"""Sometimes: an unknown outcome is later resolved, each way, by what the store shows."""

from __future__ import annotations

import pytest

from dendrux_model.outcomes import Returned, Unknown
from dendrux_model.possible import Cut, Worlds
from dendrux_model.values import Minted
from dendrux_model.views import view
from dendrux_model.worlds import SMALL_WORLDS

LASTING = Cut(at_commit=True, lasting=True)


def as_a_store_says(value):
    """The model's answer with an id where it only says that the store mints one."""
    if isinstance(value, Minted):
        return "minted"
    if isinstance(value, dict):
        return {name: as_a_store_says(member) for name, member in value.items()}
    return [as_a_store_says(item) for item in value] if isinstance(value, list) else value


def seen(world, read):
    return Returned(as_a_store_says(read.step(world)[1].value))


def resolved(before, operation, took_effect):
    """The worlds left after an unknown outcome and a look at a store where it did, or did not, take effect."""
    oracle = Worlds(before)
    oracle.saw(operation, Unknown(), cut=LASTING)
    both = [possible.world for possible in oracle.possible]
    real = both[1] if took_effect else both[0]
    for read in view(both):
        oracle.saw(read, seen(real, read))
    return real, [possible.world._replace(now=real.now) for possible in oracle.possible]


def shows(world):
    return [read.step(world)[1] for read in view([world]) if read.method not in ("get_run", "get_notes")]


@pytest.mark.parametrize("name", ["two_owners", "inbox", "identities", "family"])
def test_an_unknown_outcome_is_resolved_each_way(name, explored):
    found = explored(name)
    ways = set()
    for state in range(0, found.states, found.states // 20):
        before = found.worlds[state]
        for operation in SMALL_WORLDS[name].alphabet:
            after, _ = operation.step(before)
            if after == before:
                continue
            for took_effect in (False, True):
                real, left = resolved(before, operation, took_effect)
                assert real in left, "the world that is real is never given up"
                if shows(before) != shows(after):
                    assert left == [real], f"{operation} shows, so a look decides"
                    ways.add((operation.lost_ack, took_effect))
    assert {took_effect for _, took_effect in ways} == {False, True}
    assert {kind for kind, took_effect in ways if took_effect} == {
        kind for kind, took_effect in ways if not took_effect
    }


def test_between_the_two_a_claim_is_owned_by_nobody_or_by_somebody(explored):
    before = next(world for world in explored("two_owners").worlds if world.runs[0].status == "waiting_approval")
    claim = next(
        operation for operation in SMALL_WORLDS["two_owners"].alphabet if operation.step(before)[0] is not before
    )
    oracle = Worlds(before)
    oracle.saw(claim, Unknown(), cut=LASTING)
    assert len(oracle.possible) == 2
