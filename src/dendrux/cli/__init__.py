"""The command `dendrux`: one module per command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from dendrux import __version__
from dendrux.cli import certify, db, replay, runs, sweep
from dendrux.cli.problems import Problem

DESCRIPTION = "Look at runs, recover them, manage the schema of dendrux, and certify stores."
EPILOG = """\
examples:
  dendrux certify sqlite                    the built-in SQLite store, on temporary files
  dendrux certify my_store:MyStore          a SQLStateStore subclass of yours, on temporary SQLite files
  dendrux certify my_store:MyStore --url URL    the same on the database of an SQLAlchemy URL
  dendrux db migrate --url URL              prepare a database, or bring it to this release
  dendrux runs list --status running        runs of the database in DENDRUX_DATABASE_URL
  dendrux sweep --stale-running 10m         end runs whose owner is gone
  dendrux replay FILE --store sqlite        a failing program that the kit wrote
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="dendrux",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"dendrux {__version__}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (certify, db, replay, runs, sweep):
        command.add_to(commands)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Answers its exit code: 0 well, 1 a finding, 2 unusable input; a command may have more."""
    given = parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except Problem as problem:
        if getattr(given, "json", False):
            command = {"command": given.action} if "action" in given else {}
            print(json.dumps({**command, "exit_code": 2, "error": str(problem)}))
        else:
            print(f"dendrux: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output has seen enough; what Python flushes at exit goes nowhere, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
