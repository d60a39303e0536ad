"""Families of runs: who delegated to whom, what it cost together, and cancelling all of it."""

from __future__ import annotations

from typing import Any

from dendrux.runtime.values import UsageStats
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import OWNED, born, claimed, ended, paused
from dendrux_model.operations import (
    CancelSubtree,
    ChildRunsPage,
    ClaimPausedRun,
    CreateRun,
    GetDelegationInfo,
    GetRunControl,
    GetSubtree,
    RequestCancel,
    RunUsage,
    SaveLLMInteraction,
    SubtreeUsage,
)
from dendrux_model.outcomes import CLOSED, INVALID, NONE, NOT_FOUND, Returned
from dendrux_model.programs import Do, Fault, Look, Program, Reopen
from dendrux_model.values import MINTED

CANCEL = CancelSubtree(root_run_id="r")

sample(CANCEL)
sample(GetDelegationInfo(run_id="r"))
sample(GetSubtree(run_id="r"))
sample(RunUsage(run_id="r"))
sample(SubtreeUsage(run_id="r"))
sample(ChildRunsPage(run_id="r"), before=(*OWNED, born("c", parent_run_id="r", delegation_level=1)))


def child(run_id: str, parent: str, level: int, **given: Any) -> Do:
    """A run that another one delegates to."""
    return born(run_id, parent_run_id=parent, delegation_level=level, **given)


def called(run_id: str, interaction_id: str, **usage: Any) -> Do:
    """One recorded call of a model."""
    stats = UsageStats(**usage)
    return Do(SaveLLMInteraction(run_id=run_id, iteration_index=0, usage=stats, interaction_id=interaction_id))


FAMILY: Program = (
    born("r"),
    child("b", "r", 1),
    child("a", "r", 1),
    child("b1", "b", 2),
    child("a1", "a", 2),
    child("a2", "a", 2),
    child("x", "a1", 3),
    born("stranger"),
)
"""A root, its children b and a, three grandchildren, and one run below those."""

# -- reads ------------------------------------------------------------------------------------------------------------


def brief(run_id: str, level: int, status: str = "running") -> dict[str, Any]:
    """A run as its relatives see it."""
    return {"run_id": run_id, "agent_name": "agent", "status": status, "delegation_level": level}


