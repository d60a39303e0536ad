"""Mutants of the model: each breaks one rule, and the invariant it names has to see it.

Mutants without an invariant change what happens without breaking a promise of state, such as a rule that refuses too
much: the pinned numbers of their small world have to see those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dendrux.vocabulary import UNSCOPED, TenantScope
from dendrux_model import rules
from dendrux_model.operations import (
    CreateRun,
    FinalizeWithEvent,
    GetNotes,
    GetRunEvents,
    MarkNotesDelivered,
    PauseWithEvent,
    ReleaseRunClaim,
    RequestPause,
    Step,
    SubmitAndClaim,
    claims,
    events,
    finish,
    notes,
    pauses,
    runs,
)
from dendrux_model.outcomes import OUTCOME_UNKNOWN, STALE, TRUE, Outcome, Returned
from dendrux_model.swaps import Swap, instead, keeping, mutant, seen_as, step_keeping, step_of, swapped
from dendrux_model.world import Run, World, find, put


def scoped(fold: Callable[[str], str]) -> Swap:
    """Tenants are compared after folding them."""

    def in_scope(run: Run, scope: TenantScope) -> bool:
        if isinstance(scope, str) and run.tenant_id is not None:
            return fold(scope) == fold(run.tenant_id)
        return scope is UNSCOPED or scope == run.tenant_id

    return instead(rules, "in_scope", in_scope)


def keyed(in_scope: Callable[[CreateRun, Run], bool]) -> Swap:
    """The scope of idempotency keys is another one."""

    def holder_of_key(op: CreateRun, world: World) -> Run | None:
        same = (run for run in world.runs if op.idempotency_key and run.idempotency_key == op.idempotency_key)
        return next((run for run in same if in_scope(op, run)), None)

    return instead(CreateRun, "holder_of_key", holder_of_key)


# -- the end and the log ----------------------------------------------------------------------------------------------


@mutant("terminal_is_final", "two_owners")
def finalize_over_terminal() -> Swap:
    """The end of a run is not guarded by its status."""
    return seen_as(
        FinalizeWithEvent,
        lambda op, run: run._replace(status=op.allowed_current_statuses[0]) if rules.ended(run) else run,
    )


@mutant("terminal_is_final", "two_owners_format_1")
def legacy_finalize_over_terminal() -> Swap:
    """The legacy end of a run takes every status for open."""

    def finalized(world: World, op: Any, _allowed: Any) -> Step:
        return put(world, finish.finished(world.runs[0], op, world.now)), TRUE

    return instead(finish, "finalized", finalized)


@mutant("terminal_is_final", "identities")
def late_rows_accepted() -> Swap:
    """Rows of evidence are accepted on a run that has ended."""
    return swapped(rules, "refused", lambda original: lambda run, epoch, **_final: original(run, epoch))


@mutant("events_gapless", "two_owners")
def index_counts_from_one() -> Swap:
    """An event is answered the number of events, not its index."""
    return step_of(
        PauseWithEvent,
        lambda _op, before, after, outcome: (after, outcome if after is before else Returned(outcome.value + 1)),
    )


@mutant("events_gapless", "identities")
def log_shows_a_gap() -> Swap:
    """A read of the log leaves the second entry out."""
    return step_of(
        GetRunEvents,
        lambda _op, _before, after, outcome: (after, Returned(outcome.value[:1] + outcome.value[2:])),
    )


@mutant("events_append_only", "two_owners")
def index_used_again() -> Swap:
    """The last event's index is given out again, and its entry is overwritten."""
    return instead(rules, "logged", lambda run, event: (*run.events[:-1], event))


@mutant("one_terminal_event", "two_owners")
def end_without_event() -> Swap:
    """The terminal event is written by a transaction of its own, which did not happen."""
    return swapped(
        rules,
        "logged",
        lambda original: lambda run, event: run.events if rules.ended(run) else original(run, event),
    )


@mutant("one_terminal_event", "identities")
def reserved_events_accepted() -> Swap:
    """Everybody may write the events that belong to an operation."""
    return instead(events, "RESERVED_EVENTS", frozenset())


@mutant("one_terminal_event", "two_owners")
def two_ends() -> Swap:
    """The terminal event is logged twice."""
    return instead(rules, "logged", lambda run, event: (*run.events, event, *([event] if rules.ended(run) else [])))


