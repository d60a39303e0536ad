"""The certificate: what a session found out about each store, as one document that can be handed on.

It holds no run data, no text of a driver, no URL, host, account or password. `docs/reference/certificate.schema.json`
says what it consists of. The page beside it is made of the document alone.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import pytest

from dendrux import __version__
from dendrux.testing.probe import Database
from dendrux.testing.store_kit import coverage
from dendrux.testing.store_kit.contract import GROUPS, Contract, Settings
from dendrux.testing.store_kit.machines import Machine
from dendrux.testing.store_kit.obligations import FIXTURES
from dendrux.testing.store_kit.page import page
from dendrux.testing.store_kit.verdict import Examined, Result, Verdict, judge
from dendrux.vocabulary import CAPABILITIES, DEPLOYMENTS
from dendrux_model.machines.cells import cells
from dendrux_model.programs import Fault

FORMAT: Final = 1
"""Of the document. A member that is added leaves it; one that is taken away or means something else raises it."""
PACKAGES: Final = ("sqlalchemy", "pytest", "pytest-asyncio", "hypothesis")
OUTSIDE: Final = "something outside of the kit skipped it"
UNMADE: Final = "no store was made"
KINDS: Final[Mapping[str, str]] = {
    "ordinary": "nothing promises it",
    "store": "the store made it impossible",
    "unverified": "it cannot be seen",
    "injector": "there is no fault injector",
    "form": "the database has no such disconnect",
}
"""What the reasons of a skip mean."""


def document(
    examined: Sequence[tuple[Examined, str]],
    unmade: Iterable[str],
    *,
    settings: Settings,
    finished: bool,
    remark: str | None = None,
) -> dict[str, Any]:
    """The certificate of a session.

    `examined`: each store with its place; `unmade`: the places where no store could be made; `finished`: the session
    came to its end; `remark`: why there is no store at all.
    """
    stores = [store(one, place, settings) for one, place in examined] + [nothing(place) for place in unmade]
    return {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "kit": {
            "dendrux": __version__,
            "python": platform.python_version(),
            **{name: installed(name) for name in PACKAGES},
        },
        "settings": {"examples": settings.examples, "seed": settings.seed, "matrix": settings.matrix},
        "finished": finished,
        "certified": finished and bool(stores) and all(one["verdict"]["certified"] for one in stores),
        "remark": remark,
        "stores": stores,
    }


def installed(package: str) -> str | None:
    """The version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# -- one store --------------------------------------------------------------------------------------------------------


def store(one: Examined, place: str, settings: Settings) -> dict[str, Any]:
    """Everything about one store."""
    declared = one.declaration
    return {
        "place": place,
        "class": declared.name,
        "module": declared.module,
        "deployment": declared.deployment if declared.deployment in DEPLOYMENTS else None,
        "capabilities": {name: name in declared.capabilities for name in CAPABILITIES},
        "storage_format": declared.format,
        "sql_state_store": declared.sql,
        "fixtures": {name: name in declared.fixtures for name in FIXTURES},
        "disconnect_forms": list(declared.disconnect_forms),
        "database": database(declared.database),
        "verdict": verdict(judge(one)),
        "groups": [group(one, name) for name in GROUPS],
        "contracts": [contract(one, listed) for listed in one.contracts],
        "machines": machines(one),
        "pair_matrix": pair_matrix(one),
        "fault_cells": fault_cells(one),
        "failures": [failure(listed, one.results[listed.id]) for listed in one.failed()],
    }


def nothing(place: str) -> dict[str, Any]:
    """A place whose fixtures made no store."""
    return {
        "place": place,
        "class": None,
        "module": None,
        "deployment": None,
        "capabilities": None,
        "storage_format": None,
        "sql_state_store": None,
        "fixtures": None,
        "disconnect_forms": [],
        "database": None,
        "verdict": verdict(Verdict(certified=False, incomplete=True, reasons=(UNMADE,))),
        "groups": [],
        "contracts": [],
        "machines": None,
        "pair_matrix": None,
        "fault_cells": None,
        "failures": [],
    }


def database(found: Database | None) -> dict[str, Any] | None:
    """The database as it was probed."""
    if found is None:
        return None
    return {
        "dialect": found.dialect,
        "driver": found.driver,
        "driver_version": found.driver_version,
        "server": found.server,
        "server_version": found.server_version,
        "settings": [{"name": one.name, "value": one.value, "why_not": one.why} for one in found.settings],
    }


def verdict(of: Verdict) -> dict[str, Any]:
    """The verdict, in the words of the summary and taken apart."""
    return {
        "text": str(of),
        "certified": of.certified,
        "incomplete": of.incomplete,
        "groups": list(of.groups),
        "reasons": list(of.reasons),
        "caveats": list(of.caveats),
    }


def group(one: Examined, name: str) -> dict[str, Any]:
    """How the contracts of a group went."""
    listed = [contract for contract in one.contracts if contract.group == name]
    tally = one.tally(name)
    return {
        "name": name,
        "contracts": len(listed),
        "passed": tally["passed"],
        "failed": tally["failed"],
        "skipped": tally["skipped"],
        "not_run": sum(contract.id not in one.results for contract in listed),
    }


