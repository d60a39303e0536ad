"""Between two rounds of calls, worlds that nothing can tell apart are one; times that were seen stay seen."""

from __future__ import annotations

import pytest

from dendrux.runtime.values import UsageStats
from dendrux_model.linearize import Call, linearize
from dendrux_model.machines.cells import state
from dendrux_model.operations import (
    AddNote,
    GetLLMInteractions,
    GetNotes,
    GetRun,
    Operation,
    SaveLLMInteraction,
    SaveUsage,
    TouchProgress,
)
from dendrux_model.outcomes import NONE, TRUE, Outcome, Returned
from dendrux_model.possible import Violation, Worlds
from dendrux_model.settled import settle
from dendrux_model.values import At
from model.simulator import concrete


def raced(*calls: tuple[Operation, Outcome]) -> Worlds:
    """The worlds after these calls, all at once, of a running run."""
    worlds = Worlds(state("running", 2))
    verdict = linearize(worlds.possible, [Call(*call, 1, 2) for call in calls], 1)
    worlds.replace(verdict.worlds)
    worlds.instant = verdict.instants
    return worlds


TOUCH = (TouchProgress(run_id="r1", claim_epoch=1), TRUE)
READ = GetRun(run_id="r1")


def shown(worlds: Worlds, time: int) -> Outcome:
    """What a store shows of the run, whose last write it says was then."""
    answer = concrete(READ.step(worlds.possible[0].world)[1])
    assert isinstance(answer, Returned)
    return Returned(answer.value | {"last_progress_at": At(time)})


def test_it_does_not_matter_which_call_was_the_last() -> None:
    worlds = raced(TOUCH, TOUCH, TOUCH)
    assert len(worlds.possible) == 3
    settle(worlds, 0, [(READ, shown(worlds, 77))])
    assert len(worlds.possible) == 1


def test_a_time_that_was_seen_does_not_move() -> None:
    worlds = raced(TOUCH, TOUCH)
    settle(worlds, 0, [(READ, shown(worlds, 77))])
    with pytest.raises(Violation):
        worlds.saw(READ, shown(worlds, 78))


def test_orders_that_no_read_shows_are_one() -> None:
    usage = UsageStats(input_tokens=1, output_tokens=2, total_tokens=3)
    rows = [SaveUsage(run_id="r1", iteration_index=0, usage=usage, usage_id=f"u{number}") for number in range(3)]
    worlds = raced(*((row, NONE) for row in rows))
    assert len(worlds.possible) == 6
    settle(worlds, 0, [])
    assert len(worlds.possible) == 1


def test_orders_that_a_read_shows_stay() -> None:
    worlds = raced(*((AddNote(run_id="r1", note_id=f"n{n}", text="a"), Returned("added")) for n in range(2)))
    settle(worlds, 0, [])
    assert len(worlds.possible) == 2
    read = GetNotes(run_id="r1")
    worlds.saw(read, concrete(read.step(worlds.possible[0].world)[1]))
    assert len(worlds.possible) == 1


def test_rows_under_minted_ids_are_in_no_order() -> None:
    """What sorts them is minted by the store: processes that mint in one millisecond mint in any order."""
    usages = [UsageStats(input_tokens=number, output_tokens=2, total_tokens=3) for number in (1, 2)]
    worlds = raced(*((SaveLLMInteraction(run_id="r1", iteration_index=0, usage=usage), NONE) for usage in usages))
    read = GetLLMInteractions(run_id="r1")
    answers = [concrete(read.step(possible.world)[1]) for possible in worlds.possible]
    settle(worlds, 0, [(read, answer) for answer in answers])
    assert len(answers) == 2
    assert len(worlds.possible) == 1
    assert isinstance(answers[0], Returned)
    with pytest.raises(Violation):
        worlds.saw(read, Returned(answers[0].value[:1]))
