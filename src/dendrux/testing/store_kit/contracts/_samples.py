"""One call of every operation that works where it begins, and other values for everything it stores.

The modules of the nouns give them; fences, identities, faults, tenants and bad arguments are generated from them for
every operation of the model, so that a new operation is never forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from dendrux.runtime.values import BlobEdge
from dendrux.store.capabilities import REQUIRED
from dendrux.testing.store_kit.contract import Need
from dendrux.testing.store_kit.contracts._states import OWNED, answer
from dendrux.vocabulary import NO_TENANT
from dendrux_model.operations import OPERATIONS
from dendrux_model.outcomes import INVALID
from dendrux_model.programs import Program


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A call, the steps before it, and for each stored parameter other values that are also good."""

    operation: Any
    before: Program
    others: Mapping[str, tuple[Any, ...]]

    @property
    def method(self) -> str:
        """The method that the operation stands for."""
        return str(self.operation.method)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the method."""
        return tuple(field.name for field in fields(self.operation))

    @property
    def formats(self) -> tuple[int, ...]:
        """The storage formats whose runs have this operation with these parameters."""
        answers = {form: answer(self.before, self.operation, form) for form in (1, 2)}
        only_2 = answers[1] == INVALID != answers[2]
        return (2,) if only_2 else (1,) if answers[2] == INVALID != answers[1] else (1, 2)

    @property
    def needs(self) -> frozenset[Need]:
        """What contracts about this operation need beside what their steps need."""
        only: dict[tuple[int, ...], frozenset[Need]] = {(1,): frozenset({"format_1"}), (2,): frozenset({"format_2"})}
        return only.get(self.formats, frozenset())

    @property
    def capability(self) -> str | None:
        """The capability without which a store need not have the method at all."""
        return CAPABILITY_OF.get(self.method)

    def takes(self, parameter: str) -> bool:
        """Whether the method has this parameter."""
        return parameter in self.parameters


CAPABILITY_OF: Final = {
    method: capability
    for capability, methods in REQUIRED.items()
    for method in methods
    if method not in ("create_run", "claim_paused_run", "submit_and_claim", "finalize_with_event")
    and capability in ("checkpointing", "atomic_completion", "recovery")
    and not method.startswith("save_")
}
"""Methods that come with a capability; every store has the others."""

EDGE: Final = BlobEdge(tenant_scope=NO_TENANT, sha256="picture", owner_kind="row", owner_id="0", ordinal=0)
"""A reference to a blob. In a repeat with other references it need not be there."""

SAMPLES: dict[str, Sample] = {}
"""By the name of the operation's class."""


def sample(operation: Any, *, before: Program = OWNED, **others: tuple[Any, ...]) -> None:
    """Say how an operation is called after the steps `before`; `others` are further values of stored parameters."""
    if "blob_refs" in type(operation).__dataclass_fields__:
        others.setdefault("blob_refs", ((EDGE,),))
    SAMPLES[type(operation).__name__] = Sample(operation=operation, before=before, others=others)


def samples() -> Iterator[Sample]:
    """A sample of every operation of the model, in its order."""
    for name, operation in OPERATIONS.items():
        if name not in SAMPLES:
            raise LookupError(f"no sample of {name}: give one in the contracts of {operation.noun}")
        yield SAMPLES[name]


def stored(sample_of: Sample) -> tuple[str, ...]:
    """The parameters that a repeat by identity compares."""
    operation = sample_of.operation
    left_out = operation.not_persisted | {"claim_epoch", "run_id", "blob_refs_scope", operation.identity}
    return tuple(name for name in sample_of.parameters if name not in left_out)
