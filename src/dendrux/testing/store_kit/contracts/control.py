"""What somebody else may ask of a run: that it stop, or pause."""

from __future__ import annotations

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._nasty import LONG, TEXTS
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import born, claimed, ended, noted, paused
from dendrux_model.operations import (
    GetRun,
    GetRunControl,
    MarkNotesDelivered,
    RequestCancel,
    RequestPause,
    UpdateRunMeta,
)
from dendrux_model.outcomes import FALSE, TRUE, Returned
from dendrux_model.programs import Do, Look

CANCEL = RequestCancel(run_id="r")
PAUSE = RequestPause(run_id="r", reason="lunch")

sample(CANCEL)
sample(PAUSE)
sample(GetRunControl(run_id="r"))

contract(
    "basic.request_cancel.running_run",
    "A running run can be asked to cancel, more than once; the second time changes nothing.",
    born(),
    Do(CANCEL, expect=TRUE),
    Look(),
    Do(CANCEL, expect=TRUE),
    Do(GetRunControl(run_id="r"), expect=Returned({"cancel_requested": True})),
    cause="The flag is set without looking at what it was: set only what is not set, so that no clock moves.",
)
contract(
    "basic.request_cancel.paused_run",
    "A paused run can be asked to cancel and stays paused until somebody ends it.",
    born(),
    paused(),
    Do(CANCEL, expect=TRUE),
    Do(GetRun(run_id="r"), expect=Returned({"status": "waiting_human_input", "cancel_requested": True})),
)
contract(
    "basic.request_cancel.ended_run",
    "A run that has ended cannot be asked to cancel: the answer is no, and nothing changes.",
    born(),
    ended(),
    Look(),
    Do(CANCEL, expect=FALSE),
)
contract(
    "basic.request_cancel.goes_with_the_end",
    "The end of a run clears what was asked of it.",
    born(),
    Do(CANCEL),
    Do(PAUSE),
    ended(status="cancelled"),
    Do(GetRunControl(run_id="r"), expect=Returned({"cancel_requested": False, "pause_requested": False})),
)
contract(
    "basic.request_pause.running_run_only",
    "Only a running run can be asked to pause.",
    born(),
    Do(PAUSE, expect=TRUE),
    paused(),
    Look(),
    Do(PAUSE, expect=FALSE),
    claimed(),
    Do(GetRunControl(run_id="r"), expect=Returned({"pause_requested": False})),
    ended(),
    Look(),
    Do(PAUSE, expect=FALSE),
)
contract(
    "basic.request_pause.reason_lies_over_meta",
    "The reason shows as the last member of meta while the request stands; a later reason replaces it, none keeps it.",
    born(meta={"a": 1, "b": 2.0}),
    Do(RequestPause(run_id="r"), expect=TRUE),
    Look(),
    Do(PAUSE, expect=TRUE),
    Look(),
    Do(RequestPause(run_id="r"), expect=TRUE),
    Do(PAUSE, expect=TRUE),
    Look(),
    Do(RequestPause(run_id="r", reason="dinner"), expect=TRUE),
    Do(UpdateRunMeta(run_id="r", patch={"c": 3})),
    Look(),
    paused(),
    Do(GetRun(run_id="r")),
    cause="The reason was written into meta: keep it in a column of its own and lay it over meta when reading.",
)
contract(
    "basic.request_pause.reasons_come_back_exactly",
    "Any text can be a reason.",
    *(step for i in range(len(TEXTS)) for step in (born(f"r{i}"),)),
    *(Do(RequestPause(run_id=f"r{i}", reason=text), expect=TRUE) for i, text in enumerate(TEXTS)),
    born("long"),
    Do(RequestPause(run_id="long", reason=LONG), expect=TRUE),
)
contract(
    "basic.get_run_control.pending_notes",
    "The control read says whether notes wait, until the last of them is delivered.",
    born(),
    Do(GetRunControl(run_id="r"), expect=Returned({"has_pending_notes": False})),
    noted(),
    noted(note_id="n2"),
    Do(GetRunControl(run_id="r"), expect=Returned({"has_pending_notes": True})),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n",), iteration=0), expect=Returned(1)),
    Do(GetRunControl(run_id="r"), expect=Returned({"has_pending_notes": True})),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n2",), iteration=0), expect=Returned(1)),
    Do(GetRunControl(run_id="r"), expect=Returned({"has_pending_notes": False})),
)

race(
    "request_cancel.cancel_or_end",
    "A request to cancel that meets the end of the run comes before it or is refused, and does not outlive it.",
    CANCEL,
    ended(event_id="end").operation,
    before=(born(),),
    after=(Do(GetRunControl(run_id="r"), expect=Returned({"cancel_requested": False})),),
    both_ways=True,
    cause="The flag is set by an update that does not ask whether the run is open.",
)
