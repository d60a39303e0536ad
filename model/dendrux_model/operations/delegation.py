"""Families of runs: who delegated to whom, what it cost together, and cancelling all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

from dendrux.vocabulary import LIMIT_MAX, PAUSED_STATUSES, UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations.base import Known, LostAck, Operation, Parts, Step
from dendrux_model.operations.runs import shown
from dendrux_model.outcomes import INVALID, NONE, NOT_FOUND, OUTCOME_UNKNOWN, Outcome, Returned, codes_of
from dendrux_model.values import MINTED, JsonText, content_key
from dendrux_model.world import Event, Run, World, find, put

# -- families ---------------------------------------------------------------------------------------------------------


def children(world: World, run_id: str, scope: TenantScope) -> list[Run]:
    """The children of a run in this scope, oldest first: worlds hold runs in the order of their birth."""
    return [run for run in world.runs if run.parent_run_id == run_id and rules.in_scope(run, scope)]


def levels(world: World, root: Run, scope: TenantScope) -> list[list[Run]]:
    """The root and what is below it, depth by depth. A run outside the scope hides everything below it."""
    found = [[root]]
    while found[-1]:
        found.append([child for run in found[-1] for child in children(world, run.id, scope)])
    return found[:-1]


def breadth_first(world: World, root: Run, scope: TenantScope) -> list[Run]:
    """The order of a cancellation: by depth, then parent, then id."""
    return [
        run
        for level in levels(world, root, scope)
        for run in sorted(level, key=lambda run: (run.parent_run_id or "", run.id))
    ]


def usage(runs: Iterable[Run]) -> dict[str, Any]:
    """What the recorded model calls of these runs add up to."""
    calls = [dict(row.shown) for run in runs for row in run.interactions]
    costs = [Decimal(str(call["cost_usd"])) for call in calls if call["cost_usd"] is not None]
    return {
        "input_tokens": sum(call["input_tokens"] for call in calls),
        "output_tokens": sum(call["output_tokens"] for call in calls),
        "cache_read_tokens": sum(call["cache_read_input_tokens"] or 0 for call in calls),
        "cache_write_tokens": sum(call["cache_creation_input_tokens"] or 0 for call in calls),
        "reasoning_tokens": sum(call["reasoning_tokens"] or 0 for call in calls),
        "known_cost_usd": float(round(sum(costs, Decimal(0)), 6)),
        "unpriced_calls": len(calls) - len(costs),
        "llm_calls": len(calls),
    }


def brief(run: Run) -> dict[str, Any]:
    """A run as its relatives see it."""
    return {
        "run_id": run.id,
        "agent_name": run.agent_name,
        "status": run.status,
        "delegation_level": run.delegation_level,
    }


def scoped(world: World, run_id: str, scope: TenantScope) -> Run | None:
    """The run, if there is one in this scope."""
    run = find(world, run_id)
    return run if run is not None and rules.in_scope(run, scope) else None


# -- cancelling -------------------------------------------------------------------------------------------------------


def reached(run: Run, now: int) -> Run:
    """A run after the cancellation reached it: a running one is asked to stop, a paused one ends, an end is final."""
    if rules.ended(run):
        return run
    if run.status in PAUSED_STATUSES:
        event = Event(None, content_key("CancelSubtree"), "run.cancelled", run.iteration_count, None, CANCEL_DATA)
        return run._replace(
            status="cancelled",
            cancel_requested=False,
            pause_requested=False,
            pause_reason=None,
            pause_document=None,
            submission=None,
            events=rules.logged(run, event),
            lease_expired_at=None,
            updated_at=now,
        )
    return run if run.cancel_requested else run._replace(cancel_requested=True, updated_at=now)


CANCEL_DATA = JsonText('{"reason":"cancel_requested"}')


@dataclass(frozen=True, kw_only=True)
class CancelSubtree(Operation, lost_ack="paged"):
    """Cancel a run and everything below it, a page at a time. `after` is the run that the page before ended with."""

    root_run_id: str
    limit: int = 100
    after: str | None = None
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        return self.page(world)

    def cut_steps(self, world: World, *, at_commit: bool) -> list[Step]:
        applied = (True, False) if at_commit else (False,)
        steps = [
            self.page(world, lost, applied=was, code=code)
            for lost in self.touched(world)
            for was in applied
            for code in codes_of(at_commit=at_commit)
        ]
        if not at_commit:  # a read of the page failed, when it had passed so many runs
            steps += [self.page(world, ended=number) for number in range(1, self.passed(world) + 1)]
        return steps

    def partly(self, world: World) -> list[World]:
        """The page goes breadth first, so what it has reached is the beginning of that order."""
        root = scoped(world, self.root_run_id, self.tenant_id)
        touched = self.touched(world)
        order = [] if root is None else [run for run in breadth_first(world, root, self.tenant_id) if run.id in touched]
        worlds = [world]
        for run in order:
            worlds.append(put(worlds[-1], reached(run, world.now)))
        return worlds[1:-1]

    def passed(self, world: World) -> int:
        """How many runs the page names."""
        _, answer = self.page(world)
        return sum(len(answer.value[fate]) for fate in FATES) if isinstance(answer, Returned) else 0

    def touched(self, world: World) -> list[str]:
        """The runs that the page changes."""
        after, _ = self.page(world)
        return [run.id for run, old in zip(after.runs, world.runs, strict=True) if run is not old]

    def ways(self, observed: Outcome, known: Known) -> list[Parts]:
        """A step for each run that the page names; the last page also knows whom it did not reach."""
        if not isinstance(observed, Returned):
            return [[(self, observed)]]
        fate: dict[str, Any] = {run_id: fate for fate in FATES for run_id in observed.value[fate]}
        failed = {failure["run_id"] for failure in observed.value["failed"]}
        if failed or sum(len(observed.value[fate]) for fate in FATES) != len(fate):
            return [[(self, observed)]]
        named = None
        if self.after is None and observed.value["next_after"] is None:
            named = frozenset(fate)
            fate = dict.fromkeys(sorted(known.runs)) | fate
        return [[(ReachedAlone(page=self, run_id=run, named=named), Returned(said)) for run, said in fate.items()]]

    def page(
        self,
        world: World,
        lost: str | None = None,
        *,
        applied: bool = True,
        code: str = OUTCOME_UNKNOWN.code,
        ended: int | None = None,
    ) -> Step:
        """One page; the run `lost` failed with this code; `ended`: it ends after so many runs, with a cursor."""
        if self.after is not None and find(world, self.after) is None:
            return world, INVALID  # no call gave this cursor, so it is a bad argument, whatever the root
        root = scoped(world, self.root_run_id, self.tenant_id)
        if root is None:
            return world, NOT_FOUND
        order = breadth_first(world, root, self.tenant_id)
        ids = [run.id for run in order]
        if self.after is not None and self.after not in ids:
            return world, INVALID
        start = 0 if self.after is None else ids.index(self.after) + 1
        seen: dict[str, list[Any]] = {"cancelled": [], "requested": [], "already_terminal": [], "failed": []}
        changed = world
        limit = self.limit if ended is None else ended
        for run in order[start : start + limit]:
            now = reached(run, world.now)
            if now is not run and (run.id != lost or applied):
                changed = put(changed, now)
            if run.id == lost:
                seen["failed"].append({"run_id": run.id, "code": code})
            elif rules.ended(run):
                seen["already_terminal"].append(run.id)
            else:
                seen["cancelled" if rules.ended(now) else "requested"].append(run.id)
        more = ended is not None or len(order) > start + limit
        return changed, Returned({**seen, "next_after": MINTED if more else None})


FATES: Final = ("cancelled", "requested", "already_terminal")
"""Lists of a page."""


@dataclass(frozen=True, kw_only=True)
class ReachedAlone(Operation):
    """What a cancellation does to one run, in a transaction of its own: the part it plays among concurrent calls."""

    page: CancelSubtree
    run_id: str
    named: frozenset[str] | None = None
    """Whom a page that is first and last reached. A run takes no children once it was, so each it has is among them."""

    lost_ack: ClassVar[LostAck] = "paged"

    def step(self, world: World) -> Step:
        root = scoped(world, self.page.root_run_id, self.page.tenant_id)
        family = [] if root is None else breadth_first(world, root, self.page.tenant_id)
        run = next((run for run in family if run.id == self.run_id), None)
        if run is None:
            return world, NONE
        if self.named is not None and not {child.id for child in children(world, run.id, UNSCOPED)} <= self.named:
            return world, Returned("child left behind")
        if rules.ended(run):
            return world, Returned("already_terminal")
        after = reached(run, world.now)
        moved = world if after is run else put(world, after)
        return moved, Returned("cancelled" if rules.ended(after) else "requested")

    def idle(self, observed: Outcome) -> bool:
        return observed in (NONE, Returned("already_terminal"))


# -- reads ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GetDelegationInfo(Operation, lost_ack="read"):
    """Read where a run stands in its family."""

    run_id: str
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        run = scoped(world, self.run_id, self.tenant_id)
        if run is None:
            return world, NONE
        ancestry: list[Run] = []
        above: Run | None = run
        while above is not None and above.parent_run_id is not None:
            above = scoped(world, above.parent_run_id, self.tenant_id)
            ancestry += [] if above is None else [above]
        direct = children(world, run.id, self.tenant_id)
        return world, Returned(
            {
                "parent": parent(run, ancestry),
                "children": [brief(child) for child in direct[:LIMIT_MAX]],
                "ancestry": [brief(one) for one in reversed(ancestry)],
                "subtree_summary": summary(levels(world, run, self.tenant_id)),
                "ancestry_complete": above is not None,
            }
        )

    def ways(self, observed: Outcome, known: Known) -> list[Parts]:
        if not isinstance(observed, Returned) or not isinstance(observed.value, dict):
            return [[(self, observed)]]
        above = ("parent", "ancestry", "ancestry_complete")
        return [[(Shown(read=self, names=names), named(observed, names)) for names in (above, CHILDREN, SUMMARY)]]


CHILDREN: Final = ("children",)
SUMMARY: Final = ("subtree_summary",)


@dataclass(frozen=True, kw_only=True)
class Shown(Operation):
    """What one statement of a read shows."""

    read: GetDelegationInfo
    names: tuple[str, ...]

    lost_ack: ClassVar[LostAck] = "read"

    def step(self, world: World) -> Step:
        return world, named(self.read.step(world)[1], self.names)


def named(answer: Outcome, names: tuple[str, ...]) -> Outcome:
    """These members of an answer."""
    if not isinstance(answer, Returned) or answer.value is None:
        return answer
    return Returned({name: answer.value[name] for name in names})


def parent(run: Run, ancestry: list[Run]) -> dict[str, Any] | None:
    """The run that delegated, as far as it can be seen."""
    if run.parent_run_id is None:
        return None
    if ancestry:
        return {**brief(ancestry[0]), "resolved": True}
    unseen = {"agent_name": None, "status": None, "delegation_level": None}
    return {"run_id": run.parent_run_id, "resolved": False, **unseen}


def summary(tree: list[list[Run]]) -> dict[str, Any]:
    """A subtree in numbers, from what its runs persisted."""
    runs = [run for level in tree for run in level]
    costs = [Decimal(str(run.totals.cost_usd)) for run in runs if run.totals.cost_usd is not None]
    return {
        "direct_child_count": len(tree[1]) if len(tree) > 1 else 0,
        "descendant_count": len(runs) - 1,
        "max_depth": len(tree) - 1,
        "subtree_input_tokens": sum(run.totals.input_tokens for run in runs),
        "subtree_output_tokens": sum(run.totals.output_tokens for run in runs),
        "subtree_cost_usd": float(round(sum(costs, Decimal(0)), 6)) if costs else None,
        "unknown_cost_count": len(runs) - len(costs),
        "status_counts": dict(Counter(run.status for run in runs)),
    }


@dataclass(frozen=True, kw_only=True)
class GetSubtree(Operation, lost_ack="read"):
    """Read a run and everything below it, breadth first, each with its own usage."""

    run_id: str
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        root = scoped(world, self.run_id, self.tenant_id)
        if root is None:
            return world, NONE
        born = {run.id: place for place, run in enumerate(world.runs)}
        found = [
            (depth, run)
            for depth, level in enumerate(levels(world, root, self.tenant_id))
            for run in sorted(level, key=lambda run: born[run.id])
        ]
        nodes = [{"run": shown(run), "depth": depth, "usage": usage([run])} for depth, run in found]
        return world, Returned({"nodes": nodes, "usage": usage(run for _, run in found)})

    def ways(self, observed: Outcome, known: Known) -> list[Parts]:
        """Two statements: the runs, then what they used, where a run may count that came between."""
        if not isinstance(observed, Returned) or not isinstance(observed.value, dict):
            return [[(self, observed)]]
        ids = tuple(node["run"]["id"] for node in observed.value["nodes"])
        return [
            [
                (SubtreeRuns(read=self), Returned(SubtreeRuns.of(observed.value))),
                (SubtreeSums(read=self, ids=ids), Returned(SubtreeSums.of(observed.value, ids))),
            ]
        ]


@dataclass(frozen=True, kw_only=True)
class SubtreeRuns(Operation):
    """What the first statement of get_subtree shows."""

    read: GetSubtree

    lost_ack: ClassVar[LostAck] = "read"

    @staticmethod
    def of(value: Any) -> Any:
        """The runs of an answer."""
        return [{"run": node["run"], "depth": node["depth"]} for node in value["nodes"]]

    def step(self, world: World) -> Step:
        answer = self.read.step(world)[1]
        return world, answer if answer == NONE or not isinstance(answer, Returned) else Returned(self.of(answer.value))


@dataclass(frozen=True, kw_only=True)
class SubtreeSums(Operation):
    """What the second statement of get_subtree shows of the runs that the first one found."""

    read: GetSubtree
    ids: tuple[str, ...]

    lost_ack: ClassVar[LostAck] = "read"

    @staticmethod
    def of(value: Any, ids: tuple[str, ...]) -> Any:
        """The sums of an answer."""
        sums = {node["run"]["id"]: node["usage"] for node in value["nodes"]}
        return {"each": [sums.get(run_id, usage([])) for run_id in ids], "usage": value["usage"]}

    def step(self, world: World) -> Step:
        answer = self.read.step(world)[1]
        if answer == NONE or not isinstance(answer, Returned):
            return world, answer
        return world, Returned(self.of(answer.value, self.ids))


@dataclass(frozen=True, kw_only=True)
class RunUsage(Operation, lost_ack="read"):
    """Add up the recorded model calls of a run; zero for a missing one."""

    run_id: str
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        run = scoped(world, self.run_id, self.tenant_id)
        return world, Returned(usage([] if run is None else [run]))


@dataclass(frozen=True, kw_only=True)
class SubtreeUsage(Operation, lost_ack="read"):
    """Add up the recorded model calls of a run and everything below it; zero for a missing one."""

    run_id: str
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        root = scoped(world, self.run_id, self.tenant_id)
        tree = [] if root is None else levels(world, root, self.tenant_id)
        return world, Returned(usage(run for level in tree for run in level))


@dataclass(frozen=True, kw_only=True)
class ChildRunsPage(Operation, lost_ack="read"):
    """Read a page of a run's children by id."""

    run_id: str
    limit: int = 100
    after: str | None = None
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        if scoped(world, self.run_id, self.tenant_id) is None:
            return world, Returned([]) if self.tenant_id is UNSCOPED else NOT_FOUND
        found = sorted(children(world, self.run_id, self.tenant_id), key=lambda run: run.id)
        page = [brief(run) for run in found if self.after is None or run.id > self.after]
        return world, Returned(page[: self.limit])
