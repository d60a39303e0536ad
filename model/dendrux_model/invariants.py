"""The invariants of the contract, each a small function that says whether it holds.

A check looks at one of four things:

- `of_run`: one run as it stands;
- `of_world`: all runs as they stand;
- `of_change`: one run before and after an operation, with the operation and its outcome;
- `of_answer`: what an operation answered, between the world before and after it, whether it changed anything or not.

An invariant may have several checks: `name` and `name__more` both check the invariant `name`. Exploration calls them on
what is new only; `broken_by_state` and `broken_by_step` call them for everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from dendrux.vocabulary import (
    META_LOOP,
    OPEN_STATUSES,
    PAUSED_STATUSES,
    RUNNING,
    TERMINAL_EVENTS,
    TERMINAL_STATUSES,
    UNSCOPED,
)
from dendrux_model.operations import Operation
from dendrux_model.outcomes import STALE, Outcome, Returned
from dendrux_model.values import JsonText
from dendrux_model.world import Run, World, find

RunCheck = Callable[[Run], bool]
WorldCheck = Callable[[World], bool]
ChangeCheck = Callable[[Run, Operation, Outcome, Run], bool]
AnswerCheck = Callable[[World, Any, Any, World], bool]
Check = RunCheck | WorldCheck | ChangeCheck | AnswerCheck


@dataclass
class Invariant:
    """A statement of the contract and the functions that check it."""

    name: str
    statements: list[str] = field(default_factory=list)
    """What each of the functions says."""
    runs: list[RunCheck] = field(default_factory=list)
    worlds: list[WorldCheck] = field(default_factory=list)
    changes: list[ChangeCheck] = field(default_factory=list)
    answers: list[tuple[frozenset[str], AnswerCheck]] = field(default_factory=list)
    """Each with the names of the operations whose answers it judges."""


INVARIANTS: Final[dict[str, Invariant]] = {}
"""By name, in the order of the contract."""

ENDS: Final = frozenset({"FinalizeWithEvent", "FinalizeRun", "FinalizeRunIfStatusIn"})
"""Compare-and-swap operations whose own guard says in which statuses they work."""

CLAIMS: Final = frozenset({"ClaimPausedRun", "SubmitAndClaim", "ReclaimRun"})
"""Operations that answer an epoch."""

DOES_NOT_ASK: Final = frozenset({"PauseRun", "ReleaseRunClaim"})
"""Operations that pause a run whether or not somebody asked to cancel it."""

ENDINGS: Final = frozenset(TERMINAL_EVENTS)
"""The event types that end a log."""


def name_of(check: Check) -> str:
    """The invariant that a check belongs to: the check's name up to a double underscore."""
    return check.__name__.split("__")[0]


def enter(check: Check) -> Invariant:
    """The invariant of a check, with what the check says noted there."""
    invariant = INVARIANTS.setdefault(name_of(check), Invariant(name_of(check)))
    invariant.statements.append((check.__doc__ or "").strip())
    return invariant


def of_run(check: RunCheck) -> RunCheck:
    """A check of one run as it stands."""
    enter(check).runs.append(check)
    return check


def of_world(check: WorldCheck) -> WorldCheck:
    """A check of all runs as they stand."""
    enter(check).worlds.append(check)
    return check


def of_change(check: ChangeCheck) -> ChangeCheck:
    """A check of one run before and after an operation."""
    enter(check).changes.append(check)
    return check


def of_answer(*operations: str) -> Callable[[AnswerCheck], AnswerCheck]:
    """A check of what these operations answer."""

    def decorate(check: AnswerCheck) -> AnswerCheck:
        enter(check).answers.append((frozenset(operations), check))
        return check

    return decorate


# -- the end and the log ----------------------------------------------------------------------------------------------


