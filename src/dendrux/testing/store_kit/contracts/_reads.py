"""Reads in full: whole records, filters in pairs, long lists, times that are true, and what another instance wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import combinations
from reprlib import repr as brief
from typing import Any, Final

from sqlalchemy import update

from dendrux.db.models import agent_runs
from dendrux.lab.seam import engine_of
from dendrux.runtime.values import RunRecord, UsageStats
from dendrux.testing.driver import outcome_of
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import NotKept, Situation, contract
from dendrux.testing.store_kit.contracts._states import DOCUMENT, WAITING, born, claimed, ended, noted, paused
from dendrux.vocabulary import LIMIT_MAX
from dendrux_model.operations import (
    AddNote,
    CountRuns,
    GetEventsForRuns,
    GetNotes,
    ListRuns,
    MarkNotesDelivered,
    RequestCancel,
    RequestPause,
    SaveLLMInteraction,
    SaveRunEvent,
    SaveToolCall,
    SaveTrace,
    SubmitAndClaim,
    TouchProgress,
    UpdateRunMeta,
)
from dendrux_model.programs import Do, Program
from dendrux_model.views import view
from dendrux_model.world import World

MANY: Final = 103
NOTES: Final = tuple(f"n{i:03}" for i in range(MANY))
TOLERANCE: Final = timedelta(minutes=5)
"""By how much the clocks of two machines may differ."""


def event(i: int, **given: Any) -> Do:
    """Event number i, of one of two types and iterations."""
    return Do(SaveRunEvent(run_id="r", event_type=("a", "b")[i % 2], event_id=f"e{i:03}", iteration_index=i, **given))


def trace(i: int) -> Do:
    """Message number i."""
    kind: Any = ("message", "observation")[i % 2]
    return Do(SaveTrace(run_id="r", role="user", content_text="x", order_index=i, trace_id=f"t{i:03}", trace_kind=kind))


def call(i: int) -> Do:
    """Tool call number i, of one of two iterations."""
    return Do(SaveToolCall(run_id="r", tool_call_id=f"c{i}", tool_name="x", row_id=f"c{i:03}", iteration_index=i % 2))


def interaction(i: int) -> Do:
    """Interaction number i; reads sort them by iteration."""
    row = f"i{i:03}"
    return Do(SaveLLMInteraction(run_id="r", iteration_index=i // 4, usage=UsageStats(), interaction_id=row))


def note(i: int) -> Do:
    """Note number i, in an inbox with room."""
    return Do(AddNote(run_id="r", note_id=f"n{i:03}", text="look here", max_pending=1000))


WRITERS: Final[dict[str, Callable[[int], Do]]] = {
    "get_run_events": event,
    "get_traces": trace,
    "get_tool_calls": call,
    "get_llm_interactions": interaction,
    "get_notes": note,
}
"""The reads of rows below a run, each with what writes them."""


async def begun(situation: Situation, *steps: Any) -> tuple[Execution, Any, str]:
    """A run with these steps: the execution, the store and the run's id there."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    await execution.run((born(), *steps), look=False)
    return execution, await situation.bench.instance(), str(execution.driver.inside("run_id", "r"))


def expect(what: str, found: Any, expected: Any) -> None:
    """Refuse anything else, with its type."""
    if type(found) is not type(expected) or found != expected:
        raise NotKept(f"{what}: the store gives {brief(found)}, and {brief(expected)} is right")


# -- whole records ----------------------------------------------------------------------------------------------------


