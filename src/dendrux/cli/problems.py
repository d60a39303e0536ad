"""What a command says when it cannot use its input, and how it finds the store it was told."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dendrux.store import SQLStateStore

BUILT_IN: Final = ("sqlite", "postgresql", "mysql", "mariadb")
"""Names of built-in stores."""
STORE_HELP: Final = (
    f"{', '.join(BUILT_IN)}, or module:Class for a SQLStateStore subclass of yours (found from the current directory)"
)
URL_HELP: Final = (
    "SQLAlchemy URL of a database to use as it is; nothing of yours in it is dropped (default: temporary files for "
    "SQLite; for another database a new one on a server that is found)"
)
REQUIRED_HOOKS: Final = (
    "insert_if_absent_stmt",
    "upsert_setting",
    "json_get",
    "json_contains",
    "json_is_null",
    "json_patch_expr",
)
"""Hooks without a default."""


class Problem(Exception):
    """One sentence for the user: what is wrong and what to do."""


def require_testkit() -> None:
    """The commands of this package need the kit's own dependencies."""
    missing = [name for name in ("pytest", "pytest_asyncio", "hypothesis") if find_spec(name) is None]
    if missing:
        raise Problem(f'{", ".join(missing)} is missing: pip install "dendrux[testkit]" brings what this command needs')


def store_named(name: str) -> type[SQLStateStore]:
    """The store class that the command line names."""
    from dendrux.store import SQLStateStore, factory

    if name in BUILT_IN:
        if name not in factory.BUILT_IN:
            raise Problem(f"a store for {name} is not part of this version; use sqlite, or module:Class")
        return factory.BUILT_IN[name]
    module_name, colon, class_name = name.partition(":")
    if "/" in module_name or module_name.startswith("."):
        raise Problem(
            f"{module_name} is a path; name a module that Python can import from here, such as my_store:MyStore"
        )
    if module_name.endswith(".py"):
        raise Problem(
            f"{module_name} is a file; name its module: {module_name.removesuffix('.py')}:{class_name or 'MyStore'}"
        )
    if not colon or not module_name or not class_name:
        raise Problem(f"{name!r} names no store; use {', '.join(BUILT_IN)}, or module:Class such as my_store:MyStore")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except Exception as error:  # noqa: BLE001  # whatever the import of a user's module raises
        raise Problem(f"cannot import {module_name}: {type(error).__name__}: {error}") from None
    found = getattr(module, class_name, None)
    if found is None:
        stores = stores_in(module, SQLStateStore)
        raise Problem(f"{module_name} has no {class_name}" + (f"; its stores are {listed(stores)}" if stores else ""))
    if not (inspect.isclass(found) and issubclass(found, SQLStateStore)):
        raise Problem(
            f"{name} is no subclass of SQLStateStore; certify other stores with pytest and fixtures of your own"
        )
    lacking = [hook for hook in REQUIRED_HOOKS if getattr(found, hook) is getattr(SQLStateStore, hook)]
    if lacking:
        raise Problem(f"{name} is no complete store: implement {listed(lacking)}")
    return found


def stores_in(module: object, base: type) -> list[str]:
    """The names of the store classes of a module."""
    classes = {name: value for name, value in vars(module).items() if inspect.isclass(value) and value is not base}
    return [name for name, value in classes.items() if issubclass(value, base)]


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(sorted(names))
