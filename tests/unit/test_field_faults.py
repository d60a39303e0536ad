"""The list of faults met in the field names contracts and tests that exist, or says why the store cannot have them."""

from __future__ import annotations

import pytest

from dendrux.db.models import metadata
from unit.pointers import missing, pointers, rows

PAGE = "tests/field_faults.md"
ROWS = rows(PAGE)


@pytest.mark.parametrize("number", sorted(ROWS))
def test_what_a_row_names_exists(number: str) -> None:
    fault, shown_by = ROWS[number]
    assert fault
    assert pointers(shown_by) or shown_by.endswith(".")
    assert missing([name for name in pointers(shown_by) if "." in name]) == []


def test_the_page_links_nowhere() -> None:
    assert all("http" not in cell and "](" not in cell for row in ROWS.values() for cell in row)
    assert len(ROWS) >= 100


def test_every_table_has_a_primary_key() -> None:
    assert [name for name, table in metadata.tables.items() if not table.primary_key.columns] == []
