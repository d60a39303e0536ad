"""The tables. Columns that the earlier release did not have are nullable or have a server default.

A position that only one row may hold is a nullable key column under a plain UNIQUE: it is filled on format 2 only, and
NULLs never clash. The names `agent_runs`, `id` and `cancel_requested` are fixed: hooks of store authors write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
    event,
    false,
    func,
)
from sqlalchemy.engine import Connection
from sqlalchemy.orm import DeclarativeBase

from dendrux.db.types import Instant, Json, Money, Prose, Word
from dendrux.vocabulary import ID_LENGTH, NAME_LENGTH, REASON_LENGTH, SCOPE_LENGTH, TYPE_LENGTH

STORAGE_FORMAT_KEY: Final = "storage_format"
STORAGE_FORMAT: Final = "2"
"""The format a schema starts with when it is made new."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


class Base(DeclarativeBase):
    """Carries the metadata: `Base.metadata.create_all` makes the schema. There are no mapped classes."""

    metadata = metadata


def _key(name: str = "id") -> Column[str]:
    return Column(name, Word(ID_LENGTH), primary_key=True)


def _run(name: str = "agent_run_id") -> Column[str]:
    return Column(name, Word(ID_LENGTH), ForeignKey("agent_runs.id", ondelete="CASCADE"), nullable=False)


def _related(name: str) -> Column[str]:
    return Column(name, Word(ID_LENGTH), ForeignKey("agent_runs.id", ondelete="SET NULL"), nullable=True)


def _count(name: str, *, large: bool = False) -> Column[int]:
    return Column(name, BigInteger() if large else Integer(), nullable=False, server_default="0")


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean(), nullable=False, server_default=false())


def _digest(name: str = "content_digest") -> Column[str]:
    """The sha256 of what a caller stored; NULL on rows of the earlier release."""
    return Column(name, Word(64), nullable=True)


def _usage() -> list[Column[Any]]:
    return [
        _count("input_tokens", large=True),
        _count("output_tokens", large=True),
        _count("total_tokens", large=True),
        Column("cost_usd", Money(), nullable=True),
        Column("duration_ms", BigInteger(), nullable=True),
        Column("cache_read_input_tokens", BigInteger(), nullable=True),
        Column("cache_creation_input_tokens", BigInteger(), nullable=True),
        Column("reasoning_tokens", BigInteger(), nullable=True),
    ]


