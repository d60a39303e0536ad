"""Steps of a loop, each stored as a whole, and the loop's own state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.runtime.values import EventWrite, LLMInteractionWrite, SeedTrace, TraceWrite, UsageStats, UsageWrite
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import DOCUMENTS, LONG
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import MARKED, OWNED, OWNER, born, claimed, ended, paused
from dendrux.vocabulary import LOOP_STATE_MAX, TOOL_STARTED
from dendrux_model.operations import (
    CheckpointStep,
    ConversationTraces,
    CreateRun,
    GetLoopState,
    GetRun,
    GetToolCalls,
    GetTraces,
    PauseWithEvent,
    SaveLLMInteraction,
    SaveTrace,
    SaveUsage,
    StartToolCall,
    UpdateRunMeta,
)
from dendrux_model.outcomes import CONFLICT, INVALID, NONE, STALE, TERMINAL, Returned
from dendrux_model.programs import Do, Fault, Look
from dendrux_model.values import json_text

USAGE = UsageStats(input_tokens=5, output_tokens=7, total_tokens=12, cost_usd=0.25)
CALL = LLMInteractionWrite(
    iteration_index=3, usage=USAGE, model="large-1", semantic_request={"n": 1}, interaction_id="call"
)
ROW = UsageWrite(iteration_index=3, usage=USAGE, provider="acme", usage_id="tokens")


def message(place: int, trace_id: str | None = None, content: str = "Hello", **given: Any) -> TraceWrite:
    """A message of a step."""
    return TraceWrite(role="assistant", content=content, order_index=place, trace_id=trace_id, **given)


FULL = CheckpointStep(
    run_id="r",
    step_id="step",
    claim_epoch=OWNER,
    iteration_count=3,
    loop_state={"plan": ["look", "mail"], "done": 1},
    traces=(message(0, "m0"), message(1, "m1", meta={"phase": 1}, trace_kind="observation")),
    interaction=CALL,
    usage=ROW,
    total_usage=USAGE,
)

ASKED = StartToolCall(
    run_id="r",
    row_id="row",
    tool_call_id="call",
    tool_name="mail",
    claim_epoch=OWNER,
    event=EventWrite(event_type=TOOL_STARTED, event_id="started"),
    trace_id="m0",
)
"""A tool call that the first message of the step asked for."""

sample(
    FULL,
    iteration_count=(4,),
    loop_state=(None, {"plan": ["look", "mail"], "done": 1.0}, {"plan": ["mail", "look"], "done": 1}),
    traces=((), FULL.traces[:1], (message(0, "m0"), message(1, "m1", meta={"phase": 1.0}, trace_kind="observation"))),
    interaction=(None, replace(CALL, model="large-2"), replace(CALL, interaction_id="other")),
    usage=(None, replace(ROW, usage=replace(USAGE, cost_usd=0.5))),
    total_usage=(None, replace(USAGE, input_tokens=6)),
)
sample(GetLoopState(run_id="r"), before=(*OWNED, Do(FULL)))


def step(number: int, **given: Any) -> CheckpointStep:
    """A step of the creator's, with a number, and whatever the contract is about."""
    about = {"run_id": "r", "step_id": f"s{number}", "claim_epoch": 1, "iteration_count": number, **given}
    return CheckpointStep(**about)


def promised(claim: str, promise: str, *steps: Any, cause: str | None = None) -> None:
    """A contract about checkpoints, which runs of format 2 have."""
    contract(f"checkpointing.{claim}", promise, *steps, group="checkpointing", needs={"format_2"}, cause=cause)


WHOLE: Final = "The step's rows, its state and its count are written in more than one transaction."

