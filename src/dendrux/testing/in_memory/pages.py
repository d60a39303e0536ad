"""Operations over many runs, a page at a time: each run in a transaction of its own, as the model takes them apart."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from dendrux.errors import PersistenceError
from dendrux.runtime.values import CancelPage, FailedRun, LeaseSweep, SweepPage, SweptRun
from dendrux.store.paging import decoded, encoded
from dendrux.testing.in_memory.answers import record
from dendrux.testing.in_memory.call import Call, Handler
from dendrux.testing.in_memory.data import MICROSECOND, instant_of
from dendrux.testing.in_memory.refusals import error_of
from dendrux_model.operations import MarkLeaseExpired, SweepAbandonedRuns, SweepStaleRuns
from dendrux_model.operations.delegation import FATES, ReachedAlone, breadth_first, scoped
from dendrux_model.operations.leases import Sweep, SweptAlone
from dendrux_model.outcomes import Refused, Returned
from dendrux_model.world import SECOND, Run


class Swept:
    """What a page did, run by run."""

    def __init__(self) -> None:
        self.marked: list[str] = []
        self.ended: list[SweptRun] = []
        self.failed: list[FailedRun] = []

    def add(self, call: Call, sweep: Sweep, run_id: str) -> None:
        """Let the sweep pass one run. What its transaction raises is the run's entry."""
        try:
            outcome = call.transactions.outcome(SweptAlone(sweep=sweep, run_id=run_id))
        except PersistenceError as error:
            self.failed.append(FailedRun(run_id=run_id, code=error.code))
            return
        assert isinstance(outcome, Returned)
        self.marked += outcome.value.get("marked", [])
        ended = outcome.value.get("finalised", outcome.value.get("swept", {}))
        self.ended += [record(SweptRun, about, run_id=one) for one, about in ended.items()]


def swept(call: Call, sweep: Sweep, now: int) -> tuple[Swept, str | None]:
    """Let a sweep pass the next runs that it would change, those first whose clock stood still longest."""

    def place(run: Run) -> tuple[int, str]:
        return (run.paused_at or 0) if isinstance(sweep, SweepAbandonedRuns) else run.progress_at, run.id

    after, limit = call.given["after"], call.given["limit"]
    begin = (-1, "") if after is None else decoded("after", after, int, str)
    places = sorted(place(run) for run in call.data.world.runs if sweep.change(run, now) is not run)
    page = [one for one in places if one > begin][:limit]
    done = Swept()
    for _, run_id in page:
        done.add(call, sweep, run_id)
    return done, encoded(*page[-1]) if len(page) == limit else None


def mark_lease_expired(call: Call) -> LeaseSweep:
    """Runs that were last written before the cutoff: a microsecond more than the age of the cutoff."""
    now = call.data.tick()
    age = Fraction(now - instant_of(call.given["cutoff"]) + 1, SECOND)
    sweep = MarkLeaseExpired(
        cutoff_s=age,  # type: ignore[arg-type]  # programs say whole seconds; the model only multiplies them
        finalise_unrecoverable=call.given["finalise_unrecoverable"],
    )
    done, following = swept(call, sweep, now)
    return LeaseSweep(
        marked=tuple(done.marked), finalised=tuple(done.ended), failed=tuple(done.failed), next_after=following
    )


def ending(kind: type[SweepStaleRuns | SweepAbandonedRuns]) -> Any:
    """A sweep that ends runs."""

    def answer(call: Call) -> SweepPage:
        age = Fraction(call.given["older_than"] // MICROSECOND, SECOND)
        sweep = kind(older_than_s=age)  # type: ignore[arg-type]  # as the age of a cutoff
        done, following = swept(call, sweep, call.data.tick())
        return SweepPage(swept=tuple(done.ended), failed=tuple(done.failed), next_after=following)

    return answer


def cancel_subtree(call: Call) -> CancelPage:
    """The next runs of a family in its order. The cursor is the run that the page ended with, as in the model."""
    operation = call.operation()
    world = call.data.world
    outcome = operation.step(world)[1]
    if isinstance(outcome, Refused):
        raise error_of(world, operation, outcome)
    root = scoped(world, operation.root_run_id, operation.tenant_id)
    assert root is not None
    order = [run.id for run in breadth_first(world, root, operation.tenant_id)]
    start = 0 if operation.after is None else order.index(operation.after) + 1
    page = order[start : start + operation.limit]
    said: dict[str, list[str]] = {fate: [] for fate in FATES}
    failed: list[FailedRun] = []
    for run_id in page:
        try:
            outcome = call.transactions.outcome(ReachedAlone(page=operation, run_id=run_id))
        except PersistenceError as error:
            failed.append(FailedRun(run_id=run_id, code=error.code))
            continue
        assert isinstance(outcome, Returned)
        said[outcome.value].append(run_id)
    more = start + operation.limit < len(order)
    return CancelPage(**said, failed=failed, next_after=page[-1] if more else None)


HANDLERS: Final[dict[str, Handler]] = {
    "mark_lease_expired": mark_lease_expired,
    "sweep_stale_runs": ending(SweepStaleRuns),
    "sweep_abandoned_runs": ending(SweepAbandonedRuns),
    "cancel_subtree": cancel_subtree,
}
