"""Storage format 1: the tables of the earlier release, made where they are missing."""

from __future__ import annotations

from typing import Final

from alembic import op

from dendrux_migrations.converge import create_missing
from dendrux_migrations.shapes import earlier

revision: Final = "0001"
down_revision: Final = None


def upgrade() -> None:
    """Make the tables that an older release made itself."""
    create_missing(op.get_bind(), earlier.metadata)
