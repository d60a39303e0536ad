"""`dendrux db`: the schema's life on PostgreSQL, MySQL, MariaDB and SQLite."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dendrux.cli.problems import Problem
from dendrux.cli.targets import DATABASE_HELP, chosen_url, family, require_driver

if TYPE_CHECKING:
    from sqlalchemy import URL

    from dendrux.db.migrate import SchemaState

HELP = "prepare, look at and activate the schema of a database"
CODES: Final = """\
exit codes:
  0  well
  1  the schema is behind: run `dendrux db migrate`
  2  unusable input, or a database that cannot be reached or used
  3  the database is ahead: it belongs to a later release of dendrux
  4  a lock or a statement failed; nothing is lost, and running the command again continues
"""
BEHIND, UNUSABLE, AHEAD, FAILED = 1, 2, 3, 4

COMMANDS: Final = {
    "migrate": """\
Bring the schema to this release and keep every row.

Several at once are safe: one works, the others wait for it and find it done. What was interrupted is finished
by running it again. Workers of the earlier release go on; new runs stay of storage format 1 until
`dendrux db activate`.
""",
    "check": """\
Say whether the schema is the one of this release.

The answer is the exit code. Changes nothing.
""",
    "status": """\
Show where the schema stands: database, revision, what is pending, storage format.

Changes nothing, and ends with 0 whatever it shows.
""",
    "activate": """\
Let new runs start at storage format 2.

Runs that exist keep their format. Activate when the last worker of the earlier release has stopped: it cannot
carry on a run of format 2.
""",
}
"""What `--help` says; the first line is the summary."""


def add_to(commands: Any) -> None:
    """The command, its four subcommands and their options."""
    raw = argparse.RawDescriptionHelpFormatter
    group = commands.add_parser("db", help=HELP, description=f"{HELP.capitalize()}.", epilog=CODES, formatter_class=raw)
    actions = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, description in COMMANDS.items():
        summary = description.splitlines()[0].rstrip(".")
        action = actions.add_parser(
            name,
            help=f"{summary[0].lower()}{summary[1:]}",
            description=description,
            epilog=CODES,
            formatter_class=raw,
        )
        action.add_argument("--url", help=DATABASE_HELP)
        action.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
        if name in {"migrate", "activate"}:
            action.add_argument(
                "--wait",
                type=seconds,
                default=300.0,
                metavar="SECONDS",
                help="how long to wait for another migration, and for locks of writers (default: 300)",
            )
        action.set_defaults(run=run, action=name)


def seconds(text: str) -> float:
    """A time to wait."""
    number = float(text)
    if not 0 <= number <= 86400:
        raise argparse.ArgumentTypeError("0 to 86400 seconds")
    return number


def run(given: argparse.Namespace) -> int:
    """Do one of the four, and print what it found."""
    from sqlalchemy.exc import SQLAlchemyError

    from dendrux.db.migrate import MigrationError, SchemaAheadError, SchemaBehindError

    url = database_of(given.url, making=given.action == "migrate")
    code = FAILED
    facts: dict[str, Any] = {}
    lines: list[str] = []
    try:
        code, facts, lines = asyncio.run(ACTIONS[given.action](given, url))
    except MigrationError as error:
        code = {SchemaAheadError: AHEAD, SchemaBehindError: BEHIND}.get(type(error), FAILED)
        facts = {"error": str(error)}
    except (SQLAlchemyError, OSError) as error:
        code, message = _failure(error)
        facts = {"error": message}
    if given.json:
        print(json.dumps({"command": given.action, "exit_code": code, **facts}))
    elif "error" in facts:
        print(f"dendrux: {facts['error']}", file=sys.stderr)
    else:
        print(*lines, sep="\n")
    return code


def database_of(option: str | None, *, making: bool) -> URL:
    """The URL of the option or of the variable, usable for schema work and reachable; `making` makes a SQLite file.

    Refuses: Problem without one, and for a database that has no revisions.
    """
    from dendrux.db.migrate import FAMILIES
    from dendrux.db.session import is_memory
    from dendrux.db.urls import file_of
    from dendrux.store.dialects.sqlite import can_be_opened
    from dendrux.store.remedies import NO_PATH, remedy_of

    parsed, dialect, source = chosen_url(option)
    if dialect.name not in FAMILIES:
        raise Problem(
            f"{source} is for {dialect.name}, and there are revisions for {', '.join(FAMILIES)} only: create its "
            "schema with Base.metadata.create_all"
        )
    require_driver(parsed, dialect, source)
    if dialect.name != "sqlite":
        asyncio.run(family(parsed, source))
    elif is_memory(parsed):
        raise Problem(f"{source} names a database in memory, which is gone when this command ends")
    elif ((file := file_of(parsed)).exists() or making) and not can_be_opened(file):
        # Asked before aiosqlite is: the thread of a connection that fails outlives it, and prints a traceback.
        raise Problem(f"the database of {source} cannot be used. {remedy_of(NO_PATH)}")
    return parsed


def _failure(error: Exception) -> tuple[int, str]:
    """The exit code and the message for what a database answered."""
    from dendrux.store.dberrors import classify
    from dendrux.store.remedies import NO_PATH, remedy_of

    found = classify(error).code
    # Nothing but this command has the file open, so it is the path.
    remedy = remedy_of(NO_PATH if str(found).startswith("SQLITE_CANTOPEN") else found)
    if remedy is not None:
        return UNUSABLE, f"the database cannot be used ({_reason(error)}). {remedy}"
    return FAILED, f"a statement failed ({_reason(error)}). Nothing is lost: run the command again"


def _reason(error: Exception) -> str:
    """The kind of a database's error and its code, and never its text."""
    raw: Any = getattr(error, "orig", None) or error
    code = getattr(raw, "sqlstate", None) or getattr(raw, "sqlite_errorname", None) or next(iter(raw.args), None)
    plain = isinstance(code, int) or (isinstance(code, str) and code.isidentifier()) or str(code).isalnum()
    return f"{type(raw).__name__} {code}" if plain and code is not None else type(raw).__name__


