"""Storage format 1: the tables of the earlier release, 0.4."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CHAR,
    JSON,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.dialects.mysql import DATETIME

metadata = MetaData()


def _key() -> Column[Any]:
    return Column("id", String(26), primary_key=True)


def _run(name: str = "agent_run_id") -> Column[Any]:
    return Column(name, String(26), ForeignKey("agent_runs.id", ondelete="CASCADE"), nullable=False)


def _related(name: str) -> Column[Any]:
    return Column(name, String(26), ForeignKey("agent_runs.id", ondelete="SET NULL"), nullable=True)


def _number(name: str, *, nullable: bool = False, default: str | None = None) -> Column[Any]:
    return Column(name, Integer(), nullable=nullable, server_default=default)


def _text(name: str, length: int, *, nullable: bool = True) -> Column[Any]:
    return Column(name, String(length), nullable=nullable)


def _json(name: str) -> Column[Any]:
    return Column(name, JSON(), nullable=True)


def _cost(name: str) -> Column[Any]:
    return Column(name, Numeric(10, 6), nullable=True)


def _flag(name: str) -> Column[Any]:
    return Column(name, Boolean(), nullable=False, server_default=false())


def _time(name: str, *, nullable: bool = False) -> Column[Any]:
    # That release knew no database that keeps whole seconds unless told otherwise.
    kept = DateTime(timezone=True).with_variant(DATETIME(fsp=6), "mysql", "mariadb")
    return Column(name, kept, nullable=nullable)


def _usage() -> list[Column[Any]]:
    return [
        _number("input_tokens"),
        _number("output_tokens"),
        _cost("cost_usd"),
        _number("duration_ms", nullable=True),
        _number("cache_read_input_tokens", nullable=True),
        _number("cache_creation_input_tokens", nullable=True),
        _number("reasoning_tokens", nullable=True),
    ]


agent_runs = Table(
    "agent_runs",
    metadata,
    _key(),
    _text("tenant_id", 255),
    _text("agent_name", 255, nullable=False),
    _text("status", 50, nullable=False),
    _json("input_data"),
    _json("output_data"),
    _number("iteration_count"),
    _text("model", 255),
    _text("strategy", 100),
    _related("parent_run_id"),
    _number("delegation_level"),
    _related("retry_of_run_id"),
    _number("total_input_tokens"),
    _number("total_output_tokens"),
    _cost("total_cost_usd"),
    _number("total_cache_read_tokens", default="0"),
    _number("total_cache_creation_tokens", default="0"),
    _number("total_reasoning_tokens", default="0"),
    _json("meta"),
    _json("pause_data"),
    _json("pii_mapping"),
    Column("error", Text(), nullable=True),
    _time("last_progress_at", nullable=True),
    _text("failure_reason", 100),
    _text("idempotency_key", 255),
    _text("idempotency_fingerprint", 64),
    _flag("cancel_requested"),
    _flag("pause_requested"),
    _time("created_at"),
    _time("updated_at"),
    Index("ix_agent_runs_tenant_id", "tenant_id"),
    Index("ix_agent_runs_idempotency_key", "idempotency_key", unique=True),
    Index("ix_agent_runs_parent_run_id", "parent_run_id"),
    Index("ix_agent_runs_retry_of_run_id", "retry_of_run_id"),
    Index("ix_agent_runs_status", "status"),
    Index("ix_agent_runs_created_at", "created_at"),
)

react_traces = Table(
    "react_traces",
    metadata,
    _key(),
    _run(),
    _text("role", 20, nullable=False),
    Column("content", Text(), nullable=False),
    _number("order_index"),
    _json("meta"),
    _time("created_at"),
    _time("updated_at"),
    Index("ix_react_traces_agent_run_id_order", "agent_run_id", "order_index"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    _key(),
    _run(),
    _text("tool_call_id", 26, nullable=False),
    _text("provider_tool_call_id", 255),
    _text("tool_name", 255, nullable=False),
    _text("target", 50, nullable=False),
    _json("params"),
    _json("result"),
    Column("success", Boolean(), nullable=False),
    _number("duration_ms", nullable=True),
    _number("iteration_index", nullable=True),
    Column("error_message", Text(), nullable=True),
    _json("meta"),
    _time("created_at"),
    _time("updated_at"),
    Index("ix_tool_calls_agent_run_id", "agent_run_id"),
)

token_usage = Table(
    "token_usage",
    metadata,
    _key(),
    _run(),
    _number("iteration_index"),
    _text("model", 255),
    _text("provider", 100),
    *_usage(),
    _json("meta"),
    _time("created_at"),
    Index("ix_token_usage_agent_run_id", "agent_run_id"),
)

llm_interactions = Table(
    "llm_interactions",
    metadata,
    _key(),
    _run(),
    _number("iteration_index"),
    _text("model", 255),
    _text("provider", 100),
    _json("semantic_request"),
    _json("semantic_response"),
    _json("provider_request"),
    _json("provider_response"),
    *_usage(),
    _json("guardrail_findings"),
    _time("created_at"),
    Index("ix_llm_interactions_agent_run_id", "agent_run_id"),
)

run_events = Table(
    "run_events",
    metadata,
    _key(),
    _run(),
    _text("event_type", 50, nullable=False),
    _number("sequence_index"),
    _number("iteration_index"),
    _text("correlation_id", 26),
    _json("data"),
    _time("created_at"),
    Index("ix_run_events_agent_run_id_seq", "agent_run_id", "sequence_index"),
    Index("ix_run_events_event_type", "event_type"),
)

run_inbox = Table(
    "run_inbox",
    metadata,
    _key(),
    _run("run_id"),
    Column("text", Text(), nullable=False),
    _json("metadata"),
    _time("created_at"),
    _time("delivered_at", nullable=True),
    _number("delivered_iteration", nullable=True),
    Index("ix_run_inbox_run_pending", "run_id", "delivered_at", "created_at", "id"),
)

blobs = Table(
    "dendrux_blobs",
    metadata,
    Column("tenant_scope", String(260), primary_key=True),
    Column("sha256", CHAR(64), primary_key=True),
    _text("generation", 26, nullable=False),
    _text("state", 16, nullable=False),
    _text("media_type", 32, nullable=False),
    _number("byte_length"),
    _number("width"),
    _number("height"),
    _number("frame_count", default="1"),
    _text("storage", 16, nullable=False),
    Column("data", LargeBinary(), nullable=True),
    _text("ingest_transform", 100),
    _time("created_at"),
    _time("last_used_at"),
    _time("state_changed_at"),
    _time("purged_at", nullable=True),
    _text("purge_reason", 200),
    Index("ix_dendrux_blobs_gc", "state", "last_used_at"),
    Index("ix_dendrux_blobs_work", "state", "state_changed_at"),
)

blob_refs = Table(
    "dendrux_blob_refs",
    metadata,
    _key(),
    _text("tenant_scope", 260, nullable=False),
    Column("sha256", CHAR(64), nullable=False),
    _run("run_id"),
    _text("owner_kind", 32, nullable=False),
    _text("owner_id", 64, nullable=False),
    _number("ordinal"),
    _time("created_at"),
    ForeignKeyConstraint(
        ["tenant_scope", "sha256"], ["dendrux_blobs.tenant_scope", "dendrux_blobs.sha256"], ondelete="RESTRICT"
    ),
    UniqueConstraint("run_id", "owner_kind", "owner_id", "ordinal", name="uq_dendrux_blob_refs_owner"),
    Index("ix_dendrux_blob_refs_blob", "tenant_scope", "sha256"),
    Index("ix_dendrux_blob_refs_run", "run_id", "tenant_scope"),
)

for _table in metadata.tables.values():
    for _name in ("mysql", "mariadb"):
        _table.dialect_kwargs.update({f"{_name}_engine": "InnoDB", f"{_name}_default_charset": "utf8mb4"})
