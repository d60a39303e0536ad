"""Whatever a database starts from, it ends with the schema that `create_all` makes."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import MetaData, UniqueConstraint, text
from sqlalchemy.engine import Connection

from dendrux.db.migrate import migrate, read_state
from dendrux.db.models import Base
from dendrux_migrations.shapes import earlier
from migrations import older
from migrations.databases import on
from migrations.introspection import schema


def as_models_made_it(connection: Connection) -> None:
    """As `create_all` of the earlier release: the key is a constraint without a name, one index is not there."""
    made = MetaData()
    for table in earlier.metadata.sorted_tables:
        table.to_metadata(made)
    runs = made.tables["agent_runs"]
    runs.indexes = {
        index
        for index in runs.indexes
        if index.name not in {"ix_agent_runs_idempotency_key", "ix_agent_runs_retry_of_run_id"}
    }
    runs.append_constraint(UniqueConstraint("idempotency_key"))
    made.create_all(connection)


def half_made(connection: Connection) -> None:
    """As a `create_all` of this release that was killed."""
    for table in Base.metadata.sorted_tables[:3]:
        table.create(connection)
    connection.execute(
        text("DROP INDEX ix_agent_runs_lease" + (" ON agent_runs" if "mysql" in connection.dialect.name else ""))
    )


STARTS = {
    "nothing": lambda _: None,
    "the earlier release, populated": older.populate,
    "the earlier release, by its models": as_models_made_it,
    "create_all": Base.metadata.create_all,
    "create_all, killed": half_made,
}


@pytest.mark.parametrize("start", STARTS)
def test_every_start_leads_to_the_same_schema(url, fresh, start):
    on(url, STARTS[start])
    _, after = asyncio.run(migrate(url))
    assert (after.state, after.revision, after.pending, after.missing) == ("current", after.head, (), ())
    assert on(url, schema) == fresh
    assert asyncio.run(read_state(url)) == after
