"""The verdict on one store, from what it declares and what became of each contract. Nothing here runs anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dendrux.testing.store_kit.contract import GROUPS, Contract
from dendrux.testing.store_kit.obligations import (
    INJECTOR,
    LIVE,
    SHARED_DEPLOYMENTS,
    Declaration,
    Lacking,
    Run,
    Skip,
    missing,
    plan,
)
from dendrux.testing.store_kit.shown import Shown

Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one contract."""

    outcome: Outcome
    skip: Skip | None = None
    """Why the kit skipped it; None when something else did."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Facts that the check left for the report."""
    shown: Shown | None = None
    """Of a failure, what may be handed on."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The end of a summary. `reasons` speak against the store, `caveats` only limit what was shown."""

    certified: bool
    incomplete: bool = False
    groups: tuple[str, ...] = ()
    """Those of which something passed."""
    reasons: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.certified:
            listed = ", ".join(self.groups)
            if not self.caveats:
                return f"CERTIFIED: {listed}"
            return f"CERTIFIED with caveats: {listed} (caveats: {'; '.join(self.caveats)})"
        how = " (incomplete run)" if self.incomplete else ""
        return f"NOT CERTIFIED{how}: {'; '.join(self.reasons)}"


@dataclass(frozen=True)
class Examined:
    """One store with the contracts of this version and what became of them."""

    declaration: Declaration
    contracts: Sequence[Contract]
    results: Mapping[str, Result]

    def tally(self, group: str) -> Counter[Outcome]:
        """How many contracts of a group passed, failed and were skipped."""
        results = (self.results.get(c.id) for c in self.contracts if c.group == group)
        return Counter(result.outcome for result in results if result is not None)

    def failed(self) -> list[Contract]:
        """The contracts that the store failed, in the order of the catalogue."""
        return [c for c in self.contracts if (r := self.results.get(c.id)) is not None and r.outcome == "failed"]

    def exercised(self, contract: Contract) -> bool:
        """Whether a contract was checked to its end."""
        result = self.results.get(contract.id)
        return result is not None and result.outcome != "skipped"

    def silent(self) -> list[Contract]:
        """Contracts without a result that counts: deselected, not reached, or skipped by somebody else."""
        return [c for c in self.contracts if not self.accounted(c)]

    def accounted(self, contract: Contract) -> bool:
        """Whether a contract ran, or was skipped for a reason that its obligation knows."""
        result = self.results.get(contract.id)
        if result is None:
            return False
        if result.outcome != "skipped":
            return True
        return result.skip is not None and not isinstance(plan(contract, self.declaration), (Run, Lacking))

    def skips(self) -> list[tuple[Contract, Skip]]:
        """Every contract that the kit skipped, with the reason."""
        found = []
        for contract in self.contracts:
            result = self.results.get(contract.id)
            if result is not None and result.skip is not None:
                found.append((contract, self.judged(contract, result.skip)))
        return found

    def judged(self, contract: Contract, skip: Skip) -> Skip:
        """A skip for a form of disconnect is ordinary as long as another form was exercised for the same promise."""
        if skip.reason != "form":
            return skip
        others = (c for c in self.contracts if "disconnect_form" in c.needs and guards(c) == guards(contract))
        return Skip("ordinary" if any(map(self.exercised, others)) else "store", skip.text)

    def by_store(self) -> dict[str, dict[str, int]]:
        """What the store itself made skip: for each capability or group, the reasons with their number of contracts."""
        found: dict[str, dict[str, int]] = {}
        for contract, skip in self.skips():
            if skip.reason == "store":
                reasons = found.setdefault(guards(contract), {})
                reasons[skip.text] = reasons.get(skip.text, 0) + 1
        return found

    def unverified(self) -> list[str]:
        """What could not be seen, each once."""
        return unique(skip.text for _, skip in self.skips() if skip.reason == "unverified")

    def absent(self) -> list[str]:
        """The groups that this version has no contracts for."""
        present = {contract.group for contract in self.contracts}
        return [group for group in GROUPS if group not in present]


def judge(examined: Examined) -> Verdict:
    """The verdict: any reason forbids a certificate, any caveat limits it."""
    silent = examined.silent()
    reasons = list(against(examined))
    if silent:
        total = len(examined.contracts)
        reasons.insert(0, f"{len(silent)} of {total} contracts did not run to a result")
    return Verdict(
        certified=not reasons,
        incomplete=bool(silent),
        groups=tuple(group for group in GROUPS if examined.tally(group)["passed"]),
        reasons=tuple(reasons),
        caveats=tuple(caveats(examined)),
    )


def against(examined: Examined) -> Iterable[str]:
    """Everything that forbids to certify, apart from what did not run."""
    store = examined.declaration
    if store.deployment is None:
        yield "the store declares no deployment"
    for fixture in missing(store):
        yield f"{fixture} is missing"
    failed = Counter(contract.group for contract in examined.failed())
    for group in GROUPS:
        if failed[group]:
            yield f"{group}: {failed[group]} failed"
    for guarded, skipped in examined.by_store().items():
        yield f"{guarded}: {sum(skipped.values())} skipped by the store"
    yield from unexercised(examined)


def unexercised(examined: Examined) -> Iterable[str]:
    """Promises that nothing checked: a declared capability, or what every store promises."""
    for promise in ("basic", *examined.declaration.capabilities):
        about = [c for c in examined.contracts if guards(c) == promise]
        if not about and promise != "basic":
            yield f"{promise} is declared and this version has no contracts for it"
        if about and all(c.id in examined.results for c in about) and not any(map(examined.exercised, about)):
            yield f"{promise}: every contract was skipped"


def caveats(examined: Examined) -> Iterable[str]:
    """What a certificate does not say."""
    for text in examined.unverified():
        yield f"unverified: {text}"
    if INJECTOR not in examined.declaration.fixtures:
        yield "crash recovery: not certified"
    if LIVE not in examined.declaration.fixtures:
        yield "live updates: not tested"
    together = [c for c in examined.contracts if "processes" in c.needs and c.id in examined.results]
    if (
        examined.declaration.deployment in SHARED_DEPLOYMENTS
        and together
        and not any(map(examined.exercised, together))
    ):
        yield "two processes: not tested"
    if reduced := sorted({r.notes["reduced"] for r in examined.results.values() if "reduced" in r.notes}):
        yield f"reduced budget: {', '.join(map(str, reduced))} examples per machine"
    if any("sampled" in r.notes for r in examined.results.values()):
        yield "pair matrix: every third cell only"
    if absent := examined.absent():
        yield f"not part of this version: {', '.join(absent)}"


def guards(contract: Contract) -> str:
    """What a contract stands for: the capability that obliges it, or its group."""
    return contract.capability or contract.group


def unique(texts: Iterable[str]) -> list[str]:
    """Texts in their order, each once."""
    return list(dict.fromkeys(texts))
