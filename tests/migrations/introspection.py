"""What the catalogs of a database say about our tables, complete enough that equal answers mean equal schemas."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from dendrux_migrations import VERSION_TABLE

POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, data_type, character_maximum_length, numeric_precision, numeric_scale,
               datetime_precision, is_nullable, column_default, collation_name, is_identity, is_generated
        FROM information_schema.columns WHERE table_schema = 'public'""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype::text, convalidated, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
}
MYSQL = {
    "tables": """
        SELECT table_name, engine, table_collation FROM information_schema.tables WHERE table_schema = database()""",
    "columns": """
        SELECT table_name, column_name, column_type, is_nullable, column_default, character_set_name, collation_name,
               datetime_precision, extra, column_comment
        FROM information_schema.columns WHERE table_schema = database()""",
    "indexes": """
        SELECT table_name, index_name, seq_in_index, column_name, non_unique, sub_part, index_type
        FROM information_schema.statistics WHERE table_schema = database()""",
    "constraints": """
        SELECT table_name, constraint_name, constraint_type
        FROM information_schema.table_constraints WHERE table_schema = database()""",
    "references": """
        SELECT k.table_name, k.constraint_name, k.column_name, k.ordinal_position, k.referenced_table_name,
               k.referenced_column_name, r.delete_rule, r.update_rule
        FROM information_schema.key_column_usage k JOIN information_schema.referential_constraints r
          ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name
        WHERE k.constraint_schema = database() AND k.referenced_table_name IS NOT NULL""",
    "checks": """
        SELECT constraint_name, check_clause FROM information_schema.check_constraints
        WHERE constraint_schema = database()""",
}


def schema(connection: Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Everything by kind, sorted; the order of columns and the table of revisions aside."""
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text("SELECT tbl_name, name, type, sql FROM sqlite_master"))
        found = {"objects": [(row[0], row[1], row[2], _plain(row[3])) for row in rows]}
    else:
        queries = POSTGRESQL if connection.dialect.name == "postgresql" else MYSQL
        found = {kind: [tuple(row) for row in connection.execute(text(sql))] for kind, sql in queries.items()}
    return {kind: sorted((row for row in rows if row[0] != VERSION_TABLE), key=repr) for kind, rows in found.items()}


def _plain(sql: str | None) -> str | None:
    return sql and re.sub(r"\s+", " ", re.sub(r'^CREATE TABLE "(\w+)"', r"CREATE TABLE \1", sql))
