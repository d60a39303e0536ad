from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dendrux.db.models import Base
from migrations.databases import FAMILIES, database, on, stop_servers
from migrations.introspection import schema


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def url(family, tmp_path, fresh_schemas):
    """An empty database of each family."""
    with database(family, tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def fresh_schemas() -> Iterator[dict[str, Any]]:
    yield {}
    stop_servers()


@pytest.fixture
def fresh(family, tmp_path, fresh_schemas):
    """The schema that `create_all` makes on a family, made once."""
    if family not in fresh_schemas:
        with database(family, tmp_path) as made:
            on(made, Base.metadata.create_all)
            fresh_schemas[family] = on(made, schema)
    return fresh_schemas[family]