async def whole_runs(situation: Situation) -> None:
    """Every field of a listed run is what get_run says."""
    execution, store, _ = await begun(
        situation,
        born("s", input_data={"a": [1, 1.0]}, meta={"k": True}, model="m", strategy="s", tenant_id="t"),
        born("p", idempotency_key="key"),
        paused("p", iteration_count=3, total_usage=UsageStats(input_tokens=5, cost_usd=0.25)),
        born("c", parent_run_id="r", delegation_level=1, retry_of_run_id="r"),
        paused("c"),
        claimed("c"),
        Do(RequestPause(run_id="c")),
        born("e"),
        ended("e", answer="done", failure_reason="x"),
        born("f"),
        Do(RequestCancel(run_id="f")),
    )
    listed = await store.list_runs(agent_name=execution.driver.inside("agent_name", "agent"))
    expect("the number of runs listed", len(listed), 6)
    for run in listed:
        alone = await store.get_run(run.id)
        for field in fields(RunRecord):
            one, other = getattr(run, field.name), getattr(alone, field.name)
            if repr(one) != repr(other):
                raise NotKept(f"{field.name} of a run is {one!r} in list_runs and {other!r} in get_run")


async def whole_rows(situation: Situation) -> None:
    """The fields of rows that say whose they are and what became of them."""
    _, store, run_id = await begun(situation, *(write(i) for write in WRITERS.values() for i in range(2)))
    for read in ("get_run_events", "get_notes"):
        for row in await getattr(store, read)(run_id=run_id):
            expect(f"run_id of a row of {read}", row.run_id, run_id)
    for row in await store.get_tool_calls(run_id=run_id):
        expect("attempt of a tool call stored in one piece", row.attempt, 1)
        expect("completed of a tool call stored in one piece", row.completed, True)
    kinds = [row.trace_kind for row in await store.get_traces(run_id=run_id)]
    expect("trace_kind of two messages", kinds, ["message", "observation"])


async def old_index(situation: Situation) -> None:
    """An index that a caller names is not the one it gets."""
    execution, store, run_id = await begun(situation)
    for index, named in enumerate((7, 0, None)):
        event_id = execution.driver.inside("event_id", f"e{index}")
        given = {"event_type": "x", "event_id": event_id, "sequence_index": named}
        try:
            taken: Any = await store.save_run_event(run_id, **given)
        except Exception as error:
            taken = outcome_of(error)
        expect(f"the index of event {index}, saved with sequence_index={named}", taken, index)


contract(
    "basic.list_runs.records_are_whole",
    "A listed run is the run that get_run shows, field by field.",
    check=whole_runs,
    cause="The list selects fewer columns than the read of one run.",
)
contract(
    "basic.get_run_events.rows_are_whole",
    "Events and notes say whose they are, messages their kind, tool calls what became of them.",
    check=whole_rows,
)
contract(
    "basic.save_run_event.old_index_is_ignored",
    "sequence_index= is accepted and the event gets the next index.",
    check=old_index,
    cause="The parameter of an earlier release is refused, or used.",
)

# -- filters in pairs -------------------------------------------------------------------------------------------------


async def run_filters(situation: Situation) -> None:
    """Every pair of filters of list_runs and count_runs."""
    execution, store, parent = await begun(
        situation,
        born("a", meta={"k": 1}, tenant_id="t"),
        born("b", meta={"k": 1}),
        ended("b"),
        born("c", meta={"k": 2}, parent_run_id="r", delegation_level=1),
        born("d", meta={"k": 1}, parent_run_id="r", delegation_level=1),
        ended("d"),
        born("e", meta={"k": 1}, tenant_id="t"),
        ended("e"),
    )
    inside = execution.driver.inside
    agent = {"agent_name": inside("agent_name", "agent")}
    runs = [await store.get_run(inside("run_id", name)) for name in "edcbar"]
    moment = timedelta(microseconds=1)
    late, early = runs[1].created_at + moment, runs[4].created_at + moment
    filters: dict[str, tuple[Any, Callable[[Any], bool]]] = {
        "status": ("success", lambda run: run.status == "success"),
        "status ": (["running"], lambda run: run.status == "running"),
        "started_after": (early, lambda run: run.created_at >= early),
        "started_before": (late, lambda run: run.created_at < late),
        "metadata_filter": ({"k": 1}, lambda run: (run.meta or {}).get("k") == 1),
        "parent_run_id": (parent, lambda run: run.parent_run_id == parent),
        "tenant_id": (inside("tenant_id", "t"), lambda run: run.tenant_id == inside("tenant_id", "t")),
    }
    for names in (names for n in (1, 2, 3) for names in combinations(filters, n)):
        given = {**agent, **{name.strip(): filters[name][0] for name in names}}
        expected = [
            run.id
            for run in runs
            if all(filters[name][1](run) for name in dict(zip(map(str.strip, names), names, strict=True)).values())
        ]
        asked = " and ".join(names)
        expect(f"runs listed by {asked}", [run.id for run in await store.list_runs(**given)], expected)
        expect(f"runs counted by {asked}", await store.count_runs(**given), len(expected))