promised(
    "checkpoint_step.lands_as_a_whole",
    "What a step produced is there at once: messages, the model call, the loop state, the count and the totals.",
    *OWNED,
    Do(FULL, expect=NONE),
    Do(GetRun(run_id="r"), expect=Returned({"iteration_count": 3, "total_input_tokens": 5, "total_cost_usd": 0.25})),
    Do(GetLoopState(run_id="r"), expect=Returned(json_text(FULL.loop_state))),
    cause=WHOLE,
)
promised(
    "checkpoint_step.merges_the_loop_state",
    "A step sets the members of the loop state that it names and deletes those that it gives as None.",
    born(),
    Do(step(1, loop_state={"a": {"x": 1}, "b": 2, "c": [1]})),
    Do(step(2, loop_state={"d": 4, "a": {"y": None}})),
    Do(GetLoopState(run_id="r"), expect=Returned(json_text({"a": {"y": None}, "b": 2, "c": [1], "d": 4}))),
    Do(step(3, loop_state={"b": None, "missing": None, "e": True})),
    Do(GetLoopState(run_id="r"), expect=Returned(json_text({"a": {"y": None}, "c": [1], "d": 4, "e": True}))),
    Do(step(4)),
    Do(step(5, loop_state={})),
    Look(),
    Do(step(6, loop_state={"a": None, "c": None, "d": None, "e": None})),
    Do(GetLoopState(run_id="r"), expect=Returned(json_text({}))),
    cause="A patch that deletes reached the database's patch expression, or a nested None was taken for a deletion.",
)
promised(
    "checkpoint_step.state_comes_back_exactly",
    "The loop state holds any keys and values, with the same members in the same order, of the same types.",
    born(),
    *(
        each
        for number, document in enumerate(DOCUMENTS)
        for each in (Do(step(number, loop_state=document)), Do(GetLoopState(run_id="r")))
    ),
    Do(step(20, loop_state={"all": list(DOCUMENTS)})),
    cause="The JSON patch expression rewrites numbers, order or text of the document: return None for such patches.",
)

