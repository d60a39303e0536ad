"""Stores with the call signatures of release 0.4, in memory. A keyword that is not theirs is a TypeError."""

from __future__ import annotations

from datetime import UTC, datetime
from inspect import signature
from types import SimpleNamespace
from typing import Any

TERMINAL = {"success", "error", "cancelled", "max_iterations"}


class OldestStore:
    """What every store of that release has: no combined methods, no requests to pause, no inbox, no sums."""

    def __init__(self) -> None:
        self.runs: dict[str, SimpleNamespace] = {}
        self.events: list[tuple[str, int, str, int]] = []
        self.written: list[tuple[str, dict[str, Any]]] = []

    async def create_run(
        self, run_id, agent_name, *, input_data=None, model=None, strategy=None, parent_run_id=None,
        delegation_level=0, tenant_id=None, meta=None, idempotency_key=None, idempotency_fingerprint=None,
        retry_of_run_id=None, blob_refs=None, blob_refs_scope=None,
    ):  # fmt: skip
        known = self.runs.get(run_id)
        if known is None:
            self.runs[run_id] = SimpleNamespace(
                id=run_id, agent_name=agent_name, status="running", tenant_id=tenant_id, meta=meta, answer=None,
                created_at=datetime.now(UTC), updated_at=None, cancel_requested=False, pause_data=None,
            )  # fmt: skip
        outcome = "created" if known is None else "existing_active"
        return SimpleNamespace(run_id=run_id, outcome=outcome, status=SimpleNamespace(value="running"))

    async def get_run(self, run_id):
        return self.runs.get(run_id)

    async def list_runs(
        self, *, limit=50, offset=0, tenant_id=None, status=None, agent_name=None, parent_run_id=None,
        started_after=None, started_before=None, metadata_filter=None,
    ):  # fmt: skip
        return [run for run in self.runs.values() if tenant_id in (None, run.tenant_id)][offset : offset + limit]

    async def save_trace(self, run_id, role, content, *, order_index, meta=None, blob_refs=None, blob_refs_scope=None):
        self.written.append(("trace", {"content": content, "order_index": order_index}))

    async def get_traces(self, run_id, *, limit=None, offset=0):
        found = [SimpleNamespace(**row) for kind, row in self.written if kind == "trace"]
        return found[offset : offset + limit]

    async def save_tool_call(
        self, run_id, *, tool_call_id, provider_tool_call_id, tool_name, target, params, result_payload, success,
        duration_ms, iteration_index, error_message=None, meta=None, blob_refs=None, blob_refs_scope=None,
    ):  # fmt: skip
        self.written.append(("tool", {"tool_call_id": tool_call_id}))

    async def save_usage(
        self, run_id, *, iteration_index, usage, model=None, provider=None, duration_ms=None, meta=None
    ):
        self.written.append(("usage", {}))

    async def save_llm_interaction(
        self, run_id, *, iteration_index, usage, model=None, provider=None, duration_ms=None, semantic_request=None,
        semantic_response=None, provider_request=None, provider_response=None, guardrail_findings=None,
        interaction_id=None,
    ):  # fmt: skip
        self.written.append(("interaction", {"id": interaction_id}))

    async def get_next_event_sequence(self, run_id):
        return max((index for run, index, *_ in self.events if run == run_id), default=-1) + 1

    async def save_run_event(
        self, run_id, *, event_type, sequence_index=0, iteration_index=0, correlation_id=None, data=None
    ):
        self.events.append((run_id, sequence_index, event_type, iteration_index))

    async def get_run_events(self, run_id, *, after_sequence_index=None, limit=None, event_types=None, before=None):
        found = [
            SimpleNamespace(
                id=str(index), event_type=kind, sequence_index=index, iteration_index=iteration, correlation_id=None,
                data=None, created_at=datetime.now(UTC),
            )
            for run, index, kind, iteration in self.events
            if run == run_id and index > (-1 if after_sequence_index is None else after_sequence_index)
            if event_types is None or kind in event_types
        ]  # fmt: skip
        return sorted(found, key=lambda event: event.sequence_index)[:limit]

    async def get_llm_interactions(self, run_id, *, iteration_index=None, limit=None, offset=0, before=None):
        row = SimpleNamespace(
            id="i", iteration_index=1, model=None, provider=None, semantic_request=None, semantic_response=None,
            provider_request=None, provider_response=None, input_tokens=3, output_tokens=4, cost_usd=None,
            duration_ms=None, cache_read_input_tokens=None, cache_creation_input_tokens=None, reasoning_tokens=None,
            created_at=datetime.now(UTC),
        )  # fmt: skip
        return [row for kind, _ in self.written if kind == "interaction"]

    async def count_runs(self, *, tenant_id=None, status=None, agent_name=None, parent_run_id=None, started_after=None,
                         started_before=None, metadata_filter=None):  # fmt: skip
        return len(self.runs)

    async def touch_progress(self, run_id):
        self.written.append(("touch", {}))

    async def request_cancel(self, run_id):
        self.runs[run_id].cancel_requested = True
        return True

    async def is_cancel_requested(self, run_id):
        return self.runs[run_id].cancel_requested

    async def pause_run(self, run_id, *, status, pause_data, iteration_count=None, pii_mapping=None):
        self.runs[run_id].status, self.runs[run_id].pause_data = status, pause_data

    async def get_pause_state(self, run_id):
        return self.runs[run_id].pause_data

    async def claim_paused_run(self, run_id, *, expected_status):
        return self._swap(run_id, [expected_status], "running")

    async def submit_and_claim(
        self, run_id, *, expected_status, submitted_data, validate=None, blob_refs=None, blob_refs_scope=None
    ):
        run = self.runs[run_id]
        if validate is not None:
            validate(run.pause_data)
        if not self._swap(run_id, [expected_status], "running"):
            return False
        run.pause_data = {**run.pause_data, **submitted_data}
        return True

    async def finalize_run(
        self, run_id, *, status, answer=None, error=None, iteration_count=0, expected_current_status=None,
        pii_mapping=None,
    ):  # fmt: skip
        self.runs[run_id].status = status  # whatever it was
        return True

    async def finalize_run_if_status_in(
        self, run_id, *, status, allowed_current_statuses, answer=None, error=None, iteration_count=None,
        pii_mapping=None,
    ):  # fmt: skip
        won = self._swap(run_id, allowed_current_statuses, status)
        if won:
            self.runs[run_id].answer = answer
        return won

    async def sweep_stale_runs(self, older_than):
        return [
            SimpleNamespace(run_id=run.id) for run in self.runs.values() if self._swap(run.id, ["running"], "error")
        ]

    def _swap(self, run_id, allowed, status):
        run = self.runs[run_id]
        if run.status not in allowed:
            return False
        run.status = status
        return True


