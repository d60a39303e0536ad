"""The database that a command works on: the one of --url, temporary SQLite files, or a new one on a server it finds."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from warnings import catch_warnings, simplefilter

from dendrux.cli.problems import Problem

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine import Dialect

    from dendrux.store import SQLStateStore

URL_VARIABLE: Final = "DENDRUX_DATABASE_URL"
DATABASE_HELP: Final = f"SQLAlchemy URL of the database, with an async driver (default: the variable {URL_VARIABLE})"
EXTRAS: Final = {"asyncpg": "postgres", "asyncmy": "mysql"}
"""The extra that brings a driver."""
ASYNC_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg or postgresql+psycopg",
    "mysql": "mysql+asyncmy",
    "mariadb": "mariadb+asyncmy",
}
"""How a URL with an async driver begins."""


class Target(NamedTuple):
    """A database."""

    url: URL | None
    """None: temporary SQLite files."""
    where: str
    """How people are told about it; holds no URL."""
    ours: bool = False
    """It was made for the command and goes with it."""
    another: Callable[[], AbstractContextManager[URL | None]] | None = None
    """Makes one more like it; None where the database is the one that was given."""


@contextmanager
def target(store_class: type[SQLStateStore], name: str, url: str | None) -> Iterator[Target]:
    """The database for the store that the command line names `name`. Problem when there is none to work on."""
    accepted = store_class.dialect_names
    if url is not None:
        yield Target(usable(store_class, name, url), "the database of --url")
    elif name == "sqlite" or (":" in name and (not accepted or "sqlite" in accepted)):
        yield Target(None, "temporary SQLite files", another=nullcontext)
    else:
        with on_a_server(store_class, (name,) if name in accepted else accepted) as found:
            yield found


@contextmanager
def on_a_server(store_class: type[SQLStateStore], names: tuple[str, ...]) -> Iterator[Target]:
    """A new database on the first server of these names that is found."""
    from dendrux.testing.databases import NAMES, NotFound, find
    from dendrux.testing.scratch import scratch

    missing = []
    for name in names:
        if name not in NAMES:
            continue
        try:
            server = find(name)
        except NotFound as not_found:
            missing.append(str(not_found))
            continue
        try:
            with scratch(server) as url:
                yield Target(url, f"a new database of {server}", ours=True, another=partial(scratch, server))
        finally:
            server.stop()
        return
    said = ". ".join(missing) or f"{store_class.__name__} is for {' or '.join(names)}"
    raise Problem(f"{said}. Give a database with --url")


def usable(store_class: type[SQLStateStore], name: str, given: str) -> URL:
    """The URL, if this store can work on its database: asked before anything starts."""
    accepted = store_class.dialect_names
    url, dialect = read_url(given, "--url")
    if accepted and dialect.name not in accepted:
        raise Problem(f"{store_class.__name__} is for {' or '.join(accepted)}, and --url is for {dialect.name}")
    require_driver(url, dialect, "--url")
    found = asyncio.run(family(url, "--url"))
    if name in ("mysql", "mariadb") and found != name:
        raise Problem(f"the server of --url is {found}: certify it as {found}")
    return url


def chosen_url(option: str | None) -> tuple[URL, type[Dialect], str]:
    """The URL of the option or of the variable, its dialect, and how people are told where it came from."""
    source = "--url" if option is not None else URL_VARIABLE
    given = option if option is not None else os.environ.get(URL_VARIABLE)
    if not given:
        raise Problem(f"which database? give its SQLAlchemy URL with --url, or in the variable {URL_VARIABLE}")
    return *read_url(given, source), source


def read_url(given: str, source: str) -> tuple[URL, type[Dialect]]:
    """A URL and its dialect; `source` is where the user gave it."""
    from dendrux.db import urls

    try:
        url = urls.read_url(given, source)
        return url, urls.dialect_of(url, source)
    except ValueError as wrong:
        raise Problem(str(wrong)) from None


def require_driver(url: URL, dialect: type[Dialect], source: str) -> None:
    """The dialect's driver is asynchronous and installed, and takes the options of the URL."""
    from sqlalchemy.exc import SAWarning

    from dendrux.db.urls import engine_on

    if not getattr(dialect, "is_async", False):
        drivers = ASYNC_DRIVERS.get(dialect.name, f"{dialect.name}+...")
        raise Problem(f"{source} must name an async driver ({drivers}): stores are asynchronous")
    try:
        dialect.import_dbapi()
    except ImportError as error:
        extra = EXTRAS.get(str(error.name))
        remedy = f'pip install "dendrux[{extra}]" brings it' if extra else "install it"
        raise Problem(f"the driver of {source} is not installed: {error.name}; {remedy}") from None
    try:
        with catch_warnings():
            # SQLAlchemy only warns of an option that SQLite does not have.
            simplefilter("error", SAWarning)
            engine_on(url, source)
    except ValueError as wrong:
        raise Problem(str(wrong)) from None
    except SAWarning:
        raise Problem(
            f"{source} has an option after ? that its driver does not take; SQLite's own need uri=true beside them"
        ) from None


