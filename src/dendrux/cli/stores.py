"""The store that a command reads or changes: a built-in one, on the database of --url or of the variable."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from dendrux.cli.output import encoded
from dendrux.cli.problems import Problem
from dendrux.cli.targets import DATABASE_HELP, chosen_url, family, require_driver

if TYPE_CHECKING:
    from sqlalchemy import URL

    from dendrux.runtime.state import StateStore

FOUND, UNUSABLE, FAILED, STOPPED = 1, 2, 4, 130
CODES: Final = """\
exit codes:
  0    well
  1    a finding: the run does not exist, or a run could not be treated
  2    unusable input, or a database that cannot be reached or used
  4    the store could not carry out an operation; the message says whether something was written
  130  interrupted
"""

Work = Callable[["StateStore", argparse.Namespace], Awaitable[int]]


def add_database(command: argparse.ArgumentParser) -> None:
    """The options that every command on a store has."""
    command.add_argument("--url", help=DATABASE_HELP)
    command.add_argument("--json", action="store_true", help="print JSON instead of lines for people")


def run_on_store(given: argparse.Namespace, work: Work) -> int:
    """Open the store, do the work, and say what stopped it. Answers the exit code."""
    from dendrux.errors import PersistenceError, RunNotFoundError, StoreCapabilityError
    from dendrux.store import RunNotFoundError as UnreadableRun
    from dendrux.store.remedies import remedy_of

    url, source = usable_url(given.url)
    if url.get_backend_name() != "sqlite":
        # An unreachable server is input that cannot be used; what fails from here on is an operation.
        asyncio.run(family(url, source))
    try:
        return asyncio.run(_work(url, work, given))
    except (RunNotFoundError, UnreadableRun) as error:
        return failed(given, FOUND, str(error), error.code)
    except PersistenceError as error:
        return failed(given, UNUSABLE if remedy_of(error.db_code) else FAILED, str(error), error.code)
    except (NotImplementedError, StoreCapabilityError) as error:
        return failed(given, FAILED, str(error), "store_capability")
    except (ValueError, TypeError) as error:
        raise Problem(str(error)) from None
    except KeyboardInterrupt:
        return STOPPED


async def _work(url: URL, work: Work, given: argparse.Namespace) -> int:
    async with opened(url) as store:
        return await work(store, given)


@asynccontextmanager
async def opened(url: URL) -> AsyncIterator[StateStore]:
    """The built-in store of the database, closed with its engine at the end."""
    from dendrux.db.session import get_engine
    from dendrux.store import store_for_engine

    engine = get_engine(url)
    # Its methods are bound at run time, which widens the literals they answer.
    store = cast("StateStore", store_for_engine(engine))
    try:
        yield store
    finally:
        await store.close()
        await engine.dispose()


def usable_url(option: str | None) -> tuple[URL, str]:
    """The URL of a database that is there, and where it was given.

    Refuses: Problem for a database without a built-in store, in memory, or a SQLite file that does not exist: opening
    it would make one, and a mistyped name would read as a database without runs.
    """
    from dendrux.db.session import is_memory
    from dendrux.db.urls import file_of
    from dendrux.store.factory import BUILT_IN

    url, dialect, source = chosen_url(option)
    if dialect.name not in BUILT_IN:
        raise Problem(f"{source} is for {dialect.name}, and built-in stores are for {', '.join(sorted(BUILT_IN))} only")
    require_driver(url, dialect, source)
    if dialect.name == "sqlite":
        if is_memory(url):
            raise Problem(f"{source} names a database in memory, which holds nothing when a command begins")
        if not file_of(url).is_file():
            raise Problem(f"{source} names a SQLite file that does not exist; `dendrux db migrate` makes one")
    return url, source


def failed(given: argparse.Namespace, code: int, message: str, name: str) -> int:
    """Print an error as the command prints everything else."""
    if given.json:
        print(encoded({"exit_code": code, "error": message, "code": name}), flush=True)
    else:
        print(f"dendrux: {message}", file=sys.stderr)
    return code


def answer(given: argparse.Namespace, members: dict[str, Any], lines: list[str], code: int = 0) -> int:
    """Print what a command found, for people or for programs."""
    print(encoded({"exit_code": code, **members}) if given.json else "\n".join(lines))
    return code
