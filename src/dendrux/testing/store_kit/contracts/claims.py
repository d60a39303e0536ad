"""Claims: who owns a run, how a paused run is taken, and how a claim is handed back."""

from __future__ import annotations

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._nasty import DOCUMENTS, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import OWNED, OWNER, WAITING, born, claimed, ended, paused
from dendrux.vocabulary import PAUSED_STATUSES
from dendrux_model.operations import (
    ClaimPausedRun,
    GetPauseState,
    GetRun,
    ReleaseRunClaim,
    RequestCancel,
    RequestPause,
    SaveRunEvent,
    SubmitAndClaim,
)
from dendrux_model.outcomes import (
    CONFLICT,
    FALSE,
    NONE,
    OUTCOME_UNKNOWN,
    TRUE,
    VALIDATION,
    Returned,
)
from dendrux_model.programs import Do, Fault, Look

PAUSED_RUN = (born(), paused())
CLAIM = ClaimPausedRun(run_id="r", expected_status=WAITING)
SUBMIT = SubmitAndClaim(
    run_id="r", expected_status=WAITING, submitted_data={"answer": "yes", "step": 1}, submission_id="sub"
)

sample(CLAIM, before=PAUSED_RUN)
sample(SUBMIT, before=PAUSED_RUN)
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
