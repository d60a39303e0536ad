"""Bad arguments: for every operation and each of its parameters, refused by name before anything happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dendrux.runtime.values import (
    EventWrite,
    LLMInteractionWrite,
    SeedTrace,
    ToolCallWrite,
    TraceWrite,
    UsageStats,
)
from dendrux.testing.driver import NAMESPACE_LENGTH
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import Situation, contract
from dendrux.testing.store_kit.contracts._samples import EDGE, Sample, samples
from dendrux.vocabulary import ID_LENGTH, LIMIT_MAX, LOOP_STATE_MAX, MONEY_MAX, NAME_LENGTH, STATUSES_MAX, TYPE_LENGTH
from dendrux_model.operations import Operation
from dendrux_model.outcomes import INVALID
from dendrux_model.programs import Look, Program
from dendrux_model.world import World

HALF: Final = "\ud800"
"""Half a surrogate pair: no Unicode text."""
NAN, INFINITY = float("nan"), float("inf")


def text(length: int) -> tuple[Any, ...]:
    """What no identifier of at most this many code points may be."""
    return ("", "a\u0000b", HALF, "x" * (length + 1), "\U0001d4ea" * (length + 1), 7)


def inside(length: int) -> int:
    """The code points that a program's own name has left."""
    return length - NAMESPACE_LENGTH


def made(kind: Any, **given: Any) -> Any:
    """A value with these members, right or wrong."""
    return kind(**given)


def many(head: int) -> dict[str, int]:
    """One head more than a call may have."""
    return {f"r{i}": head for i in range(STATUSES_MAX + 1)}


EVENTS_MAX: Final = 100
"""Events of one run in one get_events_for_runs."""
IDS: Final = text(inside(ID_LENGTH))
NAMES: Final = text(inside(NAME_LENGTH))
LONG_NAMES: Final = text(NAME_LENGTH)
EPOCHS: Final = (0, -1, True, "1", 1.5)
NUMBERS: Final = (-1, True, "1", 1.5)
COUNTS: Final = (*NUMBERS, 2**31)
LARGE: Final = (*NUMBERS, 2**44)


def nested(levels: int) -> dict[str, Any]:
    """A document of so many levels."""
    document: Any = "leaf"
    for _ in range(levels - 1):
        document = [document]
    return {"k": document}


DOCUMENTS: Final = (
    {"n": NAN},
    {"deep": [{"n": INFINITY}]},
    {"n": -INFINITY},
    {"text": HALF},
    {HALF: 1},
    {"o": {"deep": [HALF]}},
    nested(101),
    ["no object"],
    "no object",
)
VALUES: Final = (NAN, [INFINITY], HALF, {"k": [HALF]})
USAGE: Final = (
    *(UsageStats(cost_usd=cost) for cost in (NAN, INFINITY, -0.5, 2.0 * MONEY_MAX)),
    *(UsageStats(input_tokens=tokens) for tokens in (-1, True, 2**44)),
    UsageStats(reasoning_tokens=2**44),
)
PAUSED: Final = ("", "running", "success", "pending", "nonsense", "x" * (TYPE_LENGTH + 1), 7)
TERMINAL: Final = ("", "running", "paused", "pending", "nonsense", 7)
EVENTS: Final = (
    None,
    "tool.started",
    EventWrite(event_type=""),
    EventWrite(event_type="llm.completed"),
    *(
        made(EventWrite, **{"event_type": event_type, **wrong})
        for event_type in ("tool.started", "tool.completed")
        for wrong in (
            {"event_id": ""},
            {"event_id": "a\u0000b"},
            {"data": {"n": NAN}},
            {"data": [1]},
            {"iteration_index": -1},
            {"correlation_id": HALF},
        )
    ),
)
MESSAGES: Final = (
    "a message",
    *(
        made(TraceWrite, **{"role": "tool", "content": "x", "order_index": 9, **wrong})
        for wrong in (
            {"role": ""},
            {"content": HALF},
            {"order_index": -1},
            {"order_index": True},
            {"meta": {"n": INFINITY}},
            {"trace_id": ""},
            {"trace_kind": "nonsense"},
        )
    ),
)
LISTS: Final = {
    "run_ids": (("",), ("a\u0000b",), tuple(f"r{i}" for i in range(STATUSES_MAX + 1))),
    "note_ids": (("",), ("a\u0000b",)),
    "allowed_current_statuses": ((), ("success",), ("nonsense",), ("running", "cancelled")),
}

BAD_EDGES: Final[tuple[dict[str, Any], ...]] = (
    {"tenant_scope": "x"},
    {"sha256": 7},
    {"owner_kind": ""},
    {"owner_id": "a\u0000b"},
    {"ordinal": -1},
    {"ordinal": True},
)

SEEDS: Final = (
    "a message",
    TraceWrite(role="user", content="x", order_index=0),
    *(
        made(SeedTrace, **{"role": "user", "content": "x", **wrong})
        for wrong in ({"role": ""}, {"content": HALF}, {"content": 7}, {"meta": {"n": NAN}})
    ),
)
CALLS: Final = (
    "a call",
    *(
        made(ToolCallWrite, **{"tool_call_id": "c", "tool_name": "t", "result_payload": "1", "success": True, **wrong})
        for wrong in (
            {"tool_call_id": ""},
            {"tool_name": "a\u0000b"},
            {"result_payload": HALF},
            {"success": 1},
            {"duration_ms": -1},
            {"params": {"n": NAN}},
            {"row_id": ""},
        )
    ),
)
INTERACTIONS: Final = (
    "an interaction",
    UsageStats(),
    *(
        made(LLMInteractionWrite, **{"iteration_index": 0, "usage": UsageStats(), **wrong})
        for wrong in (
            {"iteration_index": -1},
            {"usage": UsageStats(cost_usd=-0.5)},
            {"usage": None},
            {"semantic_request": {"n": INFINITY}},
            {"interaction_id": ""},
        )
    ),
)

