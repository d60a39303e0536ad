"""The store against the reference model: seeded walks through the model's small worlds, on both formats, with the flags
that choose between the store's own paths.
"""

from __future__ import annotations

import random

import pytest

from dendrux.db.models import Base
from dendrux.testing.bench import Bench
from dendrux.testing.execution import Execution
from dendrux.testing.inline import kit_engine
from dendrux.testing.store_kit.sql import SqlClock
from dendrux_model.operations import CancelSubtree
from dendrux_model.passing import Pass
from dendrux_model.programs import Do, Tick
from dendrux_model.world import World
from dendrux_model.worlds import SMALL_WORLDS
from unit.store_support import Format1Store
from unit.test_store_hooks import VARIANTS

KINDS = {"format 1": (1, Format1Store), **{name: (2, kind) for name, kind in VARIANTS.items()}}
WALKS = {"quick": 12, "full": 400}


def on_the_way(step):
    """Whether a step goes on from a cursor: the model's are run ids, a store's its own."""
    return isinstance(step, CancelSubtree) and step.after is not None


@pytest.mark.parametrize(("storage_format", "kind"), KINDS.values(), ids=KINDS)
async def test_walks_through_the_small_worlds(tmp_path, budget, storage_format, kind):
    engine = kit_engine(tmp_path / "walks.db")
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    store = kind(engine)
    chance = random.Random(storage_format)
    worlds = [world for world in SMALL_WORLDS.values() if world.format == storage_format]
    for number in range(WALKS[budget]):
        world = worlds[number % len(worlds)]
        alphabet = [step for step in world.alphabet if not on_the_way(step)]
        steps = [*world.setup, *(chance.choice(alphabet) for _ in range(15))]
        bench = Bench(lambda: store, clock=SqlClock(lambda: engine))
        walk = Execution(bench, world=World(new_format=storage_format))
        await walk.run([Tick(step.seconds) if isinstance(step, Pass) else Do(step) for step in steps])
    await engine.dispose()
