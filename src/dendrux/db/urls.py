"""URLs of databases as people wrote them: read so that no error repeats a part of one, which may be a password.

SQLAlchemy quotes what it cannot read. Every error here is raised outside the handler of SQLAlchemy's, so that it does
not hang on `__context__` either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

NO_URL: Final = (
    "is no SQLAlchemy URL; one looks like postgresql+asyncpg://user:password@host:5432/database, with @ : / ? # % of a "
    "user or password as %40 %3A %2F %3F %23 %25"
)
NO_DIALECT: Final = "names a database or driver that SQLAlchemy does not know"
NO_HOST: Final = (
    "has a host, and SQLite has none: write sqlite+aiosqlite:///name.db or sqlite+aiosqlite:////folder/name.db"
)
NO_OPTIONS: Final = "has an option after ? with a value that its driver does not take: correct or remove it"


def read_url(given: str | URL, name: str = "the database URL") -> URL:
    """A URL; `name` is what its giver calls it.

    Refuses: TypeError for what is no text, ValueError for a text that is no URL.
    """
    if not isinstance(given, str | URL):
        raise TypeError(f"{name} must be a str or a SQLAlchemy URL, not {type(given).__name__}")
    try:
        return make_url(given)
    except (ArgumentError, ValueError):  # the latter for a port that is no number, which it quotes
        pass
    raise ValueError(f"{name} {NO_URL}")


def dialect_of(url: URL, name: str = "the database URL") -> type[Dialect]:
    """The dialect of an async engine: a driver may have one for each kind, as psycopg has.

    Refuses: ValueError for one that SQLAlchemy does not know.
    """
    try:
        return url.get_dialect(True)
    except NoSuchModuleError:
        pass
    raise ValueError(f"{name} {NO_DIALECT}")


def engine_on(given: str | URL, name: str = "the database URL", **options: Any) -> AsyncEngine:
    """SQLAlchemy's async engine, not connected yet.

    Refuses: ValueError for a URL that cannot be read, and for one that its driver cannot use.
    """
    url = read_url(given, name)
    dialect_of(url, name)
    try:
        return create_async_engine(url, **options)
    except (ArgumentError, ValueError):
        pass
    raise ValueError(f"{name} {NO_HOST if url.get_backend_name() == 'sqlite' and url.host else NO_OPTIONS}")


def file_of(url: URL) -> Path:
    """The file of a SQLite URL, also where it is a URI of SQLite's own."""
    name = url.database or ""
    if not name.startswith("file:"):
        return Path(name)
    return Path(unquote(name.removeprefix("file:").partition("?")[0].partition("#")[0]))
