"""The inbox of a run: notes from outside that the owner delivers between two steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import NotKept, Situation, contract
from dendrux.testing.store_kit.contracts._nasty import ALIKE, LONG, TEXTS, VALUES, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import born, claimed, ended, noted, paused
from dendrux_model.operations import AddNote, GetNotes, MarkNotesDelivered
from dendrux_model.outcomes import CONFLICT, Returned
from dendrux_model.programs import Do, Look
from dendrux_model.world import World

FULL = AddNote(run_id="r", note_id="note", text="look here", metadata={"from": "Ada", "n": 1})
ADDED, DUPLICATE, FULL_INBOX, CLOSED = (Returned(word) for word in ("added", "duplicate", "full", "closed"))

sample(
    FULL,
    text=("", "Look here", "look here "),
    metadata=(None, {}, [], {"from": "Ada", "n": 1.0}, {"from": "Ada", "n": True}, "Ada"),
)
sample(MarkNotesDelivered(run_id="r", note_ids=("n",), iteration=2))
sample(GetNotes(run_id="r"))


def add(number: int, **given: object) -> AddNote:
    """A note with a number."""
    about = {"run_id": "r", "note_id": f"n{number}", "text": f"note {number}", **given}
    return AddNote(**about)  # type: ignore[arg-type]


contract(
    "basic.add_note.read_in_the_order_they_came",
    "Notes are read in the order they came, whatever their ids.",
    born(),
    *(Do(add(i), expect=ADDED) for i in (3, 1, 2, 9, 0)),
    Do(GetNotes(run_id="r", limit=2)),
    Do(GetNotes(run_id="r", undelivered_only=True)),
    cause="Notes are sorted by id alone, or by a time too coarse to tell them apart.",
)
contract(
    "basic.add_note.open_runs_only",
    "A running or paused run takes notes; an ended one is closed to them.",
    born(),
    Do(add(1), expect=ADDED),
    paused(),
    Do(add(2), expect=ADDED),
    ended(),
    Look(),
    Do(add(3), expect=CLOSED),
)
contract(
    "basic.add_note.cap_on_waiting_notes",
    "As many notes wait as the writer allows; a full inbox takes another one after a delivery.",
    born(),
    Do(add(0, max_pending=1), expect=ADDED),
    Look(),
    Do(add(1, max_pending=1), expect=FULL_INBOX),
    Do(add(1, max_pending=3), expect=ADDED),
    Do(add(2, max_pending=3), expect=ADDED),
    Do(add(3, max_pending=3), expect=FULL_INBOX),
    Do(add(3, max_pending=1), expect=FULL_INBOX),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n0",), iteration=1), expect=Returned(1)),
    Do(add(3, max_pending=3), expect=ADDED),
    Do(add(4, max_pending=3), expect=FULL_INBOX),
    cause="Delivered notes are counted too, or the count is compared with the cap one too late.",
)
contract(
    "basic.add_note.cap_of_each_run",
    "Notes of one run take no place in the inbox of another.",
    born("r"),
    born("s"),
    Do(add(0, max_pending=1), expect=ADDED),
    Do(add(1, run_id="s", max_pending=1), expect=ADDED),
    Do(add(2, run_id="s", max_pending=1), expect=FULL_INBOX),
)
contract(
    "basic.add_note.a_repeat_is_a_duplicate",
    "A note that is there already is answered as a duplicate: in a full inbox, after delivery and after the end.",
    born(),
    Do(FULL, expect=ADDED),
    Look(),
    Do(replace(FULL, max_pending=1), expect=DUPLICATE),
    Do(replace(FULL, text="Look here"), expect=CONFLICT),
    Do(MarkNotesDelivered(run_id="r", note_ids=("note",), iteration=1)),
    Do(FULL, expect=DUPLICATE),
    ended(),
    Do(FULL, expect=DUPLICATE),
    cause="The cap, or the check that the run is open, comes before the look at the note's id.",
)
contract(
    "basic.add_note.text_comes_back_exactly",
    "A note is any text, with any JSON value as metadata.",
    born(),
    *(Do(add(i, text=text), expect=ADDED) for i, text in enumerate((*TEXTS, LONG))),
    *(Do(add(50 + i, metadata=value), expect=ADDED) for i, value in enumerate(VALUES)),
)
contract(
    "basic.add_note.ids_are_equal_as_written",
    "Note ids that differ in case, accents, spaces or form are different notes, and the longest ones fit.",
    born(),
    *(Do(AddNote(run_id="r", note_id=name, text=name), expect=ADDED) for name in (*ALIKE, wide(48))),
    *(Do(MarkNotesDelivered(run_id="r", note_ids=(name,), iteration=1), expect=Returned(1)) for name in ALIKE[::2]),
    Do(GetNotes(run_id="r", undelivered_only=True)),
    cause="A collation folds case, accents or trailing spaces: give identifiers a binary collation without padding.",
)
contract(
    "basic.mark_notes_delivered.first_stamp_stays",
    "A delivery is stamped once; unknown notes and notes of other runs count nothing.",
    born("r"),
    born("s"),
    Do(add(0)),
    Do(add(1)),
    Do(add(2, run_id="s")),
    Look(),
    Do(MarkNotesDelivered(run_id="r", note_ids=(), iteration=0), expect=Returned(0)),
    Do(MarkNotesDelivered(run_id="r", note_ids=("nowhere", "n2"), iteration=0), expect=Returned(0)),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n0", "n0", "nowhere"), iteration=0), expect=Returned(1)),
    Look(),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n0",), iteration=5), expect=Returned(0)),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n1", "n0"), iteration=6), expect=Returned(1)),
    cause="The update stamps notes that have a stamp, or counts ids instead of rows.",
)
contract(
    "basic.mark_notes_delivered.at_any_time_without_an_epoch",
    "Without an epoch notes can be stamped on paused and ended runs.",
    born(),
    Do(add(0)),
    Do(add(1)),
    paused(),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n0",), iteration=0), expect=Returned(1)),
    ended(),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n1",), iteration=0), expect=Returned(1)),
)
contract(
    "fenced_writes.mark_notes_delivered.nothing_to_mark_renews_no_lease",
    "A delivery that marks nothing changes nothing, the owner's lease included.",
    born(),
    Do(add(0)),
    Look(),
    Do(MarkNotesDelivered(run_id="r", note_ids=("nowhere",), iteration=0, claim_epoch=1), expect=Returned(0)),
    Look(),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n0",), iteration=0, claim_epoch=1), expect=Returned(1)),
    group="fenced_writes",
)
contract(
    "basic.get_notes.survive_pause_and_claim",
    "Notes stay through pauses and claims until they are delivered.",
    born(),
    noted(),
    paused(),
    noted(note_id="n2"),
    claimed(),
    Do(GetNotes(run_id="r", undelivered_only=True)),
    Do(MarkNotesDelivered(run_id="r", note_ids=("n", "n2"), iteration=1, claim_epoch=2), expect=Returned(2)),
    Do(GetNotes(run_id="r", undelivered_only=True), expect=Returned([])),
)


async def pages(situation: Situation) -> None:
    """The cursor of a note is the note itself."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    await execution.run((born(), *(Do(add(i)) for i in (3, 1, 2, 0)), Do(STAMP)))
    store = await situation.bench.instance()
    run_id = execution.driver.inside("run_id", "r")
    for given, expected in (({}, ["n3", "n1", "n2", "n0"]), ({"undelivered_only": True}, ["n3", "n2", "n0"])):
        found: list[str] = []
        cursor: dict[str, Any] = {}
        while page := await store.get_notes(run_id=run_id, limit=1, **given, **cursor):
            found += [execution.driver.outside(note.id) for note in page]
            cursor = {"after": page[-1].id}
            if len(found) > len(expected):
                break
        if found != expected:
            raise NotKept(f"pages of one note after another give {found}; in the order they came they are {expected}")


