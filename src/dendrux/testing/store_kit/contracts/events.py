"""The log of a run: events with gapless indexes."""

from __future__ import annotations

from dataclasses import replace

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._formats import by_format
from dendrux.testing.store_kit.contracts._nasty import ALIKE, DOCUMENTS, LONG, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import born, claimed, ended, paused
from dendrux.vocabulary import RESERVED_EVENTS
from dendrux_model.operations import GetEventsForRuns, GetRunEvents, SaveRunEvent
from dendrux_model.outcomes import CONFLICT, INVALID, TERMINAL, Returned
from dendrux_model.programs import Do, Look

FULL = SaveRunEvent(
    run_id="r",
    event_type="tool.started",
    iteration_index=2,
    correlation_id="c",
    data={"tool": "mail", "n": 1},
    event_id="e",
)

sample(
    FULL,
    event_type=("tool.Started", "tool.completed"),
    iteration_index=(0, 3),
    correlation_id=(None, "C"),
    data=(None, {}, {"tool": "mail", "n": 1.0}, {"tool": "mail", "n": True}, {"tool": "mail", "n": 1, "more": None}),
)
sample(GetRunEvents(run_id="r"))
sample(GetEventsForRuns(heads={"r": -1}))

contract(
    "basic.save_run_event.indexes_count_up_from_zero",
    "Events take the next index, whoever writes them and through whichever operation.",
    born(),
    Do(FULL, expect=Returned(0)),
    Do(SaveRunEvent(run_id="r", event_type="step"), expect=Returned(1)),
    paused(),
    Do(SaveRunEvent(run_id="r", event_type="step"), expect=Returned(3)),
    claimed(),
    Do(SaveRunEvent(run_id="r", event_type="step", claim_epoch=2), expect=Returned(4)),
    Do(SaveRunEvent(run_id="r", event_type="step", claim_epoch=1)),
    ended(claim_epoch=2),
    Do(GetRunEvents(run_id="r")),
    cause="The index comes from a counter that a refused write also moves, or from a count taken before the insert.",
)
contract(
    "basic.save_run_event.each_run_has_its_own_log",
    "Events of one run take no index of another.",
    born("r"),
    born("s"),
    *(
        Do(SaveRunEvent(run_id=run_id, event_type="step", event_id=f"{run_id}{i}"), expect=Returned(i))
        for i in range(3)
        for run_id in ("r", "s")
    ),
)
contract(
    "basic.save_run_event.data_comes_back_exactly",
    "An event's data comes back with the same members in the same order, of the same types.",
    born(),
    *(Do(SaveRunEvent(run_id="r", event_type="step", data=document)) for document in DOCUMENTS),
    Do(SaveRunEvent(run_id="r", event_type="long", data={"text": LONG})),
)
contract(
    "basic.save_run_event.names_are_equal_as_written",
    "Event ids and types that differ in case, accents, spaces or form are different.",
    born(),
    *(
        Do(SaveRunEvent(run_id="r", event_type=name, event_id=name, correlation_id=name), expect=Returned(i))
        for i, name in enumerate(ALIKE)
    ),
    *(Do(GetRunEvents(run_id="r", event_types=(name,))) for name in ALIKE),
    cause="A collation folds case, accents or trailing spaces: give identifiers a binary collation without padding.",
)
contract(
    "basic.save_run_event.longest_names_fit",
    "Names of the greatest length are kept whole, also when every character takes four bytes.",
    born(),
    Do(SaveRunEvent(run_id="r", event_type="x" * 100, event_id="e" * 48, correlation_id="c" * 255)),
    Do(SaveRunEvent(run_id="r", event_type=wide(100), event_id=wide(48), correlation_id=wide(255))),
)
by_format(
    "basic.save_run_event.after_the_end",
    "On format 1 an event without an epoch may come late; on format 2 the log of an ended run is closed.",
    one=(born(), ended(), Do(FULL, expect=Returned(1))),
    two=(born(), ended(), Look(), Do(FULL, expect=TERMINAL)),
)
contract(
    "basic.save_run_event.reserved_types",
    "On format 2 the events that operations write themselves cannot be saved by hand.",
    born(),
    *(Do(SaveRunEvent(run_id="r", event_type=name), expect=INVALID) for name in sorted(RESERVED_EVENTS)),
    needs={"format_2"},
)
contract(
    "basic.get_run_events.pages_by_index",
    "A reader goes on after the last index it has, for all events or for some types, and misses none.",
    born(),
    *(Do(SaveRunEvent(run_id="r", event_type="even" if i % 2 == 0 else "odd", event_id=f"e{i}")) for i in range(6)),
    Do(GetRunEvents(run_id="r", limit=1)),
    Do(GetRunEvents(run_id="r", after_sequence_index=0, limit=2)),
    Do(GetRunEvents(run_id="r", after_sequence_index=-1, limit=1000)),
    Do(GetRunEvents(run_id="r", after_sequence_index=2, event_types=("even",))),
    Do(GetRunEvents(run_id="r", after_sequence_index=5), expect=Returned([])),
    Do(GetRunEvents(run_id="r", event_types=("even", "odd", "none"))),
    Do(GetRunEvents(run_id="r", event_types=()), expect=Returned([])),
    cause="An index of 0, or an empty list of types, is taken for one that was not given.",
)
contract(
    "retry_ids.save_run_event.order_of_members_is_no_content",
    "Data with its members in another order is the same content, and what was stored first stays.",
    born(),
    Do(replace(FULL, data={"tool": "mail", "n": 1}), expect=Returned(0)),
    Do(replace(FULL, data={"n": 1, "tool": "mail"}), expect=Returned(0)),
    Look(),
    Do(replace(FULL, data={"tool": ["mail"], "n": 1}), expect=CONFLICT),
    group="retry_ids",
    cause="Documents are compared as text: compare a canonical form with sorted members.",
)
contract(
    "retry_ids.save_run_event.fields_do_not_run_together",
    "Contents that would be equal if their fields were joined are different.",
    born(),
    Do(SaveRunEvent(run_id="r", event_type="ab", correlation_id="c", event_id="e"), expect=Returned(0)),
    Do(SaveRunEvent(run_id="r", event_type="a", correlation_id="bc", event_id="e"), expect=CONFLICT),
    Do(SaveRunEvent(run_id="r", event_type="ab", data={"correlation_id": "c"}, event_id="e"), expect=CONFLICT),
    group="retry_ids",
)
by_format(
    "retry_ids.save_run_event.late_events_of_ended_runs",
    "After the end a new event is refused on format 2, with or without an epoch, while a repeat is still answered.",
    one=(born(), Do(FULL), ended(), Do(FULL, expect=Returned(0))),
    two=(
        born(),
        Do(FULL),
        ended(),
        Look(),
        Do(FULL, expect=Returned(0)),
        Do(replace(FULL, event_id="late"), expect=TERMINAL),
        Do(replace(FULL, event_id="late", claim_epoch=1), expect=TERMINAL),
        Do(replace(FULL, event_id=None), expect=TERMINAL),
    ),
    group="retry_ids",
)

