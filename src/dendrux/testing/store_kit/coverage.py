"""What the machines of a run reached: (operation, branch) pairs of the model, out of those that this store allows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from dendrux.testing.store_kit.contract import Contract
from dendrux.testing.store_kit.machines import Branches, Machine
from dendrux.testing.store_kit.verdict import Examined
from dendrux_model.branches import TIMED, known_branches


def allowed(machines: Collection[Machine], storage_format: int) -> Branches:
    """The pairs that these machines can reach: of the operations they call, on this format, in the time they pass."""
    called = {name for machine in machines for name in machine.names}
    beyond = frozenset() if any(machine.ticks for machine in machines) else TIMED
    return {pair for pair in known_branches(storage_format) - beyond if pair[0] in called}


def machines_of(examined: Examined) -> Iterator[tuple[Contract, Machine]]:
    """The contracts that are machines."""
    for contract in examined.contracts:
        if isinstance(contract.check, Machine):
            yield contract, contract.check


class Reached(NamedTuple):
    """What the machines of one store reached."""

    reached: Branches
    possible: Branches
    beyond: int
    """Further pairs of the model, which need fixtures or capabilities that this store lacks."""
    complete: bool
    """Every machine ran to a result, or was skipped for a known reason."""

    @property
    def missed(self) -> list[str]:
        """The pairs that were not reached, by name."""
        return [f"{name} {word}" for name, word in sorted(self.possible - self.reached)]


def measure(examined: Examined) -> Reached | None:
    """What the machines reached; None when none was exercised."""
    machines = [(contract, machine) for contract, machine in machines_of(examined) if examined.exercised(contract)]
    if not machines:
        return None
    storage_format = examined.declaration.run_format
    possible = allowed([machine for _, machine in machines], storage_format)
    return Reached(
        reached={pair for contract, _ in machines for pair in pairs(examined, contract)} & possible,
        possible=possible,
        beyond=len(known_branches(storage_format)) - len(possible),
        complete=all(examined.accounted(contract) for contract, _ in machines_of(examined)),
    )


def line(examined: Examined) -> str | None:
    """The line of the summary; None unless every machine ran to a result, or was skipped for a known reason."""
    found = measure(examined)
    if found is None or not found.complete:
        return None
    text = f"machines: reached {len(found.reached)} of {len(found.possible)} (operation, branch) pairs"
    if found.beyond:
        text += f" ({found.beyond} more need fixtures or capabilities that this store lacks)"
    if found.missed:
        text += f"; not reached: {', '.join(found.missed)}"
    return text


def pairs(examined: Examined, contract: Contract) -> Branches:
    """What one machine reached."""
    found: Branches = examined.results[contract.id].notes.get("branches", set())
    return found