BOUNDS: Final[dict[str, dict[str, tuple[Any, Callable[[Any], bool]]]]] = {
    "get_run_events": {
        "after_sequence_index": (1, lambda row: row.sequence_index > 1),
        "event_types": (["a"], lambda row: row.event_type == "a"),
    },
    "get_tool_calls": {"iteration_index": (1, lambda row: row.iteration_index == 1)},
    "get_llm_interactions": {"iteration_index": (1, lambda row: row.iteration_index == 1)},
}
"""The filters of reads that can be bounded by a time."""


async def row_filters(situation: Situation) -> None:
    """A bound in time together with every other parameter."""
    _, store, run_id = await begun(situation, *(WRITERS[read](i) for read in BOUNDS for i in range(7)))
    for read, filters in BOUNDS.items():
        rows = await getattr(store, read)(run_id=run_id)
        expect(f"rows of {read}", len(rows), 7)
        before = rows[5].created_at
        for names in (names for n in range(len(filters) + 1) for names in combinations(filters, n)):
            found = [row.id for row in rows if row.created_at < before and all(filters[n][1](row) for n in names)]
            given: dict[str, Any] = {"before": before, **{name: filters[name][0] for name in names}}
            for limit in (1, 2, LIMIT_MAX):
                for offset in (None,) if read == "get_run_events" else (None, 1):
                    paged = given | {"limit": limit} | ({} if offset is None else {"offset": offset})
                    page = [row.id for row in await getattr(store, read)(run_id=run_id, **paged)]
                    expect(f"rows of {read} with {', '.join(paged)}", page, found[offset or 0 :][:limit])


contract(
    "basic.list_runs.filters_in_pairs",
    "Two or three filters of a list or a count hold together, bounds in time among them.",
    check=run_filters,
    cause="One filter replaces another, or is left out when another one is given.",
)
contract(
    "basic.get_run_events.before_a_time_and_more",
    "A bound in time holds beside a cursor, types, an iteration, a limit and an offset.",
    check=row_filters,
    cause="The bound is left out when another parameter is given, or applied after the limit.",
)

# -- long lists -------------------------------------------------------------------------------------------------------

BESIDE: Final[dict[str, Program]] = {
    "get_run_events": tuple(
        Do(GetEventsForRuns(heads={"r": head}, limit_per_run=limit)) for head in (-1, 0, 50) for limit in (51, 100)
    ),
    "get_notes": (
        Do(MarkNotesDelivered(run_id="r", note_ids=(*(f"no{i}" for i in range(900)), *NOTES), iteration=1)),
        Do(GetNotes(run_id="r")),
    ),
}
"""What else a long list is for: by the read that shows it."""


def long_list(read: str) -> None:
    """The contract of one read: more rows than a hundred, in one page and in pages."""

    async def check(situation: Situation) -> None:
        execution, store, run_id = await begun(situation, *(WRITERS[read](i) for i in range(MANY)))
        reads = getattr(store, read)
        first = await reads(run_id=run_id)
        ids = [execution.driver.outside(row.id) for row in first]
        prefix = WRITERS[read](0).operation.arguments()[str(WRITERS[read](0).operation.identity)][0]
        expect(f"rows of {read} without a limit", ids, [f"{prefix}{i:03}" for i in range(MANY)])
        for limit in (LIMIT_MAX, MANY, 102, 101, 100, 51):
            page = [execution.driver.outside(row.id) for row in await reads(run_id=run_id, limit=limit)]
            expect(f"rows of {read} with limit={limit}", page, ids[:limit])
        for start in (50, 100, 102):
            cursor = {
                "get_run_events": {"after_sequence_index": start - 1},
                "get_notes": {"after": first[start - 1].id},
            }.get(read, {"offset": start})
            page = [execution.driver.outside(row.id) for row in await reads(run_id=run_id, limit=LIMIT_MAX, **cursor)]
            expect(f"rows of {read} from number {start} on", page, ids[start:])
        await execution.run(BESIDE.get(read, ()), look=False)

    contract(
        f"basic.{read}.more_than_a_hundred",
        f"{read} shows more than a hundred rows at once, and the exact rows of any page.",
        check=check,
        cause="A page is cut shorter than its limit.",
    )


