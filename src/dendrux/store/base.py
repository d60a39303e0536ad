"""Every operation of the store, in the order a run lives. Bodies are in `store/ops/<noun>.py`."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from sqlalchemy.ext.asyncio import AsyncEngine

from dendrux.store.announcing import announcer
from dendrux.store.binding import pages, reads, writes
from dendrux.store.capabilities import StoreCapabilities
from dendrux.store.hooks import Hooks
from dendrux.store.ops import (
    blobs,
    claims,
    control,
    delegation,
    events,
    finish,
    leases,
    listing,
    notes,
    pauses,
    runs,
    runs_checkpoint,
    tool_calls,
    traces,
    usage,
)


class SQLStateStore(Hooks):
    """A state store on any database SQLAlchemy supports. A subclass fills in the hooks of one database.

    The application owns the engine. A store lives in the event loop of its first call.
    """

    capabilities: StoreCapabilities = StoreCapabilities(
        fenced_writes=True, retry_ids=True, checkpointing=True, atomic_completion=True, recovery=True
    )
    """What this store promises. A subclass sets `deployment`, and turns off what its overrides do not keep."""

    retry_limit: ClassVar[int] = 5
    """Transactions that are tried again after a deadlock, a lock timeout or a lost connection."""

    retry_backoff_s: ClassVar[float] = 0.01
    """The first pause between two of them; it doubles, with jitter."""

    def __init__(self, engine: AsyncEngine, *, live_updates: Any = None) -> None:
        if getattr(engine, "dialect", None) is None:
            raise TypeError(f"engine must be an AsyncEngine, not {type(engine).__name__}")
        if self.dialect_names and engine.dialect.name not in self.dialect_names:
            raise ValueError(
                f"{type(self).__name__} is for {' or '.join(self.dialect_names)}, not for {engine.dialect.name!r}"
            )
        self._engine = engine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: object | None = None
        self._first_use = asyncio.Lock()
        self.live_updates: Any = announcer(live_updates, self._own_updates)
        if self.live_updates is not None:
            self.live_updates.bind(self)

    def _own_updates(self) -> Any:
        """The transport that `live_updates=True` stands for. Refuses: ValueError where the database has none."""
        raise ValueError(
            f"{type(self).__name__} has no transport of its own for live_updates=True: "
            "pass an instance such as RedisUpdates('redis://...')"
        )

    # -- runs ---------------------------------------------------------------------------------------------------------
    create_run = writes(runs.create_run, lost="identity", announces=True)
    get_run = reads(runs.get_run)
    update_run_meta = writes(runs.update_run_meta, lost="unknown", announces=True)
    get_pii_mapping = reads(runs.get_pii_mapping)
    checkpoint_step = writes(runs_checkpoint.checkpoint_step, lost="identity", announces=True)
    get_loop_state = reads(runs_checkpoint.get_loop_state)

    # -- claims -------------------------------------------------------------------------------------------------------
    claim_paused_run = writes(claims.claim_paused_run, lost="claim", announces=True)
    submit_and_claim = writes(claims.submit_and_claim, lost="claim", announces=True)
    consume_submission = writes(claims.consume_submission, lost="identity")
    release_run_claim = writes(claims.release_run_claim, lost="unknown", announces=True)

    # -- control ------------------------------------------------------------------------------------------------------
    request_cancel = writes(control.request_cancel, lost="natural", announces=True)
    request_pause = writes(control.request_pause, lost="natural", announces=True)
    get_run_control = reads(control.get_run_control)

    # -- pauses -------------------------------------------------------------------------------------------------------
    pause_with_event = writes(pauses.pause_with_event, lost="identity", announces=True)
    try_pause_run = writes(pauses.try_pause_run, lost="unknown", announces=True)
    pause_run = writes(pauses.pause_run, lost="unknown", announces=True)
    get_pause_state = reads(pauses.get_pause_state)
    get_pending = reads(pauses.get_pending)

    # -- finish -------------------------------------------------------------------------------------------------------
    finalize_with_event = writes(finish.finalize_with_event, lost="identity", announces=True)
    finalize_run = writes(finish.finalize_run, lost="unknown", announces=True)
    finalize_run_if_status_in = writes(finish.finalize_run_if_status_in, lost="unknown", announces=True)

    # -- leases -------------------------------------------------------------------------------------------------------
    touch_progress = writes(leases.touch_progress, lost="natural")
    mark_lease_expired = pages(leases.mark_lease_expired)
    get_lease_expired = reads(leases.get_lease_expired)
    reclaim_run = writes(leases.reclaim_run, lost="claim", announces=True)
    sweep_stale_runs = pages(leases.sweep_stale_runs)
    sweep_abandoned_runs = pages(leases.sweep_abandoned_runs)

    # -- events -------------------------------------------------------------------------------------------------------
    save_run_event = writes(events.save_run_event, lost="identity", announces=True)
    get_run_events = reads(events.get_run_events)
    get_events_for_runs = reads(events.get_events_for_runs)

    # -- traces -------------------------------------------------------------------------------------------------------
    save_trace = writes(traces.save_trace, lost="identity")
    get_traces = reads(traces.get_traces)
    get_traces_after = reads(traces.get_traces_after)
    conversation_traces = reads(traces.conversation_traces)

    # -- tool calls ---------------------------------------------------------------------------------------------------
    save_tool_call = writes(tool_calls.save_tool_call, lost="identity")
    start_tool_call = writes(tool_calls.start_tool_call, lost="identity", announces=True)
    complete_tool_call = writes(tool_calls.complete_tool_call, lost="identity", announces=True)
    get_tool_calls = reads(tool_calls.get_tool_calls)
    get_replayed_tool_calls = reads(tool_calls.get_replayed_tool_calls)

    # -- usage --------------------------------------------------------------------------------------------------------
    save_usage = writes(usage.save_usage, lost="identity")
    save_llm_interaction = writes(usage.save_llm_interaction, lost="identity")
    get_llm_interactions = reads(usage.get_llm_interactions)

    # -- notes --------------------------------------------------------------------------------------------------------
    add_note = writes(notes.add_note, lost="identity")
    get_notes = reads(notes.get_notes)
    mark_notes_delivered = writes(notes.mark_notes_delivered, lost="unknown")

    # -- blobs --------------------------------------------------------------------------------------------------------
    put_blob = pages(blobs.put_blob, announces=False)
    read_blob = pages(blobs.read_blob, announces=False)
    blob_info = reads(blobs.blob_info)
    blob_references = reads(blobs.blob_references)
    purge_blob = pages(blobs.purge_blob, announces=False)
    collect_garbage = pages(blobs.collect_garbage, announces=False)

    # -- listing ------------------------------------------------------------------------------------------------------
    list_runs = reads(listing.list_runs)
    count_runs = reads(listing.count_runs)
    get_run_statuses = reads(listing.get_run_statuses)

    # -- delegation ---------------------------------------------------------------------------------------------------
    cancel_subtree = pages(delegation.cancel_subtree)
    get_delegation_info = reads(delegation.get_delegation_info)
    child_runs_page = reads(delegation.child_runs_page)
    get_subtree = reads(delegation.get_subtree)
    run_usage = reads(delegation.run_usage)
    subtree_usage = reads(delegation.subtree_usage)

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the live updates. Idempotent; the engine stays the application's."""
        if self.live_updates is not None:
            await self.live_updates.close()
