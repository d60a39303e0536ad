"""Arguments of checkpoints, consumed submissions and pages of a conversation."""

from __future__ import annotations

from typing import Any

from dendrux.runtime.values import LLMInteractionWrite, SeedTrace, ToolCallWrite, TraceWrite, UsageStats, UsageWrite
from dendrux.vocabulary import LOOP_STATE_MAX
from dendrux_model import operations as ops

USAGE = UsageStats(input_tokens=1, output_tokens=2, total_tokens=3, cost_usd=0.5)
STATES: tuple[dict[str, Any] | None, ...] = (
    {"step": 1},
    None,
    {"step": None, "plan": [1, 1.0, {"é": "\u0000"}]},
    {"odd key ü": -0.0, "step": 2},
    {},
    {"much": "x" * LOOP_STATE_MAX},
)
"""What a step leaves of its loop; the last one is more than a run holds."""
SEEDS = (
    SeedTrace(role="system", content="You are kind.", meta={"n": 1}),
    SeedTrace(role="user", content="é\u0000 𝄞"),
)
MAPPING = {"<A>": "x"}


class CheckpointArguments:
    """The operations of checkpoints, for `Arguments`, whose pools they draw from."""

    pick: Any
    run: Any
    record: Any
    epoch: Any
    fresh: Any

    def messages(self, run_id: str) -> tuple[TraceWrite, ...]:
        """One message at the next place first, then none, two, one with no id, and one at a place that may be taken."""
        record = self.record(run_id)
        place = max((trace.order_index for trace in record.traces), default=-1) + 1 if record else 0
        given: dict[str, Any] = {"role": "user", "content": "hello"}
        first = TraceWrite(order_index=place, trace_id=self.fresh("m", "traces"), **given)
        rewrite = TraceWrite(order_index=place + 1, trace_kind="rewrite", meta={"n": 1.0}, **given)
        taken = TraceWrite(order_index=0, **given)
        options: list[tuple[TraceWrite, ...]] = [(first,), (), (first, rewrite), (rewrite,), (taken,)]
        chosen: tuple[TraceWrite, ...] = self.pick(options)
        return chosen

    def seeds(self) -> dict[str, Any]:
        """What a run starts with, none first."""
        return {"seed_traces": self.pick([(), (), SEEDS[:1], SEEDS]), "pii_mapping": self.pick([None, MAPPING])}

    def checkpoint_step(self) -> ops.Operation:
        run = self.run()
        record = self.record(run)
        count = record.iteration_count if record else 0
        last = record.last_step.id if record and record.last_step else None
        interaction = LLMInteractionWrite(
            iteration_index=1, usage=USAGE, interaction_id=self.fresh("i", "interactions"), semantic_request={"n": 1}
        )
        usage = UsageWrite(iteration_index=1, usage=USAGE, usage_id=self.fresh("u", "usage"))
        return ops.CheckpointStep(
            run_id=run,
            step_id=self.pick([f"step{count + 1}", last or "step1", "step1"]),
            claim_epoch=self.epoch(run, required=True),
            iteration_count=self.pick([count + 1, count, max(0, count - 1)]),
            loop_state=self.pick(STATES),
            traces=self.messages(run),
            interaction=self.pick([None, interaction]),
            usage=self.pick([None, usage]),
            total_usage=self.pick([None, USAGE]),
        )

    def get_loop_state(self) -> ops.Operation:
        return ops.GetLoopState(run_id=self.run())

    def consume_submission(self) -> ops.Operation:
        run = self.run()
        call = ToolCallWrite(
            tool_call_id="call9", tool_name="ask", result_payload='{"ok": 1}', success=True, row_id="consumed"
        )
        return ops.ConsumeSubmission(
            run_id=run,
            claim_epoch=self.epoch(run, required=True),
            consumption_id=self.pick(["use1", "use2"]),
            traces=self.messages(run),
            tool_calls=self.pick([(), (call,)]),
            pii_mapping=self.pick([None, MAPPING]),
        )

    def get_traces_after(self) -> ops.Operation:
        return ops.GetTracesAfter(
            run_id=self.run(), after_order_index=self.pick([-1, 0, 1]), limit=self.pick([1000, 1])
        )

    def conversation_traces(self) -> ops.Operation:
        return ops.ConversationTraces(
            run_id=self.run(),
            limit=self.pick([1000, 1, 2]),
            after_order_index=self.pick([None, 0, 1]),
            max_bytes=self.pick([None, 1, 6]),
        )
