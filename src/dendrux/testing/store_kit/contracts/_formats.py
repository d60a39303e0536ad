"""Contracts whose outcome depends on the storage format of the store's runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dendrux.testing.store_kit.checking import run_program
from dendrux.testing.store_kit.contract import CONTRACTS, Situation, contract, needs_of
from dendrux_model.programs import Program


@dataclass(frozen=True)
class ByFormat:
    """A check that runs one program on runs of format 1 and another one on runs of format 2."""

    one: Program
    two: Program

    def program(self, storage_format: int) -> Program:
        """The program for runs of this format."""
        return self.one if storage_format == 1 else self.two

    async def __call__(self, situation: Situation) -> None:
        await run_program(self.program(situation.format), situation)


def by_format(
    id: str, promise: str, *, one: Program, two: Program, group: str = "basic", cause: str | None = None
) -> None:
    """Add a contract with a program for each format."""
    needs = needs_of(one) | needs_of(two)
    added = contract(id, promise, group=group, needs=needs, cause=cause, check=ByFormat(one, two))
    CONTRACTS[id] = replace(added, program=one)  # what is planned and reported of the contract is its longer program
