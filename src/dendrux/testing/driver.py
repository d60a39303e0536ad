"""Calls the operations of the model on a real store, and brings its answers into the model's vocabulary.

Every program gets a namespace of its own: ids, tenants, keys and agent names are prefixed on the way in and freed of
the prefix on the way out, so that any number of programs can share one database.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from dendrux.errors import REFUSALS, UNAVAILABLE, PersistenceError, StoreOutcomeUnknown
from dendrux.runtime.blobs import BlobStore
from dendrux.runtime.pending import PendingCall
from dendrux.runtime.values import (
    CancelPage,
    EventWrite,
    FailedRun,
    LLMInteractionWrite,
    ParentRef,
    RunBrief,
    RunRecord,
    SubtreeNodeRecord,
    SubtreeSummary,
    ToolCallRecord,
    ToolCallWrite,
    TraceRecord,
    TraceWrite,
    UsageRollup,
    UsageWrite,
)
from dendrux.testing.bench import settled
from dendrux.testing.blobnames import METHODS, STORING, BlobNames
from dendrux.testing.leaks import leak, misnamed
from dendrux.testing.raised import described
from dendrux.testing.sweeps import Pages, in_time
from dendrux.vocabulary import UNSCOPED
from dendrux_model.operations import Operation
from dendrux_model.outcomes import INVALID, VALIDATION, Broken, Outcome, Refused, Returned, Unavailable, Unknown
from dendrux_model.values import At, json_text

RUN_IDS = frozenset({"run_id", "root_run_id", "parent_run_id", "retry_of_run_id"})
ROW_IDS = frozenset(
    {
        "event_id",
        "trace_id",
        "row_id",
        "usage_id",
        "interaction_id",
        "note_id",
        "submission_id",
        "consumption_id",
        "step_id",
    }
)
NAMES = frozenset({"tenant_id", "agent_name", "idempotency_key"})
LISTS = frozenset({"run_ids", "note_ids"})
NAMESPACED = RUN_IDS | ROW_IDS | NAMES | LISTS
"""Parameters whose values belong to the namespace of a program."""

WRITES = (EventWrite, LLMInteractionWrite, ToolCallWrite, TraceWrite, UsageWrite)
"""Values inside arguments that carry ids of their own."""

JSON_FIELDS = frozenset(
    {
        "input_data",
        "meta",
        "data",
        "params",
        "result",
        "semantic_request",
        "semantic_response",
        "provider_request",
        "provider_response",
        "guardrail_findings",
        "metadata",
    }
)
NOT_SHOWN: Mapping[str, frozenset[str]] = {
    "get_run_events": frozenset({"run_id", "created_at"}),
    "get_traces": frozenset({"created_at"}),
    "get_traces_after": frozenset({"created_at"}),
    "get_tool_calls": frozenset({"created_at"}),
    "get_llm_interactions": frozenset({"created_at"}),
    "get_notes": frozenset({"run_id", "created_at"}),
}
"""Fields of records that the model says nothing about."""

NOT_SHOWN_INSIDE: Mapping[type, frozenset[str]] = {
    ToolCallRecord: frozenset({"created_at"}),
    TraceRecord: frozenset({"created_at"}),
    **dict.fromkeys(
        (FailedRun, PendingCall, RunBrief, ParentRef, SubtreeSummary, UsageRollup, SubtreeNodeRecord, RunRecord),
        frozenset[str](),
    ),
}
"""The same for records inside other answers."""

RUN_LISTS = frozenset({"cancelled", "requested", "already_terminal"})
"""Fields of records that are lists of run ids."""

OVER_EVERY_RUN = frozenset({"mark_lease_expired", "get_lease_expired", "sweep_stale_runs", "sweep_abandoned_runs"})
"""Methods that page over the runs of every program."""

NAMESPACE_LENGTH = 16
"""Code points that the namespace takes of every id: a program's own ids may be this much shorter than the bound."""

SESSION = f"k{secrets.token_hex(4)}"
"""What every namespace of this process begins with, so that what it has stored can be told from everything else."""
_PROGRAMS = count()


def new_namespace() -> str:
    """A namespace that no other program has."""
    return f"{SESSION}{next(_PROGRAMS):06x}-"


class ValidationRefused(Exception):
    """What the driver's `validate` raises, to see that it passes through the store untouched."""


