"""Contracts about the pages of a sweep, called one by one: their size, their order, and cursors over a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from dendrux.testing.bench import settled
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import CONTRACTS, Need, NotKept, Situation, contract, needs_of
from dendrux.testing.sweeps import Pages, in_time
from dendrux_model.operations import Operation
from dendrux_model.outcomes import Returned
from dendrux_model.programs import Do, Look, Program, Reopen
from dendrux_model.world import World

RESTARTS_MAX: Final = 6
"""Pages after which the store restarts no more; other programs' runs may need any number of pages."""
CURSOR_MAX: Final = 4096
"""Code points of a cursor that anybody can keep."""


@dataclass(frozen=True)
class ByPages:
    """A check: the sweep is called a page at a time, by a store that restarts in between, and means the same."""

    before: Program
    operation: Operation

    async def __call__(self, situation: Situation) -> None:
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run(self.before, look=False)
        driver, restarts = execution.driver, 0
        seen: list[Any] = []

        async def page(**given: Any) -> Any:
            nonlocal restarts
            if given["after"] is not None and restarts < RESTARTS_MAX:
                restarts += 1
                await situation.bench.restart()
            found = await getattr(await situation.bench.instance(), self.operation.method)(**given)
            rows = in_page(found)
            if len(rows) > given["limit"]:
                raise NotKept(f"a page of {self.operation.method} with limit={given['limit']} held {len(rows)} runs")
            if found.next_after is not None and not 0 < len(found.next_after) <= CURSOR_MAX:
                raise NotKept(f"{self.operation.method} gave a cursor of {len(found.next_after)} code points")
            seen.extend(run_id for run_id in rows if run_id.startswith(driver.namespace))
            return found

        clock = situation.bench.clock
        now = await settled(clock.now()) if hasattr(clock, "now") else datetime.now(UTC)
        given = in_time(driver.arguments(self.operation), now)
        answer = await Pages(driver.namespace, driver.field).follow(page, given)
        execution.judge(Do(self.operation), Returned(answer), None, ())
        if len(set(seen)) != len(seen):
            raise NotKept(f"{self.operation.method} named a run on two pages: {seen}")
        await execution.step(Look())


def in_page(page: Any) -> list[str]:
    """The ids of the runs that a page tells something of."""
    named = [*getattr(page, "marked", ())]
    for rows in ("finalised", "swept", "failed"):
        named += [run.run_id for run in getattr(page, rows, ())]
    return named


def by_pages(
    id: str,
    promise: str,
    before: Program,
    operation: Operation,
    *,
    group: str = "basic",
    needs: frozenset[Need] | set[Need] = frozenset(),
) -> None:
    """Add a contract about the pages of a sweep."""
    program: Program = (*before, Do(operation), Reopen())
    added = contract(
        id,
        promise,
        group=group,
        needs=needs_of(program) | needs,
        check=ByPages(before, operation),
        cause="The cursor skips runs that need nothing, or what a page found is forgotten when the store restarts.",
    )
    CONTRACTS[id] = replace(added, program=program)  # what is planned and reported of the contract