STAMP = MarkNotesDelivered(run_id="r", note_ids=("n1",), iteration=1)
contract(
    "basic.get_notes.pages_after_a_note",
    "A reader goes on after the last note it has, among all or among undelivered ones, and misses none.",
    check=pages,
    cause="The cursor compares ids alone, or times alone.",
)

CAP = "Nothing holds the run between counting the waiting notes and inserting: serialize_in_tx must hold until the end."

race(
    "add_note.cap_holds",
    "Of two notes for the last place at once, one is added and the other finds the inbox full.",
    add(1, max_pending=2),
    add(2, max_pending=2),
    before=(born(), Do(add(0))),
    after=(Do(add(3, max_pending=2), expect=FULL_INBOX),),
    cause=CAP,
)
race(
    "add_note.same_note_twice",
    "One note sent twice at once is stored once.",
    FULL,
    FULL,
    before=(born(),),
    after=(Do(FULL, expect=DUPLICATE),),
    cause="A repeat that meets its own first call reports a conflict with itself: look again once the key clashed.",
)
race(
    "add_note.note_or_end",
    "A note that meets the end of the run comes before it or finds the run closed.",
    FULL,
    ended(event_id="end").operation,
    before=(born(),),
    cause="The run's status is read without being held until the note is committed.",
)
race(
    "mark_notes_delivered.stamped_once",
    "Two deliveries of one note at once stamp it once.",
    MarkNotesDelivered(run_id="r", note_ids=("n0", "n1"), iteration=1),
    MarkNotesDelivered(run_id="r", note_ids=("n1", "n2"), iteration=2),
    before=(born(), Do(add(0)), Do(add(1)), Do(add(2))),
    cause="Notes are read and then stamped by id, without asking again whether they have a stamp.",
)
