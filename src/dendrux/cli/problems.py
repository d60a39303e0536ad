"""What a command says when it cannot use its input, and how it finds the store it was told."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

    from dendrux.store import SQLStateStore

STORE_HELP: Final = "sqlite, or module:Class for a SQLStateStore subclass of yours (found from the current directory)"
URL_HELP: Final = "SQLAlchemy URL of a database to use as it is; nothing in it is dropped (default: temporary files)"
REQUIRED_HOOKS: Final = (
    "insert_if_absent_stmt",
    "upsert_setting",
    "json_get",
    "json_contains",
    "json_is_null",
    "json_patch_expr",
)
"""Hooks without a default."""
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
    if "/" in module_name or module_name.startswith("."):
        raise Problem(
            f"{module_name} is a path; name a module that Python can import from here, such as my_store:MyStore"
        )
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


def check_url(store_class: type[SQLStateStore], url: str | None) -> None:
    """Whether this store can work on this database, before anything starts."""
    accepted = store_class.dialect_names
    if url is None:
        if accepted and "sqlite" not in accepted:
            raise Problem(f"{store_class.__name__} is for {' or '.join(accepted)}: give a database with --url")
        return
    dialect = usable_dialect(url, "--url")
    if accepted and dialect.name not in accepted:
        raise Problem(f"{store_class.__name__} is for {' or '.join(accepted)}, and --url is for {dialect.name}")
    asyncio.run(check_reachable(url, "--url"))


def usable_dialect(url: str, source: str) -> Dialect:
    """The dialect of a URL whose async driver is installed; `source` is what the user knows the URL by."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        dialect = make_url(url).get_dialect()()
    except NoSuchModuleError:
        raise Problem(f"{source} names a database or driver that SQLAlchemy does not know") from None
    except ArgumentError:
        raise Problem(
            f"{source} is no SQLAlchemy URL; one looks like postgresql+asyncpg://user@host/database"
        ) from None
    try:
        dialect.import_dbapi()
    except ImportError as error:
        raise Problem(f"the driver of {source} is not installed: {error}") from None
    if not dialect.is_async:
        raise Problem(f"{source} must name an async driver, such as {dialect.name}+...: stores are asynchronous")
    return dialect


async def check_reachable(url: str, source: str) -> None:
    """One connection, so that a database nobody can reach is said once and not by every contract."""
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url)
    try:
        async with engine.connect():
            return
    except (SQLAlchemyError, OSError) as error:
        reason = type(getattr(error, "orig", None) or error).__name__
        raise Problem(
            f"the database of {source} cannot be opened ({reason}): check that it exists and is running"
        ) from None
    finally:
        await engine.dispose()
