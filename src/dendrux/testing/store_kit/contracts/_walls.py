"""The wall between tenants beside every other parameter: an epoch, an identity or a cursor opens no door."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

from dendrux.errors import RunNotFoundError
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import NotKept, Situation, contract
from dendrux.testing.store_kit.contracts._nasty import TENANTS
from dendrux.testing.store_kit.contracts._states import WAITING, born, noted, paused
from dendrux.vocabulary import LIMIT_MAX
from dendrux_model.operations import AddNote, ClaimPausedRun, GetNotes, SubmitAndClaim
from dendrux_model.outcomes import CONFLICT, NOT_FOUND, VALIDATION, Returned
from dendrux_model.programs import Do, Look
from dendrux_model.world import World

OWN: Final = "t"
STRANGERS: Final = tuple(tenant for tenant in TENANTS if tenant != OWN)
CAUSE: Final = "One way through the operation looks the run up without the scope: put the scope into every predicate."
OTHERS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"claim_epoch": 1},
    {"claim_epoch": 9},
    {"max_pending": 1000},
    {"metadata": {"from": "Ada"}},
    {"note_id": "n", "text": "look here"},
    {"note_id": "n", "text": "look here", "claim_epoch": 1},
    {"note_id": "n", "text": "look there"},
)
"""Everything else that add_note takes, a note that is there included."""


def note(**given: Any) -> AddNote:
    """A new note, unless told otherwise."""
    return AddNote(**{"run_id": "r", "note_id": "new", "text": "look here", **given})


def submission(**given: Any) -> SubmitAndClaim:
    """A submission to the paused run."""
    return SubmitAndClaim(run_id="r", expected_status=WAITING, submitted_data={"yes": True}, **given)


SUBMISSIONS: Final[tuple[dict[str, Any], ...]] = tuple(
    {"validate": validate, "submission_id": submission_id}
    for validate in (None, "accept", "refuse")
    for submission_id in (None, "s")
)

contract(
    "basic.add_note.walls_beside_other_parameters",
    "A note for a run of another tenant is refused, whatever epoch, cap or note id comes with it.",
    born(tenant_id=OWN),
    noted(),
    *(Do(note(tenant_id=stranger, **others), expect=NOT_FOUND) for stranger in STRANGERS for others in OTHERS),
    Look(),
    Do(note(tenant_id=OWN, note_id="n"), expect=Returned("duplicate")),
    Do(note(tenant_id=OWN, note_id="n", text="look there"), expect=CONFLICT),
    Do(note(tenant_id=OWN, claim_epoch=1), expect=Returned("added")),
    cause=CAUSE,
)
contract(
    "basic.submit_and_claim.walls_beside_other_parameters",
    "A submission to a run of another tenant is refused, with any validation and any submission id.",
    born(tenant_id=OWN),
    paused(),
    *(
        Do(submission(tenant_id=stranger, **others), expect=NOT_FOUND)
        for stranger in STRANGERS
        for others in SUBMISSIONS
    ),
    Look(),
    Do(submission(tenant_id=OWN, validate="refuse", submission_id="s"), expect=VALIDATION),
    Do(submission(tenant_id=OWN, validate="accept", submission_id="s"), expect=Returned(2)),
    *(
        Do(submission(tenant_id=stranger, **others), expect=NOT_FOUND)
        for stranger in STRANGERS
        for others in SUBMISSIONS
    ),
    *(
        Do(ClaimPausedRun(run_id="r", expected_status=WAITING, tenant_id=other), expect=NOT_FOUND)
        for other in STRANGERS
    ),
    cause=CAUSE,
)


async def notes(situation: Situation) -> None:
    """Notes in a foreign scope, with every other parameter of the read."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    await execution.run((born(tenant_id=OWN), noted(note_id="n1"), noted(note_id="n2"), Do(GetNotes(run_id="r"))))
    store = await situation.bench.instance()
    inside = execution.driver.inside
    given = {"after": inside("note_id", "n1"), "undelivered_only": True, "limit": 1}
    for stranger in STRANGERS:
        for names in (names for n in range(len(given) + 1) for names in combinations(given, n)):
            scope = inside("tenant_id", stranger)
            try:
                found = await store.get_notes(
                    run_id=inside("run_id", "r"), tenant_id=scope, **{name: given[name] for name in names}
                )
            except RunNotFoundError:
                continue
            raise NotKept(
                f"get_notes of a run of tenant {OWN!r}, asked for tenant {stranger!r} with "
                f"{', '.join(names) or 'nothing else'}, answers {len(found)} notes; it must raise RunNotFoundError"
            )
    page = await store.get_notes(
        run_id=inside("run_id", "r"), tenant_id=inside("tenant_id", OWN), after=inside("note_id", "n1")
    )
    if [execution.driver.outside(row.id) for row in page] != ["n2"]:
        raise NotKept("get_notes after a note, in the run's own scope, gives other notes than those that follow")


contract(
    "basic.get_notes.walls_beside_other_parameters",
    "The notes of a run of another tenant are not read, from a cursor neither.",
    check=notes,
    cause=CAUSE,
)


async def lists(situation: Situation) -> None:
    """Lists and counts of each scope, with and without an agent's name."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    mark = {"mark": execution.driver.namespace}
    await execution.run(tuple(born(f"r{i}", tenant_id=tenant, meta=mark) for i, tenant in enumerate(TENANTS)))
    store = await situation.bench.instance()
    inside = execution.driver.inside
    first = (await store.get_run(inside("run_id", "r0"))).created_at
    filters: dict[str, Any] = {
        "agent_name": inside("agent_name", "agent"),
        "metadata_filter": mark,
        "status": "running",
        "started_after": first,
    }
    for i, tenant in enumerate(TENANTS):
        for names in (names for n in range(len(filters) + 1) for names in combinations(filters, n)):
            given = {name: filters[name] for name in names} | {"tenant_id": inside("tenant_id", tenant)}
            listed = [run.id for run in await store.list_runs(**given, limit=LIMIT_MAX)]
            shared = not tenant and not {"agent_name", "metadata_filter"} & set(names)  # other programs have such runs
            mine = [run_id for run_id in listed if run_id.startswith(execution.driver.namespace)] if shared else listed
            counted = len(mine) if shared else await store.count_runs(**given)
            if mine != [inside("run_id", f"r{i}")] or counted != 1:
                raise NotKept(
                    f"one run is of tenant {tenant!r}; with {', '.join(names) or 'no other filter'} list_runs shows "
                    f"{len(mine)} and count_runs {counted}"
                )


contract(
    "basic.list_runs.walls_beside_other_filters",
    "Lists and counts of a tenant show its runs and no others, whatever other filters there are.",
    check=lists,
    cause=CAUSE,
)
