"""PostgreSQL, MySQL and MariaDB: tables are altered in place, each in one statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    Constraint,
    ForeignKeyConstraint,
    MetaData,
    Table,
    UniqueConstraint,
    inspect,
)
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import AddConstraint, CreateTable

from dendrux_migrations import repairs

TRIES: Final = 5
"""How often doubled events are moved before the key, when writers at work double others meanwhile."""


def converge(
    connection: Connection, metadata: MetaData, indexes: frozenset[str], unique: frozenset[tuple[str, ...]]
) -> None:
    """Alter every table and keep every row. The order matters where each statement stays.

    Foreign keys go first, since MySQL alters no column under one; new keys come before the old ones go, so that
    writers at work are never without; foreign keys come back last, over columns of equal types.
    """
    names = set(inspect(connection).get_table_names())
    present = [table for table in metadata.sorted_tables if table.name in names]
    _lock(connection, present)
    if _postgresql(connection) and "storage_format" not in _column_names(connection, "agent_runs"):
        repairs.marks(connection)
    for table in present:
        _drop_foreign_keys(connection, table)
    for table in present:
        _drop_indexes(connection, table, indexes)
        _alter(connection, table)
        _name_primary_key(connection, table)
    for table in metadata.sorted_tables:
        if table.name not in names:
            table.create(connection, checkfirst=False)
    repairs.rows_of_old_writers(connection)
    _add_keys(connection, present)
    for table in present:
        _add_indexes(connection, table)
        _drop_keys(connection, table, unique)
    for table in present:
        _add_foreign_keys(connection, table)


def _column_names(connection: Connection, table: str) -> set[str]:
    return {column["name"] for column in inspect(connection).get_columns(table)}


def _postgresql(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _quote(connection: Connection, name: str | None) -> str:
    return connection.dialect.identifier_preparer.quote(str(name))


def _change(connection: Connection, table: Table, *parts: str) -> None:
    # No parameters, and `%` of a name or default must reach the server as it is.
    statement = f"ALTER TABLE {_quote(connection, table.name)} {', '.join(parts)}"
    connection.exec_driver_sql(statement)


def _lock(connection: Connection, tables: Iterable[Table]) -> None:
    """Take all tables at once, in the order in which writers take them: a writer waits and deadlocks with nobody."""
    names = [_quote(connection, table.name) for table in tables]
    if names and _postgresql(connection):
        connection.exec_driver_sql(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE")


# -- what goes --------------------------------------------------------------------------------------------------------


def _drop_foreign_keys(connection: Connection, table: Table) -> None:
    word = "CONSTRAINT" if _postgresql(connection) else "FOREIGN KEY"
    ours = {tuple(key.column_keys) for key in table.foreign_key_constraints}
    stored = inspect(connection).get_foreign_keys(table.name)
    gone = [key["name"] for key in stored if tuple(key["constrained_columns"]) in ours]
    if gone:
        _change(connection, table, *(f"DROP {word} {_quote(connection, name)}" for name in gone))


def _drop_indexes(connection: Connection, table: Table, retired: frozenset[str]) -> None:
    """Retired indexes, those of our names over other columns, and those that MySQL made for a foreign key."""
    wanted = {str(index.name): index.columns.keys() for index in table.indexes}
    implied = {key.column_keys[0] for key in table.foreign_key_constraints}
    for index in inspect(connection).get_indexes(table.name):
        name = str(index["name"])
        if index["unique"]:
            continue
        other = name in wanted and wanted[name] != index["column_names"]
        if other or name in retired - set(wanted) or name in implied:
            _drop_index(connection, table, name)


def _drop_index(connection: Connection, table: Table, name: str) -> None:
    if _postgresql(connection):
        connection.exec_driver_sql(f"DROP INDEX {_quote(connection, name)}")
    else:
        _change(connection, table, f"DROP INDEX {_quote(connection, name)}")


def _drop_keys(connection: Connection, table: Table, retired: frozenset[tuple[str, ...]]) -> None:
    inspector = inspect(connection)
    if _postgresql(connection):
        for key in inspector.get_unique_constraints(table.name):
            if tuple(key["column_names"]) in retired:
                _change(connection, table, f"DROP CONSTRAINT {_quote(connection, key['name'])}")
        inspector = inspect(connection)
    for index in inspector.get_indexes(table.name):
        if index["unique"] and tuple(index["column_names"]) in retired:
            _drop_index(connection, table, str(index["name"]))


# -- what changes -----------------------------------------------------------------------------------------------------


def _alter(connection: Connection, table: Table) -> None:
    """Every column in one statement, which a server does whole or not at all."""
    stored = _column_names(connection, table.name)
    compiler: Any = CreateTable(table).compile(dialect=connection.dialect)
    parts: list[str] = []
    for column in table.columns:
        specification = compiler.get_column_specification(column)
        if column.name not in stored:
            parts.append(f"ADD COLUMN {specification}")
        elif _postgresql(connection):
            parts += _alterations(connection, compiler, column)
        else:
            parts.append(f"MODIFY COLUMN {specification}")
    parts += _checks(connection, table, compiler)
    options = compiler.post_create_table(table).strip()
    _change(connection, table, *parts, *([options] if options else []))


def _checks(connection: Connection, table: Table, compiler: Any) -> Iterator[str]:
    """Conditions that a new table of this database would have."""
    stored = {check["name"] for check in inspect(connection).get_check_constraints(table.name)}
    new_table = str(compiler)
    for constraint in _named(table, CheckConstraint):
        definition = compiler.process(constraint)
        if definition in new_table and constraint.name not in stored:
            yield f"ADD {definition}"


def _alterations(connection: Connection, compiler: Any, column: Column[Any]) -> Iterator[str]:
    name = _quote(connection, column.name)
    default = compiler.get_column_default_string(column)
    # The old default goes first: PostgreSQL would have to convert it.
    yield f"ALTER COLUMN {name} DROP DEFAULT"
    yield f"ALTER COLUMN {name} TYPE {column.type.compile(dialect=connection.dialect)}"
    yield f"ALTER COLUMN {name} {'DROP' if column.nullable else 'SET'} NOT NULL"
    if default is not None:
        yield f"ALTER COLUMN {name} SET DEFAULT {default}"


def _name_primary_key(connection: Connection, table: Table) -> None:
    """A primary key has the name it would have in a new schema; MySQL calls every one PRIMARY."""
    stored, wanted = inspect(connection).get_pk_constraint(table.name)["name"], table.primary_key.name
    if _postgresql(connection) and stored != wanted:
        _change(
            connection, table, f"RENAME CONSTRAINT {_quote(connection, stored)} TO {_quote(connection, str(wanted))}"
        )


# -- what comes -------------------------------------------------------------------------------------------------------


def _add_keys(connection: Connection, tables: list[Table]) -> None:
    """Unique keys. Writers at work may double an event between the repair and the key: then both are done again."""
    for left in reversed(range(TRIES)):
        repairs.event_positions(connection)
        try:
            for table in tables:
                _add_unique(connection, table)
            return
        except IntegrityError:
            if left == 0 or _postgresql(connection):
                raise


def _add_unique(connection: Connection, table: Table) -> None:
    stored = {key["name"] for key in inspect(connection).get_unique_constraints(table.name)}
    for constraint in _named(table, UniqueConstraint):
        if constraint.name not in stored:
            connection.execute(AddConstraint(constraint, isolate_from_table=False))


def _add_indexes(connection: Connection, table: Table) -> None:
    stored = {index["name"] for index in inspect(connection).get_indexes(table.name)}
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        if index.name not in stored:
            index.create(connection, checkfirst=False)


def _add_foreign_keys(connection: Connection, table: Table) -> None:
    stored = {key["name"] for key in inspect(connection).get_foreign_keys(table.name)}
    for constraint in _named(table, ForeignKeyConstraint):
        if constraint.name not in stored:
            connection.execute(AddConstraint(constraint, isolate_from_table=False))


def _named(table: Table, kind: type[Constraint]) -> list[Constraint]:
    found = (constraint for constraint in table.constraints if isinstance(constraint, kind))
    return sorted(found, key=lambda constraint: str(constraint.name))
