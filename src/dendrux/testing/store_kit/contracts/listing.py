"""Finding runs: lists, counts and statuses."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from dendrux.runtime.values import UsageStats
from dendrux.testing.driver import outcome_of
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import NotKept, Situation, contract
from dendrux.testing.store_kit.contracts._nasty import ALIKE
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import OWNED, WAITING, born, ended, paused
from dendrux_model.operations import CountRuns, GetRunStatuses, ListRuns, SaveLLMInteraction, SaveRunEvent, SaveToolCall
from dendrux_model.outcomes import INVALID, Outcome, Returned
from dendrux_model.programs import Do
from dendrux_model.world import World

sample(ListRuns(agent_name="agent"), before=OWNED)
sample(CountRuns(agent_name="agent"), before=OWNED)
sample(GetRunStatuses(run_ids=("r", "nowhere")), before=OWNED)


def found(*expected: str, **filters: Any) -> tuple[Do, Do]:
    """A list and a count with these filters, and the runs they must find, newest first."""
    return (
        Do(ListRuns(agent_name="agent", **filters), expect=Returned(list(expected))),
        Do(CountRuns(agent_name="agent", **filters), expect=Returned(len(expected))),
    )


contract(
    "basic.list_runs.newest_first_in_pages",
    "Runs are listed newest first; pages follow each other without gap or overlap, up to an empty one.",
    *(born(f"r{i}") for i in range(5)),
    born("other", "Agent"),
    *found("r4", "r3", "r2", "r1", "r0"),
    *(
        Do(ListRuns(agent_name="agent", limit=limit, offset=offset), expect=Returned(list(page)))
        for limit, offset, page in (
            (2, 0, ("r4", "r3")),
            (2, 2, ("r2", "r1")),
            (2, 4, ("r0",)),
            (2, 5, ()),
            (1000, 1, ("r3", "r2", "r1", "r0")),
        )
    ),
    Do(ListRuns(agent_name="nobody"), expect=Returned([])),
    cause="Runs are sorted by id or by a clock that changes, or the order has no last word for equal times.",
)
contract(
    "basic.list_runs.by_status",
    "A status, or several, select the runs that have it now; no status at all selects none.",
    born("running"),
    born("paused"),
    paused("paused"),
    born("success"),
    ended("success"),
    born("cancelled"),
    ended("cancelled", status="cancelled"),
    *found("running", status="running"),
    *found("paused", status=WAITING),
    *found("cancelled", "success", status=("success", "cancelled", "error")),
    *found(status="max_iterations"),
    *found(status=()),
    cause="An empty list of statuses is taken for no filter.",
)
contract(
    "basic.list_runs.by_parent",
    "A parent selects its own children, and not those of others or their children.",
    born("r"),
    born("s"),
    born("c1", parent_run_id="r", delegation_level=1),
    born("c2", parent_run_id="s", delegation_level=1),
    born("c3", parent_run_id="r", delegation_level=1),
    born("g", parent_run_id="c1", delegation_level=2),
    *found("c3", "c1", parent_run_id="r"),
    *found("g", parent_run_id="c1"),
    *found(parent_run_id="nowhere"),
)
contract(
    "basic.list_runs.filters_hold_together",
    "Several filters select the runs for which all of them hold.",
    born("a", tenant_id="t", meta={"k": 1}),
    born("b", tenant_id="t", meta={"k": 2}),
    born("c", tenant_id="T", meta={"k": 1}),
    born("d", tenant_id="t", meta={"k": 1}),
    ended("d"),
    *found("a", tenant_id="t", status="running", metadata_filter={"k": 1}),
    *found("d", "a", tenant_id="t", metadata_filter={"k": 1}),
    *found("c", tenant_id="T"),
    *found(tenant_id=None),
)

# -- metadata filters -------------------------------------------------------------------------------------------------

FILTERED = (*ALIKE, "", "\x1aB", "\U0001f600", "a b\n", "null")
"""Text without U+0000, at which the JSON functions of some databases stop reading."""
SCALARS: dict[str, Any] = {
    "one": 1,
    "float": 1.0,
    "yes": True,
    "text": "1",
    "zero": 0,
    "no": False,
    "minus": -1,
    "half": 0.5,
    "null": None,
    "empty": "",
    "null-text": "null",
    "true-text": "true",
    "large": 2**53 + 1,
    "near": 2**53,
}
CONTAINERS: dict[str, Any] = {
    "object": {"a": 1, "b": {"c": [1, "x"]}},
    "part": {"a": 1},
    "array": [1, 2],
    "nothing": {},
    "none": [],
}


def rows(values: dict[str, Any]) -> tuple[Do, ...]:
    """A run per value, and one without the member, one without meta."""
    named = tuple(born(name, meta={"k": value, "kk": "else", "n": {"k": "deeper"}}) for name, value in values.items())
    return (*named, born("without", meta={"kk": 1}), born("bare"))


contract(
    "basic.list_runs.metadata_values_are_typed",
    'A metadata filter finds exactly the runs with that value and that type: 1, 1.0, true and "1" are four.',
    *rows(SCALARS),
    *(step for name, value in SCALARS.items() for step in found(name, metadata_filter={"k": value})),
    *found(metadata_filter={"k": 2}),
    *found(metadata_filter={"k": "One"}),
    cause="The JSON value is compared without its type, or a missing member is taken for null.",
)
contract(
    "basic.list_runs.metadata_text_is_equal_as_written",
    "Text in a metadata filter is equal as written.",
    *(born(f"r{i}", meta={"k": text}) for i, text in enumerate(FILTERED)),
    *(step for i, text in enumerate(FILTERED) for step in found(f"r{i}", metadata_filter={"k": text})),
    cause="JSON strings are compared by a folding collation, or cut at U+0000.",
)
contract(
    "basic.list_runs.metadata_containers",
    "A container in a metadata filter finds runs that hold an equal one, and none that lacks a member of it.",
    born("object", meta={"k": CONTAINERS["object"]}),
    born("array", meta={"k": CONTAINERS["array"]}),
    born("scalar", meta={"k": 1}),
    born("without", meta={"n": CONTAINERS["object"]}),
    born("bare"),
    *found("object", metadata_filter={"k": CONTAINERS["object"]}),
    *found("array", metadata_filter={"k": CONTAINERS["array"]}),
    *found(metadata_filter={"k": {**CONTAINERS["object"], "more": 1}}),
    *found(metadata_filter={"k": {"a": 1, "b": {"c": [1, "x", None]}}}),
    *found(metadata_filter={"k": {"a": 2, "b": {"c": [1, "x"]}}}),
    *found(metadata_filter={"k": [1, 2, 3]}),
    cause="A container filter is dropped, or matches any container.",
)
contract(
    "basic.list_runs.metadata_members_hold_together",
    "All members of a metadata filter must match; an empty filter matches every run, one with an unknown key none.",
    born("a", meta={"x": 1, "y-y": "b", "Z_9": None}),
    born("b", meta={"x": 1}),
    born("c"),
    *found("a", metadata_filter={"x": 1, "y-y": "b"}),
    *found("a", metadata_filter={"Z_9": None}),
    *found("c", "b", "a", metadata_filter={}),
    *found(metadata_filter={"x": 1, "nothing": 1}),
    *found(metadata_filter={"X": 1}),
    cause="Members that the store does not know are dropped from the filter.",
)
contract(
    "basic.get_run_statuses.many_at_once",
    "The statuses of up to two hundred runs are read at once; runs that do not exist are absent.",
    *(born(f"r{i}") for i in range(3)),
    paused("r1"),
    ended("r2"),
    Do(
        GetRunStatuses(run_ids=("r2", "nowhere", "r0", "r1", "r0")),
        expect=Returned({"r0": "running", "r1": WAITING, "r2": "success"}),
    ),
    Do(GetRunStatuses(run_ids=tuple(f"r{i}" for i in range(200)))),
    Do(GetRunStatuses(run_ids=()), expect=Returned({})),
)

# -- times ------------------------------------------------------------------------------------------------------------


EVIDENCE = ("get_run_events", "get_tool_calls", "get_llm_interactions")
"""Reads of rows that can be bounded by a time."""


async def times(situation: Situation) -> None:
    """Lists and counts between two times, given in any zone; what a reader is not allowed to leave open."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    await execution.run((born("a"), born("b"), born("c")))
    store = await situation.bench.instance()
    agent = execution.driver.inside("agent_name", "agent")
    newest, middle, oldest = (run.created_at for run in await store.list_runs(agent_name=agent))
    east, west = (timezone(timedelta(hours=hours, minutes=30)) for hours in (5, -3))
    moment, day = timedelta(microseconds=1), timedelta(days=1)
    for after, before, expected in (
        (oldest - day, newest + day, 3),
        (None, middle + moment, 2),
        (None, (middle - moment).astimezone(east), 1),
        (middle + moment, None, 1),
        ((middle - moment).astimezone(west), None, 2),
        (oldest + moment, newest - moment, 1),
        (newest + moment, None, 0),
        (None, oldest - moment, 0),
    ):
        given = {"agent_name": agent, "started_after": after, "started_before": before}
        listed, counted = await store.list_runs(**given), await store.count_runs(**given)
        if (len(listed), counted) != (expected, expected):
            raise NotKept(
                f"of three runs {expected} began after {after} and before {before}; "
                f"list_runs gives {len(listed)} and count_runs {counted}"
            )


