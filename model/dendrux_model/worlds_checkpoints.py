"""Small worlds of checkpoints: steps of a loop, what was submitted, and the conversation as a model sees it."""

from __future__ import annotations

from typing import Any

from dendrux.runtime.values import (
    LLMInteractionWrite,
    SeedTrace,
    ToolCallWrite,
    TraceWrite,
    UsageStats,
    UsageWrite,
)
from dendrux.vocabulary import LOOP_STATE_MAX, META_LOOP, RECOVERABLE_LOOP
from dendrux_model.operations import (
    CheckpointStep,
    ConsumeSubmission,
    ConversationTraces,
    GetLoopState,
    GetTraces,
    GetTracesAfter,
    MarkLeaseExpired,
    Operation,
    ReclaimRun,
    ReleaseRunClaim,
    SaveTrace,
    SubmitAndClaim,
)
from dendrux_model.worlds import APPROVAL, MISSING, R1, R2, end, pause, run, small_world


def message(place: int, trace_id: str | None = None, **given: Any) -> TraceWrite:
    """A message inside a larger write."""
    return TraceWrite(role="user", content="x", order_index=place, trace_id=trace_id, **given)


@small_world
def handed_over(storage_format: int) -> dict[str, Any]:
    """A run that was submitted to, owners who consume it, crash, are replaced, hand it back, pause it and end it."""

    def consume(epoch: int, consumption_id: str, *traces: TraceWrite, **given: Any) -> ConsumeSubmission:
        about = {"run_id": R1, "claim_epoch": epoch, "consumption_id": consumption_id, "traces": traces, **given}
        return ConsumeSubmission(**about)

    call = ToolCallWrite(tool_call_id="c1", tool_name="look", result_payload="1", success=True, row_id="k1")
    submission: dict[str, Any] = {"submission_id": "s1", "submitted_data": {"ok": True}}
    owners: list[Operation] = [MarkLeaseExpired(cutoff_s=0)]
    owners += [ReclaimRun(run_id=R1, expected_epoch=epoch) for epoch in (2, 3)] if storage_format == 2 else []
    return {
        "setup": (run(R1, meta={META_LOOP: RECOVERABLE_LOOP}), run(R2), pause(R1, "p1", 1)),
        "alphabet": (
            SubmitAndClaim(run_id=R1, expected_status=APPROVAL, **submission),
            *owners,
            *(consume(epoch, "c1", message(0, "t1"), tool_calls=(call,)) for epoch in (1, 2, 3)),
            consume(2, "c2", pii_mapping={"a": "b"}),
            consume(3, "c2", pii_mapping={"a": "b"}),
            consume(1, "c1", run_id=R2),
            consume(1, "c1", run_id=MISSING),
            SaveTrace(run_id=R1, role="user", content_text="y", order_index=0, trace_id="t2"),
            *(ReleaseRunClaim(run_id=R1, claim_epoch=epoch) for epoch in (2, 3)),
            *(pause(R1, f"p{epoch}", epoch) for epoch in (2, 3)),
            end(R1, "f1", None),
        ),
        "within": lambda world: world.runs[0].claim_epoch <= 3 and len(world.runs[0].events) <= 7,
        "sometimes": () if storage_format == 1 else ("consumed_after_a_crash", "handed_out_again"),
    }


@small_world
def steps(storage_format: int) -> dict[str, Any]:
    """The steps of a run that its owner repeats, changes and takes back, while others write to it."""

    def step(step_id: str, count: int, *traces: TraceWrite, epoch: int = 1, **given: Any) -> CheckpointStep:
        about = {"run_id": R1, "step_id": step_id, "claim_epoch": epoch, "iteration_count": count, "traces": traces}
        return CheckpointStep(**{**about, **given})

    usage = UsageStats(input_tokens=1)
    half = {"x": "x" * (LOOP_STATE_MAX // 2)}
    seeds = {"seed_traces": (SeedTrace(role="user", content="hi"),)} if storage_format == 2 else {}
    return {
        "setup": (run(R1, pii_mapping={"a": "b"}, **seeds), run(R2)),
        "alphabet": (
            run("seeded", seed_traces=(SeedTrace(role="user", content="hi"),)),
            step("s1", 1, message(1, "t1"), loop_state={"a": 1, "b": {"c": 2}}, total_usage=usage),
            step("s1", 1, message(1, "t1"), loop_state={"a": 1.0, "b": {"c": 2}}, total_usage=usage),
            step("s2", 2, loop_state={"b": None, "c": True}),
            step(
                "s3",
                2,
                message(2, "t1"),
                interaction=LLMInteractionWrite(iteration_index=2, usage=usage, interaction_id="i1"),
                usage=UsageWrite(iteration_index=2, usage=usage, usage_id="u1"),
            ),
            step("s4", 0),
            step("s5", 1, message(3), message(3)),
            step("s6", 2, loop_state=half),
            step("s7", 2, loop_state={"y": half["x"]}),
            step("s8", 2, loop_state={"z": half["x"] + half["x"]}),
            step("s1", 1, epoch=2),
            step("s1", 1, run_id=MISSING),
            SaveTrace(run_id=R1, role="user", content_text="z", order_index=1, trace_id="t2", trace_kind="rewrite"),
            SaveTrace(run_id=R2, role="user", content_text="z", order_index=1, trace_id="t1"),
            pause(R1, "p1", 1),
            end(R1, "f1", None),
            *(GetLoopState(run_id=run_id) for run_id in (R1, MISSING)),
            *(GetTracesAfter(run_id=run_id, after_order_index=0, limit=1) for run_id in (R1, MISSING)),
            ConversationTraces(run_id=R1, limit=1),
            ConversationTraces(run_id=R1, limit=10, after_order_index=0, max_bytes=1),
            ConversationTraces(run_id=MISSING, limit=10),
            GetTraces(run_id=R1),
        ),
    }
