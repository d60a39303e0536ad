"""Mutants of leases, reclaims and sweeps."""

from __future__ import annotations

from typing import Any

from dendrux.vocabulary import RUNNING
from dendrux_model import rules
from dendrux_model.operations import GetLeaseExpired, ReclaimRun, UpdateRunMeta, claims, finish, leases, pauses
from dendrux_model.outcomes import Returned
from dendrux_model.swaps import Swap, instead, keeping, mutant, seen_as, step_keeping, step_of, swapped
from dendrux_model.world import Run


@mutant("lease_mark_only_running", "leases")
def pause_keeps_the_mark() -> Swap:
    """A pause leaves the mark of an expired lease."""
    return keeping(pauses, "paused", "lease_expired_at")


@mutant("lease_mark_only_running", "leases")
def end_keeps_the_mark() -> Swap:
    """The end of a run leaves the mark of an expired lease."""
    return keeping(finish, "finished", "lease_expired_at")


@mutant("lease_mark_only_running", "leases")
def sweep_keeps_the_mark() -> Swap:
    """A sweep ends a marked run and leaves the mark."""
    return keeping(leases, "swept", "lease_expired_at")


@mutant("lease_mark_only_running", "leases")
def write_keeps_the_mark() -> Swap:
    """A write of the slow owner renews the clock and leaves the mark."""
    return instead(rules, "mark", lambda run, _epoch: run.lease_expired_at)


@mutant("lease_mark_only_running", "leases")
def other_loops_are_marked() -> Swap:
    """Every stale run is marked, whether somebody could go on with it or not."""
    return instead(rules, "recoverable", lambda _run: True)


@mutant("lease_mark_only_running", "leases_format_1")
def older_format_is_marked() -> Swap:
    """A run of format 1 is marked when its loop says that it could be taken over."""
    return swapped(rules, "recoverable", lambda original: lambda run: original(run._replace(format=2)))


@mutant("lease_mark_only_running", "leases")
def loop_changes_under_the_mark() -> Swap:
    """A change of the loop leaves the mark of a run that nobody could take over any more."""
    return step_keeping(UpdateRunMeta, "lease_expired_at")


@mutant("epoch_moves_by_one", "leases")
def reclaim_raises_twice() -> Swap:
    """A reclaim raises the epoch by two."""
    return swapped(
        leases,
        "reclaimed",
        lambda original: lambda run, now: (after := original(run, now))._replace(claim_epoch=after.claim_epoch + 1),
    )


@mutant("epoch_moves_by_one", "leases")
def reclaim_without_mark() -> Swap:
    """A running run can be taken over though nobody marked it."""
    return instead(leases, "reclaimable", lambda run, epoch: run.status == RUNNING and run.claim_epoch == epoch)


@mutant("epoch_moves_by_one", "leases")
def reclaims_are_not_counted() -> Swap:
    """A reclaim leaves the count of reclaims."""
    return keeping(leases, "reclaimed", "reclaim_count")


@mutant("one_owner_per_epoch", "leases")
def reclaim_keeps_epoch() -> Swap:
    """A reclaim answers the epoch that the former owner has."""
    return keeping(leases, "reclaimed", "claim_epoch")


@mutant("one_owner_per_epoch", "leases")
def late_reclaim_answers_epoch() -> Swap:
    """Whoever comes too late is answered the epoch of whoever won."""
    return step_of(
        ReclaimRun,
        lambda op, before, after, outcome: (
            after,
            Returned(before.runs[0].claim_epoch) if outcome == Returned(None) else outcome,
        ),
    )


@mutant("terminal_is_final", "leases")
def sweep_over_terminal() -> Swap:
    """A sweep looks at the clock and not at the status."""
    return swapped(
        leases, "stale", lambda original: lambda run, now, seconds: original(run._replace(status=RUNNING), now, seconds)
    )


@mutant("one_terminal_event", "leases")
def sweep_without_event() -> Swap:
    """A sweep ends a run without a terminal event."""
    return keeping(leases, "swept", "events")


@mutant("one_terminal_event", "leases")
def cancelled_run_interrupted() -> Swap:
    """A run that was asked to cancel ends as cancelled, with the event of an interruption."""

    def wrap(original: Any) -> Any:
        def swept(run: Run, now: int, event_type: str, reason: str) -> Run:
            after: Run = original(run, now, event_type, reason)
            last = after.events[-1]._replace(event_type=event_type)
            return after._replace(events=(*after.events[:-1], last))

        return swept

    return swapped(leases, "swept", wrap)


@mutant("flags_only_while_open", "leases")
def sweep_keeps_requests() -> Swap:
    """A sweep leaves the requests of the run that it ends."""
    return keeping(leases, "swept", "cancel_requested")


@mutant("pause_document_iff_paused", "leases")
def sweep_keeps_document() -> Swap:
    """A sweep of abandoned runs leaves the pause document."""
    return keeping(leases, "swept", "pause_document")


@mutant("tenant_wall", "leases")
def leases_of_everybody() -> Swap:
    """Whose lease ran out is told in every scope."""
    return seen_as(GetLeaseExpired, lambda op, run: run._replace(tenant_id=op.tenant_id))


# -- seen by the pinned numbers only ----------------------------------------------------------------------------------


@mutant(None, "leases")
def sweep_ignores_cancel() -> Swap:
    """A run that was asked to cancel ends as interrupted."""
    return swapped(
        leases, "swept", lambda original: lambda run, *rest: original(run._replace(cancel_requested=False), *rest)
    )


@mutant(None, "leases")
def reclaim_leaves_the_clock() -> Swap:
    """A reclaimed run has the old lease, so the next sweep takes it away again."""
    return keeping(leases, "reclaimed", "progress_at")


@mutant(None, "leases")
def reclaim_counts_as_claim() -> Swap:
    """Whoever reclaimed a run may hand it back, though it was never paused for them."""
    return swapped(
        leases,
        "reclaimed",
        lambda original: lambda run, now: (after := original(run, now))._replace(claimed_epoch=after.claim_epoch),
    )


@mutant(None, "leases")
def abandoned_by_last_write() -> Swap:
    """The clock of a pause is the last change of the run, whoever made it."""
    return swapped(
        leases,
        "abandoned",
        lambda original: lambda run, now, seconds: original(run._replace(paused_at=run.updated_at), now, seconds),
    )


@mutant(None, "leases")
def claim_leaves_the_clock() -> Swap:
    """A run that was paused for long is stale as soon as it is claimed."""
    return keeping(claims, "claimed", "progress_at")
