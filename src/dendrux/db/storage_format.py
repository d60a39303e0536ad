"""The storage format of a database: which format its new runs start with."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import select, update
from sqlalchemy.engine import Connection

from dendrux.db.models import STORAGE_FORMAT, STORAGE_FORMAT_KEY, agent_runs, settings
from dendrux_migrations.repairs import rows_of_old_writers


def read_format(connection: Connection, tables: set[str]) -> str | None:
    """The format as the settings have it; without a row, or without that table, it is 1. None without our tables."""
    if agent_runs.name not in tables:
        return None
    if settings.name not in tables:
        return "1"
    stored = connection.scalar(select(settings.c.value).where(settings.c.key == STORAGE_FORMAT_KEY))
    return "1" if stored is None else str(stored)


def write_format(connection: Connection) -> None:
    """Let new runs start with this release's format, and finish what writers of the earlier release left meanwhile.

    Needs: the schema of this release, and the lock under which nobody else changes the settings.
    Ensures: runs that exist keep their format. A run that is being created while this commits has one or the other.
    """
    rows_of_old_writers(connection)
    values = {"value": STORAGE_FORMAT, "updated_at": datetime.now(UTC)}
    stored = connection.scalar(select(settings.c.key).where(settings.c.key == STORAGE_FORMAT_KEY))
    if stored is None:
        connection.execute(settings.insert().values(key=STORAGE_FORMAT_KEY, **values))
    else:
        connection.execute(update(settings).where(settings.c.key == STORAGE_FORMAT_KEY).values(**values))
