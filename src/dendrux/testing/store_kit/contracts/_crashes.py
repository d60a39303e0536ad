"""The crash matrix: every write, cut at every point of its transaction, in every form.

A cell is a write, a point and a form. How many statements a call sends is counted on the store at hand, when nothing
cuts it, so the place among them is no part of a cell's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dendrux.testing.store_kit.checking import perform
from dendrux.testing.store_kit.contract import Need, Situation, needs_of
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import answer, changes, claimed, expected
from dendrux.testing.store_kit.cuts import COMMIT_DELAYED, INVALIDATED, SESSION_ENDED, STREAM_CUT
from dendrux.testing.store_kit.verdict import Examined
from dendrux_model.operations import AddNote, GetRun
from dendrux_model.outcomes import INVALID, Returned
from dendrux_model.programs import Do, Fault, Look, Point, Program

FORMS_OF_SERVERS: Final = frozenset({SESSION_ENDED, STREAM_CUT, COMMIT_DELAYED})

CUT: Final = "cut"
"""The note of a check: the names of the cells that were cut."""

STATEMENT: Final[Point] = "statement"
BEFORE: Final[Point] = "before_commit"
AFTER: Final[Point] = "after_commit"


class CrashCell(NamedTuple):
    """One cell: where the transaction of a write is cut, and how."""

    method: str
    point: Point
    form: str

    @property
    def name(self) -> str:
        """How the summary and the pinned list call it."""
        return f"{self.method}: {self.point} {self.form}"


class Family(NamedTuple):
    """Cells of a write that one contract cuts, on the same instances."""

    name: str
    """The last part of the contract's id."""
    how: str
    """In words, after the name of the write."""
    cells: tuple[tuple[Point, str], ...]


def families(sample: Sample) -> Iterator[Family]:
    """The contracts of one write. A form that only a server has is cut at one point: each costs a connection."""
    for point, where in ((BEFORE, "whose COMMIT never reached the database"), (AFTER, "whose COMMIT was applied")):
        unheard = " and never acknowledged" if point == AFTER else ""
        for form, how in (("error", "an error of the driver"), (INVALIDATED, "a lost connection")):
            yield Family(f"{point}_{form}", f"{where}{unheard} ({how})", ((point, form),))
    yield Family(
        "statements", "that fails before any of its statements", ((STATEMENT, "error"), (STATEMENT, INVALIDATED))
    )
    yield Family(
        "cancelled",
        "whose caller is cancelled at any of its statements, or at COMMIT,",
        ((STATEMENT, "cancel"), (BEFORE, "cancel"), (AFTER, "cancel")),
    )
    yield Family(SESSION_ENDED, "whose session the server ends", ((STATEMENT, SESSION_ENDED),))
    yield Family(STREAM_CUT, "whose connection breaks where COMMIT leaves", ((BEFORE, STREAM_CUT),))
    if sample.operation.lost_ack == "paged":
        # Each of its runs is settled by the next call, and nobody asks about one meanwhile.
        yield Family("answer_cut", "whose connection breaks where the answer to COMMIT returns", ((AFTER, STREAM_CUT),))
    else:
        yield Family(COMMIT_DELAYED, "whose COMMIT arrives after its connection was lost", ((AFTER, COMMIT_DELAYED),))


def cells_of(sample: Sample) -> tuple[CrashCell, ...]:
    """Every cell of one write."""
    return tuple(CrashCell(sample.method, point, form) for family in families(sample) for point, form in family.cells)


def exists(sample: Sample, storage_format: int) -> bool:
    """Whether this write has an effect on runs of the format, so that there is a COMMIT to cut."""
    return changes(sample.before, sample.operation, storage_format)


def refused_on(sample: Sample) -> int | None:
    """The format whose runs do not have this write."""
    return next((form for form in (1, 2) if answer(sample.before, sample.operation, form) == INVALID), None)


def known_cells(storage_format: int) -> list[str]:
    """The names of all cells on runs of a format, write by write."""
    found = (s for s in samples() if s.operation.lost_ack != "read" and exists(s, storage_format))
    return [cell.name for sample in found for cell in cells_of(sample)]


# -- programs ---------------------------------------------------------------------------------------------------------


def settled(sample: Sample) -> Program:
    """What comes after a cut at COMMIT: another look, and the same call again."""
    call = sample.operation
    if call.lost_ack == "claim":
        look = Do(GetRun(run_id=call.run_id))
        rival = (claimed(expected_status=call.expected_status),) if hasattr(call, "expected_status") else ()
        return (look, *rival, Do(call))
    repeatable = call.lost_ack in ("identity", "natural")
    again = expected((*sample.before, Do(call)), call, sample.formats) if repeatable else None
    return (Look(), Do(call, expect=again if isinstance(again, Returned) else None))


