"""The machines of a default run reach nearly every way through every operation; on the model alone, so it is cheap."""

from __future__ import annotations

import pytest

from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.coverage import allowed
from dendrux.testing.store_kit.machines import Branches, Machine
from unit.rehearsal import Rehearsal

REACHED_MIN = 0.95
"""The share of the pairs that a default run reaches at least."""


@pytest.mark.parametrize("storage_format", [1, 2])
def test_a_default_run_reaches_nearly_every_branch(storage_format: int) -> None:
    other = f"format_{3 - storage_format}"
    contracts = [c for c in catalogue() if isinstance(c.check, Machine) and other not in c.needs]
    machines = [c.check for c in contracts if isinstance(c.check, Machine)]
    reached: Branches = set()
    for machine in machines:
        machine.search(lambda: Rehearsal(storage_format, reached), machine.examples, None)
    possible = allowed(machines, storage_format)
    missed = sorted(possible - reached)
    assert len(missed) <= (1 - REACHED_MIN) * len(possible), missed
