"""ReferenceStore: every operation of the protocol, in the order a run lives, answered by the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dendrux.runtime.state import StateStore
from dendrux.store.capabilities import StoreCapabilities
from dendrux.testing.in_memory.cuts import Armed
from dendrux.testing.in_memory.data import Data, ReferenceClock
from dendrux.testing.in_memory.methods import modelled
from dendrux.vocabulary import FORMAT_2_CAPABILITIES
from dendrux_model.programs import Point


class ReferenceStore:
    """A state store in memory, for tests: what the reference model says, with real times and ids.

    It checks arguments as the stores on databases do, and its errors are theirs. Its data live in this process and end
    with it. It is as slow as its world is large: a few thousand calls are fast, a load test is not what it is for.

    Args:
        data_of: a store whose data this one shares, as a second instance or after a restart; None: empty data.
        clock: where the time comes from, for a test that lets time pass; the shared data have one clock.
        live_updates: what is told of changed runs, as for the other stores.
    """

    capabilities: StoreCapabilities = StoreCapabilities(
        fenced_writes=True,
        retry_ids=True,
        checkpointing=True,
        atomic_completion=True,
        recovery=True,
        deployment="single_process",
    )
    """What this store promises. A subclass turns off what its overrides do not keep."""

    def __init__(
        self,
        *,
        data_of: ReferenceStore | None = None,
        clock: ReferenceClock | None = None,
        live_updates: Any = None,
    ) -> None:
        if live_updates is True:
            raise ValueError(
                f"{type(self).__name__} has no transport of its own for live_updates=True: pass an instance"
            )
        if data_of is not None and clock not in (None, data_of._data.clock):
            raise ValueError("clock is for empty data: shared data have the clock of their first store")
        self._data: Data = Data(clock or ReferenceClock()) if data_of is None else data_of._data
        self._cuts: list[Armed] = []
        self.live_updates: Any = None if live_updates is False else live_updates
        if self.live_updates is not None:
            self.live_updates.bind(self)

    @property
    def clock(self) -> ReferenceClock:
        """The clock of the data."""
        return self._data.clock

    @property
    def _new_format(self) -> int:
        """The storage format of the runs that this store creates, which what it declares decides."""
        declared = self.capabilities
        return 2 if all(getattr(declared, name) for name in FORMAT_2_CAPABILITIES) else 1

    def _reach(self, point: Point) -> None:
        """A place of a write at which a test may cut it."""
        for armed in tuple(self._cuts):
            armed.reach(point)

    # -- runs ---------------------------------------------------------------------------------------------------------
    create_run = modelled(StateStore.create_run)
    get_run = modelled(StateStore.get_run)
    update_run_meta = modelled(StateStore.update_run_meta)
    get_pii_mapping = modelled(StateStore.get_pii_mapping)
    checkpoint_step = modelled(StateStore.checkpoint_step)
    get_loop_state = modelled(StateStore.get_loop_state)

    # -- claims -------------------------------------------------------------------------------------------------------
    claim_paused_run = modelled(StateStore.claim_paused_run)
    submit_and_claim = modelled(StateStore.submit_and_claim)
    consume_submission = modelled(StateStore.consume_submission)
    release_run_claim = modelled(StateStore.release_run_claim)

    # -- control ------------------------------------------------------------------------------------------------------
    request_cancel = modelled(StateStore.request_cancel)
    request_pause = modelled(StateStore.request_pause)
    get_run_control = modelled(StateStore.get_run_control)

    # -- pauses -------------------------------------------------------------------------------------------------------
    pause_with_event = modelled(StateStore.pause_with_event)
    try_pause_run = modelled(StateStore.try_pause_run)
    pause_run = modelled(StateStore.pause_run)
    get_pause_state = modelled(StateStore.get_pause_state)
    get_pending = modelled(StateStore.get_pending)

    # -- finish -------------------------------------------------------------------------------------------------------
    finalize_with_event = modelled(StateStore.finalize_with_event)
    finalize_run = modelled(StateStore.finalize_run)
    finalize_run_if_status_in = modelled(StateStore.finalize_run_if_status_in)

    # -- leases -------------------------------------------------------------------------------------------------------
    touch_progress = modelled(StateStore.touch_progress)
    mark_lease_expired = modelled(StateStore.mark_lease_expired)
    get_lease_expired = modelled(StateStore.get_lease_expired)
    reclaim_run = modelled(StateStore.reclaim_run)
    sweep_stale_runs = modelled(StateStore.sweep_stale_runs)
    sweep_abandoned_runs = modelled(StateStore.sweep_abandoned_runs)

    # -- events -------------------------------------------------------------------------------------------------------
    save_run_event = modelled(StateStore.save_run_event)
    get_run_events = modelled(StateStore.get_run_events)
    get_events_for_runs = modelled(StateStore.get_events_for_runs)

    # -- traces -------------------------------------------------------------------------------------------------------
    save_trace = modelled(StateStore.save_trace)
    get_traces = modelled(StateStore.get_traces)
    get_traces_after = modelled(StateStore.get_traces_after)
    conversation_traces = modelled(StateStore.conversation_traces)

    # -- tool calls ---------------------------------------------------------------------------------------------------
    save_tool_call = modelled(StateStore.save_tool_call)
    start_tool_call = modelled(StateStore.start_tool_call)
    complete_tool_call = modelled(StateStore.complete_tool_call)
    get_replayed_tool_calls = modelled(StateStore.get_replayed_tool_calls)
    get_tool_calls = modelled(StateStore.get_tool_calls)

    # -- usage --------------------------------------------------------------------------------------------------------
    save_usage = modelled(StateStore.save_usage)
    save_llm_interaction = modelled(StateStore.save_llm_interaction)
    get_llm_interactions = modelled(StateStore.get_llm_interactions)

    # -- notes --------------------------------------------------------------------------------------------------------
    add_note = modelled(StateStore.add_note)
    get_notes = modelled(StateStore.get_notes)
    mark_notes_delivered = modelled(StateStore.mark_notes_delivered)

    # -- blobs --------------------------------------------------------------------------------------------------------
    put_blob = modelled(StateStore.put_blob)
    read_blob = modelled(StateStore.read_blob)
    blob_info = modelled(StateStore.blob_info)
    blob_references = modelled(StateStore.blob_references)
    purge_blob = modelled(StateStore.purge_blob)
    collect_garbage = modelled(StateStore.collect_garbage)

    # -- listing ------------------------------------------------------------------------------------------------------
    list_runs = modelled(StateStore.list_runs)
    count_runs = modelled(StateStore.count_runs)
    get_run_statuses = modelled(StateStore.get_run_statuses)

    # -- delegation ---------------------------------------------------------------------------------------------------
    cancel_subtree = modelled(StateStore.cancel_subtree)
    get_delegation_info = modelled(StateStore.get_delegation_info)
    child_runs_page = modelled(StateStore.child_runs_page)
    get_subtree = modelled(StateStore.get_subtree)
    run_usage = modelled(StateStore.run_usage)
    subtree_usage = modelled(StateStore.subtree_usage)

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the live updates. Idempotent; the data stay for the other instances."""
        if self.live_updates is not None:
            await self.live_updates.close()


if TYPE_CHECKING:
    _keeps_the_protocol: StateStore = ReferenceStore()
