"""A conversation as it is stored and as a model sees it: messages are traces; what text cannot say is their meta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dendrux.llm.protocol import Message, ToolCall
from dendrux.runtime.limits import Limits
from dendrux.runtime.results import ToolResult
from dendrux.runtime.values import JsonObject, SeedTrace, TraceRecord, TraceWrite
from dendrux.vocabulary import TraceKind

PAGE: Final = 1000
COMMENTARY: Final = "commentary"
FINAL_ANSWER: Final = "final_answer"
"""The phase of an assistant's message: before calls of tools, or the answer."""


@dataclass(slots=True)
class Turn:
    """An assistant's message that asks for calls. The observation of call j is stored j + 1 places after it."""

    message: Message
    trace_id: str
    order_index: int
    iteration: int

    def place(self, call: ToolCall) -> int:
        """Where the observation of a call belongs, whichever call ends first."""
        return self.order_index + 1 + self.message.tool_calls.index(call)


@dataclass(slots=True)
class Conversation:
    """The messages of a run, and where the next one goes."""

    messages: list[Message] = field(default_factory=list)
    next_order: int = 0
    turn: Turn | None = None
    """The last turn of this run that asks for calls; None before the first one, seeds do not count."""
    answered: set[str] = field(default_factory=set)
    """The calls that have an observation."""
    notes: set[str] = field(default_factory=set)
    """The notes that are part of it."""

    def outstanding(self) -> list[ToolCall]:
        """The calls of the last turn that have no observation, in their order."""
        if self.turn is None:
            return []
        return [call for call in self.turn.message.tool_calls if call.id not in self.answered]

    def add(self, message: Message, order_index: int) -> None:
        """A message that was stored. Observations stay in the order of their calls, whichever came first."""
        if message.role == "tool" and message.call_id is not None:
            self.answered.add(message.call_id)
            self._insert(message, order_index)
        else:
            self.messages.append(message)
        if (note := message.meta.get("note_id")) is not None:
            self.notes.add(note)
        self.next_order = max(self.next_order, order_index + 1)

    def begin(self, turn: Turn) -> None:
        """A turn that asks for calls: the places of its observations are taken."""
        self.messages.append(turn.message)
        self.turn = turn
        self.next_order = max(self.next_order, turn.order_index + 1 + len(turn.message.tool_calls))

    def called(self, name: str) -> int:
        """How many calls of a tool were answered."""
        return sum(message.role == "tool" and message.name == name for message in self.messages)

    def _insert(self, message: Message, order_index: int) -> None:
        turn = self.turn
        if turn is None or turn.message not in self.messages:
            self.messages.append(message)
            return
        order = {call.id: number for number, call in enumerate(turn.message.tool_calls)}
        mine = order.get(message.call_id or "", len(order))
        at = len(self.messages)
        while at > 0:
            before = self.messages[at - 1]
            if before.role != "tool" or order.get(before.call_id or "", -1) < mine:
                break
            at -= 1
        self.messages.insert(at, message)


def stored_calls(calls: Sequence[ToolCall]) -> list[JsonObject]:
    """Calls as the meta of a message and pause documents hold them."""
    return [
        {
            "id": call.id,
            "name": call.name,
            "params": call.params,
            "provider_tool_call_id": call.provider_tool_call_id,
            **({} if call.parse_error is None else {"parse_error": call.parse_error}),
        }
        for call in calls
    ]


def read_calls(stored: Any) -> tuple[ToolCall, ...]:
    """The same back."""
    return tuple(
        ToolCall(
            id=call["id"],
            name=call["name"],
            params=call.get("params") or {},
            provider_tool_call_id=call.get("provider_tool_call_id"),
            parse_error=call.get("parse_error"),
        )
        for call in stored or ()
    )


def observation(call: ToolCall, result: ToolResult, iteration: int) -> Message:
    """The message that tells a model what a call came to."""
    return Message(
        role="tool",
        content=result.payload,
        call_id=call.id,
        provider_tool_call_id=call.provider_tool_call_id,
        name=call.name,
        meta={"iteration": iteration, "success": result.success, "outcome": result.outcome},
    )


def meta_of(message: Message) -> JsonObject | None:
    """What is stored beside a message's text."""
    meta = dict(message.meta)
    if message.tool_calls:
        meta["tool_calls"] = stored_calls(message.tool_calls)
    if message.role == "tool":
        meta["call_id"] = message.call_id
        meta["tool_name"] = message.name
        meta["provider_tool_call_id"] = message.provider_tool_call_id
    return meta or None


def as_trace(message: Message, order_index: int, kind: TraceKind, trace_id: str) -> TraceWrite:
    """A message as it is stored."""
    return TraceWrite(
        role=message.role,
        content=message.content,
        order_index=order_index,
        meta=meta_of(message),
        trace_id=trace_id,
        trace_kind=kind,
    )


def as_seed(message: Message) -> SeedTrace:
    """A message that a run begins with."""
    return SeedTrace(role=message.role, content=message.content, meta=meta_of(message))


def as_message(trace: TraceRecord) -> Message:
    """A stored message."""
    meta = dict(trace.meta or {})
    calls = read_calls(meta.pop("tool_calls", None))
    call_id = meta.pop("call_id", None)
    name = meta.pop("tool_name", None)
    provider_id = meta.pop("provider_tool_call_id", None)
    role: Any = trace.role
    return Message(
        role=role,
        content=trace.content,
        tool_calls=calls,
        call_id=call_id,
        provider_tool_call_id=provider_id,
        name=name,
        meta=meta,
    )


def rebuilt(traces: Sequence[TraceRecord], conversation: Conversation, *, seeds: int = 0) -> None:
    """Go on with a conversation from a page of traces. `seeds`: how many first places hold what the run began with.

    On format 2 a seed says so itself; older runs know it by their number only.
    """
    for trace in traces:
        message = as_message(trace)
        seed = trace.trace_kind == "seed" or trace.order_index < seeds
        if message.tool_calls and not seed:
            iteration = int(message.meta.get("iteration", 0))
            conversation.begin(Turn(message, trace.id, trace.order_index, iteration))
        else:
            conversation.add(message, trace.order_index)


async def load(store: Any, run_id: str, *, format_2: bool, seeds: int, limits: Limits) -> Conversation:
    """The conversation of a run as a model has to see it, read page by page."""
    found = Conversation()
    if format_2:
        after: int | None = None
        while True:
            page = await store.conversation_traces(
                run_id, after_order_index=after, limit=PAGE, max_bytes=limits.conversation_page_bytes
            )
            rebuilt(page.traces, found)
            after = page.next_after
            if after is None:
                return found
    offset = 0
    while True:
        traces = await store.get_traces(run_id, limit=PAGE, offset=offset)
        rebuilt(traces, found, seeds=seeds)
        offset += len(traces)
        if len(traces) < PAGE:
            return found


def complete_turns(messages: Sequence[Message]) -> list[Message]:
    """The messages up to the last one after which no call is unanswered: what another run may begin with."""
    waiting: set[str] = set()
    whole = 0
    for number, message in enumerate(messages, start=1):
        waiting.update(call.id for call in message.tool_calls)
        waiting.discard(message.call_id or "")
        if not waiting:
            whole = number
    return list(messages[:whole])