BAD: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(
        (
            "run_id",
            "root_run_id",
            "parent_run_id",
            "retry_of_run_id",
            "event_id",
            "trace_id",
            "row_id",
            "usage_id",
            "interaction_id",
            "note_id",
            "submission_id",
            "step_id",
            "consumption_id",
        ),
        IDS,
    ),
    **dict.fromkeys(("agent_name", "idempotency_key"), NAMES),
    **dict.fromkeys(("claim_epoch", "parent_claim_epoch", "expected_epoch"), EPOCHS),
    "cutoff_s": ("yesterday", True, 1.5),
    "older_than_s": (-1, "a while", True, 1.5),
    "finalise_unrecoverable": ("yes", 1, None),
    **dict.fromkeys(
        ("model", "provider", "correlation_id", "tool_call_id", "provider_tool_call_id", "tool_name"), LONG_NAMES
    ),
    **dict.fromkeys(
        (
            "input_data",
            "meta",
            "data",
            "patch",
            "pause_data",
            "event_data",
            "submitted_data",
            "params",
            "semantic_request",
            "semantic_response",
            "provider_request",
            "provider_response",
            "guardrail_findings",
            "pii_mapping",
        ),
        DOCUMENTS,
    ),
    **dict.fromkeys(("content_text", "text", "answer", "error", "error_message", "reason"), (HALF, 7)),
    **dict.fromkeys(("usage", "total_usage"), USAGE),
    **dict.fromkeys(
        (
            "order_index",
            "iteration_index",
            "iteration_count",
            "iteration",
            "delegation_level",
            "max_pending",
            "width",
            "height",
            "frame_count",
        ),
        COUNTS,
    ),
    "duration_ms": LARGE,
    **LISTS,
    "event": EVENTS,
    "traces": (*((message,) for message in MESSAGES), "x", 7, None),
    "seed_traces": (*((seed,) for seed in SEEDS), "x", 7, None),
    "tool_calls": (*((call,) for call in CALLS), "x", 7, None),
    "interaction": INTERACTIONS,
    "loop_state": (*DOCUMENTS, {"x": "x" * LOOP_STATE_MAX}, {"x": "\u00e9" * (LOOP_STATE_MAX // 2)}),
    "after_order_index": (-2, True, "1", 1.5),
    "max_bytes": (0, -1, True, "1"),
    "trace": MESSAGES,
    "tenant_id": NAMES[1:],  # the empty tenant is one
    "idempotency_fingerprint": text(ID_LENGTH)[1:],
    "event_type": text(TYPE_LENGTH),
    "expected_status": PAUSED,
    "failure_reason": ("x" * (TYPE_LENGTH + 1), HALF),
    "trace_kind": ("", "nonsense"),
    "result_payload": (HALF, 7),
    "metadata": VALUES,
    "limit_per_run": (0, -1, EVENTS_MAX + 1, True, "1"),
    "heads": ({"": 0}, {"a\u0000b": 0}, {HALF: 0}, {"r": -2}, {"r": True}, {"r": None}, many(-1), [("r", 0)], "r"),
    "payload": (7, None),
    "sha256": (7, None),
    "tenant_scope": ("", "x", "t", 7, "t:" + "x" * NAME_LENGTH, "t:a\u0000b", "t:" + HALF),
    **dict.fromkeys(("media_type", "ingest_transform"), text(TYPE_LENGTH)),
    "blob_refs": ("no list", 7, (7,), (EDGE, EDGE), *((replace(EDGE, **bad),) for bad in BAD_EDGES)),
    "blob_refs_scope": ("", "x", 7),
    "limit": (0, -1, LIMIT_MAX + 1, True, "1"),
    "offset": (-1, "1", 2**31),
    "metadata_filter": ({"a.b": 1}, {"": 1}, {'a"b': 1}, {"$": 1}, {"k": NAN}, {"k": HALF}),
}
"""By the name of the parameter. `status` means something else to every operation."""

STATUSES: Final[Mapping[str, tuple[Any, ...]]] = {
    "pause_with_event": PAUSED,
    "try_pause_run": PAUSED,
    "pause_run": PAUSED,
    "finalize_with_event": TERMINAL,
    "finalize_run": TERMINAL,
    "finalize_run_if_status_in": TERMINAL,
}


@dataclass(frozen=True)
class Refuses:
    """A check: each of these calls is refused as a bad argument, and nothing changes."""

    before: Program
    calls: tuple[Operation, ...]

    async def __call__(self, situation: Situation) -> None:
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run(self.before)
        store = await situation.bench.instance()
        for call in self.calls:
            outcome = await execution.driver.call(store, call)
            if outcome != INVALID:
                raise execution.beside(f"{call} should be refused with a ValueError or TypeError; the store {outcome}")
        await execution.step(Look())


def bad_calls(sample: Sample) -> Iterator[Operation]:
    """The sample with one bad argument at a time: on its run, and on a run that does not exist."""
    for name, values in (*BAD.items(), ("status", STATUSES.get(sample.method, ()))):
        if not sample.takes(name):
            continue
        for value in values:
            call = replace(sample.operation, **{name: value})
            yield call
            if sample.takes("run_id") and name != "run_id":
                yield replace(call, run_id="nowhere")


for called in samples():
    bad = tuple(bad_calls(called))
    contract(
        f"basic.{called.method}.bad_arguments",
        f"{called.method} refuses bad arguments with a ValueError or TypeError before it looks at anything.",
        check=Refuses(called.before, bad),
        capability=called.capability,
        cause="An argument reaches the database unchecked: check every argument before the first statement.",
    )
