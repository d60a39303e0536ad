"""An agent without a database: the reference store in its place, whose every answer is the model's."""

from __future__ import annotations

from typing import Any

import pytest

from dendrux.testing import ReferenceStore
from dendrux.testing.bench import Bench
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import Contract, Settings, Situation

FLOWS = [one for one in catalogue() if one.group == "agent_flows"]


@pytest.mark.parametrize("contract", FLOWS, ids=lambda one: one.id)
async def test_every_flow_holds_on_the_model(contract: Contract) -> None:
    store: Any = ReferenceStore()
    bench = Bench(lambda: store, reopen=lambda old: old, clock=store.clock)
    situation = Situation(
        bench=bench, format=2, capabilities=store.capabilities, settings=Settings(), note=lambda key, value: None
    )
    assert contract.check is not None
    await contract.check(situation)
