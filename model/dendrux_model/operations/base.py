"""What every operation value has: a step, a method it stands for, and the facts that machines need of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

from dendrux_model.outcomes import Outcome, Refused
from dendrux_model.values import content_key
from dendrux_model.world import World

Step = tuple[World, Outcome]


class Known(NamedTuple):
    """What there is, or may have come to be, while a call is made."""

    runs: frozenset[str]
    """Ids of runs."""
    blobs: frozenset[tuple[str, str]]
    """Scopes and contents of blobs."""


Parts = list[tuple["Operation", Outcome]]
"""Steps of one call, each with what the answer says of it."""

LostAck = Literal["claim", "identity", "natural", "unknown", "paged", "read"]
"""What a store may answer when the acknowledgement of COMMIT is lost.

claim: always the unknown outcome, whatever a later read shows. identity: the real outcome, found by repeating.
natural: repeating is harmless, so the real outcome. unknown: nothing makes the call repeatable. paged: each run has a
transaction of its own; the run whose acknowledgement was lost is an entry of `failed`.
"""

OPERATIONS: dict[str, type[Operation]] = {}
"""Every operation of the model by class name, in the order the nouns are imported."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One call of the StateStore method that this class is named after."""

    lost_ack: ClassVar[LostAck]
    noun: ClassVar[str]
    method: ClassVar[str]
    fenced: ClassVar[bool] = False
    """Whether the method takes `claim_epoch=`."""
    identity: ClassVar[str | None] = None
    """The parameter that makes a repeat recognisable."""
    owners_only: ClassVar[bool] = False
    """Whether the method demands `claim_epoch=`: nobody but an owner may call it."""
    fence_first: ClassVar[bool] = False
    """Whether the fence comes before the identity, because the operation hands out or orders work."""
    identity_of_run: ClassVar[bool] = False
    """Whether the identity is the run's own, so that the same id in another run is another one."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Fields with the parameter of the method that each stands for, where the two have different names."""
    not_persisted: ClassVar[frozenset[str]] = frozenset()
    """Parameters beside the epoch and the ids that are no part of retry equality."""

    def __init_subclass__(cls, *, lost_ack: LostAck | None = None, identity: str | None = None, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        cls.noun = cls.__module__.rsplit(".", 1)[1]
        if lost_ack is None:
            return
        cls.lost_ack = lost_ack
        cls.identity = identity
        cls.method = re.sub(r"(?<!^)(?<!L)(?<!LL)(?=[A-Z])", "_", cls.__name__).lower()
        cls.fenced = "claim_epoch" in cls.__annotations__
        cls.owners_only = cls.__annotations__.get("claim_epoch") == "int"
        OPERATIONS[cls.__name__] = cls

    def step(self, world: World) -> Step:
        """What the operation does to this world, and what it answers."""
        raise NotImplementedError

    def cut_steps(self, world: World, *, at_commit: bool) -> list[Step]:
        """Of a paged operation: what it may do and answer when the transaction of one of its runs is cut.

        Cut at COMMIT nobody knows what became of that run; cut earlier, nothing did, and the code says so.
        """
        return []

    def partly(self, world: World) -> list[World]:
        """Of a paged operation: the worlds in which it ended, cancelled, before it had reached all of its runs."""
        return []

    def ways(self, observed: Outcome, known: Known) -> list[Parts]:
        """The call as what it is among concurrent ones: steps that each happen at once, in no order.

        An operation over many runs is a step for each of them, a read of several statements a step for each of these.
        Where an answer does not say what a step did, there are several ways to take it apart.

        Args:
            known: what the call may have met besides what its answer names.
        """
        return [[(self, observed)]]

    def idle(self, observed: Outcome) -> bool:
        """Whether the call changes no world in which it is answered like this."""
        return self.lost_ack == "read" or isinstance(observed, Refused)

    @property
    def by_time(self) -> tuple[str | None, frozenset[str | None]]:
        """Which list shows what the call stores in the order of its time, and the ids there; None: no list does."""
        return None, frozenset()

    @cached_property
    def content(self) -> str:
        """Equal for two calls that persist the same: what a retry by identity compares."""
        left_out = self.not_persisted | {"claim_epoch", "run_id", "blob_refs_scope", self.identity}
        return content_key(type(self).__name__, {k: v for k, v in self.persisted().items() if k not in left_out})

    def persisted(self) -> dict[str, Any]:
        """What the call stores, as it stores it."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        if "blob_refs" in given:
            given["blob_refs"] = tuple(given["blob_refs"] or ())
        return given

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the method."""
        return {self.renamed.get(f.name, f.name): getattr(self, f.name) for f in fields(self)}

    @classmethod
    def called(cls, arguments: Mapping[str, Any]) -> Self:
        """The call that has these keyword arguments of the method: the inverse of `arguments`."""
        names = {parameter: field for field, parameter in cls.renamed.items()}
        return cls(**{names.get(parameter, parameter): value for parameter, value in arguments.items()})

    def __str__(self) -> str:
        name = getattr(self, "method", type(self).__name__)  # a part of a call stands for no method
        given = (f for f in fields(self) if getattr(self, f.name) != f.default)
        return f"{name}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in given)})"