@of_change
def terminal_is_final(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """Once terminal, status, answer, error, reason, totals and (format 2) log, traces and tool rows never change."""
    return old.status not in TERMINAL_STATUSES or (
        old.status == new.status
        and old.answer == new.answer
        and old.error == new.error
        and old.failure_reason == new.failure_reason
        and old.totals == new.totals
        and (
            old.format == 1
            or (old.events == new.events and old.traces == new.traces and old.tool_calls == new.tool_calls)
        )
    )


@of_answer("SaveRunEvent", "PauseWithEvent", "FinalizeWithEvent", "GetRunEvents")
def events_gapless(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """A run's sequence indexes are exactly 0..n-1: an event answers its place, and a whole log counts up from 0."""
    run = find(after, operation.run_id)
    if isinstance(outcome.value, list):
        whole = operation.after_sequence_index is None and operation.event_types is None
        return not whole or [event["sequence_index"] for event in outcome.value] == list(range(len(outcome.value)))
    if outcome.value is None or run is None:
        return True
    if operation.event_id is None:
        return bool(outcome.value == len(run.events) - 1)
    return 0 <= outcome.value < len(run.events) and bool(run.events[outcome.value].id == operation.event_id)


@of_change
def events_append_only(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """An event, once visible, never changes, moves or vanishes."""
    return new.events is old.events or new.events[: len(old.events)] == old.events


@of_run
def one_terminal_event(run: Run) -> bool:
    """Format 2: the log holds a terminal event iff the status is terminal, exactly one, and it is last."""
    if run.format == 1:
        return True
    ends = [event.event_type in ENDINGS for event in run.events]
    if run.status in TERMINAL_STATUSES:
        return sum(ends) == 1 and ends[-1] and run.status in TERMINAL_EVENTS[run.events[-1].event_type]
    return not any(ends)


# -- ownership --------------------------------------------------------------------------------------------------------


@of_change
def epoch_moves_by_one(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """`claim_epoch` changes only in a claim or a reclaim, each time by +1."""
    return new.claim_epoch == old.claim_epoch or (
        new.claim_epoch == old.claim_epoch + 1 and type(operation).__name__ in CLAIMS
    )


@of_change
def cancel_stops_claims(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """A run that is asked to cancel is claimed by nobody, and pauses only by the operations that do not ask.

    A reclaim is no claim: whoever takes over a run that was left alone has to see to its cancellation.
    """
    if not old.cancel_requested or type(operation).__name__ == "ReclaimRun":
        return True
    return new.claim_epoch == old.claim_epoch and (
        old.status != RUNNING or new.status not in PAUSED_STATUSES or type(operation).__name__ in DOES_NOT_ASK
    )


@of_answer(*CLAIMS, "CreateRun")
def one_owner_per_epoch(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """At most one caller was ever returned a given epoch of a run: who is answered an epoch has just moved it there.

    A repeat of create_run by its run_id is the same caller.
    """
    value = outcome.value
    if value is None:
        return True
    old = find(before, operation.run_id)
    if isinstance(value, dict):
        if value["outcome"] != "created":
            return bool(value["claim_epoch"] == 0)
        return value["claim_epoch"] == 1 and (old is None or old.content == operation.content)
    new = find(after, operation.run_id)
    return old is not None and new is not None and old.claim_epoch < value == new.claim_epoch


@of_change
def stale_leaves_nothing(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """An operation that the fence refuses, or has to refuse, changes no row and no clock."""
    epoch = getattr(operation, "claim_epoch", None)
    if epoch is None:
        return outcome != STALE or old == new
    owner = epoch == old.claim_epoch and (old.status == RUNNING or type(operation).__name__ in ENDS)
    return (owner and outcome != STALE) or old == new


@of_answer("CreateRun")
def stale_leaves_nothing__birth(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Whoever names the parent's epoch begins a child only as the parent's owner."""
    if after is before or operation.parent_claim_epoch is None:
        return True
    parent = find(before, operation.parent_run_id or "")
    return parent is None or (parent.status == RUNNING and parent.claim_epoch == operation.parent_claim_epoch)


# -- identities and positions -----------------------------------------------------------------------------------------


@of_world
def identity_once(world: World) -> bool:
    """At most one row per identity, whatever was retried, lost or raced: run ids, row ids, idempotency keys."""
    runs = world.runs
    ids = [run.id for run in runs]
    keys = [(run.tenant_id or "", run.idempotency_key) for run in runs if run.idempotency_key is not None]
    if len(set(ids)) != len(ids) or len(set(keys)) != len(keys):
        return False
    for rows in (
        [event.id for run in runs for event in run.events],
        [trace.id for run in runs for trace in run.traces],
        [call.id for run in runs for call in run.tool_calls],
        [usage.id for run in runs for usage in run.usage],
        [interaction.id for run in runs for interaction in run.interactions],
        [note.id for run in runs for note in run.notes],
    ):
        if len(rows) > 1:
            given = [row_id for row_id in rows if row_id is not None]
            if len(set(given)) != len(given):
                return False
    return True


WRITES: Final = {
    "SaveRunEvent": ("events", "event_id"),
    "PauseWithEvent": ("events", "event_id"),
    "FinalizeWithEvent": ("events", "event_id"),
    "SaveTrace": ("traces", "trace_id"),
    "SaveToolCall": ("tool_calls", "row_id"),
    "CompleteToolCall": ("tool_calls", "row_id"),
    "SaveUsage": ("usage", "usage_id"),
    "SaveLLMInteraction": ("interactions", "interaction_id"),
    "AddNote": ("notes", "note_id"),
}
"""Where the row of an identity write is, and which parameter is its identity."""


@of_answer(*WRITES, "CreateRun")
def identity_once__acknowledged(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Whoever was told that an identity is written finds it in that run, with exactly that content."""
    run = find(after, operation.run_id)
    if isinstance(outcome.value, dict):
        return outcome.value["outcome"] != "created" or (run is not None and run.content == operation.content)
    rows, parameter = WRITES[type(operation).__name__]
    row_id = getattr(operation, parameter)
    lost = outcome.value in ("full", "closed") or (outcome.value is None and hasattr(operation, "event_id"))
    if row_id is None or lost:
        return True
    return run is not None and any(row.id == row_id and row.content == operation.content for row in getattr(run, rows))


@of_answer("CheckpointStep")
def identity_once__step(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Whoever was told that a step is stored finds it as the run's last one, with exactly that content."""
    run = find(after, operation.run_id)
    return run is not None and run.last_step is not None and run.last_step == (operation.step_id, operation.content)


@of_run
def position_once(run: Run) -> bool:
    """Format 2: at most one trace per order index and one tool row per tool call id of a run."""
    if run.format == 1:
        return True
    return len({trace.order_index for trace in run.traces}) == len(run.traces) and len(
        {call.tool_call_id for call in run.tool_calls}
    ) == len(run.tool_calls)


# -- requests, pauses, submissions ------------------------------------------------------------------------------------


@of_run
def flags_only_while_open(run: Run) -> bool:
    """No request stands on a terminal run; a pause request stands on running runs only."""
    if run.status == RUNNING:
        return run.pause_requested or run.pause_reason is None
    requested = run.pause_requested or run.pause_reason is not None
    return not requested and (run.status in OPEN_STATUSES or not run.cancel_requested)


@of_run
def lease_mark_only_running(run: Run) -> bool:
    """`lease_expired_at` is set only on running runs that somebody else could go on with."""
    if run.lease_expired_at is None:
        return True
    return run.status == RUNNING and run.format == 2 and (META_LOOP, JsonText('"react"')) in (run.meta or ())


@of_run
def tool_pair(run: Run) -> bool:
    """Format 2, of a call that was started: an event per attempt; result, observation and event, or none of them."""
    for call in run.tool_calls:
        observed = call.completed and call.started_epoch is not None and isinstance(call.trace_id, str)
        if observed and all(trace.id != call.trace_id for trace in run.traces):
            return False
        if call.started is not None:
            if sum(event.content == call.started for event in run.events) != call.attempt:
                return False
            if call.completed != any(event.content == call.content for event in run.events):
                return False
    return True


@of_run
def pause_document_iff_paused(run: Run) -> bool:
    """A paused run has a pause document; a terminal run has none, nor a submission."""
    if run.status in PAUSED_STATUSES:
        return run.pause_document is not None
    return run.status == RUNNING or (run.pause_document is None and run.submission is None)


@of_run
def submission_once(run: Run) -> bool:
    """A submission stands on a running run that was claimed with it, so nobody else is handed its content."""
    return run.submission is None or (run.status == RUNNING and run.claimed_epoch is not None)


@of_change
def submission_once__kept(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """A submission keeps id and content until it goes; on format 2 no pause drops one that nobody consumed."""
    before, after = old.submission, new.submission
    if before is None or before is after:
        return True
    if after is None:
        dropped = new.status in PAUSED_STATUSES and type(operation).__name__ != "ReleaseRunClaim"
        return old.format == 1 or before.consumption_id is not None or not dropped
    return before[:3] == after[:3] and before.consumption_id in (None, after.consumption_id)


@of_answer("ConsumeSubmission")
def submission_once__handed_out(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Who is handed a submission named the consumption that stands on it."""
    run = find(after, operation.run_id)
    held = None if run is None else run.submission
    return outcome.value is None or (held is not None and held.consumption_id == operation.consumption_id)


# -- notes ------------------------------------------------------------------------------------------------------------


@of_change
def note_cap(old: Run, operation: Any, outcome: Outcome, new: Run) -> bool:
    """Pending notes of a run never exceed the cap that the writer used."""
    if new.notes is old.notes or len(new.notes) <= len(old.notes):
        return True
    return sum(note.delivered_iteration is None for note in new.notes) <= getattr(operation, "max_pending", 0)


@of_change
def note_order(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """Notes keep their order and their text, and delivered ones their first stamp."""
    if new.notes is old.notes:
        return True
    return len(new.notes) >= len(old.notes) and all(
        after == before
        or (before.delivered_iteration is None and after[:4] == before[:4] and after.delivered_iteration is not None)
        for before, after in zip(old.notes, new.notes, strict=False)
    )


@of_answer("GetNotes")
def note_order__read(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Notes are read in the order in which they came."""
    run = find(after, operation.run_id)
    wanted = [
        note.id
        for note in (run.notes if run else ())
        if note.delivered_iteration is None or not operation.undelivered_only
    ]
    return [note["id"] for note in outcome.value] == wanted[: operation.limit]


# -- tenants and families ---------------------------------------------------------------------------------------------


@of_change
def tenant_wall(old: Run, operation: Operation, outcome: Outcome, new: Run) -> bool:
    """Nothing of one tenant is changed through another tenant's scope, and no run ever changes its tenant."""
    scope = getattr(operation, "tenant_id", UNSCOPED)
    return (scope is UNSCOPED or old.tenant_id == scope) and new.tenant_id == old.tenant_id


SCOPED: Final = (
    "GetRun",
    "GetNotes",
    "ListRuns",
    "CountRuns",
    "ClaimPausedRun",
    "SubmitAndClaim",
    "AddNote",
    "CreateRun",
)


@of_answer(*SCOPED)
def tenant_wall__answers(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """Nothing of one tenant is visible or matched through another tenant's scope; keys take None and "" as one."""
    scope = operation.tenant_id
    if scope is UNSCOPED:
        return True
    visible = {run.id for run in after.runs if run.tenant_id == scope}
    value, name = outcome.value, type(operation).__name__
    if name == "ListRuns":
        return visible.issuperset(value)
    if name == "CountRuns":
        return bool(value <= len(visible))
    if name == "CreateRun":
        found = find(after, value["run_id"])
        return found is not None and (found.tenant_id or "") == (scope or "")
    return (value is None and name == "GetRun") or operation.run_id in visible


@of_world
def tenant_wall__families(world: World) -> bool:
    """A child, and a retry, is of its parent's tenant."""
    for run in world.runs:
        for related in (run.parent_run_id, run.retry_of_run_id):
            if related is not None:
                other = find(world, related)
                if other is None or other.tenant_id != run.tenant_id:
                    return False
    return True


# -- work that is handed out ------------------------------------------------------------------------------------------


@of_answer("ConsumeSubmission")
def permission_needs_claim(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """A submission is handed to nobody but the owner of the running run."""
    run = find(before, operation.run_id)
    owner = run is not None and run.status == RUNNING and run.claim_epoch == operation.claim_epoch
    return owner or outcome.value is None


@of_answer("CreateRun")
def cancel_reaches_children(before: World, operation: Any, outcome: Returned, after: World) -> bool:
    """No run is born under a parent that has ended or is asked to cancel."""
    if after is before or operation.parent_run_id is None:
        return True
    parent = find(before, operation.parent_run_id)
    return parent is not None and parent.status in OPEN_STATUSES and not parent.cancel_requested


# -- for callers that look at one step at a time ----------------------------------------------------------------------


def changed(before: World, after: World) -> Iterator[tuple[Run, Run]]:
    """Each run that differs, before and after."""
    for old in before.runs:
        new = find(after, old.id)
        if new is not None and new is not old:
            yield old, new


def broken_by_state(world: World) -> list[str]:
    """The invariants that do not hold in this world."""
    return [
        name
        for name, invariant in INVARIANTS.items()
        if not all(whole(world) for whole in invariant.worlds)
        or not all(holds(run) for holds in invariant.runs for run in world.runs)
    ]


def broken_by_step(before: World, operation: Operation, outcome: Outcome, after: World) -> list[str]:
    """The invariants that this step breaks."""
    moved = list(changed(before, after))
    name = type(operation).__name__
    found = []
    for invariant in INVARIANTS.values():
        held = all(holds(old, operation, outcome, new) for holds in invariant.changes for old, new in moved)
        for operations, holds in invariant.answers:
            if isinstance(outcome, Returned) and name in operations:
                held = held and holds(before, operation, outcome, after)
        if not held:
            found.append(invariant.name)
    return found


from dendrux_model import (  # noqa: E402  # they add to the table above
    invariants_blobs,  # noqa: F401  # and those of stored bytes
    invariants_families,  # noqa: F401  # the checks that need the table above
    invariants_leases,  # noqa: F401  # and those of leases
    invariants_tools,  # noqa: F401  # the checks of tool calls
)
