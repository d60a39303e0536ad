"""Properties that some program must show: they guard against a model that never gets anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dendrux.vocabulary import PAUSED_STATUSES, RUN_PAUSED, RUNNING
from dendrux_model.operations import Operation
from dendrux_model.outcomes import STALE, Outcome, Returned
from dendrux_model.world import World, find

Sometimes = Callable[[World, Any, Outcome, World], bool]

SOMETIMES: Final[dict[str, Sometimes]] = {}
"""By name; each looks at one step."""


def sometimes(seen: Sometimes) -> Sometimes:
    """Enter a function into the table."""
    SOMETIMES[seen.__name__] = seen
    return seen


def fenced_by(operation: Operation) -> int | None:
    """The epoch that a call names."""
    epoch: int | None = getattr(operation, "claim_epoch", None)
    return epoch


@sometimes
def two_owners_alive(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """An owner of an older epoch still writes after somebody else claimed, and is refused."""
    run = find(before, getattr(operation, "run_id", ""))
    epoch = fenced_by(operation)
    return (
        outcome == STALE and run is not None and epoch is not None and epoch < run.claim_epoch and run.status == RUNNING
    )


@sometimes
def cancel_while_paused(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """Somebody asks a paused run to cancel."""
    run = find(before, getattr(operation, "run_id", ""))
    asked = type(operation).__name__ == "RequestCancel" and after is not before
    return asked and run is not None and run.status in PAUSED_STATUSES


@sometimes
def release_then_claim(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A claim is handed back and another caller takes the run: there were more claims than pauses."""
    if type(operation).__name__ not in ("ClaimPausedRun", "SubmitAndClaim") or after is before:
        return False
    run = find(after, operation.run_id)
    return run is not None and run.claim_epoch - 1 > sum(event.event_type == RUN_PAUSED for event in run.events)


@sometimes
def resubmission(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A submission that went with a released claim is submitted again."""
    return type(operation).__name__ == "SubmitAndClaim" and release_then_claim(before, operation, outcome, after)


@sometimes
def end_told_again(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """Somebody repeats the end of a run and is told what the first call was."""
    ended = type(operation).__name__ == "FinalizeWithEvent" and after is before
    return ended and isinstance(outcome, Returned) and outcome.value is not None


@sometimes
def replay_under_a_third_epoch(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A call that two owners left open is handed to a third."""
    if type(operation).__name__ != "StartToolCall" or after is before or not isinstance(outcome, Returned):
        return False
    return bool(outcome.value["attempt"] >= 3)


@sometimes
def full_inbox(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A note finds no room."""
    return outcome == Returned("full")


@sometimes
def room_again(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A note finds room because older ones were delivered."""
    run = find(before, getattr(operation, "run_id", ""))
    added = type(operation).__name__ == "AddNote" and after is not before
    return added and run is not None and len(run.notes) >= operation.max_pending


@sometimes
def consumed_after_a_crash(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A submission is consumed by an owner who took the run over from the one it was submitted to."""
    if type(operation).__name__ != "ConsumeSubmission" or after is before:
        return False
    run = find(after, operation.run_id)
    return run is not None and run.claimed_epoch is not None and run.claimed_epoch < run.claim_epoch


@sometimes
def handed_out_again(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A submission that a crashed owner consumed is handed to the next one, who names the same consumption."""
    if type(operation).__name__ != "ConsumeSubmission" or after is not before or not isinstance(outcome, Returned):
        return False
    run = find(after, operation.run_id)
    return outcome.value is not None and run is not None and (run.claimed_epoch or 0) < run.claim_epoch


@sometimes
def child_outlives_parent(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A parent ends while a child of it is open."""
    run = find(after, getattr(operation, "run_id", ""))
    if type(operation).__name__ != "FinalizeWithEvent" or after is before or run is None:
        return False
    return any(other.parent_run_id == run.id and other.status == RUNNING for other in after.runs)


@sometimes
def cancel_passes_an_end(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A cancellation passes a run that has ended and reaches a run below it."""
    if type(operation).__name__ != "CancelSubtree" or after is before or not isinstance(outcome, Returned):
        return False
    ended = outcome.value["already_terminal"]
    reached = [*outcome.value["cancelled"], *outcome.value["requested"]]
    return any(run.id in reached and run.parent_run_id in ended for run in after.runs)


@sometimes
def cancel_in_pages(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A later page of a cancellation is the last one, and reaches a run."""
    last = type(operation).__name__ == "CancelSubtree" and operation.after is not None and after is not before
    return last and isinstance(outcome, Returned) and outcome.value["next_after"] is None


@sometimes
def former_owner_still_writes(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """The slow owner of a run that was reclaimed writes again, and is refused."""
    run = find(before, getattr(operation, "run_id", ""))
    reclaimed = run is not None and run.reclaim_count > 0 and run.claimed_epoch != run.claim_epoch
    return reclaimed and two_owners_alive(before, operation, outcome, after)


@sometimes
def slow_owner_keeps_the_run(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """The owner of a marked run writes before anybody took the run over, and keeps it."""
    run, now = find(before, getattr(operation, "run_id", "")), find(after, getattr(operation, "run_id", ""))
    marked = run is not None and run.lease_expired_at is not None and fenced_by(operation) == run.claim_epoch
    return marked and now is not None and now.lease_expired_at is None and now.status == RUNNING


@sometimes
def key_answers_other_run(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A second run under a taken idempotency key is answered with the first one."""
    value = outcome.value if isinstance(outcome, Returned) else None
    return type(operation).__name__ == "CreateRun" and isinstance(value, dict) and value["run_id"] != operation.run_id


@sometimes
def reference_saves_a_blob(before: World, operation: Any, outcome: Outcome, after: World) -> bool:
    """A collection meets an old blob that a run refers to, and drops another."""
    if type(operation).__name__ != "CollectGarbage" or not isinstance(outcome, Returned):
        return False
    return bool(outcome.value["skipped_referenced"] and outcome.value["deleted_blobs"])