for _read in WRITERS:
    if _read != "get_traces":  # seeds make a longer conversation in one call: see `_sizes`
        long_list(_read)


async def many_runs(situation: Situation) -> None:
    """More runs than the default page, and statuses at the bound."""
    execution, store, _ = await begun(situation, *(born(f"r{i}") for i in range(1, MANY)))
    inside = execution.driver.inside
    agent = inside("agent_name", "agent")
    newest = [inside("run_id", f"r{i}") for i in reversed(range(1, MANY))] + [inside("run_id", "r")]
    for given, expected in (
        ({}, newest[:50]),
        ({"limit": LIMIT_MAX}, newest),
        ({"limit": 101}, newest[:101]),
        ({"limit": 100, "offset": 1}, newest[1:101]),
        ({"limit": 100, "offset": 100}, newest[100:]),
    ):
        page: dict[str, Any] = {"agent_name": agent, **given}
        expect(f"runs listed with {given}", [run.id for run in await store.list_runs(**page)], expected)
    for filters in ({}, {"status": "running"}, {"tenant_id": None}):
        expect(f"runs counted with {filters}", await store.count_runs(agent_name=agent, **filters), len(newest))
    asked = [inside("run_id", f"nowhere{i}") for i in range(200 - len(newest[:60]))] + newest[:60]
    expect("statuses of 200 ids", await store.get_run_statuses(asked), dict.fromkeys(newest[:60], "running"))


async def default_cap(situation: Situation) -> None:
    """A hundred notes wait when nothing else is said, and a delivery may name more ids than that."""
    execution, store, run_id = await begun(situation)
    inside = execution.driver.inside
    for i in range(101):
        answer = await store.add_note(run_id, note_id=inside("note_id", f"n{i}"), text="look here")
        expect(f"the answer to note {i + 1} under the default cap", answer, "added" if i < 100 else "full")
    ids = [inside("note_id", f"nowhere{i}") for i in range(50)] + [inside("note_id", f"n{i}") for i in range(100)]
    expect("notes stamped by one delivery of 150 ids", await store.mark_notes_delivered(run_id, ids, iteration=1), 100)
    expect("notes that wait after it", len(await store.get_notes(run_id, undelivered_only=True)), 0)


contract(
    "basic.list_runs.more_than_a_hundred",
    "A list gives fifty runs when no limit is said, up to a thousand, and counts them; two hundred statuses are read.",
    check=many_runs,
    cause="A page, or a list of ids, is cut short.",
)
contract(
    "basic.add_note.default_cap",
    "A hundred notes wait in an inbox by default, and one delivery stamps as many.",
    check=default_cap,
    cause="The default of max_pending is another one, or a long list of ids is cut.",
)

# -- times ------------------------------------------------------------------------------------------------------------


def now_of(clock: Any) -> datetime:
    """The tester's clock: that of the fixture when it tells the time."""
    now = getattr(clock, "now", None)
    told = now() if callable(now) else now
    return told if isinstance(told, datetime) and told.tzinfo is not None else datetime.now(UTC)


