"""Every contract of this version, in the order of the summary."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from dendrux.testing.store_kit import contracts
from dendrux.testing.store_kit.contract import CONTRACTS, GROUPS, Contract


@cache
def catalogue() -> tuple[Contract, ...]:
    """The contracts of every module of the package `contracts`, group by group; what nouns share comes after them."""
    names = [module.name for module in iter_modules(contracts.__path__)]
    for name in sorted(names, key=lambda name: (name.startswith("_"), name)):
        import_module(f"{contracts.__name__}.{name}")
    return tuple(sorted(CONTRACTS.values(), key=lambda contract: GROUPS.index(contract.group)))
