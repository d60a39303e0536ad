"""The states that contracts begin in, as steps, and what the model says of a program without any store."""

from __future__ import annotations

from typing import Any, Final

from dendrux.vocabulary import META_LOOP, OPEN_STATUSES, RECOVERABLE_LOOP
from dendrux_model.operations import (
    AddNote,
    ClaimPausedRun,
    CreateRun,
    FinalizeWithEvent,
    MarkLeaseExpired,
    Operation,
    PauseWithEvent,
)
from dendrux_model.outcomes import Outcome, Returned
from dendrux_model.programs import Do, Program, Tick, lasting, timed
from dendrux_model.values import At
from dendrux_model.world import World

WAITING: Final = "waiting_human_input"
"""The paused status that contracts use where any would do."""
OPEN: Final = tuple(sorted(OPEN_STATUSES))
DOCUMENT: Final[dict[str, Any]] = {"question": "May I go on?", "step": {"tool": "mail", "tries": [1, 2.0, None]}}
"""A pause document."""

# -- steps ------------------------------------------------------------------------------------------------------------


def born(run_id: str = "r", agent_name: str = "agent", **given: Any) -> Do:
    """A run begins: running, under epoch 1."""
    return Do(CreateRun(run_id=run_id, agent_name=agent_name, **given))


def noted(run_id: str = "r", note_id: str = "n", text: str = "look here", **given: Any) -> Do:
    """A note arrives in the inbox."""
    return Do(AddNote(run_id=run_id, note_id=note_id, text=text, **given))


def paused(run_id: str = "r", status: str = WAITING, pause_data: Any = None, **given: Any) -> Do:
    """The run pauses with a document."""
    document = DOCUMENT if pause_data is None else pause_data
    return Do(PauseWithEvent(run_id=run_id, status=status, pause_data=document, **given))


def claimed(run_id: str = "r", expected_status: str = WAITING, **given: Any) -> Do:
    """Somebody takes the paused run, under the next epoch."""
    return Do(ClaimPausedRun(run_id=run_id, expected_status=expected_status, **given))


def ended(run_id: str = "r", status: str = "success", **given: Any) -> Do:
    """The run ends, from whatever open status it has."""
    event_type = "run.cancelled" if status == "cancelled" else "run.completed"
    given = {"allowed_current_statuses": OPEN, "event_type": event_type, **given}
    return Do(FinalizeWithEvent(run_id=run_id, status=status, **given))


OWNED: Final[Program] = (born(), noted(), paused(), claimed())
"""A run under its second owner, with a log, a document and a note in the inbox."""
OWNER: Final = 2
"""The epoch of that owner."""

LEASE_S: Final = 600
"""The age from which sweeps in contracts take a run for one without an owner."""
REACT: Final[dict[str, Any]] = {META_LOOP: RECOVERABLE_LOOP}
"""The meta of a run that another owner can go on with, on format 2."""
DUE: Final[Program] = (born(meta=REACT), Tick(LEASE_S))
"""A run whose owner, the first, has not written for so long that it is thought dead."""
MARKED: Final[Program] = (*DUE, Do(MarkLeaseExpired(cutoff_s=LEASE_S)))
"""The same run, marked: on format 2 somebody may take it over."""

# -- what the model says ----------------------------------------------------------------------------------------------


def world_after(program: Program, storage_format: int) -> World:
    """The world that the calls of a program lead to, one after the other."""
    known = _AFTER.get((id(program), storage_format))
    if known is not None:
        return known[1]
    world = World(new_format=storage_format)
    for instant, call in timed(program):
        world = call.operation.step(world._replace(now=instant))[0]
    _AFTER[id(program), storage_format] = program, world
    return world


_AFTER: Final[dict[tuple[int, int], tuple[Program, World]]] = {}
"""Worlds by program, which cannot be hashed: kept here, its id stays its own. Many contracts begin with one program."""


def answer(program: Program, operation: Operation, storage_format: int) -> Outcome:
    """What this call is answered after the program."""
    world = world_after(program, storage_format)
    return operation.step(world._replace(now=lasting(program)))[1]


def changes(program: Program, operation: Operation, storage_format: int) -> bool:
    """Whether this call changes anything after the program."""
    before = world_after(program, storage_format)._replace(now=lasting(program))
    return operation.step(before)[0] is not before


def expected(program: Program, operation: Operation, formats: tuple[int, ...] = (1, 2)) -> Outcome | None:
    """What the answers on these storage formats have in common; None where they differ, and the oracle alone judges.

    Instants are left out: they depend on what else a contract calls.
    """
    one, two = answer(program, operation, formats[0]), answer(program, operation, formats[-1])
    if isinstance(one, Returned) and isinstance(two, Returned) and isinstance(one.value, dict):
        return Returned({k: v for k, v in one.value.items() if two.value[k] == v and not isinstance(v, At)})
    return one if one == two else None
