"""${message}."""

from __future__ import annotations

from typing import Final

from alembic import op

revision: Final = ${repr(up_revision)}
down_revision: Final = ${repr(down_revision)}


def upgrade() -> None:
    """State what this revision leads to; every step is skipped when it was done before."""
    ${upgrades if upgrades else "op.get_bind()"}