FULL_STATE: Final = {"x": "x" * (LOOP_STATE_MAX - len('{"x":""}'))}
HALF_STATE: Final = "\u00e9" * (LOOP_STATE_MAX // 4)

promised(
    "checkpoint_step.state_is_bounded",
    "The loop state takes 256 KiB of UTF-8 when it is encoded, after merging too, and what is larger changes nothing.",
    born(),
    Do(step(1, loop_state=FULL_STATE), expect=NONE),
    Look(),
    Do(step(2, loop_state={"y": 1}, traces=(message(0, "m"),)), expect=INVALID),
    Do(step(2, loop_state={"x": FULL_STATE["x"] + "x"}), expect=INVALID),
    Look(),
    Do(step(2, loop_state={"x": None, "a": HALF_STATE}), expect=NONE),
    Look(),
    Do(step(3, loop_state={"b": HALF_STATE}), expect=INVALID),
    Do(step(3, loop_state={"odd key": HALF_STATE}), expect=INVALID),
    Do(step(3, loop_state={"b": HALF_STATE[:-20]}), expect=NONE),
    cause="The bound is not measured on the merged state, or counts characters where it should count bytes.",
)
promised(
    "checkpoint_step.large_steps",
    "A step holds messages of a megabyte and hundreds of them.",
    born(),
    Do(step(1, traces=(message(0, "m0", LONG), message(1, "m1", LONG)), loop_state=FULL_STATE), expect=NONE),
    Do(step(2, traces=tuple(message(place, f"n{place}") for place in range(2, 302))), expect=NONE),
)
promised(
    "checkpoint_step.last_step_can_be_repeated",
    "The last step repeated changes nothing; with other content, or below the count, it is a write conflict.",
    born(),
    Do(step(1, loop_state={"a": 1}, traces=(message(0),)), expect=NONE),
    Look(),
    Do(step(1, loop_state={"a": 1}, traces=(message(0),)), expect=NONE),
    Do(step(1, loop_state={"a": True}, traces=(message(0),)), expect=CONFLICT),
    Do(step(1, loop_state={"a": 1}, traces=(message(0, "m"),)), expect=CONFLICT),
    Look(),
    Do(step(2), expect=NONE),
    Look(),
    Do(step(1, loop_state={"a": 1}, traces=(message(0),)), expect=CONFLICT),
    Do(step(3, iteration_count=1), expect=CONFLICT),
    Look(),
    Do(step(4, iteration_count=2), expect=NONE),
    cause="The run does not keep the last step's id with a digest of its content.",
)
promised(
    "checkpoint_step.next_owner_repeats_the_last_step",
    "The next owner may repeat the last step of the one before, and the former owner may not.",
    *OWNED,
    Do(FULL, expect=NONE),
    paused(),
    claimed(),
    Look(),
    Do(FULL, expect=STALE),
    Do(replace(FULL, claim_epoch=OWNER + 1), expect=NONE),
    ended(),
    Look(),
    Do(replace(FULL, claim_epoch=OWNER + 1), expect=TERMINAL),
    cause="The step's id is looked at before the fence.",
)
promised(
    "checkpoint_step.taken_ids_and_positions_conflict",
    "A step whose message, model call or place is taken, by whatever row, is a write conflict and leaves nothing.",
    born(),
    born("s"),
    Do(SaveTrace(run_id="r", role="user", content_text="Hi", order_index=0, trace_id="m0")),
    Do(SaveTrace(run_id="s", role="user", content_text="Hi", order_index=5, trace_id="m5")),
    Do(SaveLLMInteraction(run_id="s", iteration_index=0, usage=USAGE, interaction_id="call")),
    Look(),
    *(
        Do(step(1, loop_state={"a": 1}, total_usage=USAGE, **rows), expect=CONFLICT)
        for rows in (
            {"traces": (message(1, "m1"), message(0, "m2"))},
            {"traces": (message(1, "m1"), message(2, "m0"))},
            {"traces": (message(1, "m5"),)},
            {"traces": (message(1, "m1"), message(1, "m2"))},
            {"traces": (message(1, "m1"), message(2, "m1"))},
            {"traces": (message(1, "m1"),), "interaction": CALL},
        )
    ),
    Look(),
    Do(step(1, traces=(message(1, "m1"), message(2))), expect=NONE),
    cause="Rows that exist are passed over, as a plain write's own repeat is: here every one of them is in the way.",
)
promised(
    "checkpoint_step.rows_are_those_of_their_own_operations",
    "A message, a model call and a usage row of a step are recognised when they are sent again on their own.",
    born(),
    Do(step(1, traces=(message(0, "m0"),), interaction=CALL, usage=ROW)),
    Look(),
    Do(SaveTrace(run_id="r", role="assistant", content_text="Hello", order_index=0, trace_id="m0"), expect=NONE),
    Do(SaveTrace(run_id="r", role="assistant", content_text="Hallo", order_index=0, trace_id="m0"), expect=CONFLICT),
    Do(
        SaveLLMInteraction(
            run_id="r",
            iteration_index=3,
            usage=USAGE,
            model="large-1",
            semantic_request={"n": 1},
            interaction_id="call",
        ),
        expect=NONE,
    ),
    Do(SaveUsage(run_id="r", iteration_index=4, usage=USAGE, provider="acme", usage_id="tokens"), expect=CONFLICT),
    Do(SaveUsage(run_id="r", iteration_index=3, usage=USAGE, provider="acme", usage_id="tokens"), expect=NONE),
)
promised(
    "checkpoint_step.tool_calls_link_to_its_messages",
    "A tool call names the message of the step that asked for it, and a repeat that names another is other content.",
    *OWNED,
    Do(FULL, expect=NONE),
    Do(ASKED, expect=Returned({"attempt": 1, "replayed": False})),
    Do(replace(ASKED, trace_id="m1"), expect=CONFLICT),
    Look(),
    Do(replace(FULL, step_id="next", iteration_count=4, traces=(message(2, "m2"),), interaction=None, usage=None)),
    Do(GetToolCalls(run_id="r")),
    cause="The link to the message is not stored with the call, or is no part of its content.",
)
promised(
    "checkpoint_step.renews_the_lease",
    "A step that applies renews the owner's lease and clears the mark of expiry; a repeat of it does neither.",
    *MARKED,
    Do(step(1), expect=NONE),
    Look(),
    Do(step(1), expect=NONE),
)
by_format(
    "checkpointing.checkpoint_step.is_for_format_2",
    "Runs of format 1 have no checkpoints, and say so.",
    one=(born(), Look(), Do(step(1), expect=INVALID), Do(GetLoopState(run_id="r"), expect=NONE)),
    two=(born(), Do(step(1), expect=NONE), Do(GetLoopState(run_id="r"), expect=NONE)),
    group="checkpointing",
)
for _place in range(4):
    promised(
        f"checkpoint_step.cut_at_statement_{_place + 1}",
        f"A step whose connection is lost at its statement {_place + 1} leaves nothing half, and is stored once.",
        *OWNED,
        Fault(Do(FULL), "statement", "invalidated", after=_place),
        Look(),
        Do(FULL, expect=NONE),
        cause=WHOLE,
    )

# -- what a run starts with ------------------------------------------------------------------------------------------

SEEDED = CreateRun(run_id="r", agent_name="agent", idempotency_key="k")
SEEDS = (
    SeedTrace(role="system", content="You are kind.", meta={"n": 1.0}),
    SeedTrace(role="user", content="\u00e9\u0000 \U0001f600"),
)

promised(
    "create_run.seeds_are_the_first_messages",
    "A run starts with its seeds as messages of kind seed, at the order indexes from 0 on.",
    born(seed_traces=SEEDS),
    Do(GetTraces(run_id="r")),
    Do(ConversationTraces(run_id="r", limit=1), expect=Returned({"next_after": 0})),
    Do(SaveTrace(run_id="r", role="user", content_text="Hi", order_index=1, trace_id="m"), expect=CONFLICT),
    Do(ConversationTraces(run_id="r", limit=10)),
    Do(SaveTrace(run_id="r", role="user", content_text="Summary", order_index=2, trace_kind="rewrite"), expect=NONE),
    Do(ConversationTraces(run_id="r", limit=10)),
    cause="The seeds are stored in a transaction of their own, or not in their order.",
)
promised(
    "create_run.seeds_are_stored_once",
    "A repeat of a run with its seeds stores nothing; other seeds, or none, are other content.",
    born(seed_traces=SEEDS, idempotency_key="k"),
    Look(),
    Do(replace(SEEDED, seed_traces=SEEDS), expect=Returned({"outcome": "created"})),
    *(Do(replace(SEEDED, seed_traces=seeds), expect=CONFLICT) for seeds in ((), SEEDS[:1], SEEDS[::-1])),
    Do(replace(SEEDED, run_id="s", seed_traces=SEEDS[:1]), expect=Returned({"outcome": "existing_active"})),
    Look(),
)
promised(
    "create_run.many_large_seeds",
    "Seeds may be hundreds of messages, and of a megabyte.",
    born(seed_traces=tuple(SeedTrace(role="user", content=text) for text in (*(f"m{i}" for i in range(300)), LONG))),
    Do(ConversationTraces(run_id="r", limit=1000)),
)
by_format(
    "checkpointing.create_run.seeds_are_for_format_2",
    "A run of format 1 has no seeds, and none is made; the mapping it may have.",
    one=(
        Do(replace(SEEDED, seed_traces=SEEDS), expect=INVALID),
        Look(),
        Do(replace(SEEDED, pii_mapping={"<A>": "Ada"}), expect=Returned({"outcome": "created"})),
    ),
    two=(Do(replace(SEEDED, seed_traces=SEEDS, pii_mapping={"<A>": "Ada"}), expect=Returned({"outcome": "created"})),),
    group="checkpointing",
)

# -- races ------------------------------------------------------------------------------------------------------------


def between(claim: str, promise: str, first: Any, second: Any, cause: str) -> None:
    """A race on a run of its creator's."""
    race(f"checkpoint_step.{claim}", promise, first, second, before=(born(),), cause=cause, both_ways=True)


UNHELD: Final = "The run is read before its row is held, and what was read decides."

between(
    "same_step_twice",
    "One step sent twice at once is stored once, and both callers are told so.",
    step(1, loop_state={"a": 1}, traces=(message(0, "m0"),), interaction=CALL),
    step(1, loop_state={"a": 1}, traces=(message(0, "m0"),), interaction=CALL),
    UNHELD,
)
between(
    "two_steps_at_once",
    "Of two steps at once the one with the lower count comes first or not at all, and no member of the state is lost.",
    step(1, loop_state={"a": 1, "both": 1}),
    step(2, loop_state={"b": 2, "both": 2, "odd key": None}),
    UNHELD,
)
between(
    "step_and_pause",
    "A step at the time of a pause is there before it, or refused.",
    step(1, traces=(message(0, "m0"),)),
    PauseWithEvent(run_id="r", status="paused", pause_data={"q": 1}, event_id="p", claim_epoch=1),
    UNHELD,
)
between(
    "step_and_message",
    "A step and a message for one place at once: one of the two is refused.",
    step(1, traces=(message(0, "m0"), message(1, "m1"))),
    SaveTrace(run_id="r", role="user", content_text="Hi", order_index=1, trace_id="other", claim_epoch=1),
    "The place has no unique key, or its violation is reported as an error of the database.",
)
between(
    "step_and_meta",
    "A step and a patch of meta at once both stay.",
    step(1, loop_state={"a key": 1}),
    UpdateRunMeta(run_id="r", patch={"a key": 1}),
    UNHELD,
)
