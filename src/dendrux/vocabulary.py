"""The words that the store, the model and the kit share: statuses, event types, bounds, scopes.

Nothing here decides anything. The model and the store each implement the rules on their own; they agree on names only.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

# -- statuses ---------------------------------------------------------------------------------------------------------

RUNNING: Final = "running"
PENDING: Final = "pending"
"""Declared for readers of old rows; nothing writes it."""

WAITING_CLIENT: Final = "waiting_client_tool"
WAITING_HUMAN: Final = "waiting_human_input"
WAITING_APPROVAL: Final = "waiting_approval"
PAUSED: Final = "paused"
PAUSED_STATUSES: Final = frozenset({WAITING_CLIENT, WAITING_HUMAN, WAITING_APPROVAL, PAUSED})
"""A run that waits for somebody: it has a pause document and can be claimed."""

TERMINAL_STATUSES: Final = frozenset({"success", "error", "max_iterations", "cancelled"})
"""A run that has ended. No operation leaves these."""

OPEN_STATUSES: Final = PAUSED_STATUSES | {RUNNING}
STATUSES: Final = OPEN_STATUSES | TERMINAL_STATUSES | {PENDING}

# -- events -----------------------------------------------------------------------------------------------------------

RUN_PAUSED: Final = "run.paused"
RUN_RESUMED: Final = "run.resumed"
"""What an agent logs when it goes on with a paused run."""
TOOL_STARTED: Final = "tool.started"
TOOL_COMPLETED: Final = "tool.completed"
RUN_STARTED: Final = "run.started"
"""Written by the runtime when its loop begins."""
RUN_LEASE_EXPIRED: Final = "run.lease_expired"
RUN_RECLAIMED: Final = "run.reclaimed"

TERMINAL_EVENTS: Final = {
    "run.completed": frozenset({"success", "error", "max_iterations"}),
    "run.error": frozenset({"error"}),
    "run.cancelled": frozenset({"cancelled"}),
    "run.interrupted": frozenset({"error"}),
    "run.abandoned": frozenset({"error"}),
}
"""Each event type that ends a log, with the statuses it may come with."""

FINALIZE_EVENTS: Final = frozenset({"run.completed", "run.error", "run.cancelled"})
"""What finalize_with_event may write; the other terminal types belong to the sweeps."""

RESERVED_EVENTS: Final = frozenset(TERMINAL_EVENTS) | {RUN_PAUSED, "run.lease_expired", "run.reclaimed"}
"""On format 2 these are written by their own operations and never by save_run_event."""

# -- why a sweep ended a run -------------------------------------------------------------------------------------------

STALE_RUNNING: Final = "stale_running"
NEVER_STARTED: Final = "never_started"
"""As stale, but the log has no `run.started`."""
ABANDONED_WAITING: Final = "abandoned_waiting"

# -- traces and notes -------------------------------------------------------------------------------------------------

TRACE_KINDS: Final = frozenset({"seed", "message", "observation", "rewrite", "final"})
TraceKind = Literal["seed", "message", "observation", "rewrite", "final"]
NoteOutcome = Literal["added", "duplicate", "full", "closed"]
CreateOutcome = Literal["created", "existing_active", "existing_terminal"]

# -- meta keys owned by the store -------------------------------------------------------------------------------------

META_PAUSE_REQUEST: Final = "dendrux.pause_request"
META_ERROR_INFO: Final = "dendrux.error_info"
META_LOOP: Final = "dendrux.loop"
META_MAX_DEPTH: Final = "dendrux.max_delegation_depth"
RECOVERABLE_LOOP: Final = "react"

# -- capabilities -----------------------------------------------------------------------------------------------------

CAPABILITIES: Final = ("fenced_writes", "retry_ids", "checkpointing", "atomic_completion", "recovery")
"""In the order the reports print them."""

FORMAT_2_CAPABILITIES: Final = frozenset({"fenced_writes", "retry_ids", "checkpointing", "atomic_completion"})
DEPLOYMENTS: Final = ("single_process", "single_host", "multi_server")
Deployment = Literal["single_process", "single_host", "multi_server"]

# -- bounds, in code points unless said -------------------------------------------------------------------------------

ID_LENGTH: Final = 64
"""Run, row, event, note, submission and blob ids; idempotency fingerprints."""
NAME_LENGTH: Final = 255
"""Tenants, keys, agent and tool names, models, provider and correlation ids."""
TYPE_LENGTH: Final = 100
"""Event types, statuses, strategies, failure reasons."""
SCOPE_LENGTH: Final = 260
"""The tenant scope of a blob: a tenant behind its prefix."""
REASON_LENGTH: Final = 200
"""Why a blob was purged."""
EDGES_MAX: Final = 100
"""References to blobs in one write."""
LIMIT_MAX: Final = 1000
"""Rows in one page of any read."""
STATUSES_MAX: Final = 200
"""Run ids in one get_run_statuses."""
LOOP_STATE_MAX: Final = 256 * 1024
"""Bytes of a run's loop state, encoded as compact JSON in UTF-8."""
MONEY_MAX: Final = 10**11
"""Largest cost, in US dollars; stored with six decimal places."""

# -- blobs ------------------------------------------------------------------------------------------------------------

BlobState = Literal["pending", "live", "deleting", "purging", "purged"]
NO_TENANT: Final = "-"
"""The scope of blobs that belong to no tenant."""
TENANT_PREFIX: Final = "t:"
"""What stands before a tenant in the scope of its blobs, so that no tenant's name is the scope of nobody."""
GARBAGE_AGE_S: Final = 3600
"""A blob without references is left alone for at least this long: its put and the write that refers to it are two."""


def blob_scope(tenant_id: str | None) -> str:
    """The scope in which a tenant's blobs are kept."""
    return NO_TENANT if tenant_id is None else TENANT_PREFIX + tenant_id


# -- tenant scope -----------------------------------------------------------------------------------------------------


class Unscoped(Enum):
    """The type of UNSCOPED: no tenant predicate at all."""

    UNSCOPED = "unscoped"

    def __repr__(self) -> str:
        return "UNSCOPED"


UNSCOPED: Final = Unscoped.UNSCOPED
TenantScope = str | None | Unscoped
"""UNSCOPED reads every tenant, None only untenanted runs, a string exactly that tenant."""