async def family(url: URL, source: str) -> str:
    """What the database is called, from one connection: one that nobody can reach is said once, not by every test."""
    from dendrux.db.urls import engine_on

    if url.get_backend_name() == "sqlite":
        open_file(url, source)
        return "sqlite"
    engine = engine_on(url, source)
    try:
        async with engine.connect() as connection:
            return "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name
    except Exception as error:  # noqa: BLE001  # whatever a driver makes of a server it cannot use
        raise Problem(f"the database of {source} cannot be opened ({reason(error)}): {advice(error, url)}") from None
    finally:
        await engine.dispose()


def open_file(url: URL, source: str) -> None:
    """Open the file of a SQLite URL once, by itself: the thread of an async driver outlives a connection that fails."""
    name = url.database or ":memory:"
    try:
        with closing(sqlite3.connect(name, uri=name.startswith("file:"))) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        raise Problem(
            f"the database of {source} cannot be opened ({type(error).__name__}): check that it is a SQLite file, "
            "or that its folder exists and may be written to"
        ) from None


def advice(error: Exception, url: URL) -> str:
    """What to do about a server that gives no connection."""
    from dendrux.store.dberrors import classify
    from dendrux.store.remedies import remedy_of

    if isinstance(error, TypeError) and url.query:
        tls = "; TLS is ssl=require there, not sslmode" if url.get_driver_name() == "asyncpg" else ""
        return f"{url.get_driver_name()} does not take an option after ? in the URL: correct or remove it{tls}"
    if isinstance(error, OverflowError):
        return "check the port"
    remedy = remedy_of(classify(error).code)
    if remedy is not None:
        return f"{remedy[0].lower()}{remedy[1:]}".rstrip(".")
    options = ", and the options after ?" if url.query else ""
    return f"check host, port, user, password and name{options}, and that it exists and is running"


def reason(error: Exception) -> str:
    """The class of what a driver raised, below what SQLAlchemy makes of it; its text may hold anything."""
    raised = getattr(error, "orig", None) or error
    return type(raised.__cause__ or raised).__name__


async def rehearse(store_class: type[SQLStateStore], name: str, database: Target, folder: Path) -> None:
    """Make one store and the tables, and try to write: what stops every contract is said once, before any of them."""
    from sqlalchemy import func, insert

    from dendrux.db.models import agent_runs
    from dendrux.testing.driver import new_namespace
    from dendrux.testing.workshop import Engines

    engines = Engines(store_class, database.url, folder, ours=database.ours)
    file = None if database.url is not None else await engines.fresh_file()
    engine = engines.take(file)
    try:
        try:
            store_class(engine, live_updates=None)
        except Exception as error:  # noqa: BLE001  # whatever the constructor of a user's class raises
            raise Problem(
                f"{name} cannot be made as {store_class.__name__}(engine, live_updates=None): {type(error).__name__}: "
                f"{error}; if it needs more, certify it with pytest and fixtures of your own"
            ) from None
        try:
            await engines.prepare(engine)
        except Exception as error:  # noqa: BLE001  # whatever a driver raises
            raise Problem(
                f"the tables cannot be made on {database.where} ({reason(error)}): use an account that may create them"
            ) from None
        try:
            async with engine.connect() as connection:
                row = {"id": f"{new_namespace()}rehearsal", "agent_name": "rehearsal", "status": "running"}
                times = {"created_at": func.current_timestamp(), "updated_at": func.current_timestamp()}
                await connection.execute(insert(agent_runs).values(**row, **times))
                await connection.rollback()
        except Exception as error:  # noqa: BLE001  # as above
            raise Problem(
                f"nothing can be written to {database.where} ({reason(error)}): check the rights of the account, "
                "and that tables which are there already are those of this release"
            ) from None
    finally:
        await engine.dispose()
