"""Mutants of checkpoints and consumed submissions."""

from __future__ import annotations

from typing import Any

from dendrux_model import rules
from dendrux_model.operations import CheckpointStep, ConsumeSubmission, Step, runs_checkpoint
from dendrux_model.outcomes import CONFLICT, NONE, Outcome, Returned
from dendrux_model.swaps import Swap, instead, mutant, seen_as, step_keeping, step_of, swapped
from dendrux_model.values import object_text
from dendrux_model.world import World


@mutant("submission_once", "handed_over")
def consumed_twice() -> Swap:
    """A submission that was consumed is handed to another consumption, too."""

    def change(op: Any, before: World, after: World, outcome: Outcome) -> Step:
        held = before.runs[0].submission
        if outcome != NONE or held is None or op.run_id != before.runs[0].id:
            return after, outcome
        return after, Returned({"submission_id": held.id, "data": object_text(held.members)})

    return step_of(ConsumeSubmission, change)


@mutant("submission_once", "handed_over")
def consumption_forgotten() -> Swap:
    """A submission is handed out and not marked."""
    return step_keeping(ConsumeSubmission, "submission")


@mutant("permission_needs_claim", "handed_over")
def anybody_consumes() -> Swap:
    """A submission is handed to whoever asks under any epoch."""
    return seen_as(ConsumeSubmission, lambda op, run: run._replace(claim_epoch=op.claim_epoch))


@mutant("identity_once", "steps")
def step_not_compared() -> Swap:
    """The last step's id with other content is taken for a repeat."""
    return step_of(
        CheckpointStep,
        lambda op, before, after, outcome: (
            (after, NONE) if outcome == CONFLICT and last_id(before) == op.step_id else (after, outcome)
        ),
    )


def last_id(world: World) -> str | None:
    """The last step of the first run."""
    step = world.runs[0].last_step
    return None if step is None else step.id


@mutant("position_once", "steps")
def step_takes_any_position() -> Swap:
    """A step's messages share order indexes with others."""
    return instead(rules, "POSITIONS", {})


@mutant("identity_once", "steps")
def step_takes_any_id() -> Swap:
    """A step's rows take ids that others have."""
    return instead(rules, "free", lambda _world, _run, _rows: True)


@mutant(None, "steps")
def count_goes_back() -> Swap:
    """A step may lower the count."""
    return seen_as(CheckpointStep, lambda _op, run: run._replace(iteration_count=0))


@mutant(None, "steps")
def state_replaced() -> Swap:
    """The loop state is replaced instead of merged."""
    return swapped(runs_checkpoint, "patched", lambda original: lambda _state, patch: original(None, patch))


@mutant(None, "steps")
def state_without_bound() -> Swap:
    """The loop state may be of any size."""
    return instead(runs_checkpoint, "too_large", lambda _state: False)


@mutant("identity_once", "steps")
def step_not_remembered() -> Swap:
    """A step is stored and not remembered as the last one."""
    return step_keeping(CheckpointStep, "last_step")