race(
    "save_run_event.no_gap_and_no_duplicate",
    "Two events at once take two indexes that follow each other.",
    SaveRunEvent(run_id="r", event_type="step", event_id="a"),
    SaveRunEvent(run_id="r", event_type="step", event_id="b"),
    before=(born(), Do(FULL)),
    after=(Do(SaveRunEvent(run_id="r", event_type="step", event_id="c"), expect=Returned(3)),),
    cause="The next index is read before the insert and nothing holds the run between them.",
)
race(
    "save_run_event.pause_and_event",
    "A pause and an event at once take two indexes that follow each other.",
    SaveRunEvent(run_id="r", event_type="step", event_id="a"),
    paused(event_id="b").operation,
    before=(born(),),
    both_ways=True,
    cause="The two operations allot indexes in different ways.",
)
race(
    "save_run_event.same_event_twice",
    "One event sent twice at once is stored once, and both callers get its index.",
    FULL,
    FULL,
    before=(born(),),
    after=(Do(FULL, expect=Returned(0)),),
    cause="A repeat that meets its own first call reports a conflict or takes another index.",
)
race(
    "save_run_event.one_id_in_two_runs",
    "One event id for two runs at once belongs to one of them, and the other call conflicts.",
    FULL,
    replace(FULL, run_id="s"),
    before=(born(), born("s")),
    cause="A violated key is reported as an error of the database instead of a write conflict.",
)


contract(
    "basic.get_events_for_runs.above_each_head",
    "Several logs are read on at once, each above its head and in order; a run without a new event is absent.",
    *(born(f"r{i}") for i in range(4)),
    *(Do(SaveRunEvent(run_id=f"r{i}", event_type="x", data={"n": n})) for i in range(3) for n in range(i + 2)),
    Do(GetEventsForRuns(heads={"r2": -1, "r0": 0, "r1": 2, "r3": -1, "nowhere": -1})),
    Do(GetEventsForRuns(heads={"r2": 1, "r0": -1}, limit_per_run=1)),
    Do(GetEventsForRuns(heads={"r3": -1, "nowhere": -1}), expect=Returned({})),
    Do(GetEventsForRuns(heads={}), expect=Returned({})),
    Do(GetEventsForRuns(heads={f"r{i}": -1 for i in range(200)}, limit_per_run=100)),
    cause="The limit is taken over all runs, or a head is taken in.",
)
