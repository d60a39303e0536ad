"""Pages that say which test shows what: tables whose cells name contracts and tests, checked to exist."""

from __future__ import annotations

import re
from pathlib import Path

from dendrux.testing.store_kit.catalogue import catalogue

ROOT = Path(__file__).resolve().parents[2]


def rows(page: str) -> dict[str, tuple[str, str]]:
    """The rows of a page's tables by their first cell: what it is about, and what shows it."""
    found: dict[str, tuple[str, str]] = {}
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 3 and re.fullmatch(r"B?\d+", cells[0]):
            assert cells[0] not in found, f"{page}: two rows of {cells[0]}"
            found[cells[0]] = (cells[1], cells[2])
    return found


def pointers(cell: str) -> list[str]:
    """The contracts and tests that a cell names."""
    return re.findall(r"`([^`]+)`", cell)


def missing(named: list[str]) -> list[str]:
    """Those that do not exist. A contract is named by its id, a test by `file::function`."""
    contracts = {contract.id for contract in catalogue()}
    return [name for name in named if name not in contracts and not is_test(name)]


def is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    file = ROOT / path
    return (
        file.is_file()
        and re.search(rf"^(async )?def {re.escape(function)}\(", file.read_text(), re.MULTILINE) is not None
    )
