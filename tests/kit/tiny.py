"""A store that is none, and a catalogue of a dozen contracts, for tests of the verdict."""

from __future__ import annotations

from inspect import Parameter, Signature
from types import FunctionType
from typing import Any

from dendrux.runtime.values import CreateRunResult
from dendrux.store import StoreCapabilities
from dendrux.store.capabilities import REQUIRED
from dendrux.testing.store_kit.contract import CONTRACTS, GROUPS, Contract, NotKept, Situation
from dendrux.testing.store_kit.contracts import declaration as _declaration  # noqa: F401  # fills the catalogue
from dendrux_model.operations import CreateRun, ReleaseRunClaim
from dendrux_model.programs import Do, Fault

RUN = CreateRun(run_id="r", agent_name="a")


class Fake:
    """Creates runs and forgets them. It has every method that a capability needs."""

    format = 1

    def __init__(self, *, deployment: str | None = "single_process", **capabilities: bool) -> None:
        self.capabilities = StoreCapabilities(deployment=deployment, **capabilities)  # type: ignore[arg-type]

    async def release_run_claim(self, run_id: str, *, claim_epoch: int) -> bool:
        return False


async def create_run(self: Fake, run_id: str, agent_name: str, **rest: Any) -> CreateRunResult:
    return CreateRunResult(run_id=run_id, outcome="created", status="running", format=self.format, claim_epoch=1)


async def does_nothing(self: Fake, **given: Any) -> None: ...


def method(name: str) -> Any:
    """A method with the keyword parameters that every capability asks of it."""
    body = create_run if name == "create_run" else does_nothing
    found = FunctionType(body.__code__, globals(), name)
    names = sorted({parameter for methods in REQUIRED.values() for parameter in methods.get(name, ())})
    parameters = [Parameter(parameter, Parameter.KEYWORD_ONLY) for parameter in names]
    found.__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *parameters])
    return found


for _name in {"create_run", *(name for methods in REQUIRED.values() for name in methods)}:
    setattr(Fake, _name, method(_name))


async def keeps(situation: Situation) -> None:
    """A promise that every store keeps."""
    await situation.bench.instance()


async def breaks(situation: Situation) -> None:
    """A promise that no store keeps."""
    raise NotKept("it does not")


def tiny(id: str, *, check: Any = keeps, program: Any = None, **about: Any) -> Contract:
    """A contract outside the catalogue."""
    group = id.split(".", maxsplit=1)[0]
    return Contract(
        id=id,
        group=group,
        promise=f"The promise of {id}.",
        check=None if program else check,
        program=program,
        capability=about.pop("capability", group if group in StoreCapabilities.__dataclass_fields__ else None),
        needs=frozenset(about.pop("needs", ())),
        **about,
    )


DECLARATION = [contract for contract in CONTRACTS.values() if contract.group == "declaration"]
TINY = [
    *DECLARATION,
    tiny("basic.one"),
    tiny("basic.two"),
    tiny("basic.restart", needs={"reopen"}, capability="recovery"),
    tiny("basic.stale_sweep", needs={"clock"}),
    tiny("fenced_writes.one"),
    tiny("fenced_writes.position", needs={"format_2"}),
    tiny("retry_ids.one"),
    tiny("retry_ids.usage", unverified="save_usage retry identity: nobody reads usage rows"),
    tiny("recovery.mark", needs={"clock", "reopen"}),
    tiny("concurrency.two_instances", needs={"second_instance"}),
    tiny("crash_recovery.cut", needs={"fault_injector"}),
    tiny("crash_recovery.lost", needs={"fault_injector", "disconnect_form"}),
]
"""Groups in the order of the summary; declaration is the real one."""
EVERY_GROUP = [*DECLARATION, *(tiny(f"{group}.one") for group in GROUPS[1:])]

CUT = tiny("crash_recovery.program", program=(Fault(Do(RUN), "after_commit", "error"),), needs={"fault_injector"})
ENDED = tiny(
    "crash_recovery.ended",
    program=(Fault(Do(RUN), "after_commit", "session_ended"),),
    needs={"fault_injector", "disconnect_form"},
)
RELEASE = tiny("basic.release", program=(Do(RUN), Do(ReleaseRunClaim(run_id="r", claim_epoch=1))))
BROKEN = tiny("basic.broken", check=breaks, cause="It was made so.")


class Clock:
    """Ages nothing."""

    def advance(self, delta: Any) -> None: ...


class Injector:
    """Never cuts."""

    forms: tuple[str, ...] = ("invalidated",)

    def arm(self, store: Any, point: str, *, kind: str = "error", after: int = 0, sticky: bool = False) -> None: ...

    def fired(self, store: Any) -> int:
        return 0

    def disarm(self, store: Any) -> None: ...

    def disconnect_forms(self, store: Any) -> tuple[str, ...]:
        return self.forms
