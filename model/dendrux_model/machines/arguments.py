"""Arguments for operations, drawn from small pools that collide often and read nothing but the model.

The first choice of every pool is the plain one: a rightful owner, a fresh id, no option. Choosing it everywhere gives
an operation that the model enables whenever one exists, which is what machines draw most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from dendrux.runtime.values import EventWrite, TraceWrite, UsageStats
from dendrux.vocabulary import PAUSED_STATUSES, RUNNING, TOOL_COMPLETED, TOOL_STARTED, UNSCOPED
from dendrux_model import operations as ops
from dendrux_model.machines.arguments_blobs import BlobArguments
from dendrux_model.machines.arguments_checkpoints import CheckpointArguments
from dendrux_model.machines.arguments_leases import LeaseArguments
from dendrux_model.world import Run, World

T = TypeVar("T")
Pick = Callable[[Sequence[Any]], Any]
"""Chooses one of several; the first is the plain choice."""

AGENT = "a"
RUNS = ("r1", "r2", "r3")
NONES = (None, None)
"""Makes leaving a parameter out likelier."""
TENANTS = (None, "t", "t ", "T", "")
KEYS = (None, None, "k")
DOCUMENTS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"n": 1},
    {"n": 1.0, "flag": True},
    {"text": "é\u0000\x1a𝄞 ", "nested": {"list": [1, None, {}], "": -0.0}},
    {"big": 2**80, "z": 1, "a": 2},
)
PATCHES: tuple[dict[str, Any], ...] = ({"color": "red"}, {"color": None, "n": 1}, {"n": 1.0}, {"odd key ü": [1]}, {})
TEXTS = ("hello", "", "é\u0000 '\"\\ 𝄞\n")
USAGES = (
    UsageStats(input_tokens=1, output_tokens=2, total_tokens=3),
    UsageStats(input_tokens=5, cost_usd=0.1234565, reasoning_tokens=7, cache_read_input_tokens=0),
    UsageStats(cost_usd=Decimal("0.123456"), cost_source="table"),
)
PAUSES = ("waiting_client_tool", "waiting_human_input", "waiting_approval", "paused")
ENDS = (
    ("success", "run.completed"),
    ("error", "run.error"),
    ("cancelled", "run.cancelled"),
    ("max_iterations", "run.completed"),
    ("success", "run.error"),
)


class Arguments(LeaseArguments, BlobArguments, CheckpointArguments):
    """Makes operations for one world, asking `pick` for every choice."""

    def __init__(self, world: World, pick: Pick) -> None:
        self.world = world
        self._pick = pick

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        chosen: T = self._pick(options)
        return chosen

    # -- pools --------------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """A run that exists first; rarely one that does not."""
        known = [run.id for run in self.world.runs]
        return self.pick([*known, "missing"] if known else ["missing"])

    def record(self, run_id: str) -> Run | None:
        """The run in the model."""
        return next((run for run in self.world.runs if run.id == run_id), None)

    def epoch(self, run_id: str, *, required: bool = False) -> Any:
        """The run's epoch first, then none, an older one and one ahead."""
        run = self.record(run_id)
        current = run.claim_epoch if run else 1
        return self.pick([current, *([] if required else [None]), max(1, current - 1), current + 1])

    def fresh(self, kind: str, rows: str) -> str | None:
        """An id not used yet first, then one that was, then none at all."""
        used = [row.id for run in self.world.runs for row in getattr(run, rows) if row.id is not None]
        new = f"{kind}{len(used)}"
        options: list[str | None] = [new, *used[-1:], None]
        return self.pick(options)

    def document(self) -> dict[str, Any] | None:
        return self.pick(DOCUMENTS)

    def scope(self, run_id: str) -> Any:
        """No scope first, then the run's own tenant and others."""
        run = self.record(run_id)
        return self.pick([UNSCOPED, run.tenant_id if run else None, *TENANTS])

    def paused_status(self, run_id: str) -> str:
        """The status the run is paused in first."""
        run = self.record(run_id)
        own = run.status if run is not None and run.status in PAUSED_STATUSES else "paused"
        return self.pick([own, *PAUSES])

    def progress(self) -> dict[str, Any]:
        """What pause and finalize carry along, left out first."""
        return {
            "iteration_count": self.pick([None, 0, 3]),
            "pii_mapping": self.pick([None, {"<A>": "x"}]),
            "total_usage": self.pick([None, *USAGES]),
        }

    # -- operations ---------------------------------------------------------------------------------------------------

    def make(self, name: str) -> ops.Operation:
        """One operation of this class."""
        made: ops.Operation = getattr(self, ops.OPERATIONS[name].method)()
        return made

    def create_run(self) -> ops.Operation:
        known = [run.id for run in self.world.runs]
        free = [run for run in RUNS if run not in known]
        parent = self.pick([None, *known, *NONES])
        record = self.record(parent) if parent else None
        key = self.pick(KEYS)
        tenant = record.tenant_id if record else self.pick(TENANTS)
        return ops.CreateRun(
            run_id=self.pick([*free, *known]),
            agent_name=AGENT,
            tenant_id=tenant,
            blob_refs=self.edges(tenant, "input", "input"),
            meta=self.document(),
            idempotency_key=key,
            idempotency_fingerprint=self.pick([None, "f", ""]) if key else None,
            parent_run_id=parent,
            delegation_level=(record.delegation_level + 1 if record else 0) + self.pick([0, 1, 0, 0]),
            parent_claim_epoch=self.epoch(parent) if parent else None,
            retry_of_run_id=self.pick([None, *known, *NONES]),
            **self.seeds(),
        )

    def update_run_meta(self) -> ops.Operation:
        run = self.run()
        return ops.UpdateRunMeta(run_id=run, patch=self.pick(PATCHES), claim_epoch=self.epoch(run))

    def get_run(self) -> ops.Operation:
        run = self.run()
        return ops.GetRun(run_id=run, tenant_id=self.scope(run))

    def get_pii_mapping(self) -> ops.Operation:
        return ops.GetPiiMapping(run_id=self.run())

    def claim_paused_run(self) -> ops.Operation:
        run = self.run()
        return ops.ClaimPausedRun(run_id=run, expected_status=self.paused_status(run), tenant_id=self.scope(run))

    def submit_and_claim(self) -> ops.Operation:
        run = self.run()
        return ops.SubmitAndClaim(
            run_id=run,
            expected_status=self.paused_status(run),
            submitted_data=self.pick([{"answer": 1}, {"answer": 1.0, "n": 2}]),
            submission_id=self.pick(["s1", "s2", None]),
            validate=self.pick([None, "accept", "refuse"]),
            tenant_id=self.scope(run),
            blob_refs=self.refs(run, "submission", "0"),
        )

    def release_run_claim(self) -> ops.Operation:
        run = self.run()
        return ops.ReleaseRunClaim(run_id=run, claim_epoch=self.epoch(run, required=True))

    def request_cancel(self) -> ops.Operation:
        return ops.RequestCancel(run_id=self.run())

    def request_pause(self) -> ops.Operation:
        return ops.RequestPause(run_id=self.run(), reason=self.pick([None, "later", "now"]))

    def get_run_control(self) -> ops.Operation:
        return ops.GetRunControl(run_id=self.run())

    def pause_with_event(self) -> ops.Operation:
        run = self.run()
        return ops.PauseWithEvent(
            run_id=run,
            status=self.pick([*PAUSES, "success"]),
            pause_data=self.pick([{"pending": []}, {"pending": [1], "é": None}]),
            event_data=self.document(),
            event_id=self.fresh("e", "events"),
            claim_epoch=self.epoch(run),
            **self.progress(),
        )

    def try_pause_run(self) -> ops.Operation:
        run = self.run()
        return ops.TryPauseRun(
            run_id=run,
            status=self.pick([*PAUSES, "success"]),
            pause_data={"pending": []},
            claim_epoch=self.epoch(run),
            **self.progress(),
        )

    def pause_run(self) -> ops.Operation:
        run = self.run()
        return ops.PauseRun(
            run_id=run,
            status=self.pick([*PAUSES, "success"]),
            pause_data={"p": 1},
            claim_epoch=self.epoch(run),
            **self.progress(),
        )

    def get_pause_state(self) -> ops.Operation:
        return ops.GetPauseState(run_id=self.run())

    def get_pending(self) -> ops.Operation:
        run = self.run()
        return ops.GetPending(run_id=run, tenant_id=self.scope(run))

    def finalize_with_event(self) -> ops.Operation:
        run = self.run()
        status, event_type = self.pick(ENDS)
        return ops.FinalizeWithEvent(
            run_id=run,
            allowed_current_statuses=self.pick([(RUNNING, *PAUSES), (RUNNING,), PAUSES]),
            event_data=self.pick([None, {"error_info": {"code": 1}}, {"n": 1}]),
            event_id=self.fresh("e", "events"),
            status=status,
            event_type=event_type,
            trace=self.pick([None, None, self.last_message(run)]),
            **self.ending(run),
        )

    def last_message(self, run: str) -> TraceWrite:
        """The message that ends a conversation, behind all others first."""
        record = self.record(run)
        behind = max((trace.order_index for trace in record.traces), default=-1) + 1 if record else 0
        return TraceWrite(
            role="assistant",
            content=self.pick(TEXTS),
            order_index=self.pick([behind, 0]),
            trace_id=self.fresh("m", "traces"),
            trace_kind="final",
        )

    def ending(self, run: str) -> dict[str, Any]:
        """What every way to end a run takes."""
        return {
            "answer": self.pick([None, *TEXTS]),
            "error": self.pick([None, "boom"]),
            "failure_reason": self.pick([None, "stale_running"]),
            "claim_epoch": self.epoch(run),
            **self.progress(),
        }

    def finalize_run(self) -> ops.Operation:
        run = self.run()
        expected = self.pick([None, RUNNING, "paused"])
        return ops.FinalizeRun(
            run_id=run, status=self.pick(ENDS)[0], expected_current_status=expected, **self.ending(run)
        )

    def finalize_run_if_status_in(self) -> ops.Operation:
        run = self.run()
        return ops.FinalizeRunIfStatusIn(
            run_id=run,
            status=self.pick(ENDS)[0],
            allowed_current_statuses=self.pick([(RUNNING, *PAUSES), (RUNNING,)]),
            **self.ending(run),
        )

    def touch_progress(self) -> ops.Operation:
        run = self.run()
        return ops.TouchProgress(run_id=run, claim_epoch=self.epoch(run))

    def save_run_event(self) -> ops.Operation:
        run = self.run()
        return ops.SaveRunEvent(
            run_id=run,
            event_type=self.pick(["llm.completed", "tool.completed", "run.paused"]),
            iteration_index=self.pick([0, 2]),
            correlation_id=self.pick([None, "c"]),
            data=self.document(),
            event_id=self.fresh("e", "events"),
            claim_epoch=self.epoch(run),
        )

    def get_run_events(self) -> ops.Operation:
        return ops.GetRunEvents(
            run_id=self.run(),
            after_sequence_index=self.pick([None, 0, 1]),
            limit=self.pick([1000, 1, 2]),
            event_types=self.pick([None, ("run.paused", "llm.completed"), ()]),
        )

    def get_events_for_runs(self) -> ops.Operation:
        heads = self.pick([dict.fromkeys(RUNS, -1), {"r1": 0, "missing": -1}, {}])
        return ops.GetEventsForRuns(heads=heads, limit_per_run=self.pick([100, 1]))

    def save_trace(self) -> ops.Operation:
        run = self.run()
        record = self.record(run)
        return ops.SaveTrace(
            run_id=run,
            role=self.pick(["user", "assistant"]),
            content_text=self.pick(TEXTS),
            order_index=self.pick([len(record.traces) if record else 0, 0, 1]),
            meta=self.document(),
            trace_id=self.fresh("m", "traces"),
            trace_kind=self.pick(["message", "rewrite", "observation"]),
            claim_epoch=self.epoch(run),
            blob_refs=self.refs(run, "trace", str(record and len(record.traces))),
        )

    def get_traces(self) -> ops.Operation:
        return ops.GetTraces(run_id=self.run(), limit=self.pick([1000, 1]), offset=self.pick([0, 1]))

    def save_tool_call(self) -> ops.Operation:
        run = self.run()
        record = self.record(run)
        return ops.SaveToolCall(
            run_id=run,
            tool_call_id=f"call{self.pick([len(record.tool_calls) if record else 0, 0])}",
            tool_name="search",
            params=self.document(),
            result_payload=self.pick(['{"ok": 1}', "1.0", "not json"]),
            success=self.pick([True, False]),
            row_id=self.fresh("c", "tool_calls"),
            claim_epoch=self.epoch(run),
            blob_refs=self.refs(run, "tool_call", str(record and len(record.tool_calls))),
        )

    def start_tool_call(self) -> ops.Operation:
        run = self.run()
        record = self.record(run)
        open_calls = [call for call in record.tool_calls if call.started and not call.completed] if record else []
        number = len(record.tool_calls) if record else 0
        row_id = self.pick([f"{run}-k{number}", *(f"{run}-k{i}" for i in range(number))])
        if open_calls and record is not None and open_calls[-1].started_epoch != record.claim_epoch:
            row_id = self.pick([str(open_calls[-1].id), row_id])
        return ops.StartToolCall(
            run_id=run,
            row_id=row_id,
            tool_call_id=f"call of {row_id}",
            tool_name="search",
            claim_epoch=self.epoch(run, required=True),
            event=EventWrite(event_type=self.pick([TOOL_STARTED, TOOL_COMPLETED]), event_id=f"{row_id}-begun"),
            params=self.pick([None, None, None, {"n": 1}]),
        )

    def complete_tool_call(self) -> ops.Operation:
        run = self.run()
        record = self.record(run)
        begun = [str(call.id) for call in record.tool_calls if call.started] if record else []
        waiting = [str(call.id) for call in record.tool_calls if not call.completed] if record else []
        row_id = self.pick([*waiting[-1:], *begun, "unknown"])
        return ops.CompleteToolCall(
            run_id=run,
            row_id=row_id,
            claim_epoch=self.epoch(run, required=True),
            trace=TraceWrite(
                role="tool",
                content=self.pick(TEXTS),
                order_index=self.pick([max((trace.order_index for trace in record.traces), default=-1) + 1, 0])
                if record
                else 0,
                trace_id=self.pick([f"{row_id}-seen", None]),
                trace_kind="observation",
            ),
            event=EventWrite(
                event_type=self.pick([TOOL_COMPLETED, TOOL_STARTED]),
                event_id=self.pick([f"{row_id}-done", None]),
                data=self.document(),
            ),
            result_payload=self.pick(['{"ok": 1}', "1.0", "not json"]),
            success=self.pick([True, False]),
            outcome=self.pick([None, "completed"]),
            pii_mapping=self.pick([None, {"<A>": "x"}]),
            blob_refs=self.refs(run, "tool_call", row_id),
        )

    def get_replayed_tool_calls(self) -> ops.Operation:
        run = self.run()
        return ops.GetReplayedToolCalls(run_id=run, limit=self.pick([100, 1]), tenant_id=self.scope(run))

    def get_tool_calls(self) -> ops.Operation:
        return ops.GetToolCalls(run_id=self.run(), iteration_index=self.pick([None, 0, 1]))

    def save_usage(self) -> ops.Operation:
        run = self.run()
        return ops.SaveUsage(
            run_id=run,
            iteration_index=self.pick([0, 1]),
            usage=self.pick(USAGES),
            usage_id=self.fresh("u", "usage"),
            claim_epoch=self.epoch(run),
        )

    def save_llm_interaction(self) -> ops.Operation:
        run = self.run()
        return ops.SaveLLMInteraction(
            run_id=run,
            iteration_index=self.pick([0, 1]),
            usage=self.pick(USAGES),
            semantic_request=self.document(),
            provider_response=self.document(),
            interaction_id=self.fresh("i", "interactions"),
            claim_epoch=self.epoch(run),
        )

    def get_llm_interactions(self) -> ops.Operation:
        return ops.GetLLMInteractions(run_id=self.run(), iteration_index=self.pick([None, 0]))

    def add_note(self) -> ops.Operation:
        run = self.run()
        return ops.AddNote(
            run_id=run,
            note_id=self.fresh("n", "notes") or "n0",
            text=self.pick(TEXTS),
            metadata=self.document(),
            max_pending=self.pick([100, 1, 2]),
            tenant_id=self.scope(run),
            claim_epoch=self.pick([None, self.epoch(run)]),
        )

    def get_notes(self) -> ops.Operation:
        run = self.run()
        return ops.GetNotes(run_id=run, undelivered_only=self.pick([False, True]), tenant_id=self.scope(run))

    def mark_notes_delivered(self) -> ops.Operation:
        run = self.run()
        record = self.record(run)
        notes = [note.id for note in record.notes] if record else []
        return ops.MarkNotesDelivered(
            run_id=run,
            note_ids=self.pick([tuple(notes), tuple(notes[:1]), ("n0", "unknown"), ()]),
            iteration=self.pick([1, 2]),
            claim_epoch=self.epoch(run),
        )

    def list_runs(self) -> ops.Operation:
        return ops.ListRuns(agent_name=AGENT, limit=self.pick([50, 1]), offset=self.pick([0, 1]), **self.filters())

    def count_runs(self) -> ops.Operation:
        return ops.CountRuns(agent_name=AGENT, **self.filters())

    def filters(self) -> dict[str, Any]:
        """Filters of a list, left out first."""
        return {
            "tenant_id": self.pick([UNSCOPED, *TENANTS]),
            "status": self.pick([None, RUNNING, PAUSES, ()]),
            "parent_run_id": self.pick([None, "r1"]),
            "metadata_filter": self.pick([None, {"n": 1}, {"n": 1.0}, {"flag": True}, {"n": True}, {}]),
        }

    # -- families -----------------------------------------------------------------------------------------------------

    def cancel_subtree(self) -> ops.Operation:
        """Cursors are the store's own: a program can name one that there is not, and follows no other."""
        run = self.run()
        return ops.CancelSubtree(
            root_run_id=run,
            limit=self.pick([100, 1, 2]),
            after=self.pick([None, "missing"]),
            tenant_id=self.scope(run),
        )

    def get_delegation_info(self) -> ops.Operation:
        run = self.run()
        return ops.GetDelegationInfo(run_id=run, tenant_id=self.scope(run))

    def get_subtree(self) -> ops.Operation:
        run = self.run()
        return ops.GetSubtree(run_id=run, tenant_id=self.scope(run))

    def run_usage(self) -> ops.Operation:
        run = self.run()
        return ops.RunUsage(run_id=run, tenant_id=self.scope(run))

    def subtree_usage(self) -> ops.Operation:
        run = self.run()
        return ops.SubtreeUsage(run_id=run, tenant_id=self.scope(run))

    def child_runs_page(self) -> ops.Operation:
        run = self.run()
        after = self.pick([None, *RUNS])
        return ops.ChildRunsPage(run_id=run, limit=self.pick([100, 1]), after=after, tenant_id=self.scope(run))

    def get_run_statuses(self) -> ops.Operation:
        return ops.GetRunStatuses(run_ids=self.pick([RUNS, ("r1", "missing"), ()]))
