"""Pausing: a run waits for somebody, with a document that says for what."""

from __future__ import annotations

from typing import Any, Final

from dendrux.runtime.values import UsageStats
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import DOCUMENTS, LONG
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import DOCUMENT, WAITING, born, claimed, ended, paused
from dendrux.vocabulary import PAUSED_STATUSES
from dendrux_model.operations import (
    GetPauseState,
    GetPending,
    GetPiiMapping,
    GetRun,
    GetRunControl,
    PauseRun,
    PauseWithEvent,
    RequestCancel,
    RequestPause,
    SaveRunEvent,
    SubmitAndClaim,
    TryPauseRun,
)
from dendrux_model.outcomes import CONFLICT, FALSE, INVALID, NONE, TERMINAL, TRUE, Returned
from dendrux_model.programs import Do, Look

USAGE = UsageStats(input_tokens=10, output_tokens=5, cost_usd=0.25, cache_read_input_tokens=3, reasoning_tokens=1)
FULL = PauseWithEvent(
    run_id="r",
    status=WAITING,
    pause_data=DOCUMENT,
    event_data={"reason": "asked"},
    event_id="pause",
    iteration_count=3,
    pii_mapping={"<1>": "Ada"},
    total_usage=USAGE,
)

sample(
    FULL,
    status=("paused", "waiting_approval"),
    pause_data=({}, {**DOCUMENT, "question": "Or not?"}),
    event_data=(None, {}, {"reason": 1}),
    iteration_count=(None, 4),
    pii_mapping=(None, {"<1>": "ada"}),
    total_usage=(None, UsageStats(input_tokens=10, output_tokens=5, cost_usd=0.250001, cache_read_input_tokens=3)),
)
ALSO: Final[dict[str, Any]] = {"iteration_count": 3, "pii_mapping": {"<1>": "Ada"}, "total_usage": USAGE}
sample(TryPauseRun(run_id="r", status=WAITING, pause_data=DOCUMENT, **ALSO))
sample(PauseRun(run_id="r", status=WAITING, pause_data=DOCUMENT, **ALSO))
sample(GetPauseState(run_id="r"))
sample(GetPending(run_id="r"), before=(born(), paused()))

