"""Mutants of families of runs: cancellations that leave somebody behind, and reads that see too much."""

from __future__ import annotations

from typing import Any

from dendrux.vocabulary import PAUSED_STATUSES
from dendrux_model import rules
from dendrux_model.operations import CancelSubtree, delegation
from dendrux_model.swaps import Swap, instead, mutant, swapped
from dendrux_model.world import Run, World, find


@mutant("cancel_reaches_children", "pages")
def cancel_stops_at_an_end() -> Swap:
    """The children of a run that has ended are not cancelled."""
    return swapped(
        delegation,
        "children",
        lambda original: (
            lambda world, run_id, scope: (
                []
                if any(run.id == run_id and rules.ended(run) for run in world.runs)
                else original(world, run_id, scope)
            )
        ),
    )


@mutant("cancel_reaches_children", "pages")
def cancel_skips_between_pages() -> Swap:
    """The page after a cursor begins one run too late."""

    def wrap(original: Any) -> Any:
        def breadth_first(world: World, root: Run, scope: Any) -> list[Run]:
            order: list[Run] = original(world, root, scope)
            return [run for place, run in enumerate(order) if place != 1]

        return breadth_first

    return swapped(delegation, "breadth_first", wrap)


@mutant("cancel_reaches_children", "pages")
def cancel_leaves_paused_runs() -> Swap:
    """A paused run stays as it is: nobody owns it who could be asked."""
    return swapped(
        delegation,
        "reached",
        lambda original: lambda run, now: run if run.status in PAUSED_STATUSES else original(run, now),
    )


@mutant("one_terminal_event", "pages")
def cancelled_without_an_event() -> Swap:
    """A paused run that is cancelled ends without its event."""
    return swapped(
        delegation,
        "reached",
        lambda original: lambda run, now: original(run, now)._replace(events=run.events),
    )


@mutant("tenant_wall", "pages")
def relatives_of_any_tenant() -> Swap:
    """The reads of a family look at the run of any tenant."""
    return instead(delegation, "scoped", lambda world, run_id, _scope: find(world, run_id))


@mutant("cancel_reaches_children", "pages")
def cancel_of_any_page_begins_anew() -> Swap:
    """A cursor is ignored, so that every page is the first one."""
    return swapped(
        CancelSubtree,
        "page",
        lambda original: (
            lambda self, world, lost=None, *, applied=True: original(
                CancelSubtree(root_run_id=self.root_run_id, limit=self.limit, tenant_id=self.tenant_id),
                world,
                lost,
                applied=applied,
            )
        ),
    )
