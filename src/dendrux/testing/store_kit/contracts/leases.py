"""The lease of a running run: its owner is alive as long as it writes."""

from __future__ import annotations

from dataclasses import replace

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import DUE, LEASE_S, MARKED, OWNED, OWNER, born, claimed, ended, paused
from dendrux_model.operations import (
    GetLeaseExpired,
    MarkLeaseExpired,
    ReclaimRun,
    SaveRunEvent,
    SweepAbandonedRuns,
    SweepStaleRuns,
    TouchProgress,
)
from dendrux_model.outcomes import FALSE, STALE, TRUE
from dendrux_model.programs import Do, Look, Tick

TOUCH = TouchProgress(run_id="r", claim_epoch=OWNER)

sample(TOUCH)
sample(MarkLeaseExpired(cutoff_s=LEASE_S, finalise_unrecoverable=True), before=DUE)
sample(GetLeaseExpired(), before=MARKED)
sample(ReclaimRun(run_id="r", expected_epoch=1), before=MARKED)
sample(SweepStaleRuns(older_than_s=LEASE_S), before=DUE)
sample(SweepAbandonedRuns(older_than_s=LEASE_S), before=(born(), paused(), Tick(LEASE_S)))

contract(
    "basic.touch_progress.owner_renews_the_lease",
    "The owner's touch moves the clock of progress and nothing else, as often as it likes.",
    *OWNED,
    Look(),
    Do(TOUCH, expect=TRUE),
    Look(),
    Do(TOUCH, expect=TRUE),
    Do(TOUCH, expect=TRUE),
    cause="The touch moves updated_at, or is refused when the clock has not moved because no row was changed.",
)
contract(
    "basic.touch_progress.paused_and_ended_runs_have_no_lease",
    "A run that is not running has no lease to renew.",
    born(),
    paused(),
    Look(),
    Do(TouchProgress(run_id="r"), expect=FALSE),
    Do(TouchProgress(run_id="r", claim_epoch=1), expect=STALE),
    Look(),
    ended(),
    Do(TouchProgress(run_id="r"), expect=FALSE),
)
by_format(
    "basic.touch_progress.without_an_epoch",
    "On format 1 anybody can renew the lease of a running run; on format 2 only its owner.",
    one=(born(), Do(TouchProgress(run_id="r"), expect=TRUE)),
    two=(born(), Look(), Do(TouchProgress(run_id="r"), expect=FALSE)),
)
contract(
    "fenced_writes.touch_progress.every_write_of_the_owner_renews",
    "A write of the owner renews the lease, a repeat of it does not, and neither does a write without an epoch.",
    born(),
    Do(SaveRunEvent(run_id="r", event_type="work", event_id="e", claim_epoch=1)),
    Look(),
    Do(SaveRunEvent(run_id="r", event_type="work", event_id="e", claim_epoch=1)),
    Look(),
    Do(SaveRunEvent(run_id="r", event_type="work", event_id="f")),
    Look(),
    paused(),
    claimed(),
    Do(replace(TOUCH, claim_epoch=1), expect=STALE),
    group="fenced_writes",
    cause="The lease is renewed in a statement of its own, whether or not the write applied.",
)
