"""Sizes: lists of more than a hundred rows or members, families deeper than ten, sums beyond 32 bits.

A bound that semantics.md does not set is none. Each contract writes one large thing with as few calls as its operations
allow, and then makes every read that shows it, whole and in pages to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dendrux.runtime.values import EventWrite, SeedTrace, ToolCallWrite, TraceWrite, UsageStats
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import Need, Situation, contract, needs_of
from dendrux.testing.store_kit.contracts._states import LEASE_S, REACT, WAITING, born, claimed, noted, paused
from dendrux.testing.store_kit.contracts.blobs import edge, put
from dendrux.testing.store_kit.contracts.delegation import called, child
from dendrux.vocabulary import EDGES_MAX, LIMIT_MAX, RUNNING, STATUSES, STATUSES_MAX, TOOL_STARTED
from dendrux_model.operations import (
    BlobReferences,
    CancelSubtree,
    CheckpointStep,
    ChildRunsPage,
    ConsumeSubmission,
    ConversationTraces,
    CountRuns,
    GetDelegationInfo,
    GetEventsForRuns,
    GetLeaseExpired,
    GetLLMInteractions,
    GetLoopState,
    GetPiiMapping,
    GetReplayedToolCalls,
    GetRun,
    GetRunEvents,
    GetRunStatuses,
    GetSubtree,
    GetToolCalls,
    GetTraces,
    GetTracesAfter,
    ListRuns,
    MarkLeaseExpired,
    RunUsage,
    SaveRunEvent,
    SaveTrace,
    StartToolCall,
    SubmitAndClaim,
    SubtreeUsage,
    SweepAbandonedRuns,
    SweepStaleRuns,
    UpdateRunMeta,
)
from dendrux_model.programs import Do, Program, Tick
from dendrux_model.world import World

MANY: Final = 103
DEEP: Final = 14
"""Runs of a chain."""
SIZES: Final = (51, 100, 101, LIMIT_MAX)
"""Limits: of pages that need others, one at the round number, one above it, one with everything in it."""
CUT: Final = "A page, or a list that the caller gave, is cut at a number that nobody said."


def sized(
    id: str,
    promise: str,
    *steps: Any,
    group: str = "basic",
    needs: frozenset[Need] | set[Need] = frozenset(),
    cause: str = CUT,
) -> None:
    """Add a contract whose steps make every read that it is about: a look at hundreds of runs would cost hundreds."""

    async def check(situation: Situation) -> None:
        await Execution(situation.bench, World(new_format=situation.format)).run(steps, look=False)

    contract(id, promise, group=group, needs=needs_of(steps) | needs, check=check, cause=cause)


def names(prefix: str, number: int = MANY) -> list[str]:
    """Names in the order of their numbers."""
    return [f"{prefix}{i:03}" for i in range(number)]


def many_members(number: int = MANY) -> dict[str, Any]:
    """A document of so many members."""
    return {name: i for i, name in enumerate(names("k", number))}


# -- rows of a run ----------------------------------------------------------------------------------------------------

ROWS: Final = LIMIT_MAX + 1
"""Messages that one call stores: more than any page may have."""
CONVERSATION: Final = born(seed_traces=tuple(SeedTrace(role="user", content=str(i)) for i in range(ROWS)))
MESSAGES: Final[dict[str, tuple[Any, ...]]] = {
    "get_traces": (
        GetTraces(run_id="r"),
        *(GetTraces(run_id="r", limit=limit) for limit in SIZES),
        *(GetTraces(run_id="r", offset=offset) for offset in (1, 100, ROWS - 1, ROWS)),
        GetTraces(run_id="r", limit=101, offset=101),
    ),
    "get_traces_after": (
        *(GetTracesAfter(run_id="r", after_order_index=-1, limit=limit) for limit in SIZES),
        *(GetTracesAfter(run_id="r", after_order_index=at, limit=LIMIT_MAX) for at in (0, 99, ROWS - 2, ROWS - 1)),
    ),
    "conversation_traces": (
        *(ConversationTraces(run_id="r", limit=limit) for limit in SIZES),
        *(ConversationTraces(run_id="r", limit=LIMIT_MAX, after_order_index=at) for at in (0, 99, LIMIT_MAX - 1)),
        ConversationTraces(run_id="r", limit=LIMIT_MAX, max_bytes=2000),
    ),
}
"""Reads of messages."""

for _read, _reads in MESSAGES.items():
    sized(
        f"basic.{_read}.more_than_a_hundred",
        f"{_read} shows a thousand messages at once, the exact rows of any page, and where the next one begins.",
        CONVERSATION,
        *map(Do, _reads),
    )

sized(
    "checkpointing.consume_submission.more_than_a_hundred",
    "A submission and a step are consumed with more than a hundred messages, calls, names and members.",
    born(),
    paused(),
    Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data=many_members(), submission_id="s")),
    Do(
        ConsumeSubmission(
            run_id="r",
            claim_epoch=2,
            consumption_id="used",
            traces=tuple(TraceWrite(role="user", content="x", order_index=i) for i in range(MANY)),
            tool_calls=tuple(
                ToolCallWrite(tool_call_id=name, tool_name="mail", result_payload="1", success=True, row_id=name)
                for name in names("c")
            ),
            pii_mapping=dict.fromkeys(names("k"), "name"),
        )
    ),
    Do(
        CheckpointStep(
            run_id="r",
            step_id="step",
            claim_epoch=2,
            iteration_count=1,
            loop_state=many_members(),
            traces=tuple(TraceWrite(role="tool", content="x", order_index=MANY + i) for i in range(MANY)),
        )
    ),
    *(Do(GetToolCalls(run_id="r", limit=limit)) for limit in SIZES),
    Do(GetToolCalls(run_id="r", offset=102)),
    Do(GetTraces(run_id="r")),
    Do(GetPiiMapping(run_id="r")),
    Do(GetLoopState(run_id="r")),
    group="checkpointing",
)


def started(row: str, epoch: int) -> Do:
    """An owner starts a tool call."""
    event = EventWrite(event_type=TOOL_STARTED, event_id=f"e{row}")
    return Do(StartToolCall(run_id="r", row_id=row, tool_call_id=row, tool_name="mail", claim_epoch=epoch, event=event))


sized(
    "recovery.get_replayed_tool_calls.more_than_a_hundred",
    "The list of replayed calls is as long as its limit allows, and says whether that was all.",
    born(),
    *(started(row, 1) for row in names("c")),
    paused(),
    claimed(),
    *(started(row, 2) for row in names("c")),
    Do(GetReplayedToolCalls(run_id="r")),
    *(Do(GetReplayedToolCalls(run_id="r", limit=limit)) for limit in (*SIZES, 102, MANY)),
    group="recovery",
)
sized(
    "atomic_completion.start_tool_call.more_than_ten_attempts",
    "Every owner who starts a call again has one attempt more, however many there were.",
    born(),
    started("c", 1),
    *(step for epoch in range(2, DEEP) for step in (paused(), claimed(), started("c", epoch))),
    Do(GetToolCalls(run_id="r")),
    Do(GetReplayedToolCalls(run_id="r")),
    Do(GetRunEvents(run_id="r")),
    group="atomic_completion",
    cause="Attempts are counted to a number that nobody said.",
)
sized(
    "basic.add_note.caps_above_a_hundred",
    "The cap on waiting notes is the one that is given, above a hundred too.",
    born(),
    *(noted(note_id=note, max_pending=1000) for note in names("n", MANY - 1)),
    noted(note_id="full", max_pending=MANY - 1),
    noted(note_id="last", max_pending=MANY),
    noted(note_id="full", max_pending=MANY),
)

# -- lists that a caller gives ----------------------------------------------------------------------------------------

FILTER: Final[dict[str, Any]] = {**many_members(98), "list": list(range(MANY)), "last": 1}
"""As many keys as a filter may have."""


def filtered(**given: Any) -> Iterator[Do]:
    """A list and a count with the same filters."""
    yield Do(ListRuns(agent_name="agent", **given))
    yield Do(CountRuns(agent_name="agent", **given))


sized(
    "basic.list_runs.long_filters",
    "Every key of a metadata filter counts, and every status of a list, of as many as may be given.",
    born(meta={**FILTER, "more": True}),
    *filtered(metadata_filter=FILTER),
    *filtered(metadata_filter={**FILTER, "last": 2}),
    *filtered(metadata_filter={**FILTER, "list": list(range(MANY + 1))}),
    *filtered(status=(*sorted(STATUSES - {RUNNING}), RUNNING)),
    *filtered(status=tuple(sorted(STATUSES - {RUNNING}))),
    Do(UpdateRunMeta(run_id="r", patch=many_members(MANY))),
    Do(GetRun(run_id="r")),
)
sized(
    "basic.get_run_events.long_lists_of_types",
    "Events are found by any of more than a hundred types.",
    born(),
    *(Do(SaveRunEvent(run_id="r", event_type=kind, event_id=kind)) for kind in ("k000", "k099", "k102", "other")),
    Do(GetRunEvents(run_id="r", event_types=tuple(names("k")))),
    Do(GetRunEvents(run_id="r", event_types=tuple(reversed(names("k"))), limit=2)),
)
sized(
    "basic.blob_references.more_than_a_hundred",
    "A write refers to a hundred blobs, and more than a hundred references to one are shown.",
    put(),
    born(blob_refs=tuple(edge(owner_id="a", ordinal=i) for i in range(EDGES_MAX))),
    Do(
        SaveTrace(
            run_id="r",
            role="user",
            content_text="look",
            order_index=0,
            blob_refs=tuple(edge(ordinal=i, owner_id="b") for i in range(EDGES_MAX)),
        )
    ),
    Do(BlobReferences(sha256="picture")),
)

# -- many runs --------------------------------------------------------------------------------------------------------

CHILDREN: Final = names("c")
WIDE: Final[Program] = (born(), *(child(name, "r", 1) for name in CHILDREN))

sized(
    "basic.child_runs_page.more_than_a_hundred",
    "A family of more than a hundred is read whole by every read of families, and its children in any pages.",
    *WIDE,
    called("c000", "first", input_tokens=1),
    called("c102", "last", input_tokens=2),
    *(Do(ChildRunsPage(run_id="r", limit=limit)) for limit in SIZES),
    *(Do(ChildRunsPage(run_id="r", after=after)) for after in ("c000", "c001", "c050", "c102")),
    Do(ChildRunsPage(run_id="r")),
    *(Do(read(run_id="r")) for read in (GetDelegationInfo, GetSubtree, SubtreeUsage)),
    Do(ListRuns(agent_name="agent", parent_run_id="r", limit=LIMIT_MAX)),
    Do(CountRuns(agent_name="agent", parent_run_id="r")),
)
sized(
    "recovery.cancel_subtree.more_than_a_hundred",
    "A cancellation reaches every run of a family of more than a hundred, in one page and in several.",
    *WIDE,
    paused("c050", event_id="p"),
    Do(CancelSubtree(root_run_id="r", limit=51)),
    Do(CancelSubtree(root_run_id="r", limit=51, after="c049")),
    Do(CancelSubtree(root_run_id="r", limit=51, after="c100")),
    *(Do(CancelSubtree(root_run_id="r", limit=limit)) for limit in (101, LIMIT_MAX)),
    Do(GetRunStatuses(run_ids=tuple(CHILDREN))),
    Do(GetDelegationInfo(run_id="r")),
    group="recovery",
)

RUNS: Final = tuple(names("r"))
HEADS: Final = dict.fromkeys((*names("no", STATUSES_MAX - MANY), *RUNS), -1)
"""As many runs as one call may ask for, those that exist behind the others."""

sized(
    "basic.get_events_for_runs.more_than_a_hundred",
    "A sweep ends more than a hundred runs, and their logs are read at once.",
    *(born(name) for name in RUNS),
    Tick(LEASE_S),
    Do(SweepStaleRuns(older_than_s=LEASE_S, limit=LIMIT_MAX)),
    Do(GetEventsForRuns(heads=HEADS)),
    Do(GetEventsForRuns(heads=dict(reversed(HEADS.items())), limit_per_run=1)),
    Do(GetRunStatuses(run_ids=tuple(HEADS))),
    *filtered(status="error"),
    Do(ListRuns(agent_name="agent", status="error", limit=LIMIT_MAX)),
)
sized(
    "recovery.get_lease_expired.more_than_a_hundred",
    "More than a hundred leases are marked and read in one page, and as many waiting runs are ended.",
    *(born(name, meta=REACT) for name in RUNS),
    Tick(LEASE_S),
    Do(MarkLeaseExpired(cutoff_s=LEASE_S, limit=LIMIT_MAX)),
    *(Do(GetLeaseExpired(limit=limit)) for limit in SIZES),
    *(paused(name) for name in RUNS),
    Tick(LEASE_S),
    Do(SweepAbandonedRuns(older_than_s=LEASE_S, limit=LIMIT_MAX)),
    Do(GetRunStatuses(run_ids=RUNS)),
    group="recovery",
    needs={"format_2"},
)

# -- deep families ----------------------------------------------------------------------------------------------------

LAST: Final = f"d{DEEP - 1}"
CHAIN: Final[Program] = (born("d0"), *(child(f"d{i}", f"d{i - 1}", i) for i in range(1, DEEP)))
DEEP_READS: Final[dict[str, tuple[Any, ...]]] = {
    "get_delegation_info": (GetDelegationInfo(run_id=LAST), GetDelegationInfo(run_id="d0")),
    "get_subtree": (GetSubtree(run_id="d0"),),
    "subtree_usage": (SubtreeUsage(run_id="d0"), SubtreeUsage(run_id="d1")),
    "cancel_subtree": (
        *(CancelSubtree(root_run_id="d0", limit=5, after=after) for after in (None, "d4", "d9")),
        CancelSubtree(root_run_id="d0"),
        GetSubtree(run_id="d0"),
    ),
}
"""Operations on families, each with calls that go from one end of a chain to the other."""

for _name, _calls in DEEP_READS.items():
    _group = "recovery" if _name == "cancel_subtree" else "basic"
    sized(
        f"{_group}.{_name}.deeper_than_ten",
        f"{_name} goes through a family that is deeper than ten, to its end.",
        *CHAIN,
        called(LAST, "last", input_tokens=5, cost_usd=0.5),
        *map(Do, _calls),
        group=_group,
        cause="The walk through a family ends at a depth that nobody said.",
    )

# -- large sums -------------------------------------------------------------------------------------------------------

TOKENS: Final = 2**44 - 1
"""As many as one call may count."""
LARGE: Final[dict[str, Any]] = {
    **dict.fromkeys(
        ("input_tokens", "output_tokens", "total_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        TOKENS,
    ),
    "reasoning_tokens": TOKENS,
    "cost_usd": 1_234_567.654321,
}
TRIO: Final[Program] = (born(), child("c", "r", 1), child("d", "c", 2))
LARGE_READS: Final = (GetSubtree(run_id="r"), GetDelegationInfo(run_id="r"))

sized(
    "basic.run_usage.large_sums",
    "Sums of recorded calls are exact far above 32 bits, and a cost of millions keeps its six places.",
    *TRIO,
    *(called(run, f"{run}{i}", **LARGE) for run in ("r", "c", "d") for i in range(2)),
    Do(GetLLMInteractions(run_id="r")),
    *(Do(read(run_id=run)) for run in ("r", "c") for read in (RunUsage, SubtreeUsage)),
    *map(Do, LARGE_READS),
    cause="A sum is kept in 32 bits, or in a float that holds no money.",
)
sized(
    "basic.get_delegation_info.large_totals",
    "Totals that runs stored are exact far above 32 bits, alone and summed over a family.",
    *TRIO,
    *(paused(run, total_usage=UsageStats(**LARGE), event_id=run) for run in ("r", "c", "d")),
    *(Do(GetRun(run_id=run)) for run in ("r", "c")),
    *map(Do, LARGE_READS),
    cause="A total is kept in 32 bits, or in a float that holds no money.",
)
