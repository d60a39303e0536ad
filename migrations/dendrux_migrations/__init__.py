"""Schema revisions of the built-in stores, shipped with the package.

`env.py` runs them on a connection that the caller opened, locked and will commit; `dendrux.db.migrate` is that caller.
Each revision leads to a shape that this package writes out in full, so that it means the same in every later release.
"""

from __future__ import annotations

from typing import Final

VERSION_TABLE: Final = "dendrux_alembic_version"
"""Where the revision of a database stands. Not Alembic's usual table: the application may use that for its own."""