agent_runs = Table(
    "agent_runs",
    metadata,
    _key(),
    Column("tenant_id", Word(NAME_LENGTH), nullable=True),
    Column("agent_name", Word(NAME_LENGTH), nullable=False),
    Column("status", Word(TYPE_LENGTH), nullable=False),
    Column("storage_format", Integer(), nullable=False, server_default="1"),
    _count("claim_epoch"),
    Column("claimed_epoch", Integer(), nullable=True),
    Column("paused_status", Word(TYPE_LENGTH), nullable=True),
    Column("lease_expired_at", Instant(), nullable=True),
    Column("last_progress_at", Instant(), nullable=True),
    Column("paused_at", Instant(), nullable=True),
    _count("reclaim_count"),
    _flag("cancel_requested"),
    _flag("pause_requested"),
    Column("pause_reason", Prose(), nullable=True),
    Column("pause_data", Json(), nullable=True),
    Column("submission_id", Word(ID_LENGTH), nullable=True),
    _digest("submission_digest"),
    Column("submission_data", Json(), nullable=True),
    Column("consumption_id", Word(ID_LENGTH), nullable=True),
    Column("loop_state", Json(), nullable=True),
    Column("last_step_id", Word(ID_LENGTH), nullable=True),
    _digest("last_step_digest"),
    Column("input_data", Json(), nullable=True),
    Column("output_data", Json(), nullable=True),
    Column("error", Prose(), nullable=True),
    Column("failure_reason", Word(TYPE_LENGTH), nullable=True),
    Column("meta", Json(), nullable=True),
    Column("pii_mapping", Json(), nullable=True),
    Column("model", Word(NAME_LENGTH), nullable=True),
    Column("strategy", Word(TYPE_LENGTH), nullable=True),
    _related("parent_run_id"),
    _count("delegation_level"),
    _related("retry_of_run_id"),
    Column("idempotency_scope", Word(NAME_LENGTH), nullable=False, server_default=""),
    Column("idempotency_key", Word(NAME_LENGTH), nullable=True),
    Column("idempotency_fingerprint", Word(64), nullable=True),
    _digest(),
    _count("iteration_count"),
    _count("total_input_tokens", large=True),
    _count("total_output_tokens", large=True),
    _count("total_cache_read_tokens", large=True),
    _count("total_cache_creation_tokens", large=True),
    _count("total_reasoning_tokens", large=True),
    Column("total_cost_usd", Money(), nullable=True),
    Column("created_at", Instant(), nullable=False),
    Column("updated_at", Instant(), nullable=False),
    UniqueConstraint("idempotency_scope", "idempotency_key", name="uq_agent_runs_idempotency"),
    Index("ix_agent_runs_created_at", "created_at", "id"),
    Index("ix_agent_runs_tenant", "tenant_id", "created_at", "id"),
    Index("ix_agent_runs_status", "status", "created_at", "id"),
    Index("ix_agent_runs_agent", "agent_name", "created_at", "id"),
    Index("ix_agent_runs_parent_run_id", "parent_run_id", "created_at", "id"),
    Index("ix_agent_runs_children", "parent_run_id", "id"),
    Index("ix_agent_runs_retry_of_run_id", "retry_of_run_id"),
    Index("ix_agent_runs_progress", "status", "last_progress_at", "id"),
    Index("ix_agent_runs_paused", "status", "paused_at", "id"),
    Index("ix_agent_runs_lease", "status", "lease_expired_at", "id"),
)

run_events = Table(
    "run_events",
    metadata,
    _key(),
    _run(),
    Column("event_type", Word(TYPE_LENGTH), nullable=False),
    Column("sequence_index", Integer(), nullable=False),
    _count("iteration_index"),
    Column("correlation_id", Word(NAME_LENGTH), nullable=True),
    Column("data", Json(), nullable=True),
    _digest(),
    Column("created_at", Instant(), nullable=False),
    UniqueConstraint("agent_run_id", "sequence_index", name="uq_run_events_sequence"),
    Index("ix_run_events_event_type", "agent_run_id", "event_type", "sequence_index"),
)