class OldStore(OldestStore):
    """A store of the last release before this one: with combined methods and an inbox."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[SimpleNamespace] = []

    async def get_run_control(self, run_id):
        return SimpleNamespace(cancel_requested=self.runs[run_id].cancel_requested, pause_requested=True)

    async def pause_with_event(
        self, run_id, *, status, pause_data, event_data=None, iteration_count=None, pii_mapping=None, total_usage=None
    ):
        await self.pause_run(run_id, status=status, pause_data=pause_data)
        index = await self.get_next_event_sequence(run_id)
        await self.save_run_event(run_id, event_type="run.paused", sequence_index=index)
        return index

    async def finalize_with_event(
        self, run_id, *, status, allowed_current_statuses, event_type, event_data=None, answer=None, error=None,
        iteration_count=None, total_usage=None, pii_mapping=None, failure_reason=None,
    ):  # fmt: skip
        if not self._swap(run_id, allowed_current_statuses, status):
            return None
        index = await self.get_next_event_sequence(run_id)
        await self.save_run_event(run_id, event_type=event_type, sequence_index=index)
        return index

    async def update_run_meta(self, run_id, patch):
        self.runs[run_id].meta = {**(self.runs[run_id].meta or {}), **patch}

    async def add_note(self, run_id, *, note_id, text, metadata=None, tenant_id=None):
        if self.runs[run_id].status in TERMINAL:
            return False
        self.notes.append(SimpleNamespace(id=note_id, text=text))
        return True

    async def get_notes(self, run_id, *, undelivered_only=False, tenant_id=None):
        return list(self.notes)

    async def mark_notes_delivered(self, run_id, note_ids, *, iteration):
        return len(note_ids)

    async def close(self):
        self.written.append(("close", {}))


class TemptingStore(OldStore):
    """A legacy store that takes any keyword and has the names of this release. It promises nothing by that."""

    def __init__(self) -> None:
        super().__init__()
        self.tempted: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        async def taking(*arguments: Any, **keywords: Any) -> Any:
            new = {
                "claim_epoch",
                "trace_id",
                "row_id",
                "event_id",
                "usage_id",
                "trace_kind",
                "outcome",
                "submission_id",
            }
            self.tempted.extend(f"{name}.{keyword}" for keyword in sorted(new & set(keywords)))
            taken = {word: value for word, value in keywords.items() if word in signature(found).parameters}
            return await found(*arguments, **taken)

        return taking

    async def start_tool_call(self, *arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a legacy store is not asked for what it did not declare")

    checkpoint_step = complete_tool_call = consume_submission = conversation_traces = start_tool_call
    mark_lease_expired = reclaim_run = get_lease_expired = release_run_claim = start_tool_call