contract(
    "basic.get_delegation_info.place_in_the_family",
    "A run's parent, its children in the order of their birth, and the runs above it, root first.",
    *FAMILY,
    Do(
        GetDelegationInfo(run_id="a"),
        expect=Returned(
            {
                "parent": {**brief("r", 0), "resolved": True},
                "children": [brief("a1", 2), brief("a2", 2)],
                "ancestry": [brief("r", 0)],
                "ancestry_complete": True,
            }
        ),
    ),
    Do(
        GetDelegationInfo(run_id="x"),
        expect=Returned({"children": [], "ancestry": [brief("r", 0), brief("a", 1), brief("a1", 2)]}),
    ),
    Do(
        GetDelegationInfo(run_id="r"),
        expect=Returned({"parent": None, "ancestry": [], "children": [brief("b", 1), brief("a", 1)]}),
    ),
    Do(GetDelegationInfo(run_id="nowhere"), expect=NONE),
)
contract(
    "basic.get_delegation_info.summary",
    "A subtree in numbers: its runs, its depth, their statuses, and the totals that they persisted.",
    *FAMILY,
    ended("a1", total_usage=UsageStats(input_tokens=3, output_tokens=1, cost_usd=0.25)),
    paused("a", total_usage=UsageStats(input_tokens=5, cost_usd=0.5)),
    Do(
        GetDelegationInfo(run_id="r"),
        expect=Returned(
            {
                "subtree_summary": {
                    "direct_child_count": 2,
                    "descendant_count": 6,
                    "max_depth": 3,
                    "subtree_input_tokens": 8,
                    "subtree_output_tokens": 1,
                    "subtree_cost_usd": 0.75,
                    "unknown_cost_count": 5,
                    "status_counts": {"running": 5, "success": 1, "waiting_human_input": 1},
                }
            }
        ),
    ),
    Do(GetDelegationInfo(run_id="b1")),
    cause="A total that nobody stored is counted as zero cost.",
)
contract(
    "basic.get_delegation_info.other_tenants_are_hidden",
    "A run of another tenant has no family, and nothing of it shows.",
    born("r", tenant_id="t"),
    child("a", "r", 1, tenant_id="t"),
    child("a1", "a", 2, tenant_id="t"),
    *(
        Do(read(run_id=run_id, tenant_id=scope), expect=NONE)
        for read in (GetDelegationInfo, GetSubtree)
        for run_id in ("r", "a")
        for scope in ("T", "t ", "", None)
    ),
    *(Do(ChildRunsPage(run_id="r", tenant_id=scope), expect=NOT_FOUND) for scope in ("T", "t ", "", None)),
    Do(GetDelegationInfo(run_id="a", tenant_id="t")),
    Do(GetSubtree(run_id="r", tenant_id="t")),
    cause="The scope is applied to the run, but not to the statement that follows its family.",
)
contract(
    "basic.get_subtree.breadth_first_with_usage",
    "A whole subtree, root first, each run with its depth and what its own model calls add up to.",
    *FAMILY,
    called("r", "i1", input_tokens=7, output_tokens=2, cost_usd=0.1234565),
    called("a", "i2", input_tokens=1, cost_usd=0.5, cache_read_input_tokens=3, reasoning_tokens=4),
    called("a", "i3", output_tokens=5, cost_usd=0.25, cache_creation_input_tokens=6),
    called("x", "i4", input_tokens=100),
    called("stranger", "i5", input_tokens=1_000_000, cost_usd=9),
    Do(GetSubtree(run_id="r")),
    Do(GetSubtree(run_id="a")),
    Do(GetSubtree(run_id="x")),
    Do(GetSubtree(run_id="nowhere"), expect=NONE),
    cause="Depths are taken from delegation_level, or the nodes come in the order of an index.",
)
contract(
    "basic.subtree_usage.unpriced_calls",
    "Usage is summed over recorded calls when somebody asks; a call without a price is counted, never taken for free.",
    *FAMILY,
    called("a", "i1", input_tokens=1, cost_usd=0.1),
    called("a1", "i2", input_tokens=2, cost_usd=0.2),
    Do(SubtreeUsage(run_id="r"), expect=Returned({"known_cost_usd": 0.3, "unpriced_calls": 0, "llm_calls": 2})),
    called("x", "i3", input_tokens=4),
    Do(SubtreeUsage(run_id="r"), expect=Returned({"input_tokens": 7, "unpriced_calls": 1, "llm_calls": 3})),
    Do(SubtreeUsage(run_id="a1"), expect=Returned({"input_tokens": 6, "known_cost_usd": 0.2, "unpriced_calls": 1})),
    Do(SubtreeUsage(run_id="b"), expect=Returned({"input_tokens": 0, "unpriced_calls": 0, "llm_calls": 0})),
    cause="A NULL cost is summed as zero without being counted, or sums over no rows stay NULL.",
)
contract(
    "basic.run_usage.own_calls_only",
    "A run's usage is that of its own calls; a run that does not exist has none.",
    *FAMILY,
    called("r", "i1", input_tokens=1, cost_usd=0.5),
    called("r", "i2", input_tokens=2),
    called("a", "i3", input_tokens=4, cost_usd=1),
    Do(
        RunUsage(run_id="r"),
        expect=Returned({"input_tokens": 3, "known_cost_usd": 0.5, "unpriced_calls": 1, "llm_calls": 2}),
    ),
    Do(RunUsage(run_id="b"), expect=Returned({"input_tokens": 0, "known_cost_usd": 0.0, "llm_calls": 0})),
    *(
        Do(read(run_id=run_id, tenant_id=scope), expect=Returned({"input_tokens": 0, "llm_calls": 0}))
        for read in (RunUsage, SubtreeUsage)
        for run_id, scope in (("nowhere", None), ("r", "t"), ("r", ""))
    ),
)
contract(
    "basic.child_runs_page.pages_by_id",
    "Children are read in pages by id, which follow each other without gap or overlap.",
    born("r"),
    *(child(run_id, "r", 1) for run_id in ("c", "a", "d", "b")),
    child("a1", "a", 2),
    Do(ChildRunsPage(run_id="r"), expect=Returned([brief(run_id, 1) for run_id in "abcd"])),
    Do(ChildRunsPage(run_id="r", limit=2), expect=Returned([brief("a", 1), brief("b", 1)])),
    Do(ChildRunsPage(run_id="r", limit=2, after="b"), expect=Returned([brief("c", 1), brief("d", 1)])),
    Do(ChildRunsPage(run_id="r", limit=2, after="d"), expect=Returned([])),
    Do(ChildRunsPage(run_id="b"), expect=Returned([])),
    Do(ChildRunsPage(run_id="nowhere"), expect=Returned([])),
)