# -- ownership --------------------------------------------------------------------------------------------------------


@mutant("epoch_moves_by_one", "two_owners")
def epoch_raised_twice() -> Swap:
    """A claim raises the epoch by two."""

    def wrap(original: Any) -> Any:
        def claimed(run: Run, now: int, submission: Any) -> Run:
            after: Run = original(run, now, submission)
            return after._replace(claim_epoch=after.claim_epoch + 1, claimed_epoch=after.claim_epoch + 1)

        return claimed

    return swapped(claims, "claimed", wrap)


@mutant("epoch_moves_by_one", "two_owners")
def release_moves_epoch() -> Swap:
    """Handing a claim back raises the epoch."""

    def change(_op: Any, before: World, after: World, outcome: Outcome) -> Step:
        run = after.runs[0]
        return (after if after is before else put(after, run._replace(claim_epoch=run.claim_epoch + 1))), outcome

    return step_of(ReleaseRunClaim, change)


@mutant("one_owner_per_epoch", "two_owners")
def claim_keeps_epoch() -> Swap:
    """A claim answers the epoch that the last owner had."""
    return keeping(claims, "claimed", "claim_epoch")


@mutant("one_owner_per_epoch", "two_owners")
def repeated_submission_answers_epoch() -> Swap:
    """A repeat of a submission is answered the run's epoch, as if it owned the claim."""
    return step_of(
        SubmitAndClaim,
        lambda _op, before, after, outcome: (
            after,
            Returned(before.runs[0].claim_epoch) if outcome == OUTCOME_UNKNOWN else outcome,
        ),
    )


@mutant("one_owner_per_epoch", "tenants")
def existing_run_answers_epoch() -> Swap:
    """Whoever meets an existing run under its key is told to own epoch 1."""
    return swapped(runs, "existing", lambda original: lambda run: Returned({**original(run).value, "claim_epoch": 1}))


@mutant("stale_leaves_nothing", "two_owners")
def fence_dropped() -> Swap:
    """The fence lets every epoch pass."""
    return instead(rules, "stale", lambda _run, _epoch: False)


@mutant("stale_leaves_nothing", "two_owners")
def fence_takes_older_epochs() -> Swap:
    """The fence keeps only epochs out that are still to come."""
    return instead(rules, "stale", lambda run, epoch: epoch is not None and epoch > run.claim_epoch)


@mutant("stale_leaves_nothing", "two_owners")
def refusal_renews_lease() -> Swap:
    """A write that the fence refuses renews the lease."""

    def wrap(original: Any) -> Any:
        def append(world: World, op: Any, *rest: Any, **given: Any) -> Step:
            after, outcome = original(world, op, *rest, **given)
            run = find(world, op.run_id)
            if outcome == STALE and run is not None:
                after = put(world, run._replace(progress_at=world.now))
            return after, outcome

        return append

    return swapped(rules, "append", wrap)


@mutant("stale_leaves_nothing", "two_owners")
def owner_writes_after_release() -> Swap:
    """Whoever handed a claim back may write on, because the epoch is still the run's."""
    return seen_as(events.SaveRunEvent, lambda _op, run: run._replace(status="running") if rules.is_open(run) else run)


@mutant("stale_leaves_nothing", "family")
def parent_fence_dropped() -> Swap:
    """A former owner of the parent begins a child."""
    return seen_as(
        CreateRun,
        lambda op, run: run if op.parent_claim_epoch is None else run._replace(claim_epoch=op.parent_claim_epoch),
    )


# -- identities and positions -----------------------------------------------------------------------------------------


@mutant("identity_once", "identities")
def identity_ignored() -> Swap:
    """Nobody looks whether a row of this id exists."""
    return instead(rules, "holder", lambda *_: None)


@mutant("identity_once", "two_owners")
def identity_without_content() -> Swap:
    """A row of this id is taken for a repeat, whatever is in it."""
    return swapped(
        rules,
        "repeated",
        lambda original: lambda held, run_id, _content, answer: original(held, run_id, held[2].content, answer),
    )


@mutant("identity_once", "identities")
def identity_of_another_run() -> Swap:
    """A row of this id in another run is taken for a repeat."""
    return swapped(
        rules,
        "repeated",
        lambda original: lambda held, _run_id, content, answer: original(held, held[0].id, content, answer),
    )