contract(
    "basic.pause_with_event.stores_all_it_is_given",
    "A pause stores document, count, totals and mapping, and logs one event of that iteration, together.",
    born(),
    Do(FULL, expect=Returned(0)),
    Do(GetRun(run_id="r"), expect=Returned({"status": WAITING, "iteration_count": 3, "total_cost_usd": 0.25})),
)
contract(
    "basic.pause_with_event.every_paused_status",
    "A run pauses in each of the four paused statuses.",
    *(born(status) for status in sorted(PAUSED_STATUSES)),
    *(paused(status, status) for status in sorted(PAUSED_STATUSES)),
)
contract(
    "basic.pause_with_event.documents_come_back_exactly",
    "The pause document comes back with the same members in the same order, of the same types.",
    *(born(f"r{i}") for i in range(len(DOCUMENTS))),
    *(paused(f"r{i}", pause_data=document, event_data=document) for i, document in enumerate(DOCUMENTS)),
    born("long"),
    paused("long", pause_data={"text": LONG}),
)
contract(
    "basic.pause_with_event.mapping_comes_back_exactly",
    "The mapping of a pause replaces the one before, and no mapping leaves it.",
    born(),
    paused(pii_mapping={"<1>": "Ada \u0000", "<\u00e9>": "", "": "\x1aB"}),
    Do(GetPiiMapping(run_id="r")),
    claimed(),
    paused(),
    Look(),
    claimed(),
    paused(pii_mapping={}),
)
contract(
    "basic.pause_with_event.only_a_running_run",
    "A paused or ended run is not paused again: the caller gets nothing and no event is logged.",
    born(),
    paused(),
    Look(),
    Do(PauseWithEvent(run_id="r", status="paused", pause_data={}), expect=NONE),
    Look(),
    ended(),
    Do(PauseWithEvent(run_id="r", status="paused", pause_data={}), expect=NONE),
    cause="The guard on the status is missing from the update, or the event is logged whether it held or not.",
)
contract(
    "basic.pause_with_event.not_when_asked_to_cancel",
    "A run whose cancellation was asked for does not pause.",
    born(),
    Do(RequestCancel(run_id="r")),
    Look(),
    Do(PauseWithEvent(run_id="r", status="paused", pause_data={}), expect=NONE),
)
contract(
    "basic.pause_with_event.clears_the_request",
    "A pause clears the request to pause and its reason.",
    born(meta={"a": 1}),
    Do(RequestPause(run_id="r", reason="lunch")),
    Look(),
    paused(),
    Do(GetRunControl(run_id="r"), expect=Returned({"pause_requested": False})),
    cause="The flag or the reason is a write of its own, outside the update that pauses.",
)
contract(
    "basic.pause_with_event.keeps_what_is_not_given",
    "Count and totals that are not given stay as they were; the event has the run's count.",
    born(),
    Do(FULL),
    claimed(),
    paused(),
    Do(GetRun(run_id="r"), expect=Returned({"iteration_count": 3, "total_input_tokens": 10})),
    claimed(),
    paused(total_usage=UsageStats(input_tokens=1), iteration_count=0),
    Do(GetRun(run_id="r"), expect=Returned({"iteration_count": 0, "total_cost_usd": None})),
)
contract(
    "basic.pause_with_event.event_id_of_another_run",
    "An event_id of another run conflicts only where the pause would have happened; a lost guard comes first.",
    born("s"),
    Do(SaveRunEvent(run_id="s", event_type="step", event_id="pause")),
    born(),
    Do(FULL, expect=CONFLICT),
    paused(),
    Look(),
    Do(FULL, expect=NONE),
)
by_format(
    "basic.pause_with_event.unconsumed_submission",
    "A pause drops the last submission where nothing consumes it, and is refused where nobody consumed it yet.",
    one=(
        born(),
        paused(),
        Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"a": 1}, submission_id="sub")),
        Do(FULL, expect=Returned(1)),
        Do(GetPauseState(run_id="r"), expect=Returned({"submission_id": None})),
    ),
    two=(
        born(),
        paused(),
        Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"a": 1}, submission_id="sub")),
        Do(FULL, expect=CONFLICT),
        Do(GetPauseState(run_id="r"), expect=Returned({"submission_id": "sub"})),
    ),
)

# -- without an event, for format 1 -----------------------------------------------------------------------------------

TRY = TryPauseRun(run_id="r", status="paused", pause_data={"a": 1}, **ALSO)
LEGACY = PauseRun(run_id="r", status="paused", pause_data={"a": 1}, **ALSO)

by_format(
    "basic.try_pause_run.pauses_without_an_event",
    "On format 1 a running run pauses without an event; on format 2 the call is refused.",
    one=(born(), Do(TRY, expect=TRUE), Look(), Do(TRY, expect=FALSE), claimed(expected_status="paused")),
    two=(born(), Do(TRY, expect=INVALID)),
)
by_format(
    "basic.try_pause_run.not_when_asked_to_cancel",
    "A run whose cancellation was asked for does not pause this way either.",
    one=(born(), Do(RequestCancel(run_id="r")), Do(TRY, expect=FALSE)),
    two=(born(), Do(RequestCancel(run_id="r")), Do(TRY, expect=INVALID)),
)
by_format(
    "basic.pause_run.pauses_whatever_was_asked",
    "On format 1 the oldest way to pause does so even when cancellation was asked for; on format 2 it is refused.",
    one=(
        born(),
        Do(RequestCancel(run_id="r")),
        Do(LEGACY, expect=NONE),
        Do(GetRun(run_id="r"), expect=Returned({"status": "paused", "cancel_requested": True})),
    ),
    two=(born(), Do(RequestCancel(run_id="r")), Do(LEGACY, expect=INVALID)),
)
by_format(
    "basic.pause_run.refuses_paused_and_ended_runs",
    "On format 1 it refuses a paused run as a conflict and an ended one as ended.",
    one=(born(), paused(), Look(), Do(LEGACY, expect=CONFLICT), ended(), Look(), Do(LEGACY, expect=TERMINAL)),
    two=(born(), paused(), Look(), Do(LEGACY, expect=INVALID), ended(), Look(), Do(LEGACY, expect=INVALID)),
)

