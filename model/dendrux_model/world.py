"""The world of the model: runs and what hangs below them, as plain tuples.

Rows are NamedTuples because the exploration replaces them by the hundred thousand. JSON documents are held as text.
`at` fields are instants of the model's clock, in microseconds: the machines move it by one before every operation, and
by whole seconds where time passes. The exploration moves it in the latter way only, so that worlds which differ in
nothing but the number of calls are one world.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dendrux_model.values import JsonText, Minted

Members = tuple[tuple[str, JsonText], ...]
"""A JSON object as its members in order."""


class Event(NamedTuple):
    """An entry of a run's log; its index is its place in `Run.events`."""

    id: str | None
    content: str
    event_type: str
    iteration_index: int
    correlation_id: str | None
    data: JsonText | None


class Trace(NamedTuple):
    """A message of the conversation."""

    id: str | None
    content: str
    role: str
    text: str
    order_index: int
    meta: JsonText | None
    kind: str


class ToolCall(NamedTuple):
    """A tool call: stored in one piece, or started and later completed."""

    id: str | None
    content: str
    """What stored its result; empty while the call is open."""
    tool_call_id: str
    shown: tuple[tuple[str, Any], ...]
    started: str | None = None
    """What stored its intent; None for a call in one piece."""
    attempt: int = 1
    started_epoch: int | None = None
    trace_id: str | Minted | None = None
    """The message that asked for the call, and once it is completed the observation."""
    completed: bool = True


class Usage(NamedTuple):
    """A usage row, which no read of the protocol shows."""

    id: str | None
    content: str


class Interaction(NamedTuple):
    """One call of a model."""

    id: str | None
    content: str
    iteration_index: int
    shown: tuple[tuple[str, Any], ...]


class Note(NamedTuple):
    """A note in the inbox; undelivered while `delivered_iteration` is None."""

    id: str
    content: str
    text: str
    metadata: JsonText | None
    delivered_iteration: int | None
    delivered_at: int | None


class Submission(NamedTuple):
    """What was submitted to a paused run, kept beside the pause document."""

    id: str | None
    content: str
    members: Members
    consumption_id: str | None = None


class Totals(NamedTuple):
    """Usage of the whole run, set by pause, checkpoint and finalize."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None


class LastStep(NamedTuple):
    """The last checkpoint: what makes a repeat of it recognisable."""

    id: str
    content: str


class BlobRef(NamedTuple):
    """A reference from one row of a run to a stored blob."""

    tenant_scope: str
    sha256: str
    owner_kind: str
    owner_id: str
    ordinal: int
    at: int


class Run(NamedTuple):
    """One run. The first block changes most, the last is fixed at creation."""

    id: str
    status: str
    claim_epoch: int
    cancel_requested: bool
    pause_requested: bool
    pause_reason: str | None
    pause_document: Members | None
    paused_status: str | None
    claimed_epoch: int | None
    submission: Submission | None
    iteration_count: int
    totals: Totals
    answer: str | None
    error: str | None
    failure_reason: str | None
    meta: Members | None
    pii_mapping: JsonText | None
    events: tuple[Event, ...]
    traces: tuple[Trace, ...]
    tool_calls: tuple[ToolCall, ...]
    usage: tuple[Usage, ...]
    interactions: tuple[Interaction, ...]
    notes: tuple[Note, ...]
    progress_at: int
    paused_at: int | None
    updated_at: int
    # fixed at creation
    format: int
    created_at: int
    content: str
    tenant_id: str | None
    agent_name: str
    input_data: JsonText | None
    model: str | None
    strategy: str | None
    parent_run_id: str | None
    delegation_level: int
    retry_of_run_id: str | None
    idempotency_key: str | None
    idempotency_fingerprint: str
    # leases and checkpoints
    lease_expired_at: int | None = None
    reclaim_count: int = 0
    loop_state: Members | None = None
    last_step: LastStep | None = None
    blob_refs: tuple[BlobRef, ...] = ()


class Blob(NamedTuple):
    """Stored bytes, once per tenant scope and content.

    Programs name a blob by the text that it holds, where a store has the digest: the driver computes it.
    """

    tenant_scope: str
    sha256: str
    state: str
    """`live` or `purged`; the others are marks of deletions under way outside the database."""
    media_type: str
    created_at: int
    put_at: int
    purged_at: int | None = None
    purge_reason: str | None = None
    width: int = 0
    height: int = 0
    frame_count: int = 1
    ingest_transform: str | None = None


SECOND = 1_000_000
"""Instants in one second. A call takes one instant, so calls alone never make a second."""


class World(NamedTuple):
    """Everything one database holds."""

    runs: tuple[Run, ...] = ()
    now: int = 0
    new_format: int = 2
    """The format of runs created from here on: what the store declares and its setting says."""
    blobs: tuple[Blob, ...] = ()


def find(world: World, run_id: str) -> Run | None:
    """The run of this id."""
    for run in world.runs:
        if run.id == run_id:
            return run
    return None


def put(world: World, run: Run) -> World:
    """The world with this run in place of its former self."""
    return World(
        tuple(run if old.id == run.id else old for old in world.runs),
        world.now,
        world.new_format,
        world.blobs,
    )