react_traces = Table(
    "react_traces",
    metadata,
    _key(),
    _run(),
    Column("role", Word(TYPE_LENGTH), nullable=False),
    Column("content", Prose(), nullable=False),
    Column("order_index", Integer(), nullable=False),
    Column("position_key", Integer(), nullable=True),
    Column("trace_kind", Word(TYPE_LENGTH), nullable=False, server_default="message"),
    Column("meta", Json(), nullable=True),
    _digest(),
    Column("created_at", Instant(), nullable=False),
    Column("updated_at", Instant(), nullable=True),
    UniqueConstraint("agent_run_id", "position_key", name="uq_react_traces_position"),
    Index("ix_react_traces_order", "agent_run_id", "order_index", "id"),
    Index("ix_react_traces_kind", "agent_run_id", "trace_kind", "order_index"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    _key(),
    _run(),
    Column("tool_call_id", Word(NAME_LENGTH), nullable=False),
    Column("position_key", Word(NAME_LENGTH), nullable=True),
    Column("provider_tool_call_id", Word(NAME_LENGTH), nullable=True),
    Column("tool_name", Word(NAME_LENGTH), nullable=False),
    Column("target", Word(TYPE_LENGTH), nullable=False),
    Column("params", Json(), nullable=True),
    Column("result", Json(), nullable=True),
    Column("success", Boolean(), nullable=False),
    Column("duration_ms", BigInteger(), nullable=True),
    Column("iteration_index", Integer(), nullable=True),
    Column("error_message", Prose(), nullable=True),
    Column("meta", Json(), nullable=True),
    Column("outcome", Word(TYPE_LENGTH), nullable=True),
    Column("attempt", Integer(), nullable=False, server_default="1"),
    Column("replayed_iteration", Integer(), nullable=True),
    Column("started_epoch", Integer(), nullable=True),
    Column("started_at", Instant(), nullable=True),
    Column("completed_at", Instant(), nullable=True),
    Column("trace_id", Word(ID_LENGTH), nullable=True),
    _digest(),
    _digest("start_digest"),
    Column("created_at", Instant(), nullable=False),
    Column("updated_at", Instant(), nullable=True),
    UniqueConstraint("agent_run_id", "position_key", name="uq_tool_calls_position"),
    Index("ix_tool_calls_agent_run_id", "agent_run_id", "created_at", "id"),
    Index("ix_tool_calls_replayed", "agent_run_id", "replayed_iteration", "created_at", "id"),
)

token_usage = Table(
    "token_usage",
    metadata,
    _key(),
    _run(),
    Column("iteration_index", Integer(), nullable=False),
    Column("model", Word(NAME_LENGTH), nullable=True),
    Column("provider", Word(NAME_LENGTH), nullable=True),
    *_usage(),
    Column("meta", Json(), nullable=True),
    _digest(),
    Column("created_at", Instant(), nullable=False),
    Index("ix_token_usage_agent_run_id", "agent_run_id", "iteration_index", "id"),
)

llm_interactions = Table(
    "llm_interactions",
    metadata,
    _key(),
    _run(),
    Column("iteration_index", Integer(), nullable=False),
    Column("model", Word(NAME_LENGTH), nullable=True),
    Column("provider", Word(NAME_LENGTH), nullable=True),
    Column("semantic_request", Json(), nullable=True),
    Column("semantic_response", Json(), nullable=True),
    Column("provider_request", Json(), nullable=True),
    Column("provider_response", Json(), nullable=True),
    Column("guardrail_findings", Json(), nullable=True),
    *_usage(),
    _digest(),
    Column("created_at", Instant(), nullable=False),
    Index("ix_llm_interactions_agent_run_id", "agent_run_id", "iteration_index", "id"),
)

run_inbox = Table(
    "run_inbox",
    metadata,
    _key(),
    _run("run_id"),
    Column("text", Prose(), nullable=False),
    Column("metadata", Json(), nullable=True),
    _digest(),
    Column("created_at", Instant(), nullable=False),
    Column("delivered_at", Instant(), nullable=True),
    Column("delivered_iteration", Integer(), nullable=True),
    Index("ix_run_inbox_run_pending", "run_id", "delivered_at", "created_at", "id"),
    Index("ix_run_inbox_order", "run_id", "created_at", "id"),
)

blobs = Table(
    "dendrux_blobs",
    metadata,
    Column("tenant_scope", Word(SCOPE_LENGTH), primary_key=True),
    Column("sha256", Word(64), primary_key=True),
    Column("generation", Word(ID_LENGTH), nullable=False),
    Column("state", Word(16), nullable=False),
    Column("media_type", Word(TYPE_LENGTH), nullable=False),
    Column("byte_length", BigInteger(), nullable=False),
    Column("width", Integer(), nullable=False),
    Column("height", Integer(), nullable=False),
    Column("frame_count", Integer(), nullable=False, server_default="1"),
    Column("storage", Word(16), nullable=False),
    Column("data", LargeBinary(2**32 - 1), nullable=True),
    Column("ingest_transform", Word(TYPE_LENGTH), nullable=True),
    Column("created_at", Instant(), nullable=False),
    Column("last_used_at", Instant(), nullable=False),
    Column("state_changed_at", Instant(), nullable=False),
    Column("purged_at", Instant(), nullable=True),
    Column("purge_reason", Word(REASON_LENGTH), nullable=True),
    Index("ix_dendrux_blobs_gc", "state", "last_used_at", "tenant_scope", "sha256"),
    Index("ix_dendrux_blobs_work", "state", "state_changed_at", "tenant_scope", "sha256"),
)

blob_refs = Table(
    "dendrux_blob_refs",
    metadata,
    _key(),
    Column("tenant_scope", Word(SCOPE_LENGTH), nullable=False),
    Column("sha256", Word(64), nullable=False),
    _run("run_id"),
    Column("owner_kind", Word(TYPE_LENGTH), nullable=False),
    Column("owner_id", Word(NAME_LENGTH), nullable=False),
    Column("ordinal", Integer(), nullable=False),
    Column("created_at", Instant(), nullable=False),
    ForeignKeyConstraint(
        ["tenant_scope", "sha256"],
        ["dendrux_blobs.tenant_scope", "dendrux_blobs.sha256"],
        name="fk_dendrux_blob_refs_blob",
        ondelete="RESTRICT",
    ),
    UniqueConstraint("run_id", "owner_kind", "owner_id", "ordinal", name="uq_dendrux_blob_refs_owner"),
    Index("ix_dendrux_blob_refs_blob", "tenant_scope", "sha256", "run_id", "owner_kind", "owner_id", "ordinal").ddl_if(
        callable_=lambda *_, dialect, **_facts: dialect.name != "postgresql"
    ),
)

settings = Table(
    "dendrux_settings",
    metadata,
    Column("key", Word(NAME_LENGTH), primary_key=True),
    Column("value", Prose(), nullable=False),
    Column("updated_at", Instant(), nullable=False),
)


def _set_mysql_options() -> None:
    """InnoDB, utf8mb4 and checked documents, on MySQL and MariaDB.

    MariaDB's json_valid takes no document of more than 31 levels, so documents are checked by MySQL only.
    """
    for table in metadata.tables.values():
        for name in ("mysql", "mariadb"):
            table.dialect_kwargs.update({f"{name}_engine": "InnoDB", f"{name}_default_charset": "utf8mb4"})
        for column in table.columns:
            if isinstance(column.type, Json):
                name = f"ck_{table.name}_{column.name}"
                check = CheckConstraint(func.json_valid(column), name=name)
                table.append_constraint(check.ddl_if(callable_=_checks_documents))


def _checks_documents(*_: object, dialect: Any, **_facts: object) -> bool:
    return bool(dialect.name == "mysql" and not dialect.is_mariadb)


_set_mysql_options()


def _in_one_transaction(_target: MetaData, connection: Connection, *, tables: Sequence[Table], **_: object) -> None:
    """All tables or none, also on SQLite, whose driver would commit every statement that is no INSERT or UPDATE.

    https://docs.python.org/3/library/sqlite3.html#sqlite3-transaction-control-isolation-level
    """
    if not tables or connection.dialect.name != "sqlite" or not isinstance(connection, Connection):
        return  # a mock connection prints statements
    if not getattr(connection.connection.driver_connection, "in_transaction", True):
        connection.exec_driver_sql("BEGIN")


event.listen(metadata, "before_create", _in_one_transaction)


def _activate_new_schema(_target: MetaData, connection: Connection, *, tables: Sequence[Table], **_: object) -> None:
    """A schema that this call made starts at format 2; on older tables nothing is activated."""
    if agent_runs not in tables or settings not in tables:
        return
    connection.execute(
        settings.insert(), {"key": STORAGE_FORMAT_KEY, "value": STORAGE_FORMAT, "updated_at": datetime.now(UTC)}
    )


event.listen(metadata, "after_create", _activate_new_schema)


def _only_on_postgresql(table: Table, statement: str) -> None:
    """An index that the other databases cannot have, or need not."""
    made = DDL(statement).execute_if(dialect="postgresql")  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", made)


# What containment in the metadata of runs is looked up in; results never depend on it.
_only_on_postgresql(
    agent_runs, "CREATE INDEX ix_agent_runs_meta ON %(fullname)s USING gin ((CAST(meta AS jsonb)) jsonb_path_ops)"
)
# An entry of an index holds at most 2704 bytes there, which the longest identifiers of all columns would exceed. What
# these leave unsorted is the references of one run.
_only_on_postgresql(
    blob_refs, "CREATE INDEX ix_dendrux_blob_refs_blob ON %(fullname)s (tenant_scope, sha256, run_id, owner_kind)"
)
