"""Stores without a declaration: the one place that knows the call signatures of the earlier release.

`adapted(store)` is what the runtime calls instead of a store. One that keeps every promise is answered as it is, and
one that keeps fewer through `runtime/partial.py`. A store without a declaration is a legacy store: whatever methods it
has, it gets the calls of release 0.4, and its runs are of storage format 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from dendrux.errors import RunNotFoundError
from dendrux.runtime.partial import Partial, keep, missing, names
from dendrux.runtime.pending import PendingWork, pending_calls
from dendrux.runtime.state import StateStore
from dendrux.runtime.values import (
    CreateRunResult,
    LLMInteractionRecord,
    NoteRecord,
    RunControl,
    RunRecord,
    SweepPage,
    TraceRecord,
    UsageRollup,
)
from dendrux.vocabulary import (
    CAPABILITIES,
    OPEN_STATUSES,
    PAUSED_STATUSES,
    RUN_PAUSED,
    UNSCOPED,
    NoteOutcome,
    TenantScope,
)

LEGACY_EPOCH: Final = 1
"""What a claim of a legacy store answers. It fences nothing: such a store has no epochs."""


def adapted(store: Any) -> StateStore:
    """A store that takes every call of the protocol and makes those that this one understands. Idempotent."""
    if isinstance(store, Partial | _Legacy):
        return cast("StateStore", store)
    declared = getattr(store, "capabilities", None)
    if declared is None:
        return cast("StateStore", _Legacy(store))
    if all(getattr(declared, flag, False) for flag in CAPABILITIES):
        return cast("StateStore", store)
    return cast("StateStore", Partial(store, declared))


def _takes(method: Any, keyword: str) -> bool:
    """Whether a method of an earlier release takes this optional keyword of its time."""
    known = names(method)
    return keyword in known or any(p.kind is p.VAR_KEYWORD for p in known.values())


class _Legacy:
    """A store of release 0.4 behind the protocol of this one. Its runs are of format 1 and it fences nothing."""

    capabilities = None

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self._appending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in PASSED:
            return self._method(name)
        return missing(self.wrapped, name) if hasattr(StateStore, name) else getattr(self.wrapped, name)

    def _method(self, name: str) -> Callable[..., Awaitable[Any]]:
        found = getattr(self.wrapped, name, None)
        if not callable(found):
            missing(self.wrapped, name)
        return cast("Callable[..., Awaitable[Any]]", found)

    def _optional(self, name: str) -> Callable[..., Awaitable[Any]] | None:
        found = getattr(self.wrapped, name, None)
        return found if callable(found) else None

    async def _in_scope(self, run_id: str, tenant_id: TenantScope) -> RunRecord:
        run = await self.get_run(run_id, tenant_id=tenant_id)
        if run is None:
            raise RunNotFoundError(run_id)
        return run

    async def close(self) -> None:
        """Close the store, if it can be closed."""
        method = self._optional("close")
        if method is not None:
            await method()

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def create_run(
        self,
        run_id: str,
        agent_name: str,
        *,
        seed_traces: Sequence[Any] = (),
        pii_mapping: dict[str, str] | None = None,
        parent_claim_epoch: int | None = None,
        **old: Any,
    ) -> CreateRunResult:
        """Create a run of format 1."""
        keep("create_run", "seed_traces", seed_traces, "checkpointing")
        keep("create_run", "pii_mapping", pii_mapping, "checkpointing")
        made = await self._method("create_run")(run_id, agent_name, **old)
        return CreateRunResult(
            run_id=made.run_id,
            outcome=made.outcome,
            status=_word(made.status),
            format=1,
            claim_epoch=LEGACY_EPOCH if made.outcome == "created" else 0,
        )

    async def get_run(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> RunRecord | None:
        """One run. The scope is looked at here: the earlier read knows no tenant."""
        run = await self._method("get_run")(run_id)
        if run is None or (tenant_id is not UNSCOPED and run.tenant_id != tenant_id):
            return None
        return _record(run)

    async def update_run_meta(self, run_id: str, patch: dict[str, Any], *, claim_epoch: int | None = None) -> None:
        """Merge into meta. Not every earlier store can; what the runtime keeps there is then not kept."""
        method = self._optional("update_run_meta")
        if method is not None:
            await method(run_id, patch)

    async def list_runs(self, *, tenant_id: TenantScope = UNSCOPED, **filters: Any) -> list[RunRecord]:
        """A page of runs."""
        found = await self._method("list_runs")(tenant_id=_old_tenant(tenant_id), **filters)
        return [_record(run) for run in found]

    async def count_runs(self, *, tenant_id: TenantScope = UNSCOPED, **filters: Any) -> int:
        """How many runs the filters find."""
        return cast("int", await self._method("count_runs")(tenant_id=_old_tenant(tenant_id), **filters))

    # -- what an owner writes -----------------------------------------------------------------------------------------

    async def save_trace(
        self,
        run_id: str,
        role: str,
        content: str,
        *,
        trace_id: str | None = None,
        trace_kind: str = "message",
        claim_epoch: int | None = None,
        **old: Any,
    ) -> None:
        """Store one message."""
        keep("save_trace", "trace_kind", trace_kind, "checkpointing")
        await self._method("save_trace")(run_id, role, content, **old)

    async def save_tool_call(
        self,
        run_id: str,
        *,
        row_id: str | None = None,
        outcome: str | None = None,
        claim_epoch: int | None = None,
        **old: Any,
    ) -> None:
        """Store one tool call with its result."""
        await self._method("save_tool_call")(run_id, **old)

    async def save_usage(
        self, run_id: str, *, usage_id: str | None = None, claim_epoch: int | None = None, **old: Any
    ) -> None:
        """Store what a call of a model used."""
        await self._method("save_usage")(run_id, **old)

    async def save_llm_interaction(self, run_id: str, *, claim_epoch: int | None = None, **old: Any) -> None:
        """Store a call of a model. Its `interaction_id` is older than retry ids."""
        await self._method("save_llm_interaction")(run_id, **old)

    async def save_run_event(
        self,
        run_id: str,
        *,
        event_id: str | None = None,
        claim_epoch: int | None = None,
        sequence_index: int | None = None,
        **old: Any,
    ) -> int:
        """Append to the log at the next index, which an earlier store leaves to its caller: one writer at a time here.

        Writers in other processes may take the same index, as with the earlier release.
        """
        lock = self._appending.get(run_id)
        if lock is None:
            self._appending[run_id] = lock = asyncio.Lock()
        async with lock:
            index = int(await self._method("get_next_event_sequence")(run_id))
            await self._method("save_run_event")(run_id, sequence_index=index, **old)
        return index

    async def touch_progress(self, run_id: str, *, claim_epoch: int | None = None) -> bool:
        """Show that the owner lives."""
        await self._method("touch_progress")(run_id)
        return True

    # -- pause and claim ----------------------------------------------------------------------------------------------

    async def get_run_control(self, run_id: str) -> RunControl:
        """What the owner is asked. A store from before requests to pause knows of cancellation only."""
        method = self._optional("get_run_control")
        if method is None:
            return RunControl(cancel_requested=bool(await self._method("is_cancel_requested")(run_id)))
        found = await method(run_id)
        return RunControl(**{f.name: bool(getattr(found, f.name, False)) for f in fields(RunControl)})

    async def pause_with_event(
        self,
        run_id: str,
        *,
        status: str,
        pause_data: dict[str, Any],
        event_data: dict[str, Any] | None = None,
        event_id: str | None = None,
        claim_epoch: int | None = None,
        **old: Any,
    ) -> int | None:
        """Pause and log it: together, or one after the other where the store cannot, as the earlier release did."""
        method = self._optional("pause_with_event")
        if method is not None:
            kept = {word: value for word, value in old.items() if _takes(method, word)}
            return cast(
                "int | None", await method(run_id, status=status, pause_data=pause_data, event_data=event_data, **kept)
            )
        if (await self.get_run_control(run_id)).cancel_requested:
            return None
        pausing = self._method("pause_run")
        kept = {word: value for word, value in old.items() if _takes(pausing, word)}
        await pausing(run_id, status=status, pause_data=pause_data, **kept)
        iteration = old.get("iteration_count") or 0
        return await self.save_run_event(run_id, event_type=RUN_PAUSED, iteration_index=iteration, data=event_data)

    async def claim_paused_run(
        self, run_id: str, *, expected_status: str, tenant_id: TenantScope = UNSCOPED
    ) -> int | None:
        """Claim a waiting run. The answer of an earlier store is yes or no; the epoch is a word without force."""
        await self._in_scope(run_id, tenant_id)
        won = await self._method("claim_paused_run")(run_id, expected_status=expected_status)
        return LEGACY_EPOCH if won else None

    async def submit_and_claim(
        self,
        run_id: str,
        *,
        expected_status: str,
        submitted_data: dict[str, Any],
        submission_id: str | None = None,
        tenant_id: TenantScope = UNSCOPED,
        **old: Any,
    ) -> int | None:
        """Store what was submitted and claim the run."""
        await self._in_scope(run_id, tenant_id)
        method = self._method("submit_and_claim")
        won = await method(run_id, expected_status=expected_status, submitted_data=submitted_data, **old)
        return LEGACY_EPOCH if won else None

    async def get_pending(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> PendingWork | None:
        """What a waiting run waits for, taken out of its whole document."""
        run = await self.get_run(run_id, tenant_id=tenant_id)
        if run is None or run.status not in PAUSED_STATUSES:
            return None
        members = dict.fromkeys(("pause_reason", "iteration", "pending_tool_calls", "pending_targets"))
        members.update(await self._method("get_pause_state")(run_id) or {})
        return PendingWork(
            status=run.status,
            reason=members["pause_reason"],
            iteration=members["iteration"],
            calls=pending_calls(members),
            paused_at=None,
        )

    # -- end ----------------------------------------------------------------------------------------------------------

    async def finalize_run(self, run_id: str, *, claim_epoch: int | None = None, **old: Any) -> bool:
        """End a run in the status that the caller expects, or in any open one: the earlier method would overwrite."""
        if old.get("expected_current_status") is not None:
            return await self._ending("finalize_run", run_id, old)
        old.pop("expected_current_status", None)
        old["allowed_current_statuses"] = sorted(OPEN_STATUSES)
        return await self._ending("finalize_run_if_status_in", run_id, old)

    async def finalize_run_if_status_in(self, run_id: str, *, claim_epoch: int | None = None, **old: Any) -> bool:
        """End a run in one of these statuses."""
        return await self._ending("finalize_run_if_status_in", run_id, old)

    async def _ending(self, name: str, run_id: str, keywords: dict[str, Any]) -> bool:
        method = self._method(name)
        # These two came later than the methods; what they say is then not kept.
        for word in ("total_usage", "failure_reason"):
            if word in keywords and not _takes(method, word):
                del keywords[word]
        return bool(await method(run_id, **keywords))

    async def finalize_with_event(
        self,
        run_id: str,
        *,
        event_type: str,
        event_data: dict[str, Any] | None = None,
        event_id: str | None = None,
        trace: Any = None,
        claim_epoch: int | None = None,
        **old: Any,
    ) -> int | None:
        """End a run and log it: together, or one after the other where the store cannot."""
        keep("finalize_with_event", "trace", trace, "atomic_completion")
        method = self._optional("finalize_with_event")
        if method is not None:
            return cast("int | None", await method(run_id, event_type=event_type, event_data=event_data, **old))
        if not await self._ending("finalize_run_if_status_in", run_id, dict(old)):
            return None
        iteration = old.get("iteration_count") or 0
        return await self.save_run_event(run_id, event_type=event_type, iteration_index=iteration, data=event_data)

    # -- sweeps -------------------------------------------------------------------------------------------------------

    async def sweep_stale_runs(self, *, older_than: timedelta, limit: int = 100, after: str | None = None) -> SweepPage:
        """The whole sweep at once: an earlier store has no pages."""
        return await self._swept("sweep_stale_runs", older_than)

    async def sweep_abandoned_runs(
        self, *, older_than: timedelta, limit: int = 100, after: str | None = None
    ) -> SweepPage:
        """As sweep_stale_runs."""
        return await self._swept("sweep_abandoned_runs", older_than)

    async def _swept(self, name: str, older_than: timedelta) -> SweepPage:
        return SweepPage(swept=tuple(await self._method(name)(older_than)), failed=(), next_after=None)

    # -- notes --------------------------------------------------------------------------------------------------------

    async def add_note(
        self,
        run_id: str,
        *,
        note_id: str,
        text: str,
        metadata: Any = None,
        max_pending: int = 100,
        tenant_id: TenantScope = UNSCOPED,
        claim_epoch: int | None = None,
    ) -> NoteOutcome:
        """Add a note. The cap is looked at before, not with the insert: racing writers may exceed it."""
        await self._in_scope(run_id, tenant_id)
        if len(await self.get_notes(run_id, undelivered_only=True, limit=max_pending)) >= max_pending:
            return "full"
        added = await self._method("add_note")(run_id, note_id=note_id, text=text, metadata=metadata)
        return "added" if added else "closed"

    async def get_notes(
        self,
        run_id: str,
        *,
        undelivered_only: bool = False,
        limit: int = 1000,
        after: str | None = None,
        tenant_id: TenantScope = UNSCOPED,
    ) -> list[NoteRecord]:
        """A page of the inbox; empty where the store has none."""
        if tenant_id is not UNSCOPED:
            await self._in_scope(run_id, tenant_id)
        method = self._optional("get_notes")
        if method is None:
            return []
        found = list(await method(run_id, undelivered_only=undelivered_only))
        ids = [note.id for note in found]
        start = ids.index(after) + 1 if after in ids else 0
        return found[start : start + limit]

    async def mark_notes_delivered(
        self, run_id: str, note_ids: Sequence[str], *, iteration: int, claim_epoch: int | None = None
    ) -> int:
        """Stamp notes as delivered."""
        return int(await self._method("mark_notes_delivered")(run_id, list(note_ids), iteration=iteration))

    async def get_traces(self, run_id: str, **old: Any) -> list[TraceRecord]:
        """A page of the conversation. The earlier record does not say of which kind a message is."""
        found = await self._method("get_traces")(run_id, **old)
        return [row if hasattr(row, "trace_kind") else _message(row) for row in found]

    # -- usage --------------------------------------------------------------------------------------------------------

    async def get_llm_interactions(self, run_id: str, **old: Any) -> list[LLMInteractionRecord]:
        """A page of calls of models. The earlier record has no sum of its tokens."""
        found = await self._method("get_llm_interactions")(run_id, **old)
        return [row if hasattr(row, "total_tokens") else _summed(row) for row in found]

    async def run_usage(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> UsageRollup:
        """What a run used; zero where the store cannot sum."""
        return await self._used("run_usage", run_id, tenant_id)

    async def subtree_usage(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> UsageRollup:
        """What a run and everything below it used; zero where the store cannot sum."""
        return await self._used("subtree_usage", run_id, tenant_id)

    async def _used(self, name: str, run_id: str, tenant_id: TenantScope) -> UsageRollup:
        if tenant_id is not UNSCOPED:
            await self._in_scope(run_id, tenant_id)
        method = self._optional(name)
        return UsageRollup() if method is None else cast("UsageRollup", await method(run_id))


PASSED: Final = frozenset(
    {
        "get_tool_calls",
        "get_run_events",
        "get_pause_state",
        "get_pii_mapping",
        "request_cancel",
        "request_pause",
        "get_subtree",
        "get_delegation_info",
        "get_events_for_runs",
        "get_run_statuses",
    }
)
"""Methods whose calls are the same in both releases, and the two that any store may have for its followers."""


def _message(row: Any) -> TraceRecord:
    names = [f.name for f in fields(TraceRecord) if f.name != "trace_kind"]
    known: dict[str, Any] = {name: getattr(row, name, None) for name in names}
    return TraceRecord(trace_kind="message", **known)


def _summed(row: Any) -> LLMInteractionRecord:
    names = [f.name for f in fields(LLMInteractionRecord) if f.name != "total_tokens"]
    known: dict[str, Any] = {name: getattr(row, name, None) for name in names}
    return LLMInteractionRecord(total_tokens=row.input_tokens + row.output_tokens, **known)


def _word(status: Any) -> str:
    """A status: the earlier release has an enum of strings for it."""
    return str(getattr(status, "value", status))


def _old_tenant(tenant_id: TenantScope) -> str | None:
    """Refuses: NotImplementedError for the scope of no tenant, which an earlier list cannot tell from every tenant."""
    if tenant_id is None:
        raise NotImplementedError("a legacy store cannot list the runs that belong to no tenant")
    return None if tenant_id is UNSCOPED else tenant_id


_ABSENT: Final[dict[str, Any]] = {"format": 1, "claim_epoch": LEGACY_EPOCH, "reclaim_count": 0}
_ZERO: Final = frozenset(
    {
        "delegation_level",
        "iteration_count",
        "total_input_tokens",
        "total_output_tokens",
        "total_cache_read_tokens",
        "total_cache_creation_tokens",
        "total_reasoning_tokens",
    }
)
_FALSE: Final = frozenset({"cancel_requested", "pause_requested"})
_TIMES: Final = frozenset({"created_at", "updated_at"})


def _record(run: Any) -> RunRecord:
    """A run as this release shows it. A time that the earlier record lacks is the beginning of 1970."""
    if isinstance(run, RunRecord):
        return run
    values: dict[str, Any] = {}
    for field in fields(RunRecord):
        name = field.name
        value = getattr(run, name, None)
        if value is None:
            value = _ABSENT.get(name, 0 if name in _ZERO else False if name in _FALSE else None)
        if value is None and name in _TIMES:
            value = datetime.fromtimestamp(0, UTC)
        values[name] = _word(value) if name == "status" else value
    return RunRecord(**values)
