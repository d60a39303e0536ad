"""A revision means the same in every later release: the shapes it leads to are pinned as the DDL of each database."""

from __future__ import annotations

from hashlib import sha256

import pytest
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from dendrux_migrations.shapes import earlier, format_2

DIALECTS = {
    "sqlite": sqlite.dialect(),
    "postgresql": postgresql.dialect(),
    "mysql": mysql.dialect(),
    "mariadb": mysql.dialect(is_mariadb=True),
}
PINNED = {
    "earlier": {
        "sqlite": "64b97012876e6039",
        "postgresql": "e9cc4d60450d87fc",
        "mysql": "8f7b6de5de934265",
        "mariadb": "c86aba60f44dea7c",
    },
    "format_2": {
        "sqlite": "66ad0d2a3c6fcbf3",
        "postgresql": "856db2994f657e8c",
        "mysql": "51ce3bc33a126844",
        "mariadb": "c760c4c81628b055",
    },
}


def digest(metadata, dialect) -> str:
    ddl = []
    for table in metadata.sorted_tables:
        ddl.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        ddl += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    if metadata is format_2.metadata and dialect.name == "postgresql":
        ddl += format_2.ON_POSTGRESQL
    return sha256("\n".join(" ".join(statement.split()) for statement in ddl).encode()).hexdigest()[:16]


@pytest.mark.parametrize("database", DIALECTS)
@pytest.mark.parametrize("shape", [earlier, format_2], ids=["earlier", "format_2"])
def test_a_shape_that_was_released_does_not_change(shape, database):
    name = shape.__name__.rpartition(".")[2]
    assert digest(shape.metadata, DIALECTS[database]) == PINNED[name][database], (
        f"{name} makes other tables on {database}: a type it takes from dendrux.db.types changed. Write the old type out "
        "in the shape, and give the new one a revision"
    )
