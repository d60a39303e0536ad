"""What a database lacks of this release's tables, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import ForeignKeyConstraint, Table, UniqueConstraint, inspect
from sqlalchemy.engine import Connection, Inspector

from dendrux.db.models import metadata

ON_POSTGRESQL: Final = {"agent_runs": {"ix_agent_runs_meta"}, "dendrux_blob_refs": {"ix_dendrux_blob_refs_blob"}}
"""Indexes that are of a kind of their own there; they are known by name."""


def missing(connection: Connection) -> list[str]:
    """Tables, columns, unique keys, foreign keys and indexes that are not there, or are there over other columns.

    Types and defaults are not compared: each table gets them in the statement that brings its columns.
    """
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    found: list[str] = []
    for table in metadata.sorted_tables:
        if table.name in present:
            found += (f"{table.name}.{name}" for name in _of(inspector, table))
        else:
            found.append(table.name)
    return found


def _of(inspector: Inspector, table: Table) -> Iterator[str]:
    columns = {column["name"] for column in inspector.get_columns(table.name)}
    yield from (column.name for column in table.columns if column.name not in columns)
    unique = {(key["name"], *key["column_names"]) for key in inspector.get_unique_constraints(table.name)}
    keys = {(key["name"], *key["constrained_columns"]) for key in inspector.get_foreign_keys(table.name)}
    for constraint in sorted(table.constraints, key=lambda each: str(each.name)):
        if isinstance(constraint, UniqueConstraint) and (constraint.name, *constraint.columns.keys()) not in unique:
            yield str(constraint.name)
        if isinstance(constraint, ForeignKeyConstraint) and (constraint.name, *constraint.column_keys) not in keys:
            yield str(constraint.name)
    special = ON_POSTGRESQL.get(table.name, set()) if inspector.dialect.name == "postgresql" else set()
    indexes = {index["name"]: index["column_names"] for index in inspector.get_indexes(table.name)}
    yield from sorted(special - set(indexes))
    for index in sorted(table.indexes, key=lambda each: str(each.name)):
        if index.name not in special and indexes.get(index.name) != index.columns.keys():
            yield str(index.name)
