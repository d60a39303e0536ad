"""The lease of a running run: its owner is alive as long as it writes, and what becomes of the run when it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, ClassVar

from dendrux.vocabulary import (
    ABANDONED_WAITING,
    NEVER_STARTED,
    PAUSED_STATUSES,
    RUN_STARTED,
    RUNNING,
    STALE_RUNNING,
    UNSCOPED,
    TenantScope,
)
from dendrux_model import rules
from dendrux_model.operations.base import Known, LostAck, Operation, Parts, Step
from dendrux_model.outcomes import FALSE, NONE, NOT_FOUND, TRUE, Outcome, Returned, codes_of
from dendrux_model.values import At, Unordered, json_text
from dendrux_model.world import SECOND, Event, Run, World, find, put


@dataclass(frozen=True, kw_only=True)
class TouchProgress(Operation, lost_ack="natural"):
    """Renew the lease. On format 2 only the owner can: an unfenced call changes nothing."""

    run_id: str
    claim_epoch: int | None = None

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        refusal = rules.refused(run, self.claim_epoch)
        if refusal is not None:
            return world, refusal
        if run.status != RUNNING or (run.format == 2 and self.claim_epoch is None):
            return world, FALSE
        return put(world, run._replace(progress_at=world.now, lease_expired_at=None)), TRUE


# -- what a sweep does to one run -------------------------------------------------------------------------------------


def stale(run: Run, now: int, seconds: int) -> bool:
    """Nobody owns the run visibly any more: it is running and its clock stood still for that long."""
    return run.status == RUNNING and now - run.progress_at >= seconds * SECOND


def abandoned(run: Run, now: int, seconds: int) -> bool:
    """The run has waited for somebody for that long."""
    return run.status in PAUSED_STATUSES and now - (run.paused_at or 0) >= seconds * SECOND


def marked(run: Run, now: int) -> Run:
    """The run with the mark that lets somebody else take it over, and the event that says so."""
    event = told(run, "run.lease_expired", {"claim_epoch": run.claim_epoch})
    return run._replace(lease_expired_at=now, events=rules.logged(run, event))


def swept(run: Run, now: int, event_type: str, reason: str) -> Run:
    """The run as a sweep ends it; one that was asked to cancel ends as cancelled."""
    cancelled = run.cancel_requested
    after = run._replace(
        status="cancelled" if cancelled else "error",
        cancel_requested=False,
        pause_requested=False,
        pause_reason=None,
        pause_document=None,
        submission=None,
        error=run.error if cancelled else f"Run swept as {reason}",
        failure_reason=reason,
        lease_expired_at=None,
        updated_at=now,
    )
    data = {"reason": "cancel_requested", "failure_reason": reason} if cancelled else {"failure_reason": reason}
    event = told(run, "run.cancelled" if cancelled else event_type, data)
    return after._replace(events=rules.logged(after, event))


def interrupted(run: Run, now: int) -> Run:
    """The end of a run whose owner died."""
    started = any(event.event_type == RUN_STARTED for event in run.events)
    return swept(run, now, "run.interrupted", STALE_RUNNING if started else NEVER_STARTED)


def told(run: Run, event_type: str, data: dict[str, Any]) -> Event:
    """An event of the store's own: it has an id that nobody chose, and the run's count."""
    return Event(None, "", event_type, run.iteration_count, None, json_text(data))


def shown_end(before: Run, after: Run) -> dict[str, Any]:
    """What a sweep says of a run that it ended."""
    return {
        "agent_name": before.agent_name,
        "previous_status": before.status,
        "failure_reason": after.failure_reason,
        "last_progress_at": At(before.progress_at),
        "swept_at": At(after.updated_at),
        "status": after.status,
    }


# -- over all runs ----------------------------------------------------------------------------------------------------


class Sweep(Operation):
    """An operation over every run there is: one step is all its pages, each run on its own.

    A program says times in whole seconds; the answer names runs in no order.
    """

    limit: int
    """Runs in one page."""

    def change(self, run: Run, now: int) -> Run:
        """The run after the sweep passed it; the same object when it needs nothing."""
        raise NotImplementedError

    def answer(self, changes: Iterable[tuple[Run, Run]], failed: dict[str, str]) -> Returned:
        """What the call answers, from the runs before and after it."""
        raise NotImplementedError

    def step(self, world: World) -> Step:
        after, changes = self.over(world, lambda _run: True)
        return after, self.answer(changes, {})

    def cut_steps(self, world: World, *, at_commit: bool) -> list[Step]:
        steps: list[Step] = []
        _, changes = self.over(world, lambda _run: True)
        for cut, became in changes:
            rest, others = self.over(world, lambda run, cut=cut: run is not cut)  # type: ignore[misc]
            for code in codes_of(at_commit=at_commit):
                answer = self.answer(others, {cut.id: code})
                steps += [(rest, answer), (put(rest, became), answer)] if at_commit else [(rest, answer)]
        return steps

    def partly(self, world: World) -> list[World]:
        _, changes = self.over(world, lambda _run: True)
        ids = [run.id for run, _ in changes]
        some = chain.from_iterable(combinations(ids, number) for number in range(1, len(ids)))
        return [self.over(world, lambda run, some=reached: run.id in some)[0] for reached in some]  # type: ignore[misc]

    def ways(self, observed: Outcome, known: Known) -> list[Parts]:
        if not isinstance(observed, Returned) or not isinstance(observed.value, dict):
            return [[(self, observed)]]
        named = {run_id for said in observed.value.values() for run_id in said}
        return [
            [
                (SweptAlone(sweep=self, run_id=run_id), Returned(only(run_id, observed.value)))
                for run_id in sorted(known.runs | named)
            ]
        ]

    def over(self, world: World, chosen: Callable[[Run], bool]) -> tuple[World, list[tuple[Run, Run]]]:
        """The world after the sweep passed the chosen runs, and what changed."""
        changes = [(run, self.change(run, world.now)) for run in world.runs if chosen(run)]
        changes = [(run, became) for run, became in changes if became is not run]
        for _, became in changes:
            world = put(world, became)
        return world, changes


@dataclass(frozen=True, kw_only=True)
class SweptAlone(Operation):
    """What a sweep does to one run, in a transaction of its own: the part it plays among concurrent calls."""

    sweep: Sweep
    run_id: str

    lost_ack: ClassVar[LostAck] = "paged"

    def step(self, world: World) -> Step:
        after, changes = self.sweep.over(world, lambda run: run.id == self.run_id)
        return after, self.sweep.answer(changes, {})

    def idle(self, observed: Outcome) -> bool:
        return isinstance(observed, Returned) and not any(observed.value.values())


def only(run_id: str, answer: dict[str, Any]) -> dict[str, Any]:
    """What the answer of a sweep says of one run."""
    return {
        name: [run for run in said if run == run_id]
        if isinstance(said, list)
        else {run: about for run, about in said.items() if run == run_id}
        for name, said in answer.items()
    }


@dataclass(frozen=True, kw_only=True)
class MarkLeaseExpired(Sweep, lost_ack="paged"):
    """Mark every recoverable run whose lease ran out; when asked, end the others like a sweep of stale runs."""

    cutoff_s: int
    """The age of the cutoff when the call is made."""
    limit: int = 100
    finalise_unrecoverable: bool = False

    def change(self, run: Run, now: int) -> Run:
        if not stale(run, now, self.cutoff_s):
            return run
        if rules.recoverable(run):
            return run if run.lease_expired_at is not None else marked(run, now)
        return interrupted(run, now) if self.finalise_unrecoverable else run

    def answer(self, changes: Iterable[tuple[Run, Run]], failed: dict[str, str]) -> Returned:
        changed = list(changes)
        return Returned(
            {
                "marked": Unordered(run.id for run, became in changed if became.status == RUNNING),
                "finalised": {run.id: shown_end(run, end) for run, end in changed if end.status != RUNNING},
                "failed": failed,
            }
        )


@dataclass(frozen=True, kw_only=True)
class SweepStaleRuns(Sweep, lost_ack="paged"):
    """End every running run whose owner did not write for that long."""

    older_than_s: int
    limit: int = 100

    def change(self, run: Run, now: int) -> Run:
        return interrupted(run, now) if stale(run, now, self.older_than_s) else run

    def answer(self, changes: Iterable[tuple[Run, Run]], failed: dict[str, str]) -> Returned:
        return Returned({"swept": {run.id: shown_end(run, end) for run, end in changes}, "failed": failed})


@dataclass(frozen=True, kw_only=True)
class SweepAbandonedRuns(Sweep, lost_ack="paged"):
    """End every paused run that nobody claimed for that long."""

    older_than_s: int
    limit: int = 100

    def change(self, run: Run, now: int) -> Run:
        if not abandoned(run, now, self.older_than_s):
            return run
        return swept(run, now, "run.abandoned", ABANDONED_WAITING)

    def answer(self, changes: Iterable[tuple[Run, Run]], failed: dict[str, str]) -> Returned:
        return Returned({"swept": {run.id: shown_end(run, end) for run, end in changes}, "failed": failed})


@dataclass(frozen=True, kw_only=True)
class GetLeaseExpired(Operation, lost_ack="read"):
    """Read which runs wait for somebody to take them over, page by page to the end."""

    limit: int = 100
    tenant_id: TenantScope = UNSCOPED

    def step(self, world: World) -> Step:
        return world, Returned(
            {
                run.id: {
                    "claim_epoch": run.claim_epoch,
                    "expired_at": At(run.lease_expired_at),
                    "reclaim_count": run.reclaim_count,
                }
                for run in world.runs
                if run.lease_expired_at is not None and rules.in_scope(run, self.tenant_id)
            }
        )

    def ways(self, observed: Outcome, known: Known) -> list[Parts]:
        if not isinstance(observed, Returned) or not isinstance(observed.value, dict):
            return [[(self, observed)]]
        return [
            [
                (LeaseAlone(read=self, run_id=run_id), Returned(observed.value.get(run_id)))
                for run_id in sorted(known.runs | set(observed.value))
            ]
        ]


@dataclass(frozen=True, kw_only=True)
class LeaseAlone(Operation):
    """What the pages of a read say of one run: the part that it plays among concurrent calls."""

    read: GetLeaseExpired
    run_id: str

    lost_ack: ClassVar[LostAck] = "read"

    def step(self, world: World) -> Step:
        _, answer = self.read.step(world)
        assert isinstance(answer, Returned)
        return world, Returned(answer.value.get(self.run_id))


@dataclass(frozen=True, kw_only=True)
class ReclaimRun(Operation, lost_ack="claim"):
    """Take over a marked run from its dead owner. Answers the new epoch, or None to whoever came too late."""

    run_id: str
    expected_epoch: int

    def step(self, world: World) -> Step:
        run = find(world, self.run_id)
        if run is None:
            return world, NOT_FOUND
        if not reclaimable(run, self.expected_epoch):
            return world, NONE
        after = reclaimed(run, world.now)
        return put(world, after), Returned(after.claim_epoch)


def reclaimable(run: Run, expected_epoch: int) -> bool:
    """The guard of a reclaim: still running, still marked, and nobody else took it over."""
    return run.status == RUNNING and run.lease_expired_at is not None and run.claim_epoch == expected_epoch


def reclaimed(run: Run, now: int) -> Run:
    """The run under its next owner. `claimed_epoch` stays: nobody claimed, so nobody can hand the claim back."""
    epoch, count = run.claim_epoch + 1, run.reclaim_count + 1
    event = told(run, "run.reclaimed", {"claim_epoch": epoch, "reclaim_count": count})
    return run._replace(
        claim_epoch=epoch,
        reclaim_count=count,
        lease_expired_at=None,
        progress_at=now,
        events=rules.logged(run, event),
    )