@mutant("identity_once", "inbox")
def note_id_without_content() -> Swap:
    """A note of this id is a duplicate, whatever it says."""
    return step_of(
        notes.AddNote,
        lambda op, before, after, outcome: (
            after,
            Returned("duplicate") if rules.holder(before, "notes", op.note_id) else outcome,
        ),
    )


@mutant("identity_once", "tenants")
def key_ignored() -> Swap:
    """Nobody looks whether a run has this idempotency key."""
    return instead(CreateRun, "holder_of_key", lambda *_: None)


@mutant("identity_once", "tenants")
def key_takes_nobody_for_another() -> Swap:
    """An absent tenant and the empty one have idempotency keys of their own."""
    return keyed(lambda op, run: run.tenant_id == op.tenant_id)


@mutant("position_once", "identities")
def position_ignored() -> Swap:
    """Nobody looks whether a position is taken."""
    return instead(rules, "taken", lambda *_: False)


# -- requests, pauses, submissions ------------------------------------------------------------------------------------


@mutant("flags_only_while_open", "two_owners")
def flags_kept_at_the_end() -> Swap:
    """The end of a run leaves its requests standing."""
    return keeping(finish, "finished", "cancel_requested", "pause_requested", "pause_reason")


@mutant("flags_only_while_open", "two_owners")
def pause_request_outlives_pause() -> Swap:
    """A pause leaves the request for it standing."""
    return keeping(pauses, "paused", "pause_requested", "pause_reason")


@mutant("flags_only_while_open", "two_owners")
def pause_request_outlives_release() -> Swap:
    """Handing a claim back leaves a pause request standing."""
    return step_keeping(ReleaseRunClaim, "pause_requested")


@mutant("flags_only_while_open", "two_owners")
def paused_run_asked_to_pause() -> Swap:
    """A paused run can be asked to pause."""

    def change(op: Any, before: World, after: World, outcome: Outcome) -> Step:
        run = before.runs[0]
        if after is before and rules.is_open(run) and not run.pause_requested:
            return put(before, run._replace(pause_requested=True)), Returned(True)
        return after, outcome

    return step_of(RequestPause, change)


@mutant("pause_document_iff_paused", "two_owners")
def document_kept_at_the_end() -> Swap:
    """The end of a run keeps its pause document."""
    return keeping(finish, "finished", "pause_document")


@mutant("pause_document_iff_paused", "two_owners")
def document_gone_after_claim() -> Swap:
    """A claim takes the document away, so a release leaves a paused run without one."""
    return swapped(claims, "claimed", lambda original: lambda *given: original(*given)._replace(pause_document=None))


@mutant("pause_document_iff_paused", "two_owners")
def submission_kept_at_the_end() -> Swap:
    """The end of a run keeps its submission."""
    return keeping(finish, "finished", "submission")


@mutant("submission_once", "two_owners")
def release_keeps_submission() -> Swap:
    """Handing a claim back keeps the submission, which the next owner is handed too."""
    return step_keeping(ReleaseRunClaim, "submission")


@mutant("submission_once", "two_owners")
def pause_drops_submission() -> Swap:
    """On format 2 a pause drops a submission that nobody consumed."""
    return instead(rules, "unconsumed", lambda _run: False)


@mutant("submission_once", "two_owners")
def submission_overwritten() -> Swap:
    """A repeat with other content takes the place of the submission."""

    def change(op: Any, before: World, after: World, outcome: Outcome) -> Step:
        held = before.runs[0].submission
        if held is None or held.id != op.submission_id or held == op.submission:
            return after, outcome
        return put(before, before.runs[0]._replace(submission=op.submission)), OUTCOME_UNKNOWN

    return step_of(SubmitAndClaim, change)


# -- notes ------------------------------------------------------------------------------------------------------------


@mutant("note_cap", "inbox")
def cap_off_by_one() -> Swap:
    """One note more than the cap finds room."""
    return swapped(notes, "pending", lambda original: lambda waiting: original(waiting) - 1)


