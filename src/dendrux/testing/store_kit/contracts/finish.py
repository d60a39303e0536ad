"""The end of a run: a terminal status, which nothing leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.runtime.values import TraceWrite, UsageStats
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import DOCUMENTS, LONG, TEXTS
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import OWNED, OWNER, WAITING, born, ended, paused
from dendrux.vocabulary import TERMINAL_STATUSES
from dendrux_model.operations import (
    ClaimPausedRun,
    FinalizeRun,
    FinalizeRunIfStatusIn,
    FinalizeWithEvent,
    GetRun,
    PauseRun,
    PauseWithEvent,
    ReleaseRunClaim,
    RequestCancel,
    RequestPause,
    SaveRunEvent,
    SaveTrace,
    SubmitAndClaim,
    TryPauseRun,
)
from dendrux_model.outcomes import CONFLICT, FALSE, INVALID, NONE, STALE, TERMINAL, TRUE, Returned
from dendrux_model.programs import Do, Look

USAGE = UsageStats(input_tokens=100, output_tokens=50, cost_usd=1.5, cache_creation_input_tokens=7, reasoning_tokens=2)
FULL = FinalizeWithEvent(
    run_id="r",
    status="error",
    allowed_current_statuses=("running",),
    event_type="run.completed",
    event_data={"n": 1},
    event_id="end",
    answer="so far",
    error="no tool",
    iteration_count=4,
    total_usage=USAGE,
    pii_mapping={"<1>": "Ada"},
    failure_reason="tool_missing",
)

sample(
    FULL,
    status=("success", "max_iterations"),
    event_type=("run.error",),
    event_data=(None, {}, {"n": 1.0}),
    answer=(None, "", "so far "),
    error=(None, "no tool\u0000"),
    iteration_count=(None, 5),
    total_usage=(None, UsageStats(input_tokens=100, output_tokens=50, cost_usd=1.5)),
    pii_mapping=(None, {"<1>": "ada"}),
    failure_reason=(None, "TOOL_MISSING"),
    trace=(),
)
sample(FinalizeRun(run_id="r", status="success", answer="done", total_usage=USAGE, expected_current_status="running"))
sample(
    FinalizeRunIfStatusIn(
        run_id="r", status="success", answer="done", total_usage=USAGE, allowed_current_statuses=("running",)
    )
)

ENDS: tuple[tuple[str, str], ...] = (
    ("success", "run.completed"),
    ("error", "run.completed"),
    ("max_iterations", "run.completed"),
    ("error", "run.error"),
    ("cancelled", "run.cancelled"),
)

contract(
    "basic.finalize_with_event.stores_all_it_is_given",
    "The end stores status, answer, error, reason, count, totals and mapping, and logs one event, together.",
    born(),
    Do(FULL, expect=Returned(0)),
    Do(GetRun(run_id="r"), expect=Returned({"status": "error", "answer": "so far", "failure_reason": "tool_missing"})),
)
contract(
    "basic.finalize_with_event.every_way_to_end",
    "A running or paused run ends in each terminal status with each event that fits it, and no other.",
    *(born(f"r{i}") for i in range(len(ENDS))),
    *(
        Do(
            FinalizeWithEvent(
                run_id="r0", status=status, event_type=event_type, allowed_current_statuses=("running", WAITING)
            ),
            expect=INVALID,
        )
        for status in sorted(TERMINAL_STATUSES)
        for event_type in ("run.completed", "run.error", "run.cancelled", "run.interrupted", "run.paused", "step")
        if (status, event_type) not in ENDS
    ),
    Look(),
    paused("r0"),
    *(
        Do(
            FinalizeWithEvent(
                run_id=f"r{i}", status=status, event_type=event_type, allowed_current_statuses=("running", WAITING)
            ),
            expect=Returned(1 if i == 0 else 0),
        )
        for i, (status, event_type) in enumerate(ENDS)
    ),
)
contract(
    "basic.finalize_with_event.text_comes_back_exactly",
    "Answers and errors are any text, and come back as they went in.",
    *(born(f"r{i}") for i in range(len(TEXTS))),
    *(ended(f"r{i}", status="error", answer=text, error=text) for i, text in enumerate(TEXTS)),
    born("long"),
    ended("long", answer=LONG),
    cause="The column or the driver cuts text, trims it, or takes the empty string or U+0000 for something else.",
)
contract(
    "basic.finalize_with_event.documents_come_back_exactly",
    "The data of the last event comes back exactly; error_info in it shows in meta.",
    *(born(f"r{i}", meta={"a": 1, "dendrux.error_info": "old", "b": 1e16}) for i in range(len(DOCUMENTS))),
    *(
        ended(f"r{i}", status="error", event_data={"error_info": document, "more": document})
        for i, document in enumerate(DOCUMENTS)
    ),
    born("null"),
    ended("null", status="error", event_data={"error_info": None}),
)
contract(
    "basic.finalize_with_event.only_the_allowed_statuses",
    "A run whose status is not among the allowed ones does not end: no status, no event.",
    born(meta={"a": 1}),
    Do(
        FinalizeWithEvent(
            run_id="r",
            status="error",
            allowed_current_statuses=("paused", WAITING),
            event_type="run.error",
            event_data={"error_info": {"lost": True}},
            answer="lost",
        ),
        expect=NONE,
    ),
    Look(),
    paused(),
    Do(FULL, expect=NONE),
    cause="The event or the error is written before the guard on the status is known to hold.",
)
contract(
    "basic.finalize_with_event.first_end_wins",
    "A second end changes nothing: neither status, nor answer, nor totals, nor the log.",
    born(),
    ended(answer="first", event_id="first"),
    Look(),
    Do(FULL, expect=NONE),
    ended(status="cancelled", event_id="third"),
    Do(GetRun(run_id="r"), expect=Returned({"status": "success", "answer": "first"})),
    cause="The update names the run only: it must also ask for an open status.",
)
contract(
    "basic.finalize_with_event.takes_the_document_along",
    "The end of a paused run removes its document and its submission, and clears what was asked of it.",
    born(),
    paused(),
    Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"a": 1}, submission_id="sub")),
    Do(RequestCancel(run_id="r")),
    Do(RequestPause(run_id="r", reason="lunch")),
    Look(),
    ended(),
    Look(),
    *(
        Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data=data, submission_id="sub"), expect=NONE)
        for data in ({"a": 1}, {"a": 2})
    ),
)
contract(
    "basic.finalize_with_event.keeps_what_is_not_given",
    "What the end is not given stays as it was; a cost is rounded to six places, half to even.",
    born(),
    paused(
        iteration_count=3,
        pii_mapping={"<1>": "Ada"},
        total_usage=UsageStats(input_tokens=2**40, output_tokens=1, cost_usd=0.0000125, reasoning_tokens=2**40),
    ),
    Do(GetRun(run_id="r"), expect=Returned({"total_cost_usd": 0.000012, "total_input_tokens": 2**40})),
    ended(),
    Do(GetRun(run_id="r"), expect=Returned({"iteration_count": 3, "total_reasoning_tokens": 2**40})),
)
contract(
    "basic.finalize_with_event.event_id_of_another_run",
    "An event_id of another run conflicts only where the end would have happened; a lost guard comes first.",
    born("s"),
    Do(SaveRunEvent(run_id="s", event_type="step", event_id="end")),
    born(),
    Do(FULL, expect=CONFLICT),
    Look(),
    ended(),
    Do(FULL, expect=NONE),
)
contract(
    "basic.finalize_with_event.identity_comes_before_the_guard",
    "An id that another event of the run has is a conflict, whatever the run's status.",
    born(),
    Do(SaveRunEvent(run_id="r", event_type="step", event_id="end")),
    Do(FULL, expect=CONFLICT),
    Do(PauseWithEvent(run_id="r", status="paused", pause_data={}, event_id="end"), expect=CONFLICT),
    ended(),
    Look(),
    Do(FULL, expect=CONFLICT),
)
contract(
    "basic.finalize_with_event.a_terminal_run_is_final",
    "Nothing that changes a status, an owner or a request works on a run that has ended.",
    *OWNED,
    ended(answer="kept", event_id="kept"),
    Look(),
    *(
        Do(FinalizeWithEvent(run_id="r", status=status, event_type=kind, allowed_current_statuses=("running", WAITING)))
        for status, kind in ENDS
    ),
    *(
        Do(operation)
        for operation in (
            FinalizeRun(run_id="r", status="error", answer="lost"),
            FinalizeRunIfStatusIn(run_id="r", status="error", allowed_current_statuses=("running", WAITING)),
            PauseWithEvent(run_id="r", status=WAITING, pause_data={}),
            TryPauseRun(run_id="r", status=WAITING, pause_data={}),
            PauseRun(run_id="r", status=WAITING, pause_data={}),
        )
    ),
    Do(ClaimPausedRun(run_id="r", expected_status=WAITING), expect=NONE),
    Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={}), expect=NONE),
    Do(ReleaseRunClaim(run_id="r", claim_epoch=OWNER), expect=FALSE),
    Do(RequestCancel(run_id="r"), expect=FALSE),
    Do(RequestPause(run_id="r"), expect=FALSE),
    cause="An update does not ask for the status it starts from.",
)
contract(
    "fenced_writes.finalize_with_event.owner_may_end_a_paused_run",
    "The last owner may end its run while it is paused, when it allows that status.",
    *OWNED,
    paused(),
    Do(ended(claim_epoch=OWNER - 1).operation, expect=STALE),
    Look(),
    Do(ended(claim_epoch=OWNER).operation, expect=Returned(2)),
    group="fenced_writes",
)

# -- without an event, for format 1 -----------------------------------------------------------------------------------


def legacy(**given: Any) -> tuple[FinalizeRun, FinalizeRunIfStatusIn]:
    """Both operations of the legacy pair, for a run that is running."""
    return (
        FinalizeRun(run_id="r", expected_current_status="running", **given),
        FinalizeRunIfStatusIn(run_id="s", allowed_current_statuses=("running",), **given),
    )


FIRST = legacy(status="success", answer="first", total_usage=USAGE, iteration_count=2, pii_mapping={"<1>": "Ada"})
SECOND = legacy(status="error", error="second", failure_reason="late")

by_format(
    "basic.finalize_run.ends_without_an_event",
    "On format 1 both of the legacy pair end an open run, once; on format 2 they are refused.",
    one=(
        born(),
        born("s"),
        *(Do(operation, expect=TRUE) for operation in FIRST),
        Look(),
        *(Do(operation, expect=FALSE) for operation in SECOND),
        Do(FinalizeRun(run_id="r", status="cancelled"), expect=FALSE),
        Do(FinalizeRun(run_id="s", status="cancelled", expected_current_status="paused"), expect=FALSE),
        Do(
            FinalizeRunIfStatusIn(run_id="s", status="cancelled", allowed_current_statuses=("running", "paused")),
            expect=FALSE,
        ),
    ),
    two=(born(), born("s"), *(Do(operation, expect=INVALID) for operation in (*FIRST, *SECOND))),
    cause="The legacy update ends a run that has ended: it must ask for an open status too.",
)
by_format(
    "basic.finalize_run.only_the_expected_status",
    "On format 1 an expected status that the run does not have ends nothing; without one any open run ends.",
    one=(
        born(),
        paused(),
        born("s"),
        paused("s"),
        Look(),
        *(Do(operation, expect=FALSE) for operation in FIRST),
        Look(),
        Do(FinalizeRun(run_id="r", status="cancelled"), expect=TRUE),
        Do(FinalizeRunIfStatusIn(run_id="s", status="cancelled", allowed_current_statuses=(WAITING,)), expect=TRUE),
    ),
    two=(born(), born("s"), *(Do(operation, expect=INVALID) for operation in FIRST)),
)

# -- races ------------------------------------------------------------------------------------------------------------

GUARD = "The guard is read before the update instead of standing in it, or the event has a transaction of its own."

LAST = TraceWrite(role="assistant", content="Goodbye.", order_index=7, trace_id="last", trace_kind="final")
END = FinalizeWithEvent(
    run_id="r",
    status="success",
    allowed_current_statuses=("running",),
    event_type="run.completed",
    event_id="end",
    answer="Goodbye.",
    trace=LAST,
)

contract(
    "atomic_completion.finalize_with_event.last_message_with_the_end",
    "Status, terminal event and last message show together, and a repeat adds nothing.",
    born(),
    Do(END, expect=Returned(0)),
    Look(),
    Do(END, expect=Returned(0)),
    Do(SaveTrace(run_id="r", role="user", content_text="wait", order_index=8), expect=TERMINAL),
    cause="The last message is written after the end, where a crash loses it, or before it, where the end may be lost.",
    group="atomic_completion",
    needs={"format_2"},
)
contract(
    "atomic_completion.finalize_with_event.last_message_is_part_of_the_content",
    "An end repeated with another last message, or without one, is a write conflict.",
    born(),
    Do(END, expect=Returned(0)),
    Look(),
    *(
        Do(replace(END, trace=other), expect=CONFLICT)
        for other in (None, replace(LAST, content="Goodbye"), replace(LAST, order_index=8), replace(LAST, trace_id="o"))
    ),
    group="atomic_completion",
    needs={"format_2"},
)
contract(
    "atomic_completion.finalize_with_event.lost_end_leaves_no_message",
    "An end that lost its guard or its epoch publishes nothing, whatever its last message would have met.",
    *OWNED,
    Do(SaveTrace(run_id="r", role="user", content_text="x", order_index=7, trace_id="there")),
    Do(replace(END, claim_epoch=1), expect=STALE),
    Do(replace(END, allowed_current_statuses=("paused",)), expect=NONE),
    Look(),
    Do(replace(END, claim_epoch=OWNER), expect=CONFLICT),
    Do(replace(END, trace=replace(LAST, order_index=8, trace_id="there")), expect=CONFLICT),
    Look(),
    Do(replace(END, trace=replace(LAST, order_index=8)), expect=Returned(1)),
    Look(),
    Do(replace(END, event_id="second"), expect=NONE),
    group="atomic_completion",
    needs={"format_2"},
)
by_format(
    "atomic_completion.finalize_with_event.no_last_message_on_format_1",
    "On format 1 an end with a last message is refused with a ValueError; the end alone is not.",
    one=(born(), Do(END, expect=INVALID), Look(), Do(replace(END, trace=None), expect=Returned(0))),
    two=(born(), Do(END, expect=Returned(0))),
    group="atomic_completion",
)

race(
    "finalize_with_event.one_end",
    "Of two ends at once, one happens and logs the only terminal event.",
    FULL,
    ended(event_id="other", answer="other").operation,
    before=(born(),),
    after=(Do(replace(FULL, event_id="third"), expect=NONE),),
    cause=GUARD,
)
race(
    "finalize_with_event.end_or_pause",
    "An end and a pause at once: the run ends in either order when both statuses are allowed.",
    ended(event_id="end").operation,
    PauseWithEvent(run_id="r", status=WAITING, pause_data={"a": 1}, event_id="pause"),
    before=(born(),),
    cause=GUARD,
)
race(
    "finalize_with_event.same_end_twice",
    "One end sent twice at once is stored once, and both callers get the same answer.",
    FULL,
    FULL,
    before=(born(),),
    after=(Do(FULL, expect=Returned(0)),),
    cause="A repeat that meets its own first call reports a conflict with itself: look again once the key clashed.",
)
race(
    "finalize_with_event.last_event_of_the_owner",
    "An event of the owner that meets the end comes before the terminal event or is refused.",
    SaveRunEvent(run_id="r", event_type="work", event_id="work", claim_epoch=1),
    replace(FULL, claim_epoch=1),
    before=(born(),),
    both_ways=True,
    cause="The event is inserted without holding the run, after its status was read.",
)

# -- format 2 ---------------------------------------------------------------------------------------------------------

contract(
    "basic.finalize_with_event.legacy_is_refused_on_format_2",
    "On format 2 a run ends and pauses only together with its event.",
    born(),
    *(
        Do(operation, expect=INVALID)
        for operation in (
            FinalizeRun(run_id="r", status="success"),
            FinalizeRunIfStatusIn(run_id="r", status="success", allowed_current_statuses=("running",)),
            TryPauseRun(run_id="r", status="paused", pause_data={}),
            PauseRun(run_id="r", status="paused", pause_data={}),
        )
    ),
    ended(),
    Do(SaveRunEvent(run_id="r", event_type="late", event_id="late"), expect=TERMINAL),
    needs={"format_2"},
)
