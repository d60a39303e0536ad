"""State stores on SQL databases: the built-in ones, and all that a store of your own needs to import."""

from __future__ import annotations

from dendrux.runtime.state import StateStore
from dendrux.runtime.values import (
    BlobEdge,
    CreateRunResult,
    EventWrite,
    LLMInteractionRecord,
    NoteRecord,
    RunControl,
    RunEventRecord,
    RunRecord,
    SeedTrace,
    ToolCallRecord,
    TraceRecord,
    TraceWrite,
    UsageStats,
)
from dendrux.store.base import SQLStateStore
from dendrux.store.capabilities import StoreCapabilities, validate_capabilities
from dendrux.store.dialects.sqlite import SQLiteStateStore
from dendrux.store.factory import store_for_engine
from dendrux.store.hookvalues import (
    AppendArray,
    ConflictSpec,
    DbError,
    DbErrorKind,
    DialectFacts,
    InsertPlan,
    JsonPatch,
    JsonPath,
    JsonReadType,
    JsonValue,
    OrderedAssignments,
    PatchLoopState,
    RunLockScope,
    RunParentCursor,
    ScalarKey,
    SelectSource,
    SetFields,
    ValuesSource,
)
from dendrux.vocabulary import UNSCOPED, TenantScope

__all__ = [
    "UNSCOPED",
    "AppendArray",
    "BlobEdge",
    "ConflictSpec",
    "CreateRunResult",
    "DbError",
    "DbErrorKind",
    "DialectFacts",
    "EventWrite",
    "InsertPlan",
    "JsonPatch",
    "JsonPath",
    "JsonReadType",
    "JsonValue",
    "LLMInteractionRecord",
    "NoteRecord",
    "OrderedAssignments",
    "PatchLoopState",
    "RunControl",
    "RunEventRecord",
    "RunLockScope",
    "RunParentCursor",
    "RunRecord",
    "SQLStateStore",
    "SQLiteStateStore",
    "ScalarKey",
    "SeedTrace",
    "SelectSource",
    "SetFields",
    "StateStore",
    "StoreCapabilities",
    "TenantScope",
    "ToolCallRecord",
    "TraceRecord",
    "TraceWrite",
    "UsageStats",
    "ValuesSource",
    "store_for_engine",
    "validate_capabilities",
]
