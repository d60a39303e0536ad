"""What a certificate shows of a failing program: the rows of the report, in words that the kit wrote itself.

A certificate is handed on. A broken store may answer with rows of somebody else, or with text of its driver; so an
answer shows a text only where the program or the model has the same text, or the protocol's own vocabulary has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Final, NamedTuple, get_args

from dendrux import errors, vocabulary
from dendrux.runtime import values as records
from dendrux.testing.execution import Failed
from dendrux.testing.store_kit.causes import likely
from dendrux.testing.store_kit.contract import Contract
from dendrux.testing.store_kit.table import LETTERS, Move, Row, race_of, rows, said, schedule
from dendrux_model.outcomes import (
    INVALID,
    VALIDATION,
    Broken,
    Cancelled,
    Outcome,
    Refused,
    Returned,
    Unavailable,
    Unknown,
)
from dendrux_model.programs import to_json
from dendrux_model.values import At, JsonText, Minted

CALL_LENGTH: Final = 1000
"""Characters of one call or answer."""
HIDDEN: Final = "(text that is not the kit's)"
FIELD: Final = re.compile(r"^([\w.\[\]]+): the model has ")
CLASS: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*")


class Shown(NamedTuple):
    """A failing program, ready to be written down."""

    program: tuple[Row, ...] = ()
    races: tuple[str, ...] = ()
    """The calls of its last race, by the letters of the schedule."""
    schedule: tuple[Move, ...] = ()
    differs_at: str | None = None
    """The first field in which an answer differs from the model's."""
    cause: str | None = None


class Hidden:
    """Stands for a text that is not shown."""

    def __repr__(self) -> str:
        return HIDDEN


def shown(contract: Contract, failed: Failed | None) -> Shown:
    """What the certificate shows of a failure; of one without a program, its likely cause."""
    cause = likely(contract, failed)
    if failed is None:
        return Shown(cause=cause)
    known = frozenset(texts_of(failed)) | vocabulary_texts()

    def say(outcome: Outcome) -> str:
        return masked(outcome, known)

    race = race_of(failed)
    field = FIELD.match(failed.difference or "")
    return Shown(
        program=tuple(
            row._replace(call=short(row.call), allowed=short(row.allowed), answered=short(row.answered))
            for row in rows(failed, say)
        ),
        races=tuple(short(said(do)) or "" for do in race.branches[: len(LETTERS)]) if race and failed.turns else (),
        schedule=tuple(move._replace(statement=verb(move.statement)) for move in schedule(failed.turns)),
        differs_at=field.group(1) if field else None,
        cause=cause,
    )


def short(text: str | None) -> Any:
    """A text on one line of bearable length."""
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= CALL_LENGTH else f"{line[:CALL_LENGTH]} ..."


def verb(statement: str) -> str:
    """The first word of a statement: what it does, and nothing of what it is about."""
    found = CLASS.match(statement.strip())
    return found.group(0).upper() if found else ""


def masked(outcome: Outcome, known: frozenset[str]) -> str:
    """An answer in words of the kit."""
    match outcome:
        case Returned(value):
            return str(Returned(covered(value, known)))
        case Broken(error):
            found = CLASS.match(error)
            return str(Broken(found.group(0) if found else "something"))
        case Cancelled():
            return str(outcome)
        case Refused(code) | Unavailable(code) | Unknown(code):
            return str(outcome._replace(code=code if code in known else HIDDEN))


def covered(value: Any, known: frozenset[str]) -> Any:
    """A value with every text hidden that is not known."""
    if value is None or isinstance(value, (bool, int, float, Decimal, At, Minted)):
        return value
    if isinstance(value, JsonText):
        return value if known.issuperset(strings(json.loads(value.text))) else Hidden()
    if isinstance(value, str):
        return value if value in known else Hidden()
    if isinstance(value, dict):
        return {covered(key, known): covered(member, known) for key, member in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [covered(member, known) for member in value]
    return Hidden()


def texts_of(failed: Failed) -> Iterator[str]:
    """Every text that the program has, and that the model gave for one of its calls."""
    yield from strings(json.loads(to_json(failed.program)))
    for line in failed.lines:
        for outcome in line.allowed:
            yield from strings(tuple(outcome))


def strings(value: Any) -> Iterator[str]:
    """Every text inside a value, names of members included."""
    if isinstance(value, JsonText):
        yield from strings(json.loads(value.text))
    elif isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from strings(key)
            yield from strings(member)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for member in value:
            yield from strings(member)
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from strings(getattr(value, one.name))


@cache
def vocabulary_texts() -> frozenset[str]:
    """The protocol's own words: statuses, types, codes of errors and names of fields."""
    found = set(strings([value for name, value in vars(vocabulary).items() if not name.startswith("_")]))
    for record in vars(records).values():
        if isinstance(record, type) and is_dataclass(record):
            found.update(one.name for one in fields(record))
    found.update(code for error in vars(errors).values() if isinstance(code := getattr(error, "code", None), str))
    literals = (vocabulary.NoteOutcome, vocabulary.CreateOutcome)
    found.update(word for literal in literals for word in get_args(literal))
    return frozenset(found) | {"", "document", VALIDATION.code, INVALID.code}
