"""What a declaration obliges: for each contract whether it runs, is skipped and why, or fails for want of a fixture.

Everything here is a function of a declaration and a contract, so that what must run is known without running it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from dendrux.testing.probe import Database
from dendrux.testing.store_kit.contract import Contract
from dendrux.vocabulary import FORMAT_2_CAPABILITIES
from dendrux_model.programs import Fault, Program, calls

FACTORY: Final = "dendrux_store_factory"
REOPEN: Final = "dendrux_store_reopen"
SECOND: Final = "dendrux_store_second_instance"
CLOCK: Final = "dendrux_clock"
INJECTOR: Final = "dendrux_fault_injector"
LIVE: Final = "dendrux_live_store_factory"
FIXTURES: Final = (FACTORY, REOPEN, SECOND, CLOCK, INJECTOR, LIVE)

SHARED_DEPLOYMENTS: Final = frozenset({"single_host", "multi_server"})
"""More than one process has the data, so there is a second instance to test with."""

PURPOSE: Final[Mapping[str, str]] = {
    FACTORY: "a callable that makes a new store over empty data",
    REOPEN: "a callable that takes a store and makes the store of a restarted process over the same data",
    SECOND: "a callable that takes a store and makes another one, with its own connections, over the same data",
    CLOCK: "an object with advance(delta), after which everything written earlier is older by delta",
    INJECTOR: "an object that cuts the next write transaction at a named point",
    LIVE: "a callable that takes a LiveUpdates and makes a store that announces through it",
}
"""What each fixture gives, for messages."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a store says of itself, and what its first instance showed."""

    name: str
    """The name of its class."""
    module: str
    deployment: object = None
    """As declared, valid or not."""
    capabilities: tuple[str, ...] = ()
    fixtures: frozenset[str] = frozenset()
    """Those that its author gave."""
    format: int | None = None
    """The storage format of a run that was created; None when creating one failed."""
    sql: bool = True
    """Whether it is a SQLStateStore, so that statements can be watched."""
    releases_claims: bool = True
    """Whether it has release_run_claim."""
    disconnect_forms: tuple[str, ...] = ()
    """What its fault injector offers."""
    processes: str | None = None
    """Why a second process cannot make this store; None when it can."""
    kind: str | None = None
    """The class and declaration that every instance must have."""
    database: Database | None = None
    """What the first store's database is; None where nobody asked, or it has none."""

    @property
    def declares_format_2(self) -> bool:
        """Whether new runs should come out at storage format 2."""
        return set(self.capabilities) >= FORMAT_2_CAPABILITIES

    @property
    def run_format(self) -> int:
        """The format that programs are judged by."""
        return self.format or (2 if self.declares_format_2 else 1)


Reason = Literal["ordinary", "store", "unverified", "injector", "form"]
"""Why a contract is skipped: nothing promised it; the store made it impossible; the protocol or a missing clock hides
it; no fault injector; a form of disconnect that this database does not have."""


class Run(NamedTuple):
    """The contract is checked."""


class Skip(NamedTuple):
    """The contract is not checked."""

    reason: Reason
    text: str


class Lacking(NamedTuple):
    """The contract fails without being checked: a fixture that the declaration obliges is missing."""

    fixture: str
    text: str


Plan = Run | Skip | Lacking


def owed(declaration: Declaration) -> dict[str, str]:
    """The fixtures that a declaration obliges, each with the reason, whether given or not."""
    found: dict[str, str] = {}
    if declaration.deployment in SHARED_DEPLOYMENTS:
        found[SECOND] = f"the store declares deployment={declaration.deployment}"
    if "recovery" in declaration.capabilities:
        found[REOPEN] = found[CLOCK] = "the store declares recovery"
    return found


def missing(declaration: Declaration) -> dict[str, str]:
    """The obliged fixtures that were not given, each with a message that says what to define."""
    return {
        fixture: f"the fixture {fixture} is missing: {why}. Define it in conftest.py; it returns {PURPOSE[fixture]}."
        for fixture, why in owed(declaration).items()
        if fixture not in declaration.fixtures
    }


