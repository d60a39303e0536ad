"""The conversation of a run."""

from __future__ import annotations

from dataclasses import replace

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import ALIKE, DOCUMENTS, LONG, TEXTS, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import born, ended, paused
from dendrux.vocabulary import TRACE_KINDS
from dendrux_model.operations import GetTraces, SaveTrace
from dendrux_model.outcomes import CONFLICT, NONE, TERMINAL
from dendrux_model.programs import Do, Look

FULL = SaveTrace(
    run_id="r",
    role="assistant",
    content_text="Hello",
    order_index=5,
    meta={"phase": 1},
    trace_id="m",
    trace_kind="final",
)

sample(
    FULL,
    role=("user", "Assistant"),
    content_text=("", "Hello ", "hello"),
    order_index=(0, 6),
    meta=(None, {}, {"phase": 1.0}, {"phase": True}),
    trace_kind=("message", "rewrite"),
)
sample(GetTraces(run_id="r"))

contract(
    "basic.save_trace.read_by_order_index",
    "Messages are read by their order index, whatever the order they were written in.",
    born(),
    *(
        Do(SaveTrace(run_id="r", role="user", content_text=f"m{i}", order_index=i, trace_id=f"m{i}"), expect=NONE)
        for i in (2, 0, 10, 1)
    ),
    Do(GetTraces(run_id="r", limit=2)),
    Do(GetTraces(run_id="r", limit=2, offset=2)),
    Do(GetTraces(run_id="r", limit=1000, offset=4)),
    cause="The index is compared as text, or messages are read in the order of their insertion.",
)
contract(
    "basic.save_trace.content_comes_back_exactly",
    "A message is any text, of a megabyte too, with any object as meta.",
    born(),
    *(
        Do(SaveTrace(run_id="r", role="user", content_text=text, order_index=i, trace_id=f"t{i}"))
        for i, text in enumerate((*TEXTS, LONG))
    ),
    *(
        Do(SaveTrace(run_id="r", role="user", content_text="", order_index=100 + i, meta=document, trace_id=f"d{i}"))
        for i, document in enumerate(DOCUMENTS)
    ),
    cause="The column or the driver cuts text, trims it, or takes the empty string or U+0000 for something else.",
)
contract(
    "basic.save_trace.names_are_equal_as_written",
    "Message ids that differ in case, accents, spaces or form are different, and the longest ones fit.",
    born(),
    *(
        Do(SaveTrace(run_id="r", role=name, content_text=name, order_index=i, trace_id=name), expect=NONE)
        for i, name in enumerate((*ALIKE, wide(48)))
    ),
    cause="A collation folds case, accents or trailing spaces: give identifiers a binary collation without padding.",
)
contract(
    "basic.save_trace.every_kind",
    "The kind of a message is kept.",
    born(),
    *(
        Do(SaveTrace(run_id="r", role="user", content_text="m", order_index=i, trace_id=kind, trace_kind=kind))  # type: ignore[arg-type]
        for i, kind in enumerate(sorted(TRACE_KINDS))
    ),
)
by_format(
    "basic.save_trace.after_the_end",
    "On format 1 a message without an epoch may come late; on format 2 the conversation of an ended run is closed.",
    one=(born(), paused(), Do(FULL, expect=NONE), ended(), Do(replace(FULL, trace_id="late"), expect=NONE)),
    two=(born(), paused(), Do(FULL, expect=NONE), ended(), Look(), Do(replace(FULL, trace_id="late"), expect=TERMINAL)),
)
contract(
    "retry_ids.save_trace.one_message_per_position",
    "On format 2 another message at a taken order index is a write conflict, with or without an id.",
    born(),
    born("s"),
    Do(FULL, expect=NONE),
    Look(),
    Do(replace(FULL, trace_id="other"), expect=CONFLICT),
    Do(replace(FULL, trace_id=None), expect=CONFLICT),
    Do(replace(FULL, trace_id="other", content_text="Other"), expect=CONFLICT),
    Look(),
    Do(replace(FULL, trace_id="other", run_id="s"), expect=NONE),
    Do(replace(FULL, trace_id="other", order_index=6), expect=CONFLICT),
    group="retry_ids",
    needs={"format_2"},
    cause="The position has no unique key, or a violation of it is taken for a repeat.",
)
contract(
    "retry_ids.save_trace.late_messages_of_ended_runs",
    "On format 2 a new message on an ended run is refused, with or without an epoch, while a repeat is answered.",
    born(),
    Do(FULL),
    ended(),
    Look(),
    Do(FULL, expect=NONE),
    Do(replace(FULL, trace_id="late", order_index=6), expect=TERMINAL),
    Do(replace(FULL, trace_id="late"), expect=TERMINAL),
    Do(replace(FULL, trace_id="late", order_index=6, claim_epoch=1), expect=TERMINAL),
    group="retry_ids",
    needs={"format_2"},
)

race(
    "save_trace.same_message_twice",
    "One message sent twice at once is stored once, and both callers are told so.",
    FULL,
    FULL,
    before=(born(),),
    after=(Do(FULL, expect=NONE),),
    cause="A repeat that meets its own first call reports a conflict with itself: look again once the key clashed.",
)
race(
    "save_trace.two_messages_at_one_position",
    "Of two messages for one order index at once, format 2 keeps one; format 1 keeps both.",
    FULL,
    replace(FULL, trace_id="other", content_text="Other"),
    before=(born(),),
    cause="The position has no unique key, or its violation is reported as an error of the database.",
)
