"""Where the kit's tests hang: below each directory that pytest was asked for, so that any conftest.py applies.

One module per directory holds one test per contract. Directories that see a factory are examined separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

from dendrux.testing.store_kit.contract import Contract
from dendrux.testing.store_kit.fixtures import beforehand, visible
from dendrux.testing.store_kit.obligations import FACTORY

if TYPE_CHECKING:
    from dendrux.testing.store_kit.plugin import Kit

MODULE: Final = "dendrux-store-kit"
"""The name of the kit's module below a directory; no such file exists."""
SETUP: Final = FACTORY
"""The name of the one test of a directory without a factory."""

CONTRACT = pytest.StashKey[Contract]()
"""The contract that an item checks."""
KIT = pytest.StashKey["Kit"]()
"""The kit of a session."""


def directories(config: pytest.Config) -> frozenset[Path]:
    """The directories that pytest was asked for; the invocation directory when it was asked for nothing."""
    asked = (config.invocation_params.dir / argument.split("::")[0] for argument in config.args)
    return frozenset(path.resolve() for path in asked if path.is_dir())


def hang(directory: pytest.Collector) -> None:
    """Let the kit's module be the first child of a directory, whatever class of node the directory is."""
    children = directory.collect

    def collect() -> Iterator[pytest.Item | pytest.Collector]:
        module = KitModule.from_parent(directory, path=directory.path / MODULE)
        # Hooks of a conftest.py apply to what is in its folder, and for pytest a path that is no file is a folder.
        module.path = directory.path
        yield module
        yield from children()

    directory.collect = collect  # type: ignore[method-assign]  # the classes of directories are final


class KitModule(pytest.Module):
    """A module that exists only in a session: one test for each contract, or one that says what to define."""

    def _getobj(self) -> ModuleType:
        return self._importtestmodule()

    def _importtestmodule(self) -> ModuleType:
        """The generated module, in place of one that is imported."""
        kit: Kit = self.config.stash[KIT]
        self.contracts: dict[str, Contract] = {}
        module = ModuleType(MODULE, "The contracts of the dendrux store kit.")
        for name, test in self.tests(kit):
            setattr(module, name, test)
        return module

    def tests(self, kit: Kit) -> Iterator[tuple[str, Any]]:
        """The tests of this directory by name."""
        if FACTORY not in visible(self):
            yield SETUP, kit.setup_test()
            return
        first = pytest.mark.usefixtures(*beforehand(self))
        for contract in kit.contracts():
            self.contracts[contract.id] = contract
            test = kit.contract_test(contract)
            setattr(test, contract.group, True)  # so that -k selects by group
            yield contract.id, pytest.mark.asyncio(first(test))

    def funcnamefilter(self, name: str) -> bool:
        """Every function of the generated module is a test, whatever it is called."""
        return True


def of_kit(item: Any) -> bool:
    """Whether an item is one of the kit's."""
    return isinstance(item.getparent(pytest.Module), KitModule)


def prepare(items: list[Any]) -> None:
    """Give the kit's items what reports need, and drop set-up tests that another directory makes pointless."""
    mine = [item for item in items if of_kit(item)]
    for item in mine:
        item.__dict__["location"] = (item.nodeid.partition("::")[0], None, f"contract {item.name}")
        contract = item.getparent(KitModule).contracts.get(item.originalname)
        if contract is not None:
            item.stash[CONTRACT] = contract
    lacking = [item for item in mine if CONTRACT not in item.stash]
    for item in lacking if len(lacking) < len(mine) else lacking[1:]:
        items.remove(item)
