"""Alembic's entry: run revisions on the connection of the caller, inside the caller's lock and transaction."""

from __future__ import annotations

from alembic import context

from dendrux_migrations import VERSION_TABLE

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("these revisions are run by `dendrux db migrate`, which takes the lock they need")
context.configure(connection=connection, version_table=VERSION_TABLE)
context.run_migrations()
