"""What people read: the report of a failed contract, and the summary of a store.

The summary names contracts, counts and fixtures, and nothing of any run or driver. The report of a failure shows the
kit's own program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from dendrux.testing.execution import Failed
from dendrux.testing.store_kit import coverage
from dendrux.testing.store_kit.causes import likely
from dendrux.testing.store_kit.contract import GROUPS, Contract
from dendrux.testing.store_kit.contracts import _crashes as crashes
from dendrux.testing.store_kit.table import LETTERS, race_of, rows, said, schedule
from dendrux.testing.store_kit.verdict import Examined, judge
from dendrux_model.programs import Together, to_json

TITLE: Final = "dendrux store kit: certification summary"
GROUP_WIDTH: Final = 19
VALUE_LENGTH: Final = 300
"""Characters of one call or answer in a report."""
STATEMENT_LENGTH: Final = 110
"""Characters of one statement in the schedule of a race."""
FAILURES: Final = Path(".dendrux") / "failures"
"""Where failing programs are written, below pytest's root directory."""

# -- a failed contract ------------------------------------------------------------------------------------------------


def failure(contract: Contract, why: str, failed: Failed | None, replay: Sequence[str]) -> str:
    """The report of a failed contract, in place of a traceback."""
    program = [] if failed is None else [*steps(failed), ""]
    return "\n".join([contract.promise, "", *program, *finding(why, failed, likely(contract, failed)), *replay])


def finding(why: str, failed: Failed | None, cause: str | None = None) -> Iterator[str]:
    """What is wrong, as short and as long as it is known."""
    yield f"{'what is wrong':<18}{why}"
    if failed is not None and failed.difference:
        yield f"{'first difference':<18}{failed.difference}"
    if cause:
        yield f"{'likely cause':<18}{cause}"
    if failed is not None and failed.turns:
        yield from race(failed)
    if failed is not None and failed.sql:
        yield "SQL of this step"
        yield from (f"    {' '.join(statement.split())}" for statement in failed.sql)


def race(failed: Failed) -> Iterator[str]:
    """Who sent what when in a race, one line for each statement."""
    together = race_of(failed)
    assert together is not None
    yield "schedule of the race"
    for letter, do in zip(LETTERS, together.branches, strict=False):
        yield f"    {letter} is {short(said(do))}"
    for move in schedule(failed.turns):
        text = " ".join(move.statement.split())
        statement = text if len(text) <= STATEMENT_LENGTH else f"{text[:STATEMENT_LENGTH]} ..."
        yield f"    {move.call}  {move.what}{f': {statement}' if statement else ''}"


def steps(failed: Failed) -> Iterator[str]:
    """Each call with its answer; where the two part, what the model allowed and what the store answered."""
    for row in rows(failed):
        yield f"{row.step:>4}  {short(row.call)}"
        if row.wrong:
            alone = isinstance(failed.program[row.step - 1], Together)
            yield f"      {'the model allows' if not alone else 'alone it may say':<20}{short(row.allowed)}"
            yield f"      the store answered  {short(row.answered)}"
        elif row.answered is not None:
            yield f"      {short(row.answered)}"


def short(value: object) -> str:
    """A value on one line of bearable length."""
    text = " ".join(str(value).split())
    return text if len(text) <= VALUE_LENGTH else f"{text[:VALUE_LENGTH]} ..."


def written(root: Path, name: str, contract: Contract, failed: Failed, **about: Any) -> Path | None:
    """The file that a failing program was written to, or None where nothing can be written."""
    folder = root / FAILURES
    path = folder / f"dendrux-failure-{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        text = to_json(failed.program, contract=contract.id, promise=contract.promise, **about)
        path.write_text(text, encoding="utf-8")
    except OSError:
        return None
    return path


# -- the summary ------------------------------------------------------------------------------------------------------


def summary(examined: Sequence[Examined], places: Sequence[str], *, verbose: bool = False) -> Iterator[str]:
    """The lines of the summary, store by store."""
    for one, place in zip(examined, places, strict=True):
        yield heading(one, examined, place)
        yield from body(one, verbose=verbose)
        yield f"  {judge(one)}"


def heading(one: Examined, all_of_them: Sequence[Examined], place: str) -> str:
    """The store and what it declares; with its module where two classes share a name, its folder where two are one."""
    store = one.declaration
    namesakes = [other.declaration for other in all_of_them if other.declaration.name == store.name]
    name = store.name if len({other.module for other in namesakes}) == 1 else f"{store.module}.{store.name}"
    twice = sum(other.module == store.module for other in namesakes) > 1
    capabilities = ",".join(store.capabilities) or "none"
    return f"{name} (deployment={store.deployment}, capabilities={capabilities}){f' in {place}' if twice else ''}"


def body(one: Examined, *, verbose: bool) -> Iterator[str]:
    """The groups, then everything that a reader of the verdict wants to look up."""
    present = {contract.group for contract in one.contracts}
    for group in GROUPS:
        yield f"  {group:<{GROUP_WIDTH}}{counts(one, group) if group in present else 'not part of this version'}"
    if failed := one.failed():
        yield "  failed:"
        for contract in failed:
            yield f"    {contract.id}: {contract.promise}"
    if skipped := one.by_store():
        yield "  skipped by the store:"
        for guarded, reasons in skipped.items():
            for text, number in reasons.items():
                yield f"    {guarded}: {number} {plural(number, 'contract')}: {text}"
    for line in (coverage.line(one), crashes.line(one)):
        if line:
            yield f"  {line}"
    verdict = judge(one)
    yield from (f"  {caveat}" for caveat in verdict.caveats if not caveat.startswith("not part"))
    if verbose:
        yield from facts(one)


def counts(one: Examined, group: str) -> str:
    """How the contracts of a group went; passed always, the others when there are any."""
    tally = one.tally(group)
    shown = [f"{tally['passed']} passed"] if tally["passed"] or not tally else []
    shown += [f"{tally[outcome]} {outcome}" for outcome in ("failed", "skipped") if tally[outcome]]
    silent = sum(contract.group == group and contract.id not in one.results for contract in one.contracts)
    return ", ".join([*shown, *([f"{silent} not run"] if silent else [])])


def facts(one: Examined) -> Iterator[str]:
    """What checks left for the report: numbers, and sets by their size."""
    for contract in one.contracts:
        result = one.results.get(contract.id)
        for name, value in (result.notes if result is not None else {}).items():
            yield f"    {contract.id}: {name} {value if isinstance(value, int) else len(value)}"


def plural(number: int, noun: str) -> str:
    """A noun for this number of things."""
    return noun if number == 1 else f"{noun}s"