def program(sample: Sample, point: Point, form: str, after: int = 0, elsewhere: int = 0) -> Program:
    """The program of one cut, at the statement after `after` others; the instance `elsewhere` writes after a cancel.

    A write that was cancelled is made again, after a look when it was cancelled at COMMIT.
    """
    call = Do(sample.operation)
    cut = (*sample.before, Fault(call, point, form, after))
    if form == "cancel":
        other = Do(AddNote(run_id="r", note_id="elsewhere", text="written at once"), elsewhere)
        return (*cut, other, call) if point == STATEMENT else (*cut, other, Look(), call)
    if point != STATEMENT:
        return (*cut, *settled(sample))
    # What a page has missed would be in the way of the next program's.
    return (*cut, Look(), call) if sample.operation.lost_ack == "paged" else cut


async def statements(sample: Sample, situation: Situation) -> int:
    """How many statements the call sends when nothing cuts it, COMMIT not counted."""
    steps = (*sample.before, Do(sample.operation))
    # The first call of a store asks about the schema, too, and a page meets what other programs have left.
    for _ in range(2 if not sample.before or sample.operation.lost_ack == "paged" else 1):
        execution = await perform(steps, situation.bench, situation.format, look=False)
    return sum(statement != "COMMIT" for statement in execution.lines[-1].sql)


def places(point: Point, form: str, sent: int) -> range:
    """Where a cell is cut in a call that sends so many statements: after how many of them.

    Where the database fails, or the caller is gone, is everywhere; a connection is lost with everything at stake.
    """
    if point != STATEMENT:
        return range(1)
    return range(sent) if form in ("error", "cancel") else range(sent - 1, sent)


# -- checks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crash:
    """The check of a family: every cut is a program of its own, and each must have happened."""

    sample: Sample
    family: Family

    async def __call__(self, situation: Situation) -> None:
        if not exists(self.sample, situation.format):
            await perform(self.without(), situation.bench, situation.format)
            return
        sent = await statements(self.sample, situation) if STATEMENT in dict(self.family.cells) else 0
        elsewhere = other_instance(situation)
        cut: set[str] = set()
        for point, form in self.family.cells:
            for place in places(point, form, sent):
                steps = program(self.sample, point, form, place, elsewhere)
                # What is stored of a write that ends at a statement is looked at where statements fail; of a cancelled
                # one the repeat tells.
                look = form != "cancel" or place == sent - 1
                await perform(steps, situation.bench, situation.format, look=look)
            cut.add(CrashCell(self.sample.method, point, form).name)
        situation.note(CUT, cut)

    def without(self) -> Program:
        """The program on runs whose format does not have this write."""
        return (*self.sample.before, Do(self.sample.operation, expect=INVALID))

    @property
    def shown(self) -> Program:
        """The program by which the contract is planned and described: its first cut."""
        return program(self.sample, *self.family.cells[0])

    @property
    def needs(self) -> frozenset[Need]:
        """What the contract needs beside what the program that is shown needs."""
        needs: set[Need] = {need for cell in self.family.cells for need in needs_of(program(self.sample, *cell))}
        if not exists(self.sample, 1):
            needs.add("format_2")
        if any(point == STATEMENT or form == "cancel" for point, form in self.family.cells):
            needs.add("sql")  # whoever shows no statements cannot be cut at one, nor in the task that sends it
        return frozenset(needs)


def other_instance(situation: Situation) -> int:
    """The number of an instance beside the first, where the store can have one."""
    alone = getattr(situation.capabilities, "deployment", None) == "single_process"
    return 1 if situation.bench.has_second and not alone else 0


# -- the summary ------------------------------------------------------------------------------------------------------


def line(examined: Examined) -> str | None:
    """How many cells were cut, out of those that runs of this store have; None where no contract of them ran."""
    mine = [contract for contract in examined.contracts if isinstance(contract.check, Crash)]
    cut: set[str] = set()
    for contract in mine:
        result = examined.results.get(contract.id)
        cut |= set() if result is None else result.notes.get(CUT, set())
    if not cut:
        return None
    text = f"crash matrix: {len(cut)} of {len(known_cells(examined.declaration.run_format))} cells cut"
    lacking = sorted(FORMS_OF_SERVERS - set(examined.declaration.disconnect_forms))
    return f"{text}; this database has no disconnect of the forms {', '.join(lacking)}" if lacking else text
