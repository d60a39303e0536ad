"""What the kit says when it has no store to work with."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from dendrux.testing.store_kit.obligations import FACTORY

EXAMPLE: Final = """\
    import pytest_asyncio
    from dendrux.db.models import Base
    from sqlalchemy.ext.asyncio import create_async_engine

    from my_store import MyStore

    @pytest_asyncio.fixture
    async def dendrux_store_factory(tmp_path):
        engines = []

        async def make():
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{len(engines)}.db")
            engines.append(engine)
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            return MyStore(engine)

        yield make
        for engine in engines:
            await engine.dispose()
"""


def no_factory(request: pytest.FixtureRequest) -> str:
    """What to define, and where; with the directory of a factory that is out of sight, if there is one."""
    directory = request.node.getparent(pytest.Module).parent
    lines = [
        f"There is no fixture {FACTORY}, so the kit has no store to certify.",
        "",
        f"Define it in a conftest.py in {directory.path}, or above it.",
        "It returns a callable that makes a new store over empty data:",
        "",
        EXAMPLE,
    ]
    elsewhere = sorted(others(request.config))
    if elsewhere:
        lines.append(f"There is one for {', '.join(elsewhere)}: run pytest on that directory.")
    return "\n".join(lines)


def others(config: pytest.Config) -> set[str]:
    """The directories whose conftest.py has a factory that is out of sight here."""
    folders = set()
    for plugin in config.pluginmanager.get_plugins():
        path = Path(getattr(plugin, "__file__", None) or "")
        if path.name == "conftest.py" and hasattr(plugin, FACTORY):
            root = config.rootpath
            folders.add(str(path.parent.relative_to(root) if path.is_relative_to(root) else path.parent))
    return folders
