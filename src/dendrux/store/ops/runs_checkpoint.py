"""What one step of a loop produced, stored at once, and the loop's own state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import func, literal, or_

from dendrux.db.models import agent_runs
from dendrux.runtime.values import JsonObject, LLMInteractionWrite, TraceWrite, UsageStats, UsageWrite
from dendrux.store.checks import fits
from dendrux.store.digest import content_digest, given
from dendrux.store.ops.evidence import store_all
from dendrux.store.ops.pauses import progressed
from dendrux.store.ops.runs import patch_expression
from dendrux.store.ops.traces import trace_entry
from dendrux.store.ops.usage import interaction_entry, usage_entry
from dendrux.store.statements import of_run
from dendrux.store.tx import Outcome, Tx, Unchanged
from dendrux.vocabulary import LOOP_STATE_MAX, RUNNING, UNSCOPED

runs = agent_runs.c
JUDGED: Final = (runs.last_step_id, runs.last_step_digest, runs.loop_state)


async def checkpoint_step(
    tx: Tx,
    run_id: str,
    *,
    step_id: str,
    claim_epoch: int,
    iteration_count: int,
    loop_state: JsonObject | None = None,
    traces: Sequence[TraceWrite] = (),
    interaction: LLMInteractionWrite | None = None,
    usage: UsageWrite | None = None,
    total_usage: UsageStats | None = None,
) -> Outcome[None]:
    """Format 2: store a step of the loop as a whole: its rows, the loop state, the count and the totals.

    Ensures: the state is merged by top-level members, None deletes one. The last step repeated changes nothing.
    Refuses: RunNotFoundError; ValueError on format 1 and for a loop state over its bound; StaleClaimError;
    RunAlreadyTerminalError; WriteConflictError for the last step with other content, a lower count, a known id or a
    taken position.
    """
    digest = content_digest(
        "checkpoint_step",
        iteration_count=iteration_count,
        loop_state=loop_state,
        traces=[given(trace) for trace in traces],
        interaction=given(interaction),
        usage=given(usage),
        total_usage=total_usage,
    )
    await tx.begin(run_id)
    guard = [
        runs.status == RUNNING,
        runs.claim_epoch == claim_epoch,
        runs.storage_format == 2,
        or_(runs.last_step_id.is_(None), runs.last_step_id != step_id),
        runs.iteration_count <= iteration_count,
    ]
    step = [
        *progressed(iteration_count, None, total_usage),
        (runs.last_step_id, step_id),
        (runs.last_step_digest, digest),
        *tx.renewal().items(),
        (runs.updated_at, tx.now),
    ]
    stored = False
    state = _patched(tx, loop_state)
    if not loop_state:
        stored = await tx.swap(run_id, guard, step) is not None
    elif state is not None:
        small = func.length(state) <= LOOP_STATE_MAX // 4  # characters of at most four bytes; a larger one is measured
        stored = await tx.swap(run_id, [*guard, small], [*step, (runs.loop_state, state)]) is not None
    if not stored:
        run = await tx.hold(run_id, UNSCOPED, *JUDGED)
        if _repeated(tx, run, step_id, claim_epoch, iteration_count, digest):
            return Unchanged(None)
        if loop_state:
            merged = fits("loop_state", _merged(run.loop_state, loop_state))
            step.append((runs.loop_state, literal(merged, runs.loop_state.type)))
        if await tx.swap(run_id, guard, step) is None:
            raise tx.again()
    await store_all(
        tx,
        [
            *(trace_entry(tx, run_id, trace, 2) for trace in traces),
            *([] if interaction is None else [interaction_entry(tx, run_id, interaction)]),
            *([] if usage is None else [usage_entry(tx, run_id, usage)]),
        ],
    )
    return None


def _repeated(tx: Tx, run: Any, step_id: str, claim_epoch: int, iteration_count: int, digest: str) -> bool:
    """Whether the step is the run's last one already. Raises what refuses a step that is not."""
    tx.format_2_only(run, "update_run_meta and save_trace")
    known = run.last_step_id == step_id
    if tx.in_doubt and known and run.last_step_digest == digest:
        return True  # this call's own first transaction, whoever owns the run by now
    tx.stale(run, claim_epoch)
    tx.closed(run)
    tx.stale(run, claim_epoch, running=True)
    if known and run.last_step_digest == digest:
        return True
    if known or iteration_count < run.iteration_count:
        raise tx.conflict()
    return False


def _patched(tx: Tx, patch: JsonObject | None) -> Any | None:
    """The patched state as an expression, where the database can, every key is plain and nothing is deleted."""
    if not patch or any(member is None for member in patch.values()):
        return None
    return patch_expression(tx, patch, runs.loop_state)


def _merged(state: JsonObject | None, patch: JsonObject) -> JsonObject:
    """The state with the patch's members set, and those deleted that are None."""
    left = {**(state or {}), **patch}
    return {key: member for key, member in left.items() if patch.get(key, key) is not None}


async def get_loop_state(tx: Tx, run_id: str) -> JsonObject | None:
    """The loop's own state as its last steps left it; None where none stored any."""
    found = await tx.row(of_run(runs.loop_state), {"p_run": run_id})
    return None if found is None else found.loop_state
