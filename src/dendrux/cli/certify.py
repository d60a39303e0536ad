"""`dendrux certify`: the kit without a conftest.py, with progress while it runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from dendrux.cli.problems import STORE_HELP, URL_HELP, Problem, require_testkit, store_named
from dendrux.cli.targets import Target, rehearse, target

HELP = "certify a store: run every contract on it and print the verdict"
OUTSIDE: Final = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
"""Settings of the user's own pytest runs, which have no say here."""

LOOPS: Final = "[pytest]\nasyncio_default_fixture_loop_scope = {scope}\nasyncio_default_test_loop_scope = {scope}\n"
"""Connections that are kept from one contract to the next keep their loop."""


def add_to(commands: Any) -> None:
    """The command and its options."""
    command = commands.add_parser(
        "certify",
        help=HELP,
        description=f"{HELP.capitalize()}. Exit code 0: certified, perhaps with caveats. 1: not certified. 2: unusable "
        "input.",
    )
    command.add_argument("store", metavar="STORE", nargs="?", help=STORE_HELP)
    command.add_argument("--url", help=URL_HELP)
    command.add_argument("--examples", type=positive, metavar="N", help="examples of each machine (default: its own)")
    command.add_argument("--seed", type=int, metavar="N", help="seed of the machines (default: the same in every run)")
    command.add_argument(
        "--matrix",
        choices=("sample", "cover", "all"),
        default="cover",
        help="the pair matrix: one state for each pair of operations, all, or a third of the pairs (default: cover)",
    )
    command.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="processes that share the contracts, each on a database of its own (default: one for each core; with "
        "--url there is one database and one process)",
    )
    command.add_argument(
        "--certificate",
        metavar="FILE",
        help="write the certificate to this file, as JSON, and as a page beside it with the suffix .html",
    )
    command.add_argument("--list", action="store_true", help="print every contract with its promise, and run nothing")
    command.set_defaults(run=run)


def positive(text: str) -> int:
    """A number of things."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number


def run(given: argparse.Namespace) -> int:
    """List the contracts, or run them."""
    require_testkit()
    if given.list:
        return show_contracts()
    if given.store is None:
        raise Problem("which store? dendrux certify sqlite, or dendrux certify module:Class")
    check_examples(given.examples)
    if given.certificate is not None:
        begin_certificate(given.certificate)
    store_class = store_named(given.store)
    with TemporaryDirectory() as folder, target(store_class, given.store, given.url) as database:
        (rehearsal := Path(folder).resolve() / "rehearsal").mkdir()
        asyncio.run(rehearse(store_class, given.store, database, rehearsal))
        return certify(store_class, database, given, Path(folder).resolve())


def check_examples(number: int | None) -> None:
    """Said before a database is made for a certification that would not end."""
    from dendrux.testing.store_kit.contract import EXAMPLES_MAX

    if number is not None and number > EXAMPLES_MAX:
        raise Problem(f"--examples must be at most {EXAMPLES_MAX}")


def begin_certificate(given: str) -> None:
    """Say what is wrong with the file before anything else is done, and let no older one stay in its place."""
    from dendrux.testing.store_kit.certificate import Certificate

    try:
        Certificate.named(given, Path.cwd()).begin()
    except ValueError as wrong:
        raise Problem(str(wrong)) from None


def jobs(asked: int | None, database: Target) -> int:
    """How many processes: more than one only where each can have a database of its own."""
    from dendrux.testing.parts import FORKS, JOBS_MAX

    if database.another is None or not FORKS:
        return 1
    return min(asked or len(os.sched_getaffinity(0)), JOBS_MAX)


def show_contracts() -> int:
    """Print the catalogue, group by group."""
    from dendrux.testing.store_kit.catalogue import catalogue

    for group, contracts in groupby(catalogue(), key=lambda contract: contract.group):
        listed = list(contracts)
        print(f"{group} ({len(listed)})")
        for contract in listed:
            print(f"  {contract.id}\n      {contract.promise}")
    return 0


def certify(store_class: Any, database: Target, given: argparse.Namespace, folder: Path) -> int:
    """Run pytest with the kit and fixtures of our own, and nothing of the user's."""
    import pytest

    from dendrux.testing.fixtures import fixtures_for
    from dendrux.testing.parts import Parts
    from dendrux.testing.progress import Progress
    from dendrux.testing.workshop import Engines

    engines = Engines(store_class, database.url, folder, ours=database.ours)
    scope = "session" if engines.lasting else "function"
    settings = folder / "pytest.ini"
    settings.write_text(LOOPS.format(scope=scope), encoding="utf-8")
    print(f"certifying {store_class.__name__} on {database.where}", flush=True)
    arguments = [
        f"--rootdir={folder}",
        f"--config-file={settings}",
        f"--confcutdir={folder}",
        "--assert=plain",
        "--disable-plugin-autoload",
        "-ppytest_asyncio.plugin",
        "-pdendrux.testing.store_kit",
        "-pno:cacheprovider",
        "-pno:faulthandler",  # its watchdog is a thread of the first process, on which another would wait for ever
        "--capture=sys",
        "-qq",
        "-rN",
        f"--dendrux-matrix={given.matrix}",
        *([f"--dendrux-examples={given.examples}"] if given.examples is not None else []),
        *([f"--dendrux-seed={given.seed}"] if given.seed is not None else []),
        *([f"--dendrux-certificate={given.certificate}"] if given.certificate is not None else []),
        str(folder),
    ]
    for name in OUTSIDE:
        os.environ.pop(name, None)
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
    parts = Parts(jobs(given.jobs, database), lambda number: engines.alone(number, database.another))
    code = pytest.main(arguments, plugins=[fixtures_for(engines), parts, Progress(Path.cwd())])
    sys.stdout.flush()
    return 0 if code == pytest.ExitCode.OK else 1