# -- cancelling -------------------------------------------------------------------------------------------------------


def page(next_after: Any = None, **lists: Any) -> Returned:
    """What one page did."""
    empty: dict[str, Any] = {"cancelled": [], "requested": [], "already_terminal": [], "failed": []}
    return Returned({**empty, **lists, "next_after": next_after})


MIXED: Program = (*FAMILY, paused("a", event_id="pa"), ended("b"), paused("x", event_id="px"))
"""The family with a paused child and a child that has ended."""

contract(
    "recovery.cancel_subtree.whole_family",
    "A cancellation asks running runs to stop, ends paused ones, and passes an end without skipping what is below it.",
    *MIXED,
    Do(
        CANCEL,
        expect=page(
            requested=["r", "a1", "a2", "b1"],
            cancelled=["a", "x"],
            already_terminal=["b"],
        ),
    ),
    Look(),
    *(Do(ClaimPausedRun(run_id=run_id, expected_status="waiting_human_input"), expect=NONE) for run_id in ("a", "x")),
    Do(GetRunControl(run_id="stranger"), expect=Returned({"cancel_requested": False})),
    group="recovery",
    cause="Runs are read depth first or by another order, or the walk stops at a run that has ended.",
)
contract(
    "recovery.cancel_subtree.in_pages",
    "A cancellation goes on where its page ended, breadth first by depth, parent and id, and reaches every run once.",
    *MIXED,
    Do(CancelSubtree(root_run_id="r", limit=2), expect=page(MINTED, requested=["r"], cancelled=["a"])),
    Look(),
    Do(
        CancelSubtree(root_run_id="r", limit=2, after="a"),
        expect=page(MINTED, requested=["a1"], already_terminal=["b"]),
    ),
    Do(CancelSubtree(root_run_id="r", limit=2, after="a1"), expect=page(MINTED, requested=["a2", "b1"])),
    Do(CancelSubtree(root_run_id="r", limit=2, after="b1"), expect=page(cancelled=["x"])),
    Look(),
    group="recovery",
    cause="The cursor is an offset, which moves when runs are born, or the last run of a page is reached twice.",
)
contract(
    "recovery.cancel_subtree.cursor_survives_a_restart",
    "A cursor is good on another instance after a restart.",
    *MIXED,
    Do(CancelSubtree(root_run_id="r", limit=3)),
    Reopen(),
    Do(CancelSubtree(root_run_id="r", limit=3, after="b")),
    Reopen(),
    Do(CancelSubtree(root_run_id="r", limit=3, after="b1"), expect=page(cancelled=["x"])),
    group="recovery",
    cause="The cursor stands for a walk that is kept in memory.",
)
contract(
    "recovery.cancel_subtree.repeated",
    "A cancellation that is repeated asks again and changes nothing.",
    *MIXED,
    Do(CANCEL),
    Look(),
    Do(CANCEL, expect=page(requested=["r", "a1", "a2", "b1"], already_terminal=["a", "b", "x"])),
    group="recovery",
)
contract(
    "recovery.cancel_subtree.no_child_after_it",
    "Nobody begins a child of a run that a cancellation reached; a run that it did not reach yet still can.",
    *MIXED,
    Do(CancelSubtree(root_run_id="r", limit=2)),
    child("late", "r", 1),
    child("late", "a", 2),
    child("late", "b", 2),
    child("late", "a1", 3),
    Do(CancelSubtree(root_run_id="r", after="a")),
    Do(
        CreateRun(run_id="later", agent_name="agent", parent_run_id="a1", delegation_level=3),
        expect=CLOSED,
    ),
    group="recovery",
    cause="The children of a run are read before the run itself is asked to cancel.",
)
contract(
    "recovery.cancel_subtree.claimed_and_submitted",
    "A run that somebody has claimed is asked, and a paused one loses document and submission with its end.",
    born("r"),
    paused("r", event_id="p"),
    claimed("r"),
    child("c", "r", 1, meta={"k": 1}),
    Do(RequestCancel(run_id="c")),
    Do(CANCEL, expect=page(requested=["r", "c"])),
    Look(),
    group="recovery",
)
contract(
    "recovery.cancel_subtree.tenants",
    "A root outside the scope is missing to a cancellation, and nothing of it changes.",
    born("r", tenant_id="t"),
    child("c", "r", 1, tenant_id="t"),
    *(Do(CancelSubtree(root_run_id="r", tenant_id=scope), expect=NOT_FOUND) for scope in ("T", "t ", "", None)),
    Do(CancelSubtree(root_run_id="nowhere"), expect=NOT_FOUND),
    Look(),
    Do(CancelSubtree(root_run_id="r", tenant_id="t"), expect=page(requested=["r", "c"])),
    group="recovery",
)
contract(
    "recovery.cancel_subtree.foreign_cursors",
    "A text that is no cursor of this cancellation is refused, and nothing changes.",
    *FAMILY,
    *(
        Do(CancelSubtree(root_run_id="r", after=after), expect=INVALID)
        for after in ("nonsense", "bm9uc2Vuc2U=", "e30=")
    ),
    Look(),
    group="recovery",
    cause="A cursor is taken apart without looking at its parts.",
)
contract(
    "crash_recovery.cancel_subtree.one_run_of_a_page_fails",
    "A run whose acknowledgement is lost is an entry of failed with its code; the rest of the page is reached.",
    *FAMILY,
    Fault(Do(CANCEL), "after_commit", "invalidated", after=2),
    Look(),
    Do(CANCEL),
    group="crash_recovery",
    cause="The failure of one run ends the call, or its outcome is guessed.",
)

