"""Runs a program that a failing contract wrote, on a store and the model, and says whether it still fails."""

from __future__ import annotations

import json
from dataclasses import dataclass

from dendrux.testing.bench import Bench
from dendrux.testing.execution import Failed, Inconclusive
from dendrux.testing.store_kit.checking import perform
from dendrux.testing.store_kit.fixtures import declaration_of
from dendrux_model.programs import Program, from_json


@dataclass(frozen=True)
class Recording:
    """A program as it was written, with what the kit wrote about it."""

    program: Program
    contract: str | None = None
    promise: str | None = None


@dataclass(frozen=True)
class Replayed:
    """What a replay did. `agrees`: the store did what the model allows at every step."""

    run: Failed
    """Every step that was executed, with the answers; `why` is empty when all agree."""

    @property
    def agrees(self) -> bool:
        """Whether nothing spoke against the store."""
        return not self.run.why


def read(text: str) -> Recording:
    """The recording in a file's text. ValueError says what is wrong with it."""
    program = from_json(text)
    about = json.loads(text)
    return Recording(program, about.get("contract"), about.get("promise"))


async def replay(program: Program, bench: Bench) -> Replayed:
    """Run a program on the first store of a bench."""
    declaration = await declaration_of(bench, frozenset())
    try:
        execution = await perform(program, bench, declaration.run_format, whole=True)
    except Failed as failed:
        return Replayed(failed)
    except Inconclusive as search:
        why = "no explanation was found or ruled out within the budget of the search"
        return Replayed(Failed(search.program, search.step, [], why))
    return Replayed(execution.failed(""))
