"""A noun has the same file name in the store, the model, the kit and the documentation, so that it is found at once."""

from __future__ import annotations

import pytest

from repo.nouns import NOUNS, PLACES, ROOT

SHARED = {
    "SQL": {"evidence"},
    "meaning": {"base"},
    "contracts": {
        "agent_flows",
        "declaration",
        "races",
        "stateful",
    },  # contracts that are about no noun, or about several together
    "documentation": {"index"},
}
"""File names that are no noun: what the nouns of a place share. Any name with a leading underscore is one too."""


def is_part(name: str, noun: str) -> bool:
    """A file of the noun, or a part of it that was split off: `<noun>_<part>`."""
    return name == noun or name.startswith(f"{noun}_")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_is_in_every_place(noun: str, place: str) -> None:
    path = PLACES[place].format(noun=noun)
    assert (ROOT / path).is_file(), f"{path}:1: error: missing: the {place} of {noun}"


@pytest.mark.parametrize("place", PLACES)
def test_every_file_in_these_places_is_a_noun(place: str) -> None:
    pattern = ROOT / PLACES[place].format(noun="*")
    names = {path.stem for path in pattern.parent.glob(pattern.name)}
    known = (*NOUNS, *SHARED[place])
    extra = {name for name in names if not name.startswith("_") and not any(is_part(name, noun) for noun in known)}
    assert not extra, "\n".join(
        f"{PLACES[place].format(noun=name)}:1: error: {name} is no noun of this version; "
        "what several nouns share has a name with a leading underscore"
        for name in sorted(extra)
    )


@pytest.mark.parametrize("noun", NOUNS)
def test_a_page_ends_with_the_other_three_places(noun: str) -> None:
    page = (ROOT / PLACES["documentation"].format(noun=noun)).read_text()
    _, _, ending = page.partition("## Where it lives")
    for place, pattern in PLACES.items():
        path = pattern.format(noun=noun)
        assert place == "documentation" or f"`{path}`" in ending, f"docs/operations/{noun}.md: error: {path} not listed"