@mutant("note_order", "inbox")
def stamp_overwritten() -> Swap:
    """A note that was delivered is stamped again."""

    def change(op: Any, before: World, after: World, outcome: Outcome) -> Step:
        run = find(after, op.run_id)
        if run is None or not isinstance(outcome, Returned):
            return after, outcome
        stamp = {"delivered_iteration": op.iteration, "delivered_at": after.now}
        stamped = tuple(note._replace(**stamp) if note.id in op.note_ids else note for note in run.notes)
        return (after if stamped == run.notes else put(after, run._replace(notes=stamped))), outcome

    return step_of(MarkNotesDelivered, change)


@mutant("note_order", "inbox")
def newest_note_first() -> Swap:
    """Notes are read newest first."""
    return seen_as(GetNotes, lambda _op, run: run._replace(notes=run.notes[::-1]))


# -- tenants and families ---------------------------------------------------------------------------------------------


@mutant("tenant_wall", "tenants")
def tenant_folded() -> Swap:
    """Tenants are compared without regard to case."""
    return scoped(str.lower)


@mutant("tenant_wall", "tenants")
def tenant_padded() -> Swap:
    """Tenants are compared without regard to trailing blanks."""
    return scoped(str.rstrip)


@mutant("tenant_wall", "tenants")
def nobody_sees_everybody() -> Swap:
    """The scope of untenanted runs is taken for no scope at all."""
    return swapped(rules, "in_scope", lambda original: lambda run, scope: scope is None or original(run, scope))


@mutant("tenant_wall", "tenants")
def key_crosses_tenants() -> Swap:
    """An idempotency key is looked up among the runs of every tenant."""
    return keyed(lambda _op, _run: True)


@mutant("tenant_wall", "family")
def child_of_another_tenant() -> Swap:
    """A child may have another tenant than its parent."""
    return seen_as(
        CreateRun,
        lambda op, run: run._replace(tenant_id=op.tenant_id) if run.id == op.parent_run_id else run,
    )


@mutant("cancel_reaches_children", "family")
def child_of_a_cancelled_parent() -> Swap:
    """A run that is asked to cancel begins children."""
    return seen_as(CreateRun, lambda _op, run: run._replace(cancel_requested=False))


@mutant("cancel_reaches_children", "family")
def child_of_an_ended_parent() -> Swap:
    """A run that has ended begins children."""
    return seen_as(CreateRun, lambda _op, run: run._replace(status="running") if rules.ended(run) else run)


# -- seen by the pinned numbers only ----------------------------------------------------------------------------------


@mutant("cancel_stops_claims", "two_owners")
def claim_ignores_cancel() -> Swap:
    """A run that is asked to cancel can be claimed."""
    return swapped(
        rules, "claimable", lambda original: lambda run, status: original(run._replace(cancel_requested=False), status)
    )


@mutant("cancel_stops_claims", "two_owners")
def pause_ignores_cancel() -> Swap:
    """A run that is asked to cancel can be paused."""
    return seen_as(PauseWithEvent, lambda _op, run: run._replace(cancel_requested=False))


@mutant(None, "two_owners")
def claim_takes_any_pause() -> Swap:
    """A claim does not compare the paused status."""
    return swapped(rules, "claimable", lambda original: lambda run, _status: original(run, run.status))


@mutant(None, "two_owners")
def fence_refuses_the_owner() -> Swap:
    """The fence refuses everybody who names an epoch once the run was claimed."""
    return instead(rules, "stale", lambda run, epoch: epoch is not None and (epoch != run.claim_epoch or epoch > 1))


@mutant(None, "two_owners")
def repeat_must_be_the_owner() -> Swap:
    """The fence comes before the identity, so a repeat under an old epoch is refused."""
    return swapped(
        events.SaveRunEvent,
        "step",
        lambda original: (
            lambda self, world: (
                (world, STALE) if rules.stale(world.runs[0], self.claim_epoch) else original(self, world)
            )
        ),
    )


@mutant(None, "inbox")
def delivered_notes_fill_the_inbox() -> Swap:
    """Notes that were delivered count against the cap."""
    return instead(notes, "pending", len)


from dendrux_model import (  # noqa: E402  # they add to the table above
    mutants_blobs,  # noqa: F401  # and those of stored bytes
    mutants_checkpoints,  # noqa: F401  # the mutants of checkpoints
    mutants_families,  # noqa: F401  # the mutants of families
    mutants_leases,  # noqa: F401  # and those of leases
    mutants_tools,  # noqa: F401  # the mutants of tool calls
)
