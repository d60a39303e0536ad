"""Taking a run over from an owner that is thought dead: marks, reclaims, and what they leave of the old owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dendrux.testing.store_kit.contract import Need, contract
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._states import (
    DUE,
    LEASE_S,
    MARKED,
    REACT,
    WAITING,
    born,
    claimed,
    ended,
    paused,
)
from dendrux.testing.store_kit.contracts._sweeps import by_pages
from dendrux_model.operations import (
    GetLeaseExpired,
    GetRun,
    MarkLeaseExpired,
    PauseWithEvent,
    ReclaimRun,
    ReleaseRunClaim,
    RequestCancel,
    SaveRunEvent,
    SaveTrace,
    SubmitAndClaim,
    SweepStaleRuns,
    TouchProgress,
    UpdateRunMeta,
)
from dendrux_model.outcomes import FALSE, NONE, STALE, TERMINAL, TRUE, Returned
from dendrux_model.programs import Do, Fault, Look, Program, Reopen, Tick

FORMAT_2: Final = frozenset[Need]({"format_2"})
LEASE: Final = Tick(LEASE_S)
HALF: Final = Tick(LEASE_S / 2)
MARK: Final = MarkLeaseExpired(cutoff_s=LEASE_S)
RECLAIM: Final = ReclaimRun(run_id="r", expected_epoch=1)
NOBODY: Final = Returned({"marked": [], "finalised": {}, "failed": {}})
ONE: Final = Returned({"marked": ["r"], "finalised": {}, "failed": {}})
WRITE: Final = SaveRunEvent(run_id="r", event_type="work", event_id="work", claim_epoch=1)
TOUCH: Final = TouchProgress(run_id="r", claim_epoch=1)


def epoch(number: int, **about: int) -> Do:
    """The run is under this epoch."""
    return Do(GetRun(run_id="r"), expect=Returned({"claim_epoch": number, **about}))


# -- marks ------------------------------------------------------------------------------------------------------------

contract(
    "recovery.mark_lease_expired.silent_owner_is_marked_once",
    "A run whose owner did not write for a whole lease is marked, with an event, and not marked again.",
    *DUE,
    Do(MARK, expect=ONE),
    Look(),
    Do(MARK, expect=NOBODY),
    LEASE,
    Do(MARK, expect=NOBODY),
    group="recovery",
    needs=FORMAT_2,
    cause="The update that marks a run does not ask that it is unmarked.",
)
contract(
    "recovery.mark_lease_expired.working_owner_is_never_marked",
    "An owner that writes twice in every lease is left alone for as long as it works.",
    born(meta=REACT),
    *(step for _ in range(10) for step in (HALF, Do(TOUCH, expect=TRUE), Do(MARK, expect=NOBODY))),
    HALF,
    Do(WRITE, expect=Returned(0)),
    HALF,
    Do(MARK, expect=NOBODY),
    Do(GetLeaseExpired(), expect=Returned({})),
    group="recovery",
    needs=FORMAT_2,
    cause="The touch or a fenced write does not move the clock that the sweep compares.",
)
contract(
    "recovery.mark_lease_expired.slow_owner_keeps_the_run",
    "An owner that was only slow writes before anybody took the run over: the mark goes, and the run stays its own.",
    *MARKED,
    Do(WRITE, expect=Returned(1)),
    Look(),
    Do(RECLAIM, expect=NONE),
    Do(GetLeaseExpired(), expect=Returned({})),
    epoch(1),
    group="recovery",
    needs=FORMAT_2,
    cause="A fenced write leaves the mark, so the run is taken away from an owner that is alive.",
)
contract(
    "recovery.mark_lease_expired.every_way_to_write_clears_the_mark",
    "A touch, a change of meta, a pause and an end each clear the mark.",
    *MARKED,
    Do(TOUCH, expect=TRUE),
    Do(GetLeaseExpired(), expect=Returned({})),
    LEASE,
    Do(MARK, expect=ONE),
    Do(UpdateRunMeta(run_id="r", patch={"a": 1}, claim_epoch=1)),
    Do(GetLeaseExpired(), expect=Returned({})),
    LEASE,
    Do(MARK, expect=ONE),
    paused(),
    Look(),
    claimed(),
    LEASE,
    Do(MARK, expect=ONE),
    ended(),
    Look(),
    Do(GetLeaseExpired(), expect=Returned({})),
    group="recovery",
    needs=FORMAT_2,
)
contract(
    "recovery.mark_lease_expired.strangers_do_not_clear_the_mark",
    "What somebody writes who does not own the run says nothing about its owner.",
    *MARKED,
    Do(replace(WRITE, claim_epoch=None), expect=Returned(1)),
    Do(UpdateRunMeta(run_id="r", patch={"a": 1})),
    Do(RequestCancel(run_id="r"), expect=TRUE),
    Look(),
    Do(RECLAIM, expect=Returned(2)),
    group="recovery",
    needs=FORMAT_2,
)
contract(
    "recovery.mark_lease_expired.only_runs_that_somebody_can_go_on_with",
    "A run whose loop does not keep everything in the store is left; when asked, it ends as interrupted.",
    born(),
    born("other", meta={"dendrux.loop": "custom"}),
    born("odd", meta={"dendrux.loop": ["react"]}),
    LEASE,
    Do(MARK, expect=NOBODY),
    Look(),
    Do(MarkLeaseExpired(cutoff_s=LEASE_S, finalise_unrecoverable=True)),
    Look(),
    Do(GetRun(run_id="r"), expect=Returned({"status": "error", "failure_reason": "never_started"})),
    Do(ReclaimRun(run_id="other", expected_epoch=1), expect=NONE),
    group="recovery",
)
contract(
    "recovery.mark_lease_expired.changed_loop_cannot_be_taken_over",
    "A marked run whose loop becomes another one loses its mark.",
    *MARKED,
    Do(UpdateRunMeta(run_id="r", patch={"dendrux.loop": "custom"})),
    Look(),
    Do(RECLAIM, expect=NONE),
    group="recovery",
    needs=FORMAT_2,
)
contract(
    "recovery.mark_lease_expired.paused_and_ended_runs_have_no_lease",
    "Runs that wait for somebody or have ended are not marked, however old they are.",
    born(meta=REACT),
    paused(),
    born("s", meta=REACT),
    ended("s"),
    Tick(10 * LEASE_S),
    Do(MARK, expect=NOBODY),
    Look(),
    claimed(),
    Do(MARK, expect=NOBODY),
    group="recovery",
    cause="A claim does not renew the lease, so a run that was paused for long is stale the moment it is claimed.",
)
by_pages(
    "recovery.mark_lease_expired.pages_go_on_after_a_restart",
    "A sweep in pages of one run reaches every run once, though the store restarts between pages and there are runs "
    "that need nothing.",
    (
        born("idle"),
        born("a", meta=REACT),
        born("b"),
        born("c", meta=REACT),
        LEASE,
        Do(MarkLeaseExpired(cutoff_s=LEASE_S)),
        Do(TouchProgress(run_id="a", claim_epoch=1)),
        born("d", meta=REACT),
        LEASE,
    ),
    MarkLeaseExpired(cutoff_s=LEASE_S, limit=1, finalise_unrecoverable=True),
    group="recovery",
    needs=FORMAT_2,
)
contract(
    "recovery.get_lease_expired.whose_lease_ran_out",
    "Expired leases are listed in the scope of exactly their tenant, with epoch and number of reclaims, page by page.",
    *(born(f"r{i}", meta=REACT, tenant_id=tenant) for i, tenant in enumerate(("t", "T", "t ", None, ""))),
    LEASE,
    Do(MARK),
    *(Do(GetLeaseExpired(tenant_id=tenant, limit=1)) for tenant in ("t", "T", "t ", None, "")),
    Do(GetLeaseExpired(limit=2)),
    Do(ReclaimRun(run_id="r0", expected_epoch=1), expect=Returned(2)),
    Do(GetLeaseExpired(tenant_id="t"), expect=Returned({})),
    LEASE,
    Do(MARK),
    Do(GetLeaseExpired(limit=1)),
    group="recovery",
    needs=FORMAT_2,
)

# -- reclaims ---------------------------------------------------------------------------------------------------------

contract(
    "recovery.reclaim_run.former_owner_is_fenced",
    "Whoever reclaims a run owns it under the next epoch, and everything the former owner still sends is refused.",
    *MARKED,
    Do(RECLAIM, expect=Returned(2)),
    Look(),
    Do(WRITE, expect=STALE),
    Do(TOUCH, expect=STALE),
    Do(SaveTrace(run_id="r", role="user", content_text="late", order_index=0, claim_epoch=1), expect=STALE),
    Do(UpdateRunMeta(run_id="r", patch={"late": True}, claim_epoch=1), expect=STALE),
    Do(PauseWithEvent(run_id="r", status=WAITING, pause_data={}, claim_epoch=1), expect=STALE),
    ended(claim_epoch=1, event_id="late"),
    Look(),
    Do(replace(WRITE, claim_epoch=2), expect=Returned(2)),
    ended(claim_epoch=2),
    group="recovery",
    needs=FORMAT_2,
    cause="A reclaim does not move the epoch, or a writer does not compare it.",
)
contract(
    "recovery.reclaim_run.only_marked_runs_under_the_expected_epoch",
    "A run that nobody marked, one under another epoch and one that was reclaimed already cannot be reclaimed.",
    *DUE,
    Do(RECLAIM, expect=NONE),
    Do(MARK, expect=ONE),
    Do(replace(RECLAIM, expected_epoch=2), expect=NONE),
    Look(),
    Do(RECLAIM, expect=Returned(2)),
    Do(RECLAIM, expect=NONE),
    Do(replace(RECLAIM, expected_epoch=2), expect=NONE),
    epoch(2, reclaim_count=1),
    group="recovery",
    needs=FORMAT_2,
)
contract(
    "recovery.reclaim_run.new_owner_has_a_fresh_lease",
    "A reclaimed run is nobody's to sweep until its new owner is silent for a whole lease.",
    *MARKED,
    Tick(10 * LEASE_S),
    Do(RECLAIM, expect=Returned(2)),
    Do(MARK, expect=NOBODY),
    Do(SweepStaleRuns(older_than_s=LEASE_S), expect=Returned({"swept": {}, "failed": {}})),
    HALF,
    Do(MARK, expect=NOBODY),
    HALF,
    Do(MARK, expect=ONE),
    Do(replace(RECLAIM, expected_epoch=2), expect=Returned(3)),
    epoch(3, reclaim_count=2),
    group="recovery",
    needs=FORMAT_2,
    cause="A reclaim leaves the clock of the former owner, so the next sweep takes the run away again.",
)
contract(
    "recovery.reclaim_run.cannot_be_handed_back",
    "A reclaim is no claim: neither the new owner nor the former one can release it.",
    born(meta=REACT),
    paused(),
    claimed(),
    LEASE,
    Do(MARK, expect=ONE),
    Do(replace(RECLAIM, expected_epoch=2), expect=Returned(3)),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=3), expect=FALSE),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=2), expect=STALE),
    Look(),
    epoch(3, reclaim_count=1),
    group="recovery",
    needs=FORMAT_2,
    cause="A reclaim moves claimed_epoch, or a release does not compare it.",
)
contract(
    "recovery.reclaim_run.submission_goes_to_the_new_owner",
    "What was submitted to an owner that died before it used it waits for the next one.",
    born(meta=REACT),
    paused(),
    Do(
        SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"answer": "yes"}, submission_id="s"),
        expect=Returned(2),
    ),
    LEASE,
    Do(MARK, expect=ONE),
    Do(replace(RECLAIM, expected_epoch=2), expect=Returned(3)),
    Look(),
    group="recovery",
    needs=FORMAT_2,
)
contract(
    "recovery.reclaim_run.everything_survives_a_restart",
    "Marks, reclaims and the epochs they gave are the same to every process that opens the store later.",
    *DUE,
    Reopen(),
    Do(MARK, expect=ONE),
    Reopen(),
    Look(),
    Do(GetLeaseExpired()),
    Do(RECLAIM, expect=Returned(2)),
    Reopen(),
    Look(),
    Do(WRITE, expect=STALE),
    Do(RECLAIM, expect=NONE),
    Do(replace(WRITE, claim_epoch=2), expect=Returned(2)),
    LEASE,
    Do(MARK, expect=ONE),
    Reopen(),
    Do(replace(RECLAIM, expected_epoch=2), expect=Returned(3)),
    ended(claim_epoch=3),
    Reopen(),
    group="recovery",
    needs=FORMAT_2,
    cause="A store keeps in memory what belongs into the database.",
)
contract(
    "recovery.reclaim_run.ended_run_stays_ended",
    "A run that ended after it was marked is not taken over, and its former owner cannot end it again.",
    *MARKED,
    ended(event_id="end", claim_epoch=1),
    Do(RECLAIM, expect=NONE),
    Do(MARK, expect=NOBODY),
    Do(replace(WRITE, claim_epoch=None), expect=TERMINAL),
    group="recovery",
    needs=FORMAT_2,
)

contract(
    "recovery.sweep_stale_runs.marked_runs_end_too",
    "A sweep that ends stale runs takes one that waits to be taken over, and nobody takes it over afterwards.",
    *MARKED,
    Do(SweepStaleRuns(older_than_s=LEASE_S)),
    Look(),
    Do(GetLeaseExpired(), expect=Returned({})),
    Do(RECLAIM, expect=NONE),
    group="recovery",
    needs=FORMAT_2,
    cause="The sweep leaves the mark on the run that it ends.",
)

# -- races ------------------------------------------------------------------------------------------------------------

CAS: Final = "The guard is read before the update instead of standing in it: one conditional update decides."
AGAIN: Final = "The sweep acts on what its page showed: each run is to be looked at again in its own transaction."
TWO: Final[Program] = (born(meta=REACT), born("s", meta=REACT), LEASE)

race(
    "reclaim_run.one_winner",
    "Of two reclaims at once, exactly one gets the epoch, and the log tells of one.",
    RECLAIM,
    RECLAIM,
    before=MARKED,
    after=(Do(RECLAIM, expect=NONE), epoch(2, reclaim_count=1)),
    cause=CAS,
    group="recovery",
    needs=FORMAT_2,
)
race(
    "reclaim_run.slow_owner_or_next",
    "A slow owner that writes while its run is reclaimed keeps the run, or is refused.",
    RECLAIM,
    WRITE,
    before=MARKED,
    cause=CAS,
    both_ways=True,
    group="recovery",
    needs=FORMAT_2,
)
race(
    "mark_lease_expired.sweeper_or_heartbeat",
    "An owner that writes while the sweep comes by is left, or loses its mark: it is never marked afterwards.",
    MARK,
    TOUCH,
    before=DUE,
    after=(Do(GetLeaseExpired(), expect=Returned({})),),
    cause=AGAIN,
    both_ways=True,
    group="recovery",
    needs=FORMAT_2,
)
race(
    "mark_lease_expired.one_mark",
    "Two sweeps at once mark every run once.",
    MARK,
    MARK,
    before=TWO,
    after=(Do(MARK, expect=NOBODY),),
    cause=AGAIN,
    group="recovery",
    needs=FORMAT_2,
)
race(
    "reclaim_run.sweep_or_reclaim",
    "A sweep that ends stale runs and a reclaim at once: the run ends, or has a new owner.",
    SweepStaleRuns(older_than_s=LEASE_S),
    RECLAIM,
    before=MARKED,
    cause=AGAIN,
    both_ways=True,
    group="recovery",
    needs=FORMAT_2,
)

# -- lost acknowledgements --------------------------------------------------------------------------------------------

for point in ("before_commit", "after_commit"):
    contract(
        f"crash_recovery.reclaim_run.nobody_gets_the_epoch_again_{point}",
        "After a reclaim of unknown outcome nobody is given that epoch: the lease runs out and the run is taken over.",
        *MARKED,
        Fault(Do(RECLAIM), point, "invalidated"),
        Look(),
        LEASE,
        Do(MARK),
        Do(RECLAIM),
        Do(replace(RECLAIM, expected_epoch=2)),
        Look(),
        group="crash_recovery",
        needs=FORMAT_2,
        cause="A reclaim was repeated, or looked up, after a failed COMMIT: always raise StoreOutcomeUnknown then.",
    )