def plan(contract: Contract, declaration: Declaration) -> Plan:
    """What becomes of a contract under a declaration: the first rule that speaks decides."""
    return next(rules(contract, declaration), Run())


def rules(contract: Contract, store: Declaration) -> Iterator[Plan]:
    """Every reason against simply running this contract, in the order in which they count."""
    needs = contract.needs
    if contract.capability is not None and contract.capability not in store.capabilities:
        yield Skip("ordinary", f"{contract.capability} is not declared")
    if "format_1" in needs and store.run_format == 2:
        yield Skip("ordinary", "about storage format 1, and runs of this store are of format 2")
    if "format_2" in needs and not store.declares_format_2:
        yield Skip("ordinary", "about storage format 2, whose four capabilities are not all declared")
    if "format_2" in needs and store.format == 1:
        yield Skip(
            "store",
            "the four format-2 capabilities are declared and runs come out at storage format 1: create the schema with "
            "Base.metadata.create_all, or declare less",
        )
    if contract.unverified is not None:
        yield Skip("unverified", contract.unverified)
    if "live" in needs and LIVE not in store.fixtures:
        yield Skip("ordinary", f"there is no fixture {LIVE}")
    if "sql" in needs and not store.sql:
        yield Skip("ordinary", "watches statements, and this is no SQLStateStore")
    if not store.releases_claims and uses_release(contract):
        yield Skip("store", "the store has no release_run_claim")
    if "processes" in needs and store.processes is not None:
        yield Skip("ordinary", f"this store cannot be made in a second process: {store.processes}")
    for need, fixture in (("second_instance", SECOND), ("reopen", REOPEN), ("clock", CLOCK)):
        if need in needs:
            yield from fixture_rules(fixture, store)
    if "reader" in needs and SECOND not in store.fixtures:
        lacking = missing(store)
        if SECOND in lacking:
            yield Lacking(SECOND, lacking[SECOND])
        yield Skip("unverified", f"whether live updates come once they can be seen: there is no fixture {SECOND}")
    if needs & {"fault_injector", "disconnect_form"}:
        yield from injector_rules(contract, store)


def fixture_rules(fixture: str, store: Declaration) -> Iterator[Plan]:
    """What a contract meets that needs one of the fixtures that a declaration may oblige."""
    if fixture == SECOND and store.deployment == "single_process":
        yield Skip("ordinary", "a single_process store has no second instance")
    if fixture in store.fixtures:
        return
    if fixture in (lacking := missing(store)):
        yield Lacking(fixture, lacking[fixture])
    elif fixture == CLOCK:
        yield Skip("unverified", f"time-based contracts: there is no fixture {CLOCK}")
    elif fixture == REOPEN:
        yield Skip("unverified", f"contracts about a restart: there is no fixture {REOPEN}")
    else:
        yield Skip("ordinary", f"there is no fixture {fixture}")


def injector_rules(contract: Contract, store: Declaration) -> Iterator[Plan]:
    """What a contract meets that cuts transactions."""
    if INJECTOR not in store.fixtures:
        yield Skip("injector", f"there is no fixture {INJECTOR}")
    if "disconnect_form" in contract.needs and not store.disconnect_forms:
        yield Skip("store", "the fault injector offers no form of disconnect, so acknowledgements cannot be lost")
    unknown = disconnects(contract.program or ()) - set(store.disconnect_forms)
    if unknown:
        yield Skip("form", f"this store has no disconnect of the form {', '.join(sorted(unknown))}")


def disconnects(program: Program) -> set[str]:
    """The forms of disconnect that a program asks for."""
    return {step.kind for step in program if isinstance(step, Fault)} - {"error", "cancel"}


def uses_release(contract: Contract) -> bool:
    """Whether a program releases a claim."""
    return any(call.operation.method == "release_run_claim" for call in calls(contract.program or ()))
