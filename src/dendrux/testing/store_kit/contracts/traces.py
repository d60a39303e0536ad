"""The conversation of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import ALIKE, DOCUMENTS, LONG, TEXTS, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import born, ended, paused
from dendrux.vocabulary import TRACE_KINDS
from dendrux_model.operations import ConversationTraces, GetTraces, GetTracesAfter, SaveTrace
from dendrux_model.outcomes import CONFLICT, NONE, TERMINAL, Returned
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
sample(GetTracesAfter(run_id="r", after_order_index=0, limit=10))
sample(ConversationTraces(run_id="r", limit=10))

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

# -- the conversation as a model sees it ------------------------------------------------------------------------------


def said(place: int, text: str = "Hello", **given: Any) -> Do:
    """A message at a place."""
    trace = SaveTrace(run_id="r", role="user", content_text=text, order_index=place, trace_id=f"m{place}", **given)
    return Do(trace, expect=NONE)


def page(limit: int = 10, **given: Any) -> Do:
    """A page of the conversation, which the model knows."""
    return Do(ConversationTraces(run_id="r", limit=limit, **given))


def promised(claim: str, promise: str, *steps: Any, cause: str | None = None) -> None:
    """A contract about conversations."""
    contract(f"checkpointing.{claim}", promise, *steps, group="checkpointing", needs={"format_2"}, cause=cause)


promised(
    "conversation_traces.last_rewrite_stands_for_all_before",
    "The conversation begins with the last rewrite, and without one with the first message.",
    born(),
    said(0),
    said(1),
    page(),
    said(2, "Summary", trace_kind="rewrite"),
    page(),
    said(3),
    said(4, "Shorter", trace_kind="rewrite"),
    said(5, trace_kind="observation"),
    Do(ConversationTraces(run_id="r", limit=1), expect=Returned({"next_after": 4})),
    page(after_order_index=1),
    page(after_order_index=4),
    page(after_order_index=9),
    Do(GetTraces(run_id="r")),
    cause="The first rewrite is taken for the last, or the last is the one that was inserted last.",
)
promised(
    "conversation_traces.a_rewrite_holds_its_place",
    "A rewrite that comes late stands where its order index says.",
    born(),
    said(5),
    said(2, "Summary", trace_kind="rewrite"),
    said(1),
    page(),
    said(9, "Later", trace_kind="rewrite"),
    said(7, "Between", trace_kind="rewrite"),
    page(),
    cause="Rewrites are ordered by their time or id instead of their order index.",
)
promised(
    "conversation_traces.pages_meet",
    "Pages follow each other without a gap and without a message twice, and the last one says that it is.",
    born(),
    *(said(place) for place in (0, 1, 2, 5, 9)),
    Do(ConversationTraces(run_id="r", limit=2), expect=Returned({"next_after": 1})),
    Do(ConversationTraces(run_id="r", limit=2, after_order_index=1), expect=Returned({"next_after": 5})),
    Do(ConversationTraces(run_id="r", limit=2, after_order_index=5), expect=Returned({"next_after": None})),
    Do(ConversationTraces(run_id="r", limit=5), expect=Returned({"next_after": None})),
    Do(ConversationTraces(run_id="r", limit=4), expect=Returned({"next_after": 5})),
    Do(ConversationTraces(run_id="r", limit=1000, after_order_index=9), expect=Returned({"next_after": None})),
)
promised(
    "conversation_traces.pages_are_bounded_in_bytes",
    "A page holds as many bytes of text in UTF-8 as it may, and one message at least.",
    born(),
    said(0, "abcd"),
    said(1, "\u00e9\u00e9"),
    said(2, ""),
    said(3, "\U0001f600"),
    said(4, "\u0000\x1a" * 4),
    said(5, "x"),
    *(
        page(limit, max_bytes=most)
        for most in (1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 19, 20, 21, 22)
        for limit in (1, 3, 10)
    ),
    *(page(max_bytes=most, after_order_index=3) for most in (1, 7, 8, 9)),
    cause="Characters are counted instead of bytes, or the message that does not fit is on the page.",
)
promised(
    "conversation_traces.large_messages",
    "A message that is larger than a page may be has a page of its own, and the next page goes on after it.",
    born(),
    said(0, LONG),
    said(1),
    said(2, LONG),
    *(
        Do(
            ConversationTraces(run_id="r", limit=10, max_bytes=1000, after_order_index=after),
            expect=Returned({"next_after": going_on}),
        )
        for after, going_on in ((None, 0), (0, 1), (1, None))
    ),
    page(max_bytes=2**40),
)
promised(
    "get_traces_after.goes_on_after_an_index",
    "Messages are read from the one above an order index on, in order, rewrites like any other.",
    born(),
    *(said(place, trace_kind="rewrite" if place == 2 else "message") for place in (9, 0, 2, 1)),
    *(
        Do(GetTracesAfter(run_id="r", after_order_index=after, limit=limit))
        for after in (-1, 0, 1, 2, 8, 9)
        for limit in (1, 2, 1000)
    ),
)
