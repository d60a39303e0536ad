"""A failing program as rows: what each call was, what the model allowed and what the store answered; and who was parked
where in a race. Reports on the terminal and certificates are made of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Final, NamedTuple

from dendrux.lab.gate import Turn
from dendrux.testing.execution import Failed, Line
from dendrux_model.outcomes import Outcome
from dendrux_model.possible import agree
from dendrux_model.programs import Do, Fault, Look, Reopen, Step, Tick, Together

LETTERS: Final = "ABCD"
"""What the calls of a race are called, in the order of the program."""
WORDS: Final = {
    "parked": "parked before its statement {place}",
    "goes on": "goes on",
    "met a lock": "met a lock",
    "waits": "waits, held up by the parked call",
    "ended": "ended",
}
"""What a call did, apart from sending a statement."""

Say = Callable[[Outcome], str]


class Row(NamedTuple):
    """One call of a program, or one step without a call."""

    step: int
    """Counted from 1; the calls of one step have the same number."""
    call: str
    allowed: str | None = None
    """What the model allows; None for a step that is no call, or where nothing was answered."""
    answered: str | None = None
    wrong: bool = False
    """This is where the store and the model part."""


class Move(NamedTuple):
    """One line of the schedule of a race."""

    call: str
    """A letter."""
    what: str
    statement: str = ""


def rows(failed: Failed, say: Say = str) -> Iterator[Row]:
    """Every call with its answer, and of a look at everything only what differs."""
    by_step = {number: list(lines) for number, lines in groupby(failed.lines, key=lambda line: line.step)}
    for number, step in enumerate(failed.program, start=1):
        lines = by_step.get(number, [])
        last = number == len(failed.program)
        if isinstance(step, Look):
            shown = [line for line in lines[-1:] if last and not explained(line)]
            yield Row(number, f"look at everything: {len(lines) - len(shown)} reads agree")
            titles = [line.call for line in shown]
        else:
            shown, titles = lines, list(headings(step))
        # The calls of a race may each be allowed alone and wrong together.
        race = isinstance(step, Together) and bool(failed.why)
        for title, line in zip_longest(titles, shown):
            if line is None:
                yield Row(number, title)
            else:
                allowed = " or ".join(map(say, line.allowed))
                yield Row(number, title, allowed, say(line.observed), last and (race or not explained(line)))


def headings(step: Step) -> Iterator[str]:
    """A step in words, one line for each call."""
    match step:
        case Do():
            yield said(step)
        case Fault():
            yield f"{said(step.do)}, cut at {step.point} ({step.kind})"
        case Together():
            for do in step.branches:
                parked = "" if do.yield_at is None else f", parked before its statement {do.yield_at + 1}"
                yield f"at once: {said(do)}{parked}"
        case Tick():
            yield f"{step.seconds:g} s pass"
        case Reopen():
            yield f"instance {step.instance} restarts"


def said(do: Do) -> str:
    """A call in words."""
    return f"{do.operation} on instance {do.instance}" if do.instance else str(do.operation)


def explained(line: Line) -> bool:
    """Whether an answer is one of those that the model allows."""
    return any(agree(allowed, line.observed, {}, "") is not None for allowed in line.allowed)


def schedule(turns: Sequence[Turn]) -> Iterator[Move]:
    """Who sent what when, as a table."""
    for turn in turns:
        if turn.what == "statement":
            yield Move(LETTERS[turn.call], f"statement {turn.place}", turn.text)
        else:
            yield Move(LETTERS[turn.call], WORDS[turn.what].format(place=turn.place), turn.text)


def race_of(failed: Failed) -> Together | None:
    """The race that the schedule of a failure is about: the last one of its program."""
    return next((step for step in reversed(failed.program) if isinstance(step, Together)), None)
