"""Lead a database to a shape, whatever part of the way it has gone already.

Where a database rolls schema changes back, a revision is all or nothing. MySQL and MariaDB keep each statement, so no
step may assume what the step before it left: each looks at the database and does what is missing. The same steps then
finish a revision that was killed, and complete tables that `create_all` left half made.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import MetaData, inspect
from sqlalchemy.engine import Connection

from dendrux_migrations import rebuild, repairs, servers


@dataclass(frozen=True)
class Retired:
    """What earlier shapes had and the new one does not; anything else that is not ours stays."""

    indexes: frozenset[str]
    """Names of indexes."""
    unique: frozenset[tuple[str, ...]]
    """Columns that were unique together, under whatever name."""


def create_missing(connection: Connection, metadata: MetaData) -> None:
    """Make the tables of a shape that are not there, with their indexes."""
    present = set(inspect(connection).get_table_names())
    for table in metadata.sorted_tables:
        if table.name not in present:
            table.create(connection, checkfirst=False)


def converge(connection: Connection, metadata: MetaData, retired: Retired) -> None:
    """Give the tables of a shape their columns, keys and indexes, and keep every row."""
    if connection.dialect.name == "sqlite":
        repairs.event_positions(connection)
        rebuild.converge(connection, metadata, retired.indexes)
        repairs.rows_of_old_writers(connection)
    else:
        servers.converge(connection, metadata, retired.indexes, retired.unique)
