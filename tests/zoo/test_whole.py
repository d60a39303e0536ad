"""A broken store certified as its author would: not certified, non-zero, and the named contract is on the list."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dialects.found import Found
from zoo import matrix, red
from zoo.stores import ZOO
from zoo.whole import certified

FULL = os.environ.get("DENDRUX_BUDGET") == "full"
"""A quick run leaves the zoo to its named contracts: a whole certification of each store takes minutes."""
EVERY = 5
"""One store of so many is certified whole: those that follow each other in the zoo are broken in the same noun."""
KNOWN = (
    "TraceWithoutFence",
    "UnlockedSequence",
    "IdentityIgnored",
    "IdentityWithoutContent",
    "FoldedTenants",
    "ClaimWithoutSwap",
    "OverwritesTheEnd",
    "EventInItsOwnTransaction",
    "EpochRaisedTwice",
    "BlindRetry",
)
"""The mistakes that every such store has made: always certified whole."""
SAMPLE = list(dict.fromkeys((*KNOWN, *list(ZOO)[::EVERY])))


if FULL:

    @pytest.mark.slow
    @pytest.mark.parametrize("name", SAMPLE)
    def test_a_broken_store_is_not_certified(
        name: str, found: Found, tmp_path: Path, record_property: Callable[[str, object], None]
    ) -> None:
        database = matrix.database(found, ZOO[name].database)
        url = None if database.url is None else database.url.render_as_string(hide_password=False)
        one = certified(name, tmp_path, url)
        red.record(
            record_property,
            store=name,
            named=ZOO[name].killed_by,
            red=" ".join(one.killed_by),
            after_s=one.first_red_s,
        )
        record_property("certification_s", one.whole_s)
        assert one.exit_code == 1, one.output
        assert "\n  NOT CERTIFIED" in one.output
        assert one.wrong is None, one.output