def contract(one: Examined, listed: Contract) -> dict[str, Any]:
    """What became of one contract, and why where it was not checked."""
    result = one.results.get(listed.id)
    kind = text = None
    if result is not None and result.outcome == "skipped":
        skip = None if result.skip is None else one.judged(listed, result.skip)
        kind, text = (None, OUTSIDE) if skip is None else (KINDS[skip.reason], skip.text)
    return {
        "id": listed.id,
        "group": listed.group,
        "capability": listed.capability,
        "since": listed.since,
        "promise": listed.promise,
        "outcome": "not_run" if result is None else result.outcome,
        "skipped_because": kind,
        "reason": text,
    }


def failure(listed: Contract, result: Result) -> dict[str, Any]:
    """A broken promise, with the smallest program that shows it where there is one."""
    shown = result.shown
    return {
        "contract": listed.id,
        "promise": listed.promise,
        "cause": listed.cause if shown is None else shown.cause,
        "differs_at": None if shown is None else shown.differs_at,
        "program": [] if shown is None else [row._asdict() for row in shown.program],
        "race": []
        if shown is None
        else [{"call": letter, "is": text} for letter, text in zip("ABCD", shown.races, strict=False)],
        "schedule": [] if shown is None else [move._asdict() for move in shown.schedule],
    }


# -- how much was tried -----------------------------------------------------------------------------------------------


def machines(one: Examined) -> dict[str, Any] | None:
    """What the machines reached and drew from; None when none was exercised."""
    found = coverage.measure(one)
    if found is None:
        return None
    return {
        "reached": len(found.reached),
        "total": len(found.possible),
        "beyond_this_store": found.beyond,
        "not_reached": found.missed,
        "complete": found.complete,
        "runs": [
            {
                "contract": listed.id,
                "profile": machine.profile,
                "examples": notes.get("examples"),
                "seed": notes.get("seed"),
                "reached": len(notes.get("branches", ())),
            }
            for listed, machine, notes in exercised_machines(one)
        ],
    }


def exercised_machines(one: Examined) -> list[tuple[Contract, Machine, Mapping[str, Any]]]:
    """The machines that ran, with what they noted."""
    return [(c, machine, one.results[c.id].notes) for c, machine in coverage.machines_of(one) if one.exercised(c)]


def pair_matrix(one: Examined) -> dict[str, Any] | None:
    """Cells of the pair matrix that were run to their end without a finding; None when none was run."""
    results = (one.results.get(listed.id) for listed in one.contracts)
    ran = [r.notes for r in results if r is not None and r.outcome == "passed" and "cells" in r.notes]
    if not ran:
        return None
    known = {cell.name for cell in cells(one.declaration.run_format, "all")}
    done = set().union(*(notes["cells"] for notes in ran))
    return {
        "cells_run": len(done & known),
        "cells_known": len(known),
        "programs": sum(notes.get("programs", 0) for notes in ran),
    }


def fault_cells(one: Examined) -> dict[str, Any] | None:
    """Writes x points x kinds of cuts that really happened; None when nothing was cut."""
    known: set[str] = set()
    covered: set[str] = set()
    for listed in one.contracts:
        result = one.results.get(listed.id)
        named = cells_of(listed)
        known |= named
        if result is not None and result.outcome == "passed":
            covered |= named | set(result.notes.get("fault_cells", ()))
    if not covered:
        return None
    return {"covered": len(covered), "known": len(known | covered), "not_covered": sorted(known - covered)}


def cells_of(listed: Contract) -> set[str]:
    """The cuts that a contract's own program asks for: every one happened when the contract passed."""
    cuts = (step for step in listed.program or () if isinstance(step, Fault))
    return {f"{cut.do.operation.method} {cut.point} {cut.kind}" for cut in cuts}


# -- files ------------------------------------------------------------------------------------------------------------


class Certificate:
    """The two files of a session's certificate."""

    def __init__(self, path: Path, shown: str) -> None:
        self.path = path
        self.shown = shown
        """The path as it was given."""
        self.problem = ""
        """Why the files could not be written, in one sentence."""

    @classmethod
    def named(cls, given: str, folder: Path) -> Certificate:
        """The files of a name, from a folder on. ValueError says what is wrong with the name."""
        path = folder / given
        if path.suffix in (".html", ""):
            raise ValueError(f"{given}: name a file such as certificate.json; the page is beside it, with suffix .html")
        return cls(path, given)

    @classmethod
    def asked(cls, config: Any) -> Certificate | None:
        """What the command line of pytest asks for; None when it asks for none. Raises pytest.UsageError."""
        given = config.getoption("--dendrux-certificate", default=None)
        if given is None:
            return None
        try:
            return cls.named(given, config.invocation_params.dir)
        except ValueError as wrong:
            raise pytest.UsageError(f"--dendrux-certificate={wrong}") from None

    @property
    def page(self) -> Path:
        """Where the page goes."""
        return self.path.with_suffix(".html")

    def begin(self) -> None:
        """Certify nothing, so that a run that dies leaves no older certificate in place. ValueError says why not."""
        if not self.write(document([], [], settings=Settings(), finished=False)):
            raise ValueError(self.problem)

    def write(self, content: Mapping[str, Any]) -> bool:
        """Write the document and the page beside it, each whole or not at all. Says whether that went well."""
        try:
            put(self.path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
            put(self.page, page(content))
        except OSError as error:
            self.problem = f"the certificate {self.shown} cannot be written: {error.strerror}"
            return False
        self.problem = ""
        return True

    def said(self) -> str:
        """The line after the summary."""
        return self.problem or f"certificate: {self.shown}, and as a page {Path(self.shown).with_suffix('.html')}"


def put(path: Path, text: str) -> None:
    """Put a file in its place in one step, so that no reader finds half of it."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8", errors="backslashreplace")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
