"""`dendrux replay`: run a failing program again, on a fresh store beside the model."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dendrux.cli.problems import STORE_HELP, URL_HELP, Problem, require_testkit, store_named
from dendrux.cli.targets import Target, target

if TYPE_CHECKING:
    from dendrux.store import SQLStateStore
    from dendrux.testing.replay import Recording, Replayed

HELP = "run a program that a failing contract wrote, step by step on a fresh store and the model"


def add_to(commands: Any) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "replay",
        help=HELP,
        description=f"{HELP.capitalize()}. Exit code 0: they agree. 1: the program fails. 2: unusable input.",
    )
    command.add_argument("file", metavar="FILE", type=Path, help="a file dendrux-failure-*.json")
    command.add_argument("--store", required=True, metavar="STORE", help=STORE_HELP)
    command.add_argument("--url", help=URL_HELP)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Read the file, run its program, print the report."""
    require_testkit()
    from dendrux.testing.replay import read

    try:
        recording = read(given.file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"cannot read {given.file}: {error.strerror}") from None
    except ValueError as error:
        raise Problem(f"{given.file} holds no program: {error}") from None
    store_class = store_named(given.store)
    with TemporaryDirectory() as folder, target(store_class, given.store, given.url) as database:
        replayed = asyncio.run(replay_on(recording, store_class, database, Path(folder)))
    show(recording, replayed)
    return 0 if replayed.agrees else 1


async def replay_on(recording: Recording, store_class: type[SQLStateStore], database: Target, folder: Path) -> Replayed:
    """Replay on a store of this class."""
    from dendrux.testing.bench import Missing
    from dendrux.testing.replay import replay
    from dendrux.testing.workshop import Engines, Workshop

    engines = Engines(store_class, database.url, folder, ours=database.ours)
    workshop = Workshop(engines)
    bench = workshop.bench()
    try:
        return await replay(recording.program, bench)
    except Missing as lacking:
        raise Problem(f"a store in memory cannot replay this program: it needs {lacking.fixture}") from None
    finally:
        await bench.close()
        await workshop.close()
        await engines.close()


def show(recording: Recording, replayed: Replayed) -> None:
    """Print every step, and what they show."""
    from dendrux.testing.store_kit.catalogue import catalogue
    from dendrux.testing.store_kit.causes import likely
    from dendrux.testing.store_kit.report import finding, steps

    if recording.contract is not None:
        print(f"{recording.contract}: {recording.promise}\n")
    for line in steps(replayed.run):
        print(line)
    if replayed.agrees:
        print("\nmodel and store agree at every step")
    else:
        contract = next((known for known in catalogue() if known.id == recording.contract), None)
        cause = likely(contract, replayed.run)
        print("", *finding(replayed.run.why, replayed.run, cause), sep="\n")