async def true_times(situation: Situation) -> None:
    """Every time that is read lies between two looks at the tester's clock, and is found by bounds around it."""
    begin = now_of(situation.bench.clock) - TOLERANCE
    execution, store, run_id = await begun(
        situation,
        *(write(0) for write in WRITERS.values()),
        Do(MarkNotesDelivered(run_id="r", note_ids=("n000",), iteration=1)),
        paused(),
    )
    end = now_of(situation.bench.clock) + TOLERANCE
    agent = execution.driver.inside("agent_name", "agent")
    records = [await store.get_run(run_id), *await store.list_runs(agent_name=agent)]
    for read in WRITERS:
        records += await getattr(store, read)(run_id=run_id)
    for record in records:
        for field in fields(record):
            value = getattr(record, field.name)
            if isinstance(value, datetime) and not begin <= value <= end:
                raise NotKept(
                    f"{field.name} of a {type(record).__name__} is {value}, written between {begin} and {end}"
                )
    for given, expected in (
        ({"started_after": begin}, 1),
        ({"started_after": end}, 0),
        ({"started_before": begin}, 0),
        ({"started_before": end}, 1),
    ):
        found = await store.count_runs(agent_name=agent, **given), len(await store.list_runs(agent_name=agent, **given))
        expect(f"runs found by {given}", found, (expected, expected))
    for read in BOUNDS:
        total = len(await getattr(store, read)(run_id=run_id))
        for bound, expected in ((begin, 0), (end, total)):
            found_rows = await getattr(store, read)(run_id=run_id, before=bound)
            expect(f"rows of {read} before {bound}", len(found_rows), expected)


contract(
    "basic.get_run.times_are_true",
    "Stored times are the times at which things happened, in UTC.",
    check=true_times,
    cause="Times are stored in a local zone and read as UTC, or the other way round.",
)


async def ahead(situation: Situation) -> None:
    """A lease that another machine's clock put ahead is not put back by a renewal."""
    execution, store, run_id = await begun(situation)
    later = now_of(None) + timedelta(minutes=3)
    async with engine_of(store).begin() as connection:
        await connection.execute(update(agent_runs).where(agent_runs.c.id == run_id).values(last_progress_at=later))
    before = (await store.get_run(run_id)).last_progress_at
    renewals = TouchProgress(run_id="r", claim_epoch=1), SaveRunEvent(run_id="r", event_type="x", claim_epoch=1)
    await execution.run(tuple(map(Do, renewals)), look=False)
    after = (await store.get_run(run_id)).last_progress_at
    if after < before:
        raise NotKept(f"a renewal put the lease back from {before} to {after}")


contract(
    "fenced_writes.touch_progress.lease_never_goes_back",
    "A renewal by a machine whose clock is behind does not put the lease back.",
    group="fenced_writes",
    needs={"sql"},
    check=ahead,
    cause="The new time is written as it is: write the later of the stored and the new one.",
)

# -- other instances --------------------------------------------------------------------------------------------------

STEPS: Final[Program] = (
    event(0),
    trace(0),
    call(0),
    interaction(0),
    note(0),
    Do(UpdateRunMeta(run_id="r", patch={"k": 1})),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n000",), iteration=1)),
    Do(RequestPause(run_id="r")),
    paused(pause_data=DOCUMENT, pii_mapping={"a": "b"}),
    Do(SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"yes": True}, submission_id="s")),
    noted(note_id="m"),
    Do(RequestCancel(run_id="r")),
    ended(),
    born("later"),
)
"""Writes that together change what every read shows."""


def reads() -> Iterator[Any]:
    """Every read of one run, and the lists."""
    world = World()
    for number, step in enumerate((born(), born("later")), 1):
        world = step.operation.step(world._replace(now=number))[0]
    for read in view([world]):
        if getattr(read, "run_id", "r") == "r":
            yield read
    yield ListRuns(agent_name="agent")
    yield ListRuns(agent_name="agent", status="running")
    yield CountRuns(agent_name="agent", status="success")


LOOK: Final[Program] = tuple(Do(read, 1) for read in reads())

contract(
    "concurrency.get_run.sees_other_instances",
    "Every read shows what another instance wrote since the same read was answered last.",
    born(),
    *LOOK,
    *(step for write in STEPS for step in (write, *LOOK)),
    group="concurrency",
    cause="A read is answered from a cache that only the instance's own writes clear.",
)
