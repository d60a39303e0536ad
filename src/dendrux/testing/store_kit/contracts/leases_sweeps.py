"""Ending what nobody owns any more, and what nobody comes back for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._states import LEASE_S, WAITING, born, claimed, ended, noted, paused
from dendrux.testing.store_kit.contracts._sweeps import by_pages
from dendrux_model.operations import (
    GetPauseState,
    GetRun,
    PauseWithEvent,
    ReleaseRunClaim,
    RequestCancel,
    RequestPause,
    SaveRunEvent,
    SweepAbandonedRuns,
    SweepStaleRuns,
    UpdateRunMeta,
)
from dendrux_model.outcomes import NONE, TRUE, Returned
from dendrux_model.programs import Do, Fault, Look, Tick

LEASE: Final = Tick(LEASE_S)
HALF: Final = Tick(LEASE_S / 2)
STALE_RUNS: Final = SweepStaleRuns(older_than_s=LEASE_S)
ABANDONED: Final = SweepAbandonedRuns(older_than_s=LEASE_S)
NOBODY: Final = Returned({"swept": {}, "failed": {}})
STARTED: Final = Do(SaveRunEvent(run_id="r", event_type="run.started", event_id="start", claim_epoch=1))
WRITE: Final = SaveRunEvent(run_id="r", event_type="work", event_id="work", claim_epoch=1)


def shows(**about: Any) -> Do:
    """What the run shows."""
    return Do(GetRun(run_id="r"), expect=Returned(about))


# -- stale runs -------------------------------------------------------------------------------------------------------

contract(
    "basic.sweep_stale_runs.silent_run_ends",
    "A running run whose owner did not write for that long ends as an error, with an event that says so.",
    born(),
    STARTED,
    LEASE,
    Do(STALE_RUNS),
    Look(),
    shows(status="error", failure_reason="stale_running", error="Run swept as stale_running"),
    Do(STALE_RUNS, expect=NOBODY),
    Do(WRITE),
)
contract(
    "basic.sweep_stale_runs.never_started",
    "A silent run whose log has no run.started ends for that reason.",
    born(),
    LEASE,
    Do(STALE_RUNS),
    shows(status="error", failure_reason="never_started", error="Run swept as never_started"),
)
contract(
    "basic.sweep_stale_runs.ends_as_cancelled_when_asked",
    "A silent run that was asked to cancel ends as cancelled, without an error, and keeps no request.",
    born(),
    STARTED,
    noted(),
    Do(RequestPause(run_id="r", reason="lunch")),
    Do(RequestCancel(run_id="r"), expect=TRUE),
    LEASE,
    Do(STALE_RUNS),
    Look(),
    shows(status="cancelled", failure_reason="stale_running", error=None, cancel_requested=False),
    cause="What the sweep writes depends on cancel_requested, which it clears in the same statement.",
)
contract(
    "basic.sweep_stale_runs.leaves_what_is_alive",
    "Runs that wrote in time, wait for somebody or have ended are left.",
    born(),
    born("waiting"),
    paused("waiting"),
    born("over"),
    ended("over"),
    HALF,
    Do(WRITE, expect=Returned(0)),
    HALF,
    Do(STALE_RUNS, expect=NOBODY),
    Look(),
)
contract(
    "basic.sweep_stale_runs.claimed_run_is_fresh",
    "A run that was paused for long and has just been claimed is not stale.",
    born(),
    paused(),
    Tick(10 * LEASE_S),
    claimed(),
    Do(STALE_RUNS, expect=NOBODY),
    HALF,
    Do(STALE_RUNS, expect=NOBODY),
    Look(),
    cause="A claim leaves the clock of the former owner.",
)
contract(
    "basic.sweep_stale_runs.document_and_submission_go",
    "A claimed run that is swept keeps no pause document, and its event tells the run's count.",
    born(),
    paused(iteration_count=3),
    claimed(),
    LEASE,
    Do(STALE_RUNS),
    Look(),
    Do(GetPauseState(run_id="r"), expect=NONE),
    shows(status="error", iteration_count=3),
)
contract(
    "basic.sweep_stale_runs.former_owner_has_nothing_left_to_end",
    "The owner of a swept run can neither pause nor end it, and the sweep's reason stays.",
    born(),
    LEASE,
    Do(STALE_RUNS),
    Do(PauseWithEvent(run_id="r", status=WAITING, pause_data={}, claim_epoch=1), expect=NONE),
    replace(ended(claim_epoch=1), expect=NONE),
    Do(replace(WRITE, event_type="late")),
    Look(),
    shows(status="error", failure_reason="never_started"),
    cause="The end of a run is written by its id alone: ask for its status in the same statement.",
)
by_pages(
    "basic.sweep_stale_runs.page_by_page",
    "A sweep in pages of one run ends every stale run once, though the store restarts between pages.",
    (born("a"), born("b"), born("c"), Do(RequestCancel(run_id="b")), LEASE, born("d")),
    replace(STALE_RUNS, limit=1),
)

# -- abandoned runs ---------------------------------------------------------------------------------------------------

contract(
    "basic.sweep_abandoned_runs.forgotten_run_ends",
    "A paused run that nobody claimed for that long ends as an error, without its pause document.",
    born(),
    paused(iteration_count=2),
    LEASE,
    Do(ABANDONED),
    Look(),
    shows(status="error", failure_reason="abandoned_waiting", error="Run swept as abandoned_waiting"),
    Do(GetPauseState(run_id="r"), expect=NONE),
    Do(ABANDONED, expect=NOBODY),
)
contract(
    "basic.sweep_abandoned_runs.every_way_to_wait",
    "Whatever a run waits for, it can be abandoned; running runs cannot.",
    *(
        step
        for status in ("waiting_client_tool", "waiting_human_input", "waiting_approval", "paused")
        for step in (born(status), paused(status, status))
    ),
    born(),
    LEASE,
    Do(replace(ABANDONED, limit=2)),
    Look(),
    shows(status="running"),
)
contract(
    "basic.sweep_abandoned_runs.ends_as_cancelled_when_asked",
    "An abandoned run that was asked to cancel ends as cancelled.",
    born(),
    paused(),
    Do(RequestCancel(run_id="r"), expect=TRUE),
    LEASE,
    Do(ABANDONED),
    Look(),
    shows(status="cancelled", failure_reason="abandoned_waiting", error=None),
)
contract(
    "basic.sweep_abandoned_runs.waits_from_the_pause_on",
    "How long a run waits counts from its pause: notes, changes of meta and requests do not make it younger.",
    born(),
    paused(),
    HALF,
    noted(),
    Do(UpdateRunMeta(run_id="r", patch={"a": 1})),
    HALF,
    Do(ABANDONED),
    shows(status="error", failure_reason="abandoned_waiting"),
    cause="The sweep compares updated_at, which every change moves.",
)
contract(
    "basic.sweep_abandoned_runs.waits_again_after_a_release",
    "A run that was claimed and handed back, or paused again, waits from then on.",
    born(),
    paused(),
    born("s"),
    paused("s"),
    HALF,
    claimed(),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=2), expect=TRUE),
    claimed("s"),
    paused("s", claim_epoch=2),
    HALF,
    Do(ABANDONED, expect=NOBODY),
    HALF,
    Do(ABANDONED),
    Look(),
)
by_pages(
    "basic.sweep_abandoned_runs.page_by_page",
    "A sweep in pages of one run ends every abandoned run once, though the store restarts between pages.",
    (born("a"), paused("a"), born("b"), paused("b", "paused"), born("c"), paused("c"), LEASE, born("d"), paused("d")),
    replace(ABANDONED, limit=1),
)

# -- races and cuts ---------------------------------------------------------------------------------------------------

AGAIN: Final = "The sweep acts on what its page showed: each run is to be looked at again in its own transaction."

race(
    "sweep_stale_runs.sweep_or_write",
    "An owner that writes while the sweep comes by keeps its run, or finds it ended.",
    STALE_RUNS,
    WRITE,
    before=(born(), LEASE),
    cause=AGAIN,
    both_ways=True,
)
race(
    "sweep_stale_runs.sweep_or_end",
    "A run that ends while the sweep comes by ends once, with one terminal event.",
    STALE_RUNS,
    ended(claim_epoch=1, event_id="end").operation,
    before=(born(), LEASE),
    cause=AGAIN,
    both_ways=True,
)
race(
    "sweep_stale_runs.two_sweepers",
    "Two sweeps at once end every run once.",
    STALE_RUNS,
    STALE_RUNS,
    before=(born(), born("s"), LEASE),
    after=(Do(STALE_RUNS, expect=NOBODY),),
    cause=AGAIN,
)
race(
    "sweep_abandoned_runs.sweep_or_claim",
    "A run that is claimed while the sweep comes by is running, or has ended; never both.",
    ABANDONED,
    claimed().operation,
    before=(born(), paused(), LEASE),
    cause=AGAIN,
    both_ways=True,
)
race(
    "sweep_abandoned_runs.sweep_or_cancel",
    "A request to cancel that meets the sweep comes too late, or the run ends as cancelled.",
    ABANDONED,
    RequestCancel(run_id="r"),
    before=(born(), paused(), LEASE),
    cause=AGAIN,
    both_ways=True,
)
for point in ("before_commit", "after_commit"):
    contract(
        f"crash_recovery.sweep_stale_runs.next_sweep_finishes_{point}",
        "A sweep whose second run fails names it and goes on; the next sweep ends what is left.",
        born(),
        born("s"),
        born("t"),
        LEASE,
        Fault(Do(STALE_RUNS), point, "error", after=1),
        Look(),
        Do(STALE_RUNS),
        Do(STALE_RUNS, expect=NOBODY),
        *(Do(GetRun(run_id=run), expect=Returned({"status": "error"})) for run in ("r", "s", "t")),
        group="crash_recovery",
        cause="A page is one transaction, or the first failure ends the sweep.",
    )