CHILD = CreateRun(run_id="new", agent_name="agent", parent_run_id="r", delegation_level=1)
GRANDCHILD = CreateRun(run_id="new", agent_name="agent", parent_run_id="a", delegation_level=2)

for _name, _call in (("child", CHILD), ("grandchild", GRANDCHILD)):
    race(
        f"cancel_subtree.{_name}_begun_meanwhile",
        f"A {_name} that is begun during a cancellation is reached by it, or refused.",
        CANCEL,
        _call,
        before=(born("r"), child("a", "r", 1)),
        after=(Do(GetSubtree(run_id="r")),),
        both_ways=True,
        cause="The children of a run are read before the run is asked to cancel, or creating a child does not hold its "
        "parent.",
    )
race(
    "cancel_subtree.claim_meanwhile",
    "A claim of a paused run that meets a cancellation loses, or its owner is asked to stop.",
    CANCEL,
    ClaimPausedRun(run_id="a", expected_status="waiting_human_input"),
    before=(born("r"), child("a", "r", 1), paused("a")),
    both_ways=True,
    cause="The run is ended by what the page's read saw of it, without looking again under its lock.",
)
race(
    "cancel_subtree.twice",
    "Two cancellations of one family at once end every paused run once.",
    CANCEL,
    CANCEL,
    before=(born("r"), child("a", "r", 1), paused("a")),
    cause="Both take the run for paused and both write its end.",
)
