"""Tool calls that are started and completed: all of it or nothing, by nobody but the present owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.runtime.values import EventWrite, TraceWrite
from dendrux.testing.store_kit.contract import Need, contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import DOCUMENTS, TENANTS, TEXTS, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._states import (
    LEASE_S,
    OWNED,
    OWNER,
    REACT,
    born,
    claimed,
    ended,
    noted,
    paused,
)
from dendrux.testing.store_kit.contracts.finish import END
from dendrux.testing.store_kit.contracts.tool_calls import COMPLETE, DONE, FULL, OBSERVATION, START, STARTED
from dendrux.vocabulary import TOOL_COMPLETED, TOOL_STARTED
from dendrux_model.operations import (
    CompleteToolCall,
    GetReplayedToolCalls,
    GetToolCalls,
    MarkLeaseExpired,
    ReclaimRun,
    RequestCancel,
    SaveRunEvent,
    SaveTrace,
    StartToolCall,
)
from dendrux_model.outcomes import (
    CONFLICT,
    INVALID,
    NONE,
    NOT_FOUND,
    NOT_STARTED,
    STALE,
    TERMINAL,
    Outcome,
    Returned,
)
from dendrux_model.programs import Do, Fault, Look, Point, Program, Reopen, Tick

FORMAT_2: Final[frozenset[Need]] = frozenset({"format_2"})
FIRST: Final = Returned({"attempt": 1, "replayed": False, "completed": None})
LATER: Final = replace(START, claim_epoch=OWNER + 1)
"""The same call, started by the next owner."""
LEFT_OPEN: Final[Program] = (*STARTED, paused(), claimed())
"""The next owner has the run; the call of the last one is open."""
SPLIT: Final = (
    "The result, the observation and the event are written by transactions of their own: one transaction, whose first "
    "statement holds the run's row."
)
EPOCH: Final = "The intent does not remember the epoch it was started under, or it is not compared."


def attempt(number: int, **given: Any) -> Outcome:
    """What a start answers that hands the call out."""
    return Returned({"attempt": number, "replayed": number > 1, "completed": None, **given})


def start(number: int, epoch: int = 1, **given: Any) -> StartToolCall:
    """The start of a call with a number."""
    about: dict[str, Any] = {
        "run_id": "r",
        "row_id": f"row{number}",
        "tool_call_id": f"c{number}",
        "tool_name": "mail",
        "claim_epoch": epoch,
        "event": EventWrite(event_type=TOOL_STARTED, event_id=f"started{number}"),
        **given,
    }
    return StartToolCall(**about)


def complete(number: int, epoch: int = 1, content: str = "done", **given: Any) -> CompleteToolCall:
    """The completion of that call."""
    about: dict[str, Any] = {
        "run_id": "r",
        "row_id": f"row{number}",
        "claim_epoch": epoch,
        "trace": TraceWrite(role="tool", content=content, order_index=number, trace_id=f"observed{number}"),
        "event": EventWrite(event_type=TOOL_COMPLETED, event_id=f"completed{number}"),
        **given,
    }
    return CompleteToolCall(**about)


def atomic(name: str, promise: str, *steps: Any, cause: str | None = None) -> None:
    """A contract of the group about runs of format 2."""
    contract(f"atomic_completion.{name}", promise, *steps, group="atomic_completion", needs=FORMAT_2, cause=cause)


# -- the intent -------------------------------------------------------------------------------------------------------

atomic(
    "start_tool_call.intent_and_event_together",
    "A started call shows as an open row and as one event, before anybody executes it.",
    *OWNED,
    Do(START, expect=FIRST),
    Do(GetToolCalls(run_id="r")),
    Look(),
    Do(START, expect=FIRST),
    cause="The event is written before or after the intent, by a transaction of its own.",
)
atomic(
    "start_tool_call.handed_out_again_to_the_next_owner",
    "An open call is handed to each later owner as one more attempt with one more event; a retry adds nothing.",
    *LEFT_OPEN,
    Do(START, expect=STALE),
    Do(LATER, expect=attempt(2)),
    Look(),
    Do(LATER, expect=attempt(2)),
    Look(),
    paused(),
    claimed(),
    Do(LATER, expect=STALE),
    Do(replace(START, claim_epoch=OWNER + 2), expect=attempt(3)),
    cause=EPOCH,
)
atomic(
    "start_tool_call.completed_calls_are_not_handed_out",
    "Starting a completed call answers its stored result and writes nothing, also for a later owner.",
    *STARTED,
    Do(COMPLETE),
    Look(),
    Do(START),
    Look(),
    paused(),
    claimed(),
    Look(),
    Do(LATER),
    cause="The row is not looked at before the intent is written, so the call is executed twice.",
)
atomic(
    "start_tool_call.one_call_one_row",
    "A second row for a known call is a write conflict, and so is an event id that something else has.",
    born("s"),
    born(),
    Do(SaveRunEvent(run_id="s", event_type="step", event_id="taken")),
    Do(start(1), expect=FIRST),
    Look(),
    Do(start(1, row_id="other", event=EventWrite(event_type=TOOL_STARTED)), expect=CONFLICT),
    Do(start(2, event=EventWrite(event_type=TOOL_STARTED, event_id="taken")), expect=CONFLICT),
    Do(start(2, event=EventWrite(event_type=TOOL_STARTED, event_id="started1")), expect=CONFLICT),
    Do(replace(FULL, run_id="r", row_id="row1", tool_call_id="c1"), expect=CONFLICT),
    Do(replace(FULL, run_id="r", row_id="row2", tool_call_id="c1"), expect=CONFLICT),
    Look(),
    Do(replace(FULL, run_id="r", row_id="row2", tool_call_id="c2"), expect=NONE),
    Do(start(2, event=EventWrite(event_type=TOOL_STARTED)), expect=CONFLICT),
    Do(start(3, tool_call_id="c2"), expect=CONFLICT),
)
atomic(
    "start_tool_call.ids_may_be_left_out",
    "Without ids of their own the events and the observation follow from the row's id, so that repeats are recognised.",
    born(),
    Do(start(1, event=EventWrite(event_type=TOOL_STARTED)), expect=FIRST),
    Do(start(1, event=EventWrite(event_type=TOOL_STARTED)), expect=FIRST),
    Do(
        nameless := complete(
            1,
            event=EventWrite(event_type=TOOL_COMPLETED),
            trace=TraceWrite(role="tool", content="done", order_index=0, trace_kind="observation"),
        ),
        expect=Returned(1),
    ),
    Look(),
    Do(SaveRunEvent(run_id="r", event_type="step", event_id="e"), expect=Returned(2)),
    Do(nameless, expect=Returned(1)),
)
atomic(
    "start_tool_call.only_by_the_owner_of_a_running_run",
    "No call is handed out on a paused run or an ended one, and none to an owner of another epoch.",
    born(),
    noted(),
    Do(start(1, 2), expect=STALE),
    Do(start(1), expect=FIRST),
    Do(RequestCancel(run_id="r"), expect=Returned(True)),
    Do(start(2), expect=FIRST),
    ended(),
    Look(),
    Do(start(1), expect=TERMINAL),
    Do(start(3), expect=TERMINAL),
    Do(start(3, 2), expect=STALE),
)
by_format(
    "atomic_completion.start_tool_call.not_on_format_1",
    "On format 1 starting and completing a call are refused with a ValueError; on format 2 nothing of them is missing.",
    one=(born(), Do(start(1), expect=INVALID), Do(complete(1), expect=INVALID)),
    two=(born(), Do(start(1), expect=FIRST), Do(complete(1), expect=Returned(1))),
    group="atomic_completion",
)

# -- the result -------------------------------------------------------------------------------------------------------

atomic(
    "complete_tool_call.everything_together",
    "Result, observation, event and mapping show together once the call is completed, with the link between them.",
    *STARTED,
    Look(),
    Do(COMPLETE, expect=Returned(2)),
    Do(GetToolCalls(run_id="r")),
    cause=SPLIT,
)
atomic(
    "complete_tool_call.needs_an_intent",
    "A call that was never started cannot be completed, nor can one that was saved in one piece.",
    *OWNED,
    Do(COMPLETE, expect=NOT_STARTED),
    Look(),
    Do(replace(COMPLETE, claim_epoch=1), expect=STALE),
    Do(FULL, expect=NONE),
    Do(COMPLETE, expect=CONFLICT),
    cause="The update that stores the result does not say how many rows it changed.",
)
atomic(
    "complete_tool_call.only_by_the_attempt_that_runs",
    "The former owner's result is stale, and the next owner completes the call only after starting it again.",
    *LEFT_OPEN,
    Do(COMPLETE, expect=STALE),
    Do(replace(COMPLETE, claim_epoch=OWNER + 1), expect=CONFLICT),
    Look(),
    Do(LATER, expect=attempt(2)),
    Do(COMPLETE, expect=STALE),
    Do(replace(COMPLETE, claim_epoch=OWNER + 1), expect=Returned(4)),
    Look(),
    Do(COMPLETE, expect=Returned(4)),
    cause=EPOCH,
)
atomic(
    "complete_tool_call.nothing_when_anything_is_in_the_way",
    "An event id, a trace id or a position that is taken refuses the whole completion and leaves the call open.",
    born("s"),
    Do(SaveRunEvent(run_id="s", event_type="step", event_id="completed1")),
    Do(SaveTrace(run_id="s", role="user", content_text="x", order_index=0, trace_id="observed2")),
    born(),
    Do(SaveTrace(run_id="r", role="user", content_text="x", order_index=3, trace_id="mine")),
    *(Do(start(number), expect=FIRST) for number in (1, 2, 3, 4)),
    Look(),
    *(Do(complete(number, pii_mapping={"<1>": "Ada"}), expect=CONFLICT) for number in (1, 2, 3)),
    Look(),
    Do(complete(4), expect=Returned(4)),
    Do(complete(3, trace=TraceWrite(role="tool", content="done", order_index=5)), expect=Returned(5)),
    cause=SPLIT,
)
atomic(
    "complete_tool_call.first_result_stays",
    "A completion of a completed call with any other content is a write conflict, whoever sends it and whenever.",
    *STARTED,
    Do(COMPLETE, expect=Returned(2)),
    Do(replace(COMPLETE, success=True), expect=CONFLICT),
    Do(replace(COMPLETE, success=True, claim_epoch=1), expect=CONFLICT),
    ended(),
    Look(),
    Do(replace(COMPLETE, success=True), expect=CONFLICT),
    Do(COMPLETE, expect=Returned(2)),
)
atomic(
    "complete_tool_call.late_results_of_ended_runs",
    "A run that ended while its call was open takes no result any more: no row, no observation, no event, no mapping.",
    *STARTED,
    ended(),
    Look(),
    Do(COMPLETE, expect=TERMINAL),
    Do(replace(COMPLETE, claim_epoch=1), expect=STALE),
)
atomic(
    "complete_tool_call.contents_come_back_exactly",
    "Texts and documents of intent, result, observation and events come back as they went in.",
    born(),
    *(
        step
        for i, document in enumerate(DOCUMENTS)
        for step in (
            Do(start(i, params=document, event=EventWrite(event_type=TOOL_STARTED, event_id=f"s{i}", data=document))),
            Do(
                complete(
                    i,
                    content=TEXTS[i],
                    error_message=TEXTS[-i],
                    meta=document,
                    event=EventWrite(event_type=TOOL_COMPLETED, event_id=f"d{i}", data=document, correlation_id="c"),
                )
            ),
        )
    ),
    Do(start(50, tool_name=wide(255), tool_call_id=wide(255), row_id=wide(48), provider_tool_call_id=wide(255))),
    Do(complete(50, row_id=wide(48), outcome="o" * 100, duration_ms=2**40)),
)

# -- crashes at each point --------------------------------------------------------------------------------------------

CRASHES: Final[tuple[tuple[str, Any, Program, int], ...]] = (
    ("start_tool_call", START, OWNED, 3),
    ("start_tool_call.replay", LATER, LEFT_OPEN, 5),
    ("complete_tool_call", COMPLETE, STARTED, 4),
    ("finalize_with_event", replace(END, claim_epoch=OWNER), OWNED, 3),
)
"""A call of each operation, what comes before it, and how many statements it takes at least."""
ENDS: Final[dict[Point, str]] = {
    "before_commit": "before its COMMIT",
    "after_commit": "after a COMMIT that nobody heard of",
}


def crash(name: str, call: Any, before: Program, point: Point, kind: str, after: int = 0) -> Program:
    """The call is cut, a restarted process looks, and the call is made again."""
    return (*before, Fault(Do(call), point, kind, after), Look(), Do(call), Look())


for name, call, before, statements in CRASHES:
    for after in range(statements):
        atomic(
            f"{name}.cut_before_statement_{after + 1}",
            f"{call.method} that fails at its statement {after + 1} shows in no part, and works when it is repeated.",
            *crash(name, call, before, "statement", "error", after),
            cause=SPLIT,
        )
    for point, where in ENDS.items():
        atomic(
            f"{name}.cut_{point}",
            f"{call.method} whose connection breaks {where} is stored whole and once.",
            *crash(name, call, before, point, "invalidated"),
            cause=SPLIT,
        )
atomic(
    "start_tool_call.survives_a_restart",
    "An open call survives a restart: the next owner is told of it, and that it may have been executed.",
    *STARTED,
    Reopen(),
    Look(),
    paused(),
    claimed(),
    Do(LATER, expect=attempt(2)),
    Reopen(),
    Do(GetReplayedToolCalls(run_id="r")),
    Do(LATER, expect=attempt(2)),
    Do(replace(COMPLETE, claim_epoch=OWNER + 1), expect=Returned(4)),
)

# -- replayed calls ---------------------------------------------------------------------------------------------------

REPLAYS: Final = (start(2, iteration_index=1), start(0, iteration_index=2), start(1, iteration_index=1), start(3))
REPLAYED: Final[Program] = (
    born(),
    *(Do(one) for one in REPLAYS),
    Do(start(4)),
    paused(),
    claimed(),
    *(Do(replace(one, claim_epoch=2)) for one in reversed(REPLAYS)),
)
"""Four calls of three iterations that were replayed, and one that was not."""


def replays(name: str, promise: str, *steps: Any, cause: str | None = None) -> None:
    """A contract about the list of replayed calls."""
    contract(f"recovery.get_replayed_tool_calls.{name}", promise, *steps, group="recovery", needs=FORMAT_2, cause=cause)


replays(
    "in_order",
    "Replayed calls are listed by iteration and there in the order of their first start, others not at all.",
    *REPLAYED,
    Do(GetReplayedToolCalls(run_id="r")),
    Do(complete(1, 2)),
    Do(GetReplayedToolCalls(run_id="r")),
    ended(),
    Do(GetReplayedToolCalls(run_id="r")),
    cause="They are sorted by their last start or by id, or completed ones are left out.",
)
replays(
    "bounded",
    "The list has at most as many calls as asked for and says when there are more.",
    *REPLAYED,
    *(Do(GetReplayedToolCalls(run_id="r", limit=limit)) for limit in (1, 3, 4, 5)),
    cause="The list is marked as truncated when it is exactly full, or never.",
)
replays(
    "in_the_tenants_scope",
    "Replayed calls are told in the scope of exactly the run's tenant; elsewhere the run does not exist.",
    born(tenant_id="t"),
    Do(start(1)),
    paused(),
    claimed(),
    Do(start(1, 2)),
    *(
        Do(GetReplayedToolCalls(run_id="r", tenant_id=tenant), expect=None if tenant == "t" else NOT_FOUND)
        for tenant in TENANTS
    ),
    Do(GetReplayedToolCalls(run_id="nowhere", tenant_id="t"), expect=NOT_FOUND),
    Do(GetReplayedToolCalls(run_id="nowhere"), expect=Returned({"calls": [], "truncated": False})),
)

replays(
    "after_a_reclaim",
    "A call that a dead owner left open does not keep its run from being taken over; the new owner is told of it.",
    born(meta=REACT),
    Do(start(1), expect=FIRST),
    Tick(LEASE_S),
    Do(MarkLeaseExpired(cutoff_s=LEASE_S)),
    Do(GetToolCalls(run_id="r")),
    Do(ReclaimRun(run_id="r", expected_epoch=1), expect=Returned(2)),
    Do(complete(1), expect=STALE),
    Do(start(1, 2), expect=attempt(2)),
    Do(GetReplayedToolCalls(run_id="r")),
    Do(complete(1, 2)),
    cause=EPOCH,
)

# -- races ------------------------------------------------------------------------------------------------------------

HELD: Final = "The run's row is not held by the first statement: rows are looked at before anybody else is kept out."

race(
    "start_tool_call.same_start_twice",
    "One start sent twice at once stores one intent and one event, and both callers are told of the first attempt.",
    START,
    START,
    before=OWNED,
    cause=HELD,
)
race(
    "start_tool_call.old_owner_and_new",
    "A start of the owner that meets a claim of the paused run is refused in either order.",
    START,
    claimed().operation,
    before=(*OWNED, paused()),
    cause=HELD,
)
race(
    "complete_tool_call.same_result_twice",
    "One result sent twice at once is stored once, and both callers are told the same index.",
    COMPLETE,
    COMPLETE,
    before=STARTED,
    cause=HELD,
)
race(
    "complete_tool_call.two_results",
    "Of two results for one call at once one is stored whole and the other conflicts.",
    COMPLETE,
    replace(
        COMPLETE,
        success=True,
        event=replace(DONE, event_id="other"),
        trace=replace(OBSERVATION, trace_id="other", order_index=9),
    ),
    before=STARTED,
    cause=HELD,
)
race(
    "complete_tool_call.result_or_end",
    "A result that meets the end of its run is stored whole before it, or not at all.",
    COMPLETE,
    ended(event_id="end").operation,
    before=STARTED,
    cause=HELD,
    both_ways=True,
)