def refuse(document: dict[str, Any]) -> None:
    """A validation that never agrees."""
    raise ValidationRefused


def accept(document: dict[str, Any]) -> None:
    """A validation that agrees with any pause document."""
    if not isinstance(document, dict):
        raise TypeError("validate was not given the pause document")


async def agrees_later(document: dict[str, Any]) -> None:
    """A validation that nobody may wait for."""


def hands_out_a_wait(document: dict[str, Any]) -> Any:
    """A plain function whose answer waits to be awaited."""
    return agrees_later(document)


VALIDATIONS: Mapping[Any, Callable[[dict[str, Any]], Any] | None] = {
    "accept": accept,
    "refuse": refuse,
    "async": agrees_later,
    "awaitable": hands_out_a_wait,
}
"""What the words of the model stand for."""


class Driver:
    """Calls operations on one store instance after another, in one namespace."""

    def __init__(
        self,
        namespace: str | None = None,
        clock: Any = None,
        aged: timedelta = timedelta(0),
        *,
        blob_store: BlobStore | None = None,
    ) -> None:
        self.namespace = namespace or new_namespace()
        assert len(self.namespace) == NAMESPACE_LENGTH
        self.blobs = BlobNames(self.namespace, blob_store)
        self.aged = aged
        """How far an ageing clock has moved what is stored; added back to every time that is read."""
        self.cursors: dict[tuple[str, str], str] = {}
        """Where the page of a cancellation ended: by its root and any run of that page."""
        self.raised: str | None = None
        """What the last call raised, for the report of a finding; None when it answered."""
        self.clock = clock
        """Where the store's time comes from; None: from the system."""

    async def call(self, store: Any, operation: Operation) -> Outcome:
        """Call the operation's method on this store; never raises but for cancellation."""
        method = getattr(store, operation.method, None)
        if method is None:
            return Broken(f"AttributeError: no method {operation.method}")
        given = self.arguments(operation)
        self.raised = None
        try:
            value = await self.answer(method, operation, given)
        except Exception as error:
            self.raised = described(error)
            wrong = leak(error, store) or misnamed(error, given)
            return outcome_of(error) if wrong is None else Broken(wrong)
        try:
            return Returned(self.shown(operation, value))
        except Exception as error:  # an answer of another shape than the protocol's is the store's fault, not ours
            return Broken(f"an unreadable answer, {type(error).__name__}")

    async def answer(self, method: Callable[..., Any], operation: Operation, given: dict[str, Any]) -> Any:
        """What the store answers; of an operation over every run, what it says of this program's runs."""
        if operation.method == "collect_garbage":
            given = in_time(given, datetime.now(UTC))
        if operation.method not in OVER_EVERY_RUN:
            return await method(**given)
        now = await settled(self.clock.now()) if hasattr(self.clock, "now") else datetime.now(UTC)
        return await Pages(self.namespace, self.field).follow(method, in_time(given, now))

    # -- on the way in ------------------------------------------------------------------------------------------------

    def arguments(self, operation: Operation) -> dict[str, Any]:
        """The keyword arguments for the store: names in the namespace, `validate` a callable."""
        given = {
            name: self.blobs.inside(operation.method, name, self.inside(name, value))
            for name, value in operation.arguments().items()
        }
        if operation.method == "get_events_for_runs" and isinstance(given["heads"], dict):
            given["heads"] = {self.inside("run_id", run_id): head for run_id, head in given["heads"].items()}
        if operation.method == "child_runs_page":
            given["after"] = self.inside("run_id", given["after"])
        if operation.method == "cancel_subtree":
            given["after"] = self.cursors.get((given["root_run_id"], given["after"]), given["after"])
        if operation.method in STORING and self.blobs.blob_store is not None:
            given["blob_store"] = self.blobs.blob_store
        if "validate" in given:
            given["validate"] = VALIDATIONS.get(given["validate"])
        return given

    def inside(self, name: str, value: Any) -> Any:
        """A value as the store gets it. The empty string has no namespace: it is refused, or one tenant of all."""
        if isinstance(value, WRITES):
            ids = {f.name: self.inside(f.name, getattr(value, f.name)) for f in fields(value) if f.name in ROW_IDS}
            return replace(value, **ids)
        if isinstance(value, tuple) and value and all(isinstance(item, WRITES) for item in value):
            return [self.inside(name, item) for item in value]
        if name not in NAMESPACED or value is None or value is UNSCOPED:
            return value
        if name in LISTS:
            return [self.inside("run_id", item) for item in value]
        return self.namespace + value if isinstance(value, str) and value else value

    # -- on the way out -----------------------------------------------------------------------------------------------

    def outside(self, value: Any) -> Any:
        """A value of the store without the namespace."""
        return value.removeprefix(self.namespace) if isinstance(value, str) else value

    def shown(self, operation: Operation, value: Any) -> Any:
        """The plain data of an answer, as the model would give it."""
        method = operation.method
        if method in OVER_EVERY_RUN:
            return value
        if method in METHODS:
            return self.blobs.shown(value, self.field)
        if method == "cancel_subtree":
            self.remember(operation, value)
        if method == "list_runs":
            return [self.outside(run.id) for run in value]
        if method == "get_events_for_runs":
            left_out = NOT_SHOWN["get_run_events"]
            return {self.outside(of): [self.record(row, left_out) for row in page] for of, page in value.items()}
        if method == "get_run_statuses":
            return {self.outside(run_id): status for run_id, status in value.items()}
        if method == "get_pause_state":
            return self.pause_state(value)
        if method in ("get_pii_mapping", "get_loop_state"):
            return json_text(value)
        if isinstance(value, (list, tuple)):
            return [self.record(row, NOT_SHOWN.get(method, frozenset())) for row in value]
        if is_dataclass(value):
            return self.record(value, frozenset())
        return value

    def remember(self, operation: Any, page: CancelPage) -> None:
        """A program names a page by the run it ended with; a store by a cursor of its own."""
        ids = [*page.cancelled, *page.requested, *page.already_terminal, *(failed.run_id for failed in page.failed)]
        root = self.inside("root_run_id", operation.root_run_id)
        if page.next_after is not None:
            self.cursors |= {(root, self.outside(run_id)): page.next_after for run_id in ids}

    def pause_state(self, value: dict[str, Any] | None) -> Any:
        """The document and the id of its submission, which users find beside the document's own members."""
        if value is None:
            return None
        submission = value.get("submission_id")
        document = {key: member for key, member in value.items() if key != "submission_id"}
        return {"document": json_text(document), "submission_id": self.outside(submission)}

    def record(self, row: Any, left_out: frozenset[str]) -> dict[str, Any]:
        """A record field by field; fields that a store's own subclass adds are not looked at."""
        known = RunRecord if isinstance(row, RunRecord) else type(row)
        return {f.name: self.field(f.name, getattr(row, f.name)) for f in fields(known) if f.name not in left_out}

    def field(self, name: str, value: Any) -> Any:
        """One field: documents as text, times as instants, names without the namespace, records field by field."""
        if type(value) in NOT_SHOWN_INSIDE:
            return self.record(value, NOT_SHOWN_INSIDE[type(value)])
        if isinstance(value, tuple) or (isinstance(value, list) and value and is_dataclass(value[0])):
            return [self.field(name, item) for item in value]
        if name in RUN_LISTS:
            return [self.outside(run_id) for run_id in value]
        if name in JSON_FIELDS:
            return json_text(value)
        if isinstance(value, datetime):
            return At(microseconds(value + self.aged))
        return self.outside(value) if name in NAMESPACED or name == "id" else value


def microseconds(moment: datetime) -> int:
    """Whole microseconds since 1970. A naive time is no answer a store may give."""
    if moment.tzinfo is None:
        raise TypeError("naive datetime")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def outcome_of(error: Exception) -> Outcome:
    """The model's word for what a store raised."""
    if isinstance(error, StoreOutcomeUnknown):
        return Unknown()
    if isinstance(error, UNAVAILABLE) or type(error) is PersistenceError:  # a statement failed: nothing was written
        return Unavailable(error.code)
    if isinstance(error, REFUSALS):
        return Refused(error.code)  # type: ignore[attr-defined]  # every class in REFUSALS has a code
    if isinstance(error, ValidationRefused):
        return VALIDATION
    if isinstance(error, (ValueError, TypeError)) and not hasattr(error, "code"):
        return INVALID
    return Broken(type(error).__name__)
