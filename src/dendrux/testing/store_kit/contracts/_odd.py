"""Odd input: text and numbers of other types count as plain ones, and what a call was given is its own from then on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final

from dendrux.testing.driver import Driver
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import Situation, contract, needs_of
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import WAITING, born, paused
from dendrux_model.operations import Operation, SubmitAndClaim
from dendrux_model.outcomes import INVALID, Outcome, Returned
from dendrux_model.programs import Do, Look
from dendrux_model.world import World

LATE: Final = "changed after the call began"
AGES: Final = frozenset({"cutoff_s", "older_than_s"})
"""What stands for a time or an age, which the driver makes of it."""


class Text(str):
    """Text of another type, which says something else of itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "Text.OF_ANOTHER_TYPE"

    __repr__ = __str__


class Number(int):
    """A number of another type, which says something else of itself."""

    def __str__(self) -> str:
        return "Number.OF_ANOTHER_TYPE"

    __repr__ = __str__


def odd(value: Any) -> Any:
    """The same value of other types: members of enums at the top, subclasses inside of documents."""
    if type(value) is str:
        return member("Word", value)
    if type(value) is int:
        return member("Count", value)
    return inner(value)


def member(name: str, value: Any) -> Any:
    """The only member of an enum of this value's type."""
    functional: Any = Enum  # its first argument is a literal, says the checker
    return functional(name, {"MEMBER": value}, type=type(value)).MEMBER


def inner(value: Any) -> Any:
    """What is in a document, a list or a value of the protocol, of other types."""
    if type(value) is str:
        return Text(value)
    if type(value) is int:
        return Number(value)
    if type(value) is dict:
        return {inner(key): inner(member) for key, member in value.items()}
    if type(value) in (list, tuple):
        return [inner(member) for member in value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: inner(getattr(value, field.name)) for field in fields(value)})
    return value


def spoil(value: Any) -> None:
    """Change every document and every list of an argument."""
    members = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    for member in members:
        spoil(member)
    if isinstance(value, dict):
        value[LATE] = LATE
    elif isinstance(value, list):
        value.append(LATE)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            spoil(getattr(value, field.name))


class OddDriver(Driver):
    """A driver of calls with odd arguments, whose documents and lists are changed once the call has begun."""

    def arguments(self, operation: Operation) -> dict[str, Any]:
        given = super().arguments(operation)
        return {name: value if name in AGES else odd(value) for name, value in given.items()}

    async def answer(self, method: Any, operation: Operation, given: dict[str, Any]) -> Any:
        call = asyncio.ensure_future(super().answer(method, operation, given))
        await asyncio.sleep(0)
        for value in given.values():
            spoil(value)
        return await call


@dataclass(frozen=True)
class Odd:
    """A check: the call with odd arguments is answered, and stores, what the plain one would."""

    sample: Sample

    async def __call__(self, situation: Situation) -> None:
        execution = Execution(situation.bench, World(new_format=situation.format), whole=False)
        await execution.run(self.sample.before, look=False)
        plain = execution.driver
        execution.driver = OddDriver(plain.namespace, plain.clock, plain.aged)
        await execution.step(Do(self.sample.operation))
        execution.driver = plain
        if self.sample.operation.lost_ack != "read":
            await execution.step(Look())


for called in samples():
    contract(
        f"basic.{called.method}.odd_input",
        f"{called.method} takes a subclass of str or int for its plain value, and nothing that changes after it began.",
        check=Odd(called),
        capability=called.capability,
        needs=needs_of(called.before) | called.needs,
        cause="A value is compared by its type or stored as str() shows it, or the caller's document is read again "
        "after the call has waited: copy every argument, as plain values, before the first await.",
    )


# -- a validation that waits ------------------------------------------------------------------------------------------


def submission(validate: Any, run_id: str = "r") -> Do:
    """A submission that is judged like this, and what it is answered."""
    expect: Outcome = Returned(2) if validate == "accept" else INVALID
    call = SubmitAndClaim(
        run_id=run_id, expected_status=WAITING, submitted_data={"a": 1}, submission_id="s", validate=validate
    )
    return Do(call, expect=expect)


contract(
    "basic.submit_and_claim.validation_cannot_wait",
    "A validation that has to be awaited is a TypeError and changes nothing, whether it is async or returns a wait.",
    born(),
    submission("async"),
    submission("async", "nowhere"),
    paused(),
    submission("async"),
    submission("awaitable"),
    Look(),
    submission("accept"),
    submission("async"),
    cause="An async function is called and what it returns is thrown away, so that every submission is accepted.",
)