# -- what is waited for -----------------------------------------------------------------------------------------------

WAITED: Final[dict[str, Any]] = {
    "pause_reason": "two answers",
    "iteration": 7,
    "secret": "of no reader",
    "pending_tool_calls": [
        {"id": "c1", "name": "mail", "params": {"to": ["Ada", 1, 1.0, True, None]}, "target": "client"},
        {"id": "c2", "name": "look", "params": {}},
        {"id": "c3", "name": "ask"},
        {"id": 7, "name": "no call"},
        "no call",
    ],
    "pending_targets": {"c1": "server", "c2": "human"},
}
"""A pause document that says what is waited for, some of it in words that are no call."""
WAITS: Final = {
    "waiting_client_tool": WAITED,
    "waiting_human_input": {**WAITED, "iteration": True, "pause_reason": ["no text"], "pending_targets": None},
    "waiting_approval": {
        "iteration": "7",
        "pending_tool_calls": {"id": "c"},
        "pause_reason": "\u00e9\u0000\U0001f600 ",
    },
    "paused": {},
}
"""A document for each status a run can be paused in."""


def asked(expect: bool, *instances: int) -> tuple[Do, ...]:
    """What each paused run waits for, read on these instances; or whether it waits at all."""
    return tuple(
        Do(GetPending(run_id=status), instance, expect=None if expect else NONE)
        for status in WAITS
        for instance in instances
    )


contract(
    "basic.get_pending.every_paused_status",
    "What a paused run waits for is its status, reason, iteration, calls and the time of its pause, until it goes on.",
    *(step for status in WAITS for step in (born(status), Do(GetPending(run_id=status), expect=NONE))),
    *(paused(status, status, document) for status, document in WAITS.items()),
    *asked(True, 0, 1),
    Do(GetPending(run_id="waiting_client_tool"), expect=Returned({"reason": "two answers", "iteration": 7})),
    Do(RequestCancel(run_id="paused")),
    *asked(True, 1),
    *(claimed(status, status) for status in WAITS if status != "paused"),
    ended("paused", status="cancelled"),
    *asked(False, 0, 1),
    paused("waiting_client_tool", "waiting_approval", {"iteration": 8}),
    Do(GetPending(run_id="waiting_client_tool"), 1, expect=Returned({"status": "waiting_approval", "iteration": 8})),
    cause="A part of the summary is left out, or it is answered for a run that does not wait.",
)

# -- races ------------------------------------------------------------------------------------------------------------

GUARD = "The guard is read before the update instead of standing in it."

race(
    "pause_with_event.pause_or_cancel_request",
    "A pause and a request to cancel at once: the request is kept in either order.",
    FULL,
    RequestCancel(run_id="r"),
    before=(born(),),
    after=(Do(GetRunControl(run_id="r"), expect=Returned({"cancel_requested": True})),),
    cause=GUARD,
)
race(
    "pause_with_event.pause_or_pause_request",
    "A pause and a request to pause at once: no request stands on the paused run.",
    FULL,
    RequestPause(run_id="r", reason="lunch"),
    before=(born(),),
    after=(Do(GetRunControl(run_id="r"), expect=Returned({"pause_requested": False})),),
    both_ways=True,
    cause=GUARD,
)
race(
    "pause_with_event.one_pause",
    "Of two pauses at once, one happens and logs its event.",
    FULL,
    PauseWithEvent(run_id="r", status="paused", pause_data={"other": 1}, event_id="other"),
    before=(born(),),
    cause=GUARD,
)
