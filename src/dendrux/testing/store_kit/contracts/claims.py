"""Claims: who owns a run, how a paused run is taken, and how a claim is handed back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.runtime.values import ToolCallWrite, TraceWrite
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import DOCUMENTS, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import (
    LEASE_S,
    OWNED,
    OWNER,
    REACT,
    WAITING,
    born,
    claimed,
    ended,
    paused,
)
from dendrux.vocabulary import PAUSED_STATUSES
from dendrux_model.operations import (
    ClaimPausedRun,
    ConsumeSubmission,
    GetPauseState,
    GetRun,
    MarkLeaseExpired,
    PauseWithEvent,
    ReclaimRun,
    ReleaseRunClaim,
    RequestCancel,
    RequestPause,
    SaveRunEvent,
    SaveTrace,
    SubmitAndClaim,
)
from dendrux_model.outcomes import (
    CONFLICT,
    FALSE,
    INVALID,
    NONE,
    OUTCOME_UNKNOWN,
    STALE,
    TRUE,
    VALIDATION,
    Returned,
)
from dendrux_model.programs import Do, Fault, Look, Tick

PAUSED_RUN = (born(), paused())
CLAIM = ClaimPausedRun(run_id="r", expected_status=WAITING)
SUBMIT = SubmitAndClaim(
    run_id="r", expected_status=WAITING, submitted_data={"answer": "yes", "step": 1}, submission_id="sub"
)
CONSUME = ConsumeSubmission(
    run_id="r",
    claim_epoch=OWNER,
    consumption_id="use",
    traces=(TraceWrite(role="user", content="yes", order_index=0, trace_id="m0"),),
    tool_calls=(
        ToolCallWrite(tool_call_id="call", tool_name="ask", result_payload='{"ok": 1}', success=True, row_id="row"),
    ),
    pii_mapping={"<A>": "Ada"},
)

sample(CLAIM, before=PAUSED_RUN)
sample(SUBMIT, before=PAUSED_RUN)
sample(CONSUME, before=(*PAUSED_RUN, Do(SUBMIT)))
sample(ReleaseRunClaim(run_id="r", claim_epoch=OWNER))

# -- claiming ---------------------------------------------------------------------------------------------------------

contract(
    "basic.claim_paused_run.next_epoch_each_time",
    "Each claim of a paused run makes it running under the next epoch and keeps its document.",
    born(),
    paused(),
    Do(CLAIM, expect=Returned(2)),
    Look(),
    paused(),
    Do(CLAIM, expect=Returned(3)),
    Do(GetRun(run_id="r"), expect=Returned({"status": "running", "claim_epoch": 3, "claimed_epoch": 3})),
    cause="The epoch is not raised in the same update that makes the run running.",
)
contract(
    "basic.claim_paused_run.every_paused_status",
    "A run is claimed in the paused status it has, and not by naming another one.",
    *(born(status) for status in sorted(PAUSED_STATUSES)),
    *(paused(status, status) for status in sorted(PAUSED_STATUSES)),
    *(
        Do(ClaimPausedRun(run_id=status, expected_status=other), expect=NONE)
        for status in sorted(PAUSED_STATUSES)
        for other in sorted(PAUSED_STATUSES - {status})
    ),
    Look(),
    *(
        Do(ClaimPausedRun(run_id=status, expected_status=status), expect=Returned(2))
        for status in sorted(PAUSED_STATUSES)
    ),
)
contract(
    "basic.claim_paused_run.only_once",
    "Whoever comes second gets nothing: a running run cannot be claimed.",
    *PAUSED_RUN,
    Do(CLAIM, expect=Returned(2)),
    Look(),
    Do(CLAIM, expect=NONE),
    cause="The update does not ask for the paused status, or its row count is not looked at.",
)
contract(
    "basic.claim_paused_run.not_when_asked_to_cancel",
    "A paused run whose cancellation was asked for cannot be claimed.",
    *PAUSED_RUN,
    Do(RequestCancel(run_id="r")),
    Look(),
    Do(CLAIM, expect=NONE),
    Do(SUBMIT, expect=NONE),
)
contract(
    "basic.claim_paused_run.not_after_the_end",
    "A run that has ended cannot be claimed.",
    *PAUSED_RUN,
    ended(),
    Look(),
    Do(CLAIM, expect=NONE),
    Do(SUBMIT, expect=NONE),
)

PAIRS = (("t", "T"), ("t", "t "), ("\u00e9", "e\u0301"), ("ss", "\u00df"), (wide(48), wide(47)))


def submission(run_id: str, submission_id: str) -> SubmitAndClaim:
    """A submission that differs in its id only."""
    return SubmitAndClaim(run_id=run_id, expected_status=WAITING, submitted_data={"a": 1}, submission_id=submission_id)


# -- submitting -------------------------------------------------------------------------------------------------------

contract(
    "basic.submit_and_claim.leaves_the_submission_beside_the_document",
    "A submission is stored with the claim; reading shows its members over the document's, which stays as it was.",
    *PAUSED_RUN,
    Do(SUBMIT, expect=Returned(2)),
    Do(GetPauseState(run_id="r"), expect=Returned({"submission_id": "sub"})),
    Look(),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=2), expect=TRUE),
    Do(GetPauseState(run_id="r"), expect=Returned({"submission_id": None})),
    cause="The submission was merged into the pause document instead of being stored beside it.",
)
contract(
    "basic.submit_and_claim.documents_come_back_exactly",
    "Submissions come back with the same members in the same order, of the same types.",
    *(step for i in range(len(DOCUMENTS)) for step in (born(f"r{i}"), paused(f"r{i}", pause_data={"m": 0, "kept": 1}))),
    *(
        Do(SubmitAndClaim(run_id=f"r{i}", expected_status=WAITING, submitted_data=document))
        for i, document in enumerate(DOCUMENTS)
    ),
)
contract(
    "basic.submit_and_claim.validation_sees_the_document",
    "The caller's validation is given the pause document; what it raises passes through and leaves everything alone.",
    *PAUSED_RUN,
    Do(
        SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"a": 1}, validate="refuse"),
        expect=VALIDATION,
    ),
    Look(),
    Do(
        SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"a": 1}, validate="accept"),
        expect=Returned(2),
    ),
    cause="The claim was committed before validation ran, or the exception was replaced by the store's own.",
)
contract(
    "basic.submit_and_claim.lost_guard_comes_before_validation",
    "A run that cannot be claimed is not validated: the caller is told that it came too late.",
    *PAUSED_RUN,
    Do(CLAIM),
    Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"a": 1}, validate="refuse"), expect=NONE),
)
contract(
    "basic.submit_and_claim.a_repeat_gets_no_epoch",
    "A submission_id that is stored never gets an epoch again: the store will not say who owns the claim.",
    *PAUSED_RUN,
    Do(SUBMIT, expect=Returned(2)),
    Look(),
    Do(SUBMIT, expect=OUTCOME_UNKNOWN),
    Do(
        SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"answer": "no"}, submission_id="sub"),
        expect=CONFLICT,
    ),
    Do(
        SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"answer": "no"}, submission_id="late"),
        expect=NONE,
    ),
    cause="A repeated submission_id is answered with the epoch, so that two callers may own it.",
)
contract(
    "basic.submit_and_claim.ids_are_equal_as_written",
    "A submission_id that differs in case, accents, spaces or form from the stored one is another: it came too late.",
    *(step for i in range(len(PAIRS)) for step in (born(f"r{i}"), paused(f"r{i}"))),
    *(
        step
        for i, (first, second) in enumerate(PAIRS)
        for step in (
            Do(submission(f"r{i}", first), expect=Returned(2)),
            Do(submission(f"r{i}", second), expect=NONE),
            Do(submission(f"r{i}", first), expect=OUTCOME_UNKNOWN),
        )
    ),
    cause="A collation folds case, accents or trailing spaces: give identifiers a binary collation without padding.",
)
contract(
    "basic.submit_and_claim.the_next_pause_takes_the_submission",
    "After the next pause the old submission is gone and a new one can be stored under its id.",
    *PAUSED_RUN,
    Do(CLAIM),
    paused(pause_data={"again": True}),
    Do(SUBMIT, expect=Returned(3)),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=3), expect=TRUE),
    Do(SUBMIT, expect=Returned(4)),
)

# -- releasing --------------------------------------------------------------------------------------------------------

RELEASE = ReleaseRunClaim(run_id="r", claim_epoch=OWNER)

contract(
    "basic.release_run_claim.hands_back_a_paused_run",
    "A released run is paused as before, and its next owner gets a new epoch.",
    *OWNED,
    Do(RELEASE, expect=TRUE),
    Look(),
    Do(CLAIM, expect=Returned(3)),
    cause="The epoch went back with the release, so that two callers are given the same one.",
)
contract(
    "basic.release_run_claim.only_a_claim_can_be_released",
    "A creator has no claim to hand back, and a released claim cannot be released again.",
    born(),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=1), expect=FALSE),
    paused(),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=1), expect=FALSE),
    claimed(),
    Do(RELEASE, expect=TRUE),
    Look(),
    Do(RELEASE, expect=FALSE),
)
contract(
    "basic.release_run_claim.keeps_a_request_to_cancel",
    "A release drops a request to pause and keeps a request to cancel.",
    *OWNED,
    Do(RequestCancel(run_id="r")),
    Do(RequestPause(run_id="r", reason="lunch")),
    Do(RELEASE, expect=TRUE),
    Look(),
    Do(CLAIM, expect=NONE),
)

# -- consuming what was submitted -------------------------------------------------------------------------------------

SUBMITTED = (*PAUSED_RUN, Do(SUBMIT))
HANDED = Returned({"submission_id": "sub"})


def promised(claim: str, promise: str, *steps: Any, cause: str | None = None) -> None:
    """A contract about submissions that are consumed, which runs of format 2 have."""
    contract(f"checkpointing.{claim}", promise, *steps, group="checkpointing", needs={"format_2"}, cause=cause)


promised(
    "consume_submission.handed_out_once",
    "A submission is handed to the owner with the rows made of it; again under the same consumption, under no other.",
    *SUBMITTED,
    Do(replace(CONSUME, claim_epoch=1), expect=STALE),
    Look(),
    Do(CONSUME, expect=HANDED),
    Look(),
    Do(CONSUME, expect=HANDED),
    Do(replace(CONSUME, traces=(), tool_calls=(), pii_mapping=None), expect=HANDED),
    Do(replace(CONSUME, consumption_id="other"), expect=NONE),
    Look(),
    Do(SUBMIT, expect=NONE),
    cause="The submission is not marked with the consumption in the transaction that hands it out.",
)
promised(
    "consume_submission.nothing_to_consume",
    "An owner without a submission gets None, and nothing is stored.",
    born(),
    Do(replace(CONSUME, claim_epoch=1), expect=NONE),
    paused(),
    Do(CLAIM, expect=Returned(2)),
    Look(),
    Do(CONSUME, expect=NONE),
)
promised(
    "consume_submission.must_be_consumed_before_the_next_pause",
    "A run does not pause over a submission that nobody consumed; a consumed one goes with the pause, not by release.",
    *SUBMITTED,
    Do(PauseWithEvent(run_id="r", status=WAITING, pause_data={}, claim_epoch=OWNER), expect=CONFLICT),
    Look(),
    Do(CONSUME, expect=HANDED),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=OWNER), expect=FALSE),
    Look(),
    Do(PauseWithEvent(run_id="r", status=WAITING, pause_data={}, claim_epoch=OWNER)),
    Look(),
    Do(SUBMIT, expect=Returned(3)),
    Do(replace(CONSUME, claim_epoch=3, traces=(), tool_calls=()), expect=HANDED),
)
promised(
    "consume_submission.taken_ids_and_positions_conflict",
    "A consumption whose message or tool call is there already is a write conflict and hands out nothing.",
    *SUBMITTED,
    Do(SaveTrace(run_id="r", role="user", content_text="yes", order_index=0, trace_id="m0")),
    Look(),
    Do(CONSUME, expect=CONFLICT),
    Do(replace(CONSUME, traces=(), tool_calls=(*CONSUME.tool_calls, *CONSUME.tool_calls)), expect=CONFLICT),
    Look(),
    Do(replace(CONSUME, traces=()), expect=HANDED),
)
promised(
    "consume_submission.content_comes_back_exactly",
    "What was submitted is handed out with the same members in the same order, of the same types.",
    *(
        step
        for number, document in enumerate(DOCUMENTS)
        for step in (
            born(f"r{number}"),
            paused(f"r{number}"),
            Do(replace(SUBMIT, run_id=f"r{number}", submission_id=None, submitted_data=document), expect=Returned(2)),
            Do(ConsumeSubmission(run_id=f"r{number}", claim_epoch=2, consumption_id="use")),
        )
    ),
)
AFTER_A_CRASH = (
    born(meta=REACT),
    paused(),
    Do(SUBMIT, expect=Returned(2)),
)
TAKEN_OVER = (
    Tick(LEASE_S),
    Do(MarkLeaseExpired(cutoff_s=LEASE_S)),
    Do(ReclaimRun(run_id="r", expected_epoch=2), expect=Returned(3)),
)
promised(
    "consume_submission.next_owner_consumes_after_a_crash",
    "When the owner dies before it consumed the submission, the next one is handed it, and the dead one no more.",
    *AFTER_A_CRASH,
    *TAKEN_OVER,
    Do(CONSUME, expect=STALE),
    Do(replace(CONSUME, claim_epoch=3), expect=HANDED),
    cause="The submission belongs to the epoch it was submitted under, so a reclaimed run lost it.",
)
promised(
    "consume_submission.next_owner_repeats_a_consumption",
    "When the owner dies after it consumed the submission, the next one is handed it under the same consumption only.",
    *AFTER_A_CRASH,
    Do(CONSUME, expect=HANDED),
    *TAKEN_OVER,
    Look(),
    Do(replace(CONSUME, claim_epoch=3, consumption_id="other"), expect=NONE),
    Do(replace(CONSUME, claim_epoch=3), expect=HANDED),
)
by_format(
    "checkpointing.consume_submission.is_for_format_2",
    "On runs of format 1 nothing consumes a submission, and the call says so.",
    one=(*SUBMITTED, Look(), Do(CONSUME, expect=INVALID)),
    two=(*SUBMITTED, Do(CONSUME, expect=HANDED)),
    group="checkpointing",
)
for _place in range(4):
    promised(
        f"consume_submission.cut_at_statement_{_place + 1}",
        f"A consumption whose connection is lost at its statement {_place + 1} leaves nothing half, and happens once.",
        *SUBMITTED,
        Fault(Do(CONSUME), "statement", "invalidated", after=_place),
        Look(),
        Do(CONSUME, expect=HANDED),
        cause="The mark and the rows made of the submission are written in more than one transaction.",
    )
race(
    "consume_submission.one_consumption_at_a_time",
    "Of two consumptions at once one is handed the submission, and the other gets None.",
    CONSUME,
    replace(CONSUME, consumption_id="other", traces=(), tool_calls=()),
    before=SUBMITTED,
    cause="The submission is read before the run's row is held.",
)
race(
    "consume_submission.same_consumption_twice",
    "One consumption sent twice at once happens once, and both callers are handed the submission.",
    CONSUME,
    CONSUME,
    before=SUBMITTED,
    cause="The submission is read before the run's row is held.",
)
race(
    "consume_submission.or_released",
    "A submission is consumed or its claim is handed back, never both.",
    CONSUME,
    ReleaseRunClaim(run_id="r", claim_epoch=OWNER),
    before=SUBMITTED,
    cause="The submission is read before the run's row is held.",
    both_ways=True,
)

# -- races ------------------------------------------------------------------------------------------------------------

CAS = "The guard is read before the update instead of standing in it: one conditional update decides, by its row count."

race(
    "claim_paused_run.one_winner",
    "Of two claims at once, exactly one gets the epoch.",
    CLAIM,
    CLAIM,
    before=PAUSED_RUN,
    after=(Do(CLAIM, expect=NONE), Do(GetRun(run_id="r"), expect=Returned({"claim_epoch": 2}))),
    cause=CAS,
)
race(
    "claim_paused_run.claim_or_cancel",
    "A claim and a request to cancel at once: the run is claimed before the request, or not at all.",
    CLAIM,
    RequestCancel(run_id="r"),
    before=PAUSED_RUN,
    cause=CAS,
)
race(
    "claim_paused_run.claim_or_end",
    "A claim and the end of a paused run at once: the run ends in either order, and is never running afterwards.",
    CLAIM,
    ended(event_id="end").operation,
    before=PAUSED_RUN,
    cause=CAS,
)
race(
    "submit_and_claim.one_submission",
    "Of two submissions at once, one is stored with the claim and the other gets nothing.",
    SUBMIT,
    SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"answer": "no"}, submission_id="other"),
    before=PAUSED_RUN,
    cause=CAS,
)
race(
    "submit_and_claim.same_submission_twice",
    "One submission sent twice at once gives its epoch to one caller only.",
    SUBMIT,
    SUBMIT,
    before=PAUSED_RUN,
    cause=CAS,
)
race(
    "release_run_claim.release_or_claim",
    "A claim that meets a release comes too early, or gets the next epoch.",
    RELEASE,
    CLAIM,
    before=OWNED,
    cause=CAS,
)
race(
    "claim_paused_run.old_owner_stays_out",
    "What the former owner writes during a claim is refused in either order.",
    SaveRunEvent(run_id="r", event_type="late", event_id="e", claim_epoch=1),
    CLAIM,
    before=PAUSED_RUN,
    cause="The fence is checked in one statement and the row inserted in another, with nothing held between them.",
)

# -- lost acknowledgements --------------------------------------------------------------------------------------------

for point in ("before_commit", "after_commit"):
    contract(
        f"crash_recovery.claim_paused_run.nobody_gets_the_epoch_again_{point}",
        "After a claim of unknown outcome a second instance takes the run under a higher epoch, or finds it taken.",
        *PAUSED_RUN,
        Fault(Do(CLAIM, 0), point, "invalidated"),
        Do(GetRun(run_id="r"), 1),
        Do(CLAIM, 1),
        Do(SaveRunEvent(run_id="r", event_type="work", event_id="e", claim_epoch=2), 1),
        Do(RequestCancel(run_id="r"), 1),
        group="crash_recovery",
        cause="The first claim was repeated behind the caller's back: a claim whose COMMIT failed is never repeated.",
    )
