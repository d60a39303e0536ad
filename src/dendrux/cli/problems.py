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

STORE_HELP: Final = "sqlite, or module:Class for a SQLStateStore subclass of yours (found from the current directory)"
URL_HELP: Final = "SQLAlchemy URL of a database to use as it is; nothing in it is dropped (default: temporary files)"
LATER: Final = ("postgresql", "mysql", "mariadb")
"""Names of built-in stores that later versions have."""


class Problem(Exception):
    """One sentence for the user: what is wrong and what to do."""


def require_testkit() -> None:
    """The commands of this package need the kit's own dependencies."""
    missing = [name for name in ("pytest", "pytest_asyncio", "hypothesis") if find_spec(name) is None]
    if missing:
        raise Problem(f'{", ".join(missing)} is missing: pip install "dendrux[testkit]" brings what this command needs')


def store_named(name: str) -> type[SQLStateStore]:
    """The store class that the command line names."""
    from dendrux.store import SQLiteStateStore, SQLStateStore

    if name == "sqlite":
        return SQLiteStateStore
    if name in LATER:
        raise Problem(f"a store for {name} is not part of this version; use sqlite, or module:Class")
    module_name, colon, class_name = name.partition(":")
    if not colon or not module_name or not class_name:
        raise Problem(f"{name!r} names no store; use sqlite, or module:Class such as my_store:MyStore")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except Exception as error:  # noqa: BLE001  # whatever the import of a user's module raises
        raise Problem(f"cannot import {module_name}: {type(error).__name__}: {error}") from None
    found = getattr(module, class_name, None)
    if found is None:
        raise Problem(f"{module_name} has no {class_name}; its stores are {listed(stores_in(module, SQLStateStore))}")
    if not (inspect.isclass(found) and issubclass(found, SQLStateStore)):
        raise Problem(
            f"{name} is no subclass of SQLStateStore; certify other stores with pytest and fixtures of your own"
        )
    return found


def stores_in(module: object, base: type) -> list[str]:
    """The names of the store classes of a module."""
    classes = {name: value for name, value in vars(module).items() if inspect.isclass(value) and value is not base}
    return [name for name, value in classes.items() if issubclass(value, base)]


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(sorted(names)) or "none"


def check_url(store_class: type[SQLStateStore], url: str | None) -> None:
    """Whether this store can work on this database, before anything starts."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    accepted = store_class.dialect_names
    if url is None:
        if accepted and "sqlite" not in accepted:
            raise Problem(f"{store_class.__name__} is for {' or '.join(accepted)}: give a database with --url")
        return
    try:
        dialect = make_url(url).get_dialect()
    except (ArgumentError, NoSuchModuleError):
        raise Problem("--url is no SQLAlchemy URL; one looks like postgresql+asyncpg://user@host/database") from None
    if accepted and dialect.name not in accepted:
        raise Problem(f"{store_class.__name__} is for {' or '.join(accepted)}, and --url is for {dialect.name}")
    try:
        dialect.import_dbapi()
    except ImportError as error:
        raise Problem(f"the driver of --url is not installed: {error}") from None
    if not getattr(dialect, "is_async", False):
        raise Problem(f"--url must name an async driver, such as {dialect.name}+...: stores are asynchronous")
