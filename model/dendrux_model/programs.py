"""Programs: what to do, as data. Contracts, machines, races and replays are all programs.

A program names runs, tenants and ids as the model does; the driver gives them a namespace of their own on the store, so
a program means the same on every store and can run many times on one database.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from decimal import Decimal
from typing import Any, Literal

from dendrux.runtime.values import (
    BlobEdge,
    EventWrite,
    LLMInteractionWrite,
    SeedTrace,
    ToolCallWrite,
    TraceWrite,
    UsageStats,
    UsageWrite,
)
from dendrux.vocabulary import UNSCOPED
from dendrux_model.operations import OPERATIONS, Operation
from dendrux_model.outcomes import Outcome, Refused, Returned
from dendrux_model.world import SECOND

Point = Literal["statement", "before_commit", "after_commit"]
"""Where a fault cuts: before a statement, before COMMIT is sent, after COMMIT was applied."""

PROGRAM_VERSION = 1


@dataclass(frozen=True)
class Do:
    """One call on one live instance.

    `yield_at` lets the other branch of a `Together` run after this call's n-th statement; `expect` is the outcome that
    a contract is about, checked against the model and the store.
    """

    operation: Operation
    instance: int = 0
    yield_at: int | None = None
    expect: Outcome | None = None


@dataclass(frozen=True)
class Together:
    """Calls at the same time: the first one is parked at its `yield_at`, the others run meanwhile."""

    branches: tuple[Do, ...]


@dataclass(frozen=True)
class Fault:
    """One call whose transaction is cut at `point`."""

    do: Do
    point: Point
    kind: str
    after: int = 0


@dataclass(frozen=True)
class Tick:
    """Time passes."""

    seconds: float


@dataclass(frozen=True)
class Reopen:
    """An instance restarts: its successor sees the same data and remembers nothing."""

    instance: int = 0


@dataclass(frozen=True)
class Look:
    """Read everything the protocol can show, and compare it with the model."""


Step = Do | Together | Fault | Tick | Reopen | Look
Program = tuple[Step, ...]


def calls(program: Sequence[Step]) -> Iterator[Do]:
    """Every call of a program, in order."""
    for step in program:
        if isinstance(step, Do):
            yield step
        elif isinstance(step, Fault):
            yield step.do
        elif isinstance(step, Together):
            yield from step.branches


def timed(program: Sequence[Step]) -> Iterator[tuple[int, Do]]:
    """Every call of a program with its instant: a call takes one, and time passes by whole seconds."""
    instant = 0
    for step in program:
        if isinstance(step, Tick):
            instant += int(step.seconds * SECOND)
        for call in calls((step,)):
            instant += 1
            yield instant, call


def lasting(program: Sequence[Step]) -> int:
    """The instant after the whole program."""
    passed = sum(int(step.seconds * SECOND) for step in program if isinstance(step, Tick))
    return passed + sum(1 for _ in calls(program)) + 1


def instances(program: Sequence[Step]) -> int:
    """How many live instances a program needs."""
    used = [call.instance for call in calls(program)]
    used += [step.instance for step in program if isinstance(step, Reopen)]
    return max(used, default=0) + 1


# -- JSON -------------------------------------------------------------------------------------------------------------


def to_json(program: Sequence[Step], **about: Any) -> str:
    """A program as text, with anything `about` it beside the steps."""
    document = {"version": PROGRAM_VERSION, **about, "steps": [encode(step) for step in program]}
    return json.dumps(document, indent=1, ensure_ascii=False)


def from_json(text: str) -> Program:
    """The program in a text that `to_json` wrote. ValueError says what is wrong with it."""
    try:
        document = json.loads(text)
        if document["version"] != PROGRAM_VERSION:
            raise ValueError(f"program version {document['version']!r}, this release reads {PROGRAM_VERSION}")
        return tuple(decode(step) for step in document["steps"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a program: {type(error).__name__} at {error}") from error


def encode(value: Any) -> Any:
    """JSON form of a step or of anything in one: dataclasses become objects that name their class."""
    if isinstance(value, Returned):
        return {"is": "Returned", "value": encode(value.value)}
    if isinstance(value, Refused):
        return {"is": "Refused", "code": value.code}
    if value is UNSCOPED:
        return {"is": "UNSCOPED"}
    if isinstance(value, Decimal):
        return {"is": "Decimal", "value": str(value)}
    if is_dataclass(value):
        given = {
            f.name: encode(getattr(value, f.name))
            for f in fields(value)
            if f.default is MISSING or getattr(value, f.name) != f.default
        }
        return {"is": type(value).__name__, **given}
    if isinstance(value, dict):
        return {"is": "object", "members": [[key, encode(member)] for key, member in value.items()]}
    if isinstance(value, (list, tuple, frozenset, set)):
        return [encode(item) for item in value]
    return value


WRITES = (EventWrite, LLMInteractionWrite, SeedTrace, ToolCallWrite, TraceWrite, UsageWrite)
STEPS = (Do, Together, Fault, Tick, Reopen, Look)
CLASSES: dict[str, Any] = {c.__name__: c for c in (*STEPS, BlobEdge, UsageStats, *WRITES)}


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    name = value["is"]
    if name == "object":
        return {key: thaw(decode(member)) for key, member in value["members"]}
    if name == "UNSCOPED":
        return UNSCOPED
    if name == "Decimal":
        return Decimal(value["value"])
    if name == "Returned":
        return Returned(thaw(decode(value["value"])))
    if name == "Refused":
        return Refused(value["code"])
    known = CLASSES | OPERATIONS
    if name not in known:
        raise ValueError(f"unknown {name!r}; known: {', '.join(known)}")
    return known[name](**{key: decode(member) for key, member in value.items() if key != "is"})


def thaw(value: Any) -> Any:
    """Lists inside JSON documents are lists, not tuples."""
    return [thaw(item) for item in value] if isinstance(value, tuple) else value