async def before_a_time(situation: Situation) -> None:
    """What was stored at the bound itself is left out."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    numbers = range(3)
    await execution.run(
        (
            born(),
            *(Do(SaveRunEvent(run_id="r", event_type="step", event_id=f"e{i}")) for i in numbers),
            *(Do(SaveToolCall(run_id="r", tool_call_id=f"c{i}", row_id=f"c{i}", tool_name="mail")) for i in numbers),
            *(
                Do(SaveLLMInteraction(run_id="r", iteration_index=0, usage=UsageStats(), interaction_id=f"i{i}"))
                for i in numbers
            ),
        )
    )
    store = await situation.bench.instance()
    run_id = execution.driver.inside("run_id", "r")
    east = timezone(timedelta(hours=5, minutes=30))
    for name in EVIDENCE:
        read = getattr(store, name)
        first, second, _ = await read(run_id=run_id)
        for bound, expected in (
            (second.created_at, [first.id]),
            (second.created_at.astimezone(east), [first.id]),
            (first.created_at, []),
            (second.created_at + timedelta(microseconds=1), [first.id, second.id]),
        ):
            found = [row.id for row in await read(run_id=run_id, before=bound)]
            if found != expected:
                raise NotKept(f"{name} before {bound} gives {len(found)} rows; {len(expected)} were stored before")


async def naive_times(situation: Situation) -> None:
    """Every read that takes a time, called with one that has no zone."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    await execution.run((born(),))
    store = await situation.bench.instance()
    run_id = execution.driver.inside("run_id", "r")
    naive = datetime(2030, 1, 1)  # noqa: DTZ001  # the point of this check
    reads: list[tuple[str, dict[str, Any]]] = [
        (name, {bound: naive}) for name in ("list_runs", "count_runs") for bound in ("started_after", "started_before")
    ]
    reads += [(name, {"run_id": run_id, "before": naive}) for name in EVIDENCE]
    for name, given in reads:
        try:
            answer: Outcome = Returned(await getattr(store, name)(**given))
        except Exception as error:
            answer = outcome_of(error)
        if answer != INVALID:
            raise NotKept(f"{name} must refuse a naive datetime with a ValueError or TypeError; the store {answer}")


contract(
    "basic.list_runs.between_two_times",
    "Runs are found by when they began, whatever zone the bounds are given in.",
    check=times,
    cause="Times are stored or compared as local text, or without their fraction of a second.",
)
contract(
    "basic.get_run_events.before_a_time",
    "Events, tool calls and interactions are read up to a time, which is left out itself.",
    check=before_a_time,
    cause="Times are stored with less than a microsecond, or the bound is taken in.",
)
contract(
    "basic.list_runs.naive_times",
    "A time without a zone is refused by every read that takes one.",
    check=naive_times,
    cause="A naive datetime is taken for UTC or for local time.",
)
