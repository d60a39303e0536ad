"""What the database behind a store is, asked over the store's own engine: not what somebody configured.

A setting that the database does not tell is there with None and a plain word. Nothing here names a host, an account, a
file or a database, and no text of a driver gets out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from sqlalchemy import text

from dendrux.lab.seam import engine_of
from dendrux.testing.databases import said

ANSWER_S: Final = 10.0
"""A database that has not answered by then is not asked again."""
VALUE_LENGTH: Final = 200
"""Characters of a value that are kept."""
NOT_READABLE: Final = "this account or this release of the server does not tell it"


@dataclass(frozen=True)
class Setting:
    """A setting as the database tells it; without a value there is a word why."""

    name: str
    value: str | None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database and how it is reached."""

    dialect: str
    driver: str
    driver_version: str | None
    server: str
    """Its name, which for MySQL's protocol is MariaDB or MySQL."""
    server_version: str | None
    settings: tuple[Setting, ...] = ()


TABLE: Final = "table_schema = database() AND table_name = 'agent_runs'"
QUESTIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "sqlite": {
        "journal_mode": ("PRAGMA journal_mode",),
        "synchronous": ("PRAGMA synchronous",),
        "foreign_keys": ("PRAGMA foreign_keys",),
        "locking_mode": ("PRAGMA locking_mode",),
        "busy_timeout": ("PRAGMA busy_timeout",),
        "read_uncommitted": ("PRAGMA read_uncommitted",),
        "encoding": ("PRAGMA encoding",),
        "data": ("SELECT CASE WHEN file = '' THEN 'in memory' ELSE 'in a file' END FROM pragma_database_list",),
    },
    "postgresql": {
        "transaction_isolation": ("SHOW transaction_isolation",),
        "synchronous_commit": ("SHOW synchronous_commit",),
        "fsync": ("SHOW fsync",),
        "full_page_writes": ("SHOW full_page_writes",),
        "server_encoding": ("SHOW server_encoding",),
        "client_encoding": ("SHOW client_encoding",),
        "collation": ("SELECT datcollate FROM pg_database WHERE datname = current_database()",),
        "timezone": ("SHOW TimeZone",),
        "lock_timeout": ("SHOW lock_timeout",),
        "deadlock_timeout": ("SHOW deadlock_timeout",),
        "statement_timeout": ("SHOW statement_timeout",),
    },
    "mysql": {
        "transaction_isolation": ("SELECT @@transaction_isolation", "SELECT @@tx_isolation"),
        "sql_mode": ("SELECT @@sql_mode",),
        "innodb_flush_log_at_trx_commit": ("SELECT @@innodb_flush_log_at_trx_commit",),
        "sync_binlog": ("SELECT @@sync_binlog",),
        "innodb_lock_wait_timeout": ("SELECT @@innodb_lock_wait_timeout",),
        "max_allowed_packet": ("SELECT @@max_allowed_packet",),
        "time_zone": ("SELECT @@time_zone",),
        "character_set_connection": ("SELECT @@character_set_connection",),
        "collation_connection": ("SELECT @@collation_connection",),
        "collation_database": ("SELECT @@collation_database",),
        "collation_of_run_ids": (
            f"SELECT collation_name FROM information_schema.columns WHERE {TABLE} AND column_name = 'id'",  # noqa: S608  # a constant
        ),
        "engine_of_the_tables": (f"SELECT engine FROM information_schema.tables WHERE {TABLE}",),  # noqa: S608  # as above
    },
}
"""What each database is asked, in the order of the certificate. Alternatives are tried in turn."""
FAMILY: Final = {"mariadb": "mysql"}
SERVERS: Final = {"postgresql": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL", "sqlite": "SQLite"}
VERSION: Final = {"sqlite": "SELECT sqlite_version()"}
SYNCHRONOUS: Final = {"0": "off", "1": "normal", "2": "full", "3": "extra"}
"""SQLite answers with a number what it is told with a word."""


async def probe(store: Any) -> Database | None:
    """The database of a store; None for one without an engine."""
    engine = engine_of(store)
    dialect = getattr(engine, "dialect", None)
    if engine is None or dialect is None:
        return None
    told = str(await first(engine, (VERSION.get(dialect.name, "SELECT version()"),)) or "")
    # MySQL and MariaDB speak one protocol, and which it is shows in the version alone.
    name, number = (dialect.name, told) if dialect.name in VERSION else said(told)
    name = name if name in SERVERS else str(dialect.name)
    asked = QUESTIONS.get(FAMILY.get(name, name), {})
    values = {key: await first(engine, questions) for key, questions in asked.items()}
    if values.get("synchronous") is not None and name == "sqlite":
        values["synchronous"] = SYNCHRONOUS.get(str(values["synchronous"]), str(values["synchronous"]))
    return Database(
        dialect=name,
        driver=str(dialect.driver),
        driver_version=installed(str(dialect.driver)),
        server=SERVERS.get(name, name),
        server_version=number or numbers(dialect),
        settings=tuple(setting(key, value) for key, value in values.items()),
    )


def setting(name: str, value: str | None) -> Setting:
    """A setting, with the word why it has no value."""
    return Setting(name, value, None if value is not None else NOT_READABLE)


async def first(engine: Any, questions: tuple[str, ...]) -> str | None:
    """The answer to the first of some questions that the database answers, each on a transaction of its own."""
    for question in questions:
        # Whatever a driver makes of a question, the certificate says no more than that there is no answer.
        with suppress(Exception):
            async with asyncio.timeout(ANSWER_S), engine.connect() as connection:
                answer = await connection.scalar(text(question))
            if answer is not None:
                return str(answer)[:VALUE_LENGTH]
    return None


def installed(driver: str) -> str | None:
    """The version of a driver, whose package is called as SQLAlchemy calls the driver."""
    try:
        return version(driver.removesuffix("_async"))
    except PackageNotFoundError:
        return None


def numbers(dialect: Any) -> str | None:
    """What SQLAlchemy found out about the server when it connected."""
    info = getattr(dialect, "server_version_info", None)
    return ".".join(map(str, info)) if info else None