# -- the four ---------------------------------------------------------------------------------------------------------

Answer = tuple[int, dict[str, Any], list[str]]


async def _migrate(given: argparse.Namespace, url: URL) -> Answer:
    from dendrux.db.migrate import migrate

    before, after = await migrate(url, wait_s=given.wait)
    facts = {"applied": list(before.pending), **asdict(after)}
    if before.pending:
        lines = [f"migrated {after.database} to {after.revision} ({', '.join(before.pending)})"]
    else:
        lines = [f"{after.database} is at {after.revision}: nothing to do"]
    if after.storage_format == "1":
        lines.append("new runs stay of storage format 1 until `dendrux db activate`")
    return 0, facts, lines


async def _check(_given: argparse.Namespace, url: URL) -> Answer:
    from dendrux.db.migrate import read_state

    state = await read_state(url)
    code = {"current": 0, "ahead": AHEAD}.get(state.state, BEHIND)
    return code, asdict(state), [MEANING[state.state], *_lacking(state)]


async def _status(_given: argparse.Namespace, url: URL) -> Answer:
    from dendrux.db.migrate import read_state

    state = await read_state(url)
    lines = [
        f"database        {state.database}",
        f"schema          {state.state}",
        f"revision        {state.revision or 'none'} (this release: {state.head})",
        f"pending         {', '.join(state.pending) or 'none'}",
        f"storage format  {state.storage_format or 'none'}",
    ]
    return 0, asdict(state), [*lines, *_lacking(state)]


async def _activate(given: argparse.Namespace, url: URL) -> Answer:
    from dendrux.db.migrate import activate

    before, after = await activate(url, wait_s=given.wait)
    done = before.storage_format == after.storage_format
    verb = "already start" if done else "start"
    return 0, {"activated": not done, **asdict(after)}, [f"new runs {verb} at storage format {after.storage_format}"]


MEANING: Final = {
    "current": "the schema is the one of this release",
    "behind": "the schema is behind: run `dendrux db migrate`",
    "empty": "the database has no dendrux tables: run `dendrux db migrate`",
    "ahead": "the database belongs to a later release of dendrux: use that release",
}


def _lacking(state: SchemaState) -> list[str]:
    """The first of what is missing, where that is little enough to read."""
    if state.state != "behind" or not state.missing:
        return []
    more = len(state.missing) - 5
    return [f"missing         {', '.join(state.missing[:5])}{f' and {more} more' if more > 0 else ''}"]


ACTIONS: Final[dict[str, Callable[[argparse.Namespace, URL], Coroutine[Any, Any, Answer]]]] = {
    "migrate": _migrate,
    "check": _check,
    "status": _status,
    "activate": _activate,
}
