"""Tool calls of a run: stored in one piece, or as an intent that is completed later."""

from __future__ import annotations

import json
from dataclasses import replace

from dendrux.runtime.values import EventWrite, TraceWrite
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import ALIKE, DOCUMENTS, LONG, TEXTS, VALUES, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import OWNED, OWNER, born, claimed, ended, paused
from dendrux.vocabulary import TOOL_COMPLETED, TOOL_STARTED
from dendrux_model.operations import CompleteToolCall, GetReplayedToolCalls, GetToolCalls, SaveToolCall, StartToolCall
from dendrux_model.outcomes import CONFLICT, NONE, TERMINAL
from dendrux_model.programs import Do, Look, Program

FULL = SaveToolCall(
    run_id="r",
    tool_call_id="call",
    tool_name="mail",
    provider_tool_call_id="provider",
    target="client",
    params={"to": "Ada", "n": 1},
    result_payload='{"sent": 1}',
    success=False,
    duration_ms=12,
    iteration_index=2,
    error_message="bounced",
    meta={"try": 1},
    row_id="row",
    outcome="failed",
)

sample(
    FULL,
    tool_call_id=("Call", "call-2"),
    tool_name=("Mail", "mail "),
    provider_tool_call_id=(None, "other"),
    target=("server",),
    params=(None, {}, {"to": "Ada", "n": 1.0}),
    result_payload=("null", '{"sent": 1.0}', '{"sent": true}', '"sent"', "sent"),
    success=(True,),
    duration_ms=(0, 13),
    iteration_index=(0, 3),
    error_message=(None, "", "Bounced"),
    meta=(None, {"try": 2}),
    outcome=(None, "completed"),
)
sample(GetToolCalls(run_id="r"))

START = StartToolCall(
    run_id="r",
    row_id="row",
    tool_call_id="call",
    tool_name="mail",
    provider_tool_call_id="provider",
    target="server",
    params={"to": "Ada", "n": 1},
    iteration_index=2,
    claim_epoch=OWNER,
    event=EventWrite(event_type=TOOL_STARTED, event_id="started", iteration_index=2, data={"tool": "mail", "n": 1}),
    trace_id="asked",
)
OBSERVATION = TraceWrite(
    role="tool", content="sent", order_index=3, meta={"n": 1}, trace_id="observed", trace_kind="observation"
)
DONE = EventWrite(
    event_type=TOOL_COMPLETED, event_id="completed", iteration_index=2, correlation_id="call", data={"ok": True}
)
COMPLETE = CompleteToolCall(
    run_id="r",
    row_id="row",
    claim_epoch=OWNER,
    result_payload='{"sent": 1}',
    success=False,
    outcome="failed",
    duration_ms=12,
    error_message="bounced",
    meta={"try": 1},
    trace=OBSERVATION,
    event=DONE,
    pii_mapping={"<1>": "Ada"},
)
STARTED: Program = (*OWNED, Do(START))
"""A run under its second owner, with a tool call that it started."""

sample(
    START,
    tool_call_id=("Call", "call-2"),
    tool_name=("Mail", "mail "),
    provider_tool_call_id=(None, "other"),
    target=("client",),
    params=(None, {}, {"to": "Ada", "n": 1.0}),
    iteration_index=(0, 3),
    event=(
        replace(START.event, event_id="other"),
        replace(START.event, event_id=None),
        replace(START.event, data={"tool": "mail", "n": 1.0}),
        replace(START.event, iteration_index=1),
        replace(START.event, correlation_id="call"),
    ),
    trace_id=(None, "Asked"),
)
sample(
    COMPLETE,
    before=STARTED,
    result_payload=("null", '{"sent": 1.0}', '{"sent": true}', "sent"),
    success=(True,),
    outcome=(None, "completed"),
    duration_ms=(None, 0, 13),
    error_message=(None, "", "Bounced"),
    meta=(None, {"try": 1.0}),
    trace=(
        replace(OBSERVATION, content="sent "),
        replace(OBSERVATION, order_index=4),
        replace(OBSERVATION, role="user"),
        replace(OBSERVATION, meta=None),
        replace(OBSERVATION, trace_id="other"),
        replace(OBSERVATION, trace_kind="message"),
    ),
    event=(replace(DONE, event_id="other"), replace(DONE, data=None), replace(DONE, iteration_index=1)),
    pii_mapping=(None, {}, {"<1>": "ada"}),
)
sample(GetReplayedToolCalls(run_id="r"), before=(*STARTED, paused(), claimed(), Do(replace(START, claim_epoch=3))))


def call(number: int, **given: object) -> SaveToolCall:
    """A tool call with a number, and whatever the contract is about."""
    about = {"run_id": "r", "tool_call_id": f"c{number}", "row_id": f"row{number}", "tool_name": "mail", **given}
    return SaveToolCall(**about)  # type: ignore[arg-type]


