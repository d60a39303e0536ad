"""SQLite: a table is changed by making it anew beside the old one, under one transaction that holds the write lock."""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import MetaData, Table, inspect
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

PREFIX: Final = "_dendrux_new_"


def converge(connection: Connection, metadata: MetaData, retired: frozenset[str]) -> None:
    """Rebuild every table whose definition is another one, then make the indexes that are missing.

    Needs: foreign keys unchecked on this connection, or dropping the old table would delete what refers to it.
    """
    if connection.exec_driver_sql("PRAGMA foreign_keys").scalar() != 0:
        raise RuntimeError("tables are rebuilt on a connection that does not check foreign keys")
    present = set(inspect(connection).get_table_names())
    for table in metadata.sorted_tables:
        if table.name not in present:
            table.create(connection, checkfirst=False)
            continue
        if _definition(connection, table.name) != _plain(_create(connection, table), table.name):
            ours = retired | {str(index.name) for index in table.indexes}
            foreign = _foreign(connection, table.name, ours)
            _rebuild(connection, table)
            for statement in foreign:
                connection.exec_driver_sql(statement)
        _indexes(connection, table)


def _create(connection: Connection, table: Table) -> str:
    return str(CreateTable(table).compile(dialect=connection.dialect)).strip()


def _definition(connection: Connection, name: str) -> str:
    stored = connection.exec_driver_sql(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)
    ).scalar_one()
    return _plain(stored, name)


def _foreign(connection: Connection, name: str, ours: frozenset[str]) -> list[str]:
    """What somebody else put on a table; it goes with the old table, so it is made again on the new one."""
    added = connection.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL "
        "ORDER BY name",
        (name,),
    )
    return [row.sql for row in added if row.name not in ours]


def _plain(definition: str, name: str) -> str:
    """One definition, one text: SQLite quotes the name of a renamed table."""
    head = re.sub(r"""^CREATE TABLE (IF NOT EXISTS )?["`\[]?""" + re.escape(name) + r"""["`\]]?""", name, definition)
    return " ".join(head.split())


def _rebuild(connection: Connection, table: Table) -> None:
    quote = connection.dialect.identifier_preparer.quote
    new = PREFIX + table.name
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quote(new)}")
    connection.exec_driver_sql(
        _create(connection, table).replace(f"CREATE TABLE {quote(table.name)}", f"CREATE TABLE {quote(new)}", 1)
    )
    stored = inspect(connection).get_columns(table.name)
    for column in stored:
        if column["name"] not in table.columns:
            _carry(connection, new, column)
    names = ", ".join(quote(column["name"]) for column in stored)
    connection.exec_driver_sql(f"INSERT INTO {quote(new)} ({names}) SELECT {names} FROM {quote(table.name)}")  # noqa: S608
    connection.exec_driver_sql(f"DROP TABLE {quote(table.name)}")
    connection.exec_driver_sql(f"ALTER TABLE {quote(new)} RENAME TO {quote(table.name)}")


def _carry(connection: Connection, new: str, column: Any) -> None:
    """A column that is not ours goes along: somebody added it."""
    quote = connection.dialect.identifier_preparer.quote
    kind = column["type"].compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {quote(new)} ADD COLUMN {quote(column['name'])} {kind}")


def _indexes(connection: Connection, table: Table) -> None:
    stored = {index["name"]: index["column_names"] for index in inspect(connection).get_indexes(table.name)}
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        if index.name not in stored:
            index.create(connection, checkfirst=False)
