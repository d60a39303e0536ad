"""The tables of 0.6. Old rows stay what they are, of format 1; old writers go on until format 2 is activated."""

from __future__ import annotations

from typing import Final

from alembic import op

from dendrux_migrations.converge import Retired, converge
from dendrux_migrations.shapes import format_2

revision: Final = "0002"
down_revision: Final = "0001"

RETIRED: Final = Retired(
    indexes=frozenset(
        {
            "ix_agent_runs_idempotency_key",
            "ix_agent_runs_tenant_id",
            "ix_react_traces_agent_run_id_order",
            "ix_run_events_agent_run_id_seq",
            "ix_dendrux_blob_refs_run",
        }
    ),
    # A key counts within its tenant now.
    unique=frozenset({("idempotency_key",)}),
)


def upgrade() -> None:
    """Alter or rebuild every table, and fill the columns that old rows lack."""
    connection = op.get_bind()
    converge(connection, format_2.metadata, RETIRED)
    if connection.dialect.name == "postgresql":
        for statement in format_2.ON_POSTGRESQL:
            connection.exec_driver_sql(statement)
