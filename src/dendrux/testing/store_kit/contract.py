"""What a contract is: a promise, what it needs to be checked, and how to check it.

Most contracts are programs. A few (machines, the pair matrix, declarations) are checks of their own: an async function
of the bench.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from dendrux.testing.bench import Bench
from dendrux_model.machines.cells import Size
from dendrux_model.programs import Do, Fault, Program, Reopen, Tick, instances

GROUPS: Final = (
    "declaration",
    "basic",
    "agent_flows",
    "fenced_writes",
    "retry_ids",
    "checkpointing",
    "atomic_completion",
    "recovery",
    "concurrency",
    "crash_recovery",
    "live_updates",
)
"""In the order of the summary."""

Need = Literal[
    "second_instance",
    "reopen",
    "clock",
    "fault_injector",
    "disconnect_form",
    "format_1",
    "format_2",
    "sql",
    "processes",
    "live",
    "reader",
]


EXAMPLES_MAX: Final = 1_000_000
"""Of a machine: days, and more than any run has needed."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run of the kit was asked for."""

    examples: int | None = None
    """Examples per machine; None is the default budget of each."""
    seed: int | None = None
    matrix: Size = "cover"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a check runs with."""

    bench: Bench
    format: int
    """The storage format of the runs that this store creates."""
    capabilities: Any
    settings: Settings
    note: Callable[[str, Any], None]
    """Puts a fact into the report, such as the branches a machine reached."""
    fixtures: frozenset[str] = frozenset()
    """The fixtures of the kit that the store's author gave."""


Check = Callable[[Situation], Awaitable[None]]


class NotKept(AssertionError):
    """What a check raises against a store that no program failed: the message is one sentence for its author."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One promise. `id` is stable; `since` is the release that first checked it."""

    id: str
    group: str
    promise: str
    program: Program | None = None
    check: Check | None = None
    capability: str | None = None
    """The capability whose declaration obliges this contract; None obliges every store."""
    needs: frozenset[Need] = frozenset()
    since: str = "0.6.0"
    cause: str | None = None
    """The likely cause of a failure, in words a store author can act on."""
    unverified: str | None = None
    """Why the protocol cannot show whether this promise holds: then it is reported, never checked."""


CONTRACTS: dict[str, Contract] = {}
"""Every contract by id, in the order of the nouns' modules."""


def contract(
    id: str,
    promise: str,
    *steps: Any,
    group: str = "basic",
    capability: str | None = None,
    needs: frozenset[Need] | set[Need] = frozenset(),
    cause: str | None = None,
    check: Check | None = None,
    unverified: str | None = None,
) -> Contract:
    """Add a contract to the catalogue. What a program needs is read from its steps; `needs` adds the rest."""
    if id in CONTRACTS:
        raise ValueError(f"two contracts named {id}")
    program: Program | None = tuple(steps) if check is None else None
    CONTRACTS[id] = Contract(
        id=id,
        group=group,
        promise=promise,
        program=program,
        check=check,
        capability=capability if capability is not None or group not in CAPABILITY_GROUPS else group,
        needs=frozenset(needs) | needs_of(program or ()),
        cause=cause,
        unverified=unverified,
    )
    return CONTRACTS[id]


CAPABILITY_GROUPS: Final = frozenset({"fenced_writes", "retry_ids", "checkpointing", "atomic_completion", "recovery"})
"""Groups that are named after the capability that obliges them."""


def needs_of(program: Program) -> frozenset[Need]:
    """What the steps of a program ask of the fixtures."""
    needs: set[Need] = set()
    if instances(program) > 1:
        needs.add("second_instance")
    for step in program:
        if isinstance(step, Reopen):
            needs.add("reopen")
        elif isinstance(step, Tick):
            needs.add("clock")
        elif isinstance(step, Fault):
            needs.add("fault_injector")
            if step.kind not in ("error", "cancel"):
                needs.add("disconnect_form")
            if step.point == "statement" and step.after:
                needs.add("sql")  # only a store that sends statements has a second one
        elif not isinstance(step, Do) and hasattr(step, "branches"):
            needs.add("sql")
    return frozenset(needs)