contract(
    "basic.save_tool_call.read_in_the_order_they_came",
    "Tool calls are read in the order they were stored, by iteration where one is asked for.",
    born(),
    *(Do(call(i, iteration_index=i % 2), expect=NONE) for i in (2, 0, 3, 1)),
    Do(GetToolCalls(run_id="r", iteration_index=0)),
    Do(GetToolCalls(run_id="r", iteration_index=1, limit=1, offset=1)),
    Do(GetToolCalls(run_id="r", iteration_index=7)),
    Do(GetToolCalls(run_id="r", limit=2, offset=1)),
    Do(FULL),
    cause="Iteration 0 is taken for one that was not given, or the order is that of the ids.",
)
contract(
    "basic.save_tool_call.results_come_back_exactly",
    "A result is any JSON value; text that is none, or one that cannot be stored, comes back as text in an object.",
    born(),
    *(
        Do(call(i, result_payload=payload))
        for i, payload in enumerate(
            (
                *(json.dumps(value, ensure_ascii=False) for value in VALUES),
                *(json.dumps(value) for value in VALUES[-6:]),
                "",
                "no json",
                "NaN",
                '{"n": 1e400}',
                '"\\ud800"',
                "{'single': 1}",
                " [ 1 , 2.0 ] ",
            )
        )
    ),
    cause="The payload is stored as text or parsed by the database, which changes numbers.",
)
contract(
    "basic.save_tool_call.texts_come_back_exactly",
    "Parameters, meta and error messages come back as they went in.",
    born(),
    *(Do(call(i, params=document, meta=document)) for i, document in enumerate(DOCUMENTS)),
    *(Do(call(50 + i, error_message=text, success=False)) for i, text in enumerate(TEXTS)),
    Do(call(99, result_payload=json.dumps(LONG), params={"text": LONG})),
)
contract(
    "basic.save_tool_call.names_are_equal_as_written",
    "Tool calls whose ids differ in case, accents, spaces or form are different, in one run too.",
    born(),
    *(Do(SaveToolCall(run_id="r", tool_call_id=name, row_id=name, tool_name=name), expect=NONE) for name in ALIKE),
    cause="A collation folds case, accents or trailing spaces: give identifiers a binary collation without padding.",
)
contract(
    "basic.save_tool_call.longest_names_fit",
    "Names of the greatest length are kept whole, also when every character takes four bytes.",
    born(),
    Do(
        SaveToolCall(
            run_id="r",
            tool_call_id=wide(255),
            row_id=wide(48),
            tool_name=wide(255),
            provider_tool_call_id=wide(255),
            outcome="o" * 100,
            duration_ms=2**40,
        )
    ),
)
by_format(
    "basic.save_tool_call.after_the_end",
    "On format 1 a tool call without an epoch may come late; on format 2 an ended run takes no more of them.",
    one=(born(), paused(), Do(FULL, expect=NONE), ended(), Do(call(1), expect=NONE)),
    two=(born(), paused(), Do(FULL, expect=NONE), ended(), Look(), Do(call(1), expect=TERMINAL)),
)
contract(
    "retry_ids.save_tool_call.result_is_compared_as_a_value",
    "A result payload written with other spaces or another order of members is the same content.",
    born(),
    Do(replace(FULL, result_payload='{"a":1,"b":[2.0]}'), expect=NONE),
    Look(),
    Do(replace(FULL, result_payload='{ "b": [ 2.0 ], "a": 1 }'), expect=NONE),
    Do(replace(FULL, result_payload='{"a":1,"b":[2]}'), expect=CONFLICT),
    group="retry_ids",
    cause="The digest is taken of the payload's text instead of the value that is stored.",
)
contract(
    "retry_ids.save_tool_call.one_row_per_tool_call",
    "On format 2 another row for a known tool call is a write conflict, with or without an id.",
    born(),
    born("s"),
    Do(FULL, expect=NONE),
    Look(),
    Do(replace(FULL, row_id="other"), expect=CONFLICT),
    Do(replace(FULL, row_id=None), expect=CONFLICT),
    Look(),
    Do(replace(FULL, row_id="other", run_id="s"), expect=NONE),
    Do(replace(FULL, row_id="third", tool_call_id="Call"), expect=NONE),
    group="retry_ids",
    needs={"format_2"},
    cause="The tool call id has no unique key within its run, or a violation of it is taken for a repeat.",
)
contract(
    "retry_ids.save_tool_call.late_calls_of_ended_runs",
    "On format 2 a new tool call on an ended run is refused, with or without an epoch, while a repeat is answered.",
    born(),
    Do(FULL),
    ended(),
    Look(),
    Do(FULL, expect=NONE),
    Do(call(1), expect=TERMINAL),
    Do(call(1, claim_epoch=1), expect=TERMINAL),
    group="retry_ids",
    needs={"format_2"},
)

race(
    "save_tool_call.same_call_twice",
    "One tool call sent twice at once is stored once, and both callers are told so.",
    FULL,
    FULL,
    before=(born(),),
    after=(Do(FULL, expect=NONE),),
    cause="A repeat that meets its own first call reports a conflict with itself: look again once the key clashed.",
)
