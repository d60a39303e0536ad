"""Certifies a store of the zoo as its author would, and keeps what killed it and how soon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from zoo.stores import ZOO

TESTS: Final = Path(__file__).resolve().parents[1]
MEASURED: Final = Path(__file__).with_name("measured.json")
"""The whole certifications that the page of the documentation shows."""
FAILED: Final = "    failed: "
"""How `dendrux certify` begins the line of a contract that has just failed."""
LIMIT_S: Final = 1200


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One whole certification."""

    store: str
    killed_by: tuple[str, ...]
    """Every contract that failed, in the order of the certificate."""
    first_red: str | None
    first_red_s: float | None
    """From the start of the command until the line of the first failed contract."""
    whole_s: float
    exit_code: int = 1
    output: str = ""

    @property
    def wrong(self) -> str | None:
        """What is wrong with the kit, or with what the store says of itself."""
        if not self.killed_by:
            return f"{self.store} survives"
        named = ZOO[self.store].killed_by
        return None if named in self.killed_by else f"{self.store} is not killed by {named}"

    def record(self) -> dict[str, Any]:
        """What is kept of it."""
        return {name: value for name, value in asdict(self).items() if name not in ("exit_code", "output")}


def certified(name: str, folder: Path, url: str | None = None) -> Measured:
    """Certify a store with the defaults of `dendrux certify`, in this folder."""
    certificate = folder / f"{name}.json"
    to = [] if url is None else ["--url", url]
    store = f"{ZOO[name].__module__}:{name}"
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    begun = time.monotonic()
    lines: list[str] = []
    first: tuple[str, float] | None = None
    with subprocess.Popen(
        [sys.executable, "-m", "dendrux", "certify", store, *to, "--certificate", str(certificate)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        watch = threading.Timer(LIMIT_S, running.kill)
        watch.start()
        for line in running.stdout:
            lines.append(line)
            if first is None and line.startswith(FAILED):
                first = line.removeprefix(FAILED).strip(), round(time.monotonic() - begun, 1)
        watch.cancel()
    (made,) = json.loads(certificate.read_text(encoding="utf-8"))["stores"] or [{"contracts": []}]
    return Measured(
        store=name,
        killed_by=tuple(one["id"] for one in made["contracts"] if one["outcome"] == "failed"),
        first_red=first and first[0],
        first_red_s=first and first[1],
        whole_s=round(time.monotonic() - begun, 1),
        exit_code=running.returncode,
        output="".join(lines),
    )


def _read() -> dict[str, Any]:
    found: dict[str, Any] = {"how": "", "stores": []}
    return json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else found


def how() -> str:
    """On what it was measured, in the words of who did."""
    return str(_read()["how"])


def kept() -> list[Measured]:
    """What was measured, in the order of the zoo."""
    rows = _read()["stores"]
    by_name = {row["store"]: Measured(**{**row, "killed_by": tuple(row["killed_by"])}) for row in rows}
    return [by_name[name] for name in ZOO if name in by_name]


def keep(measured: Iterable[Measured], on: str | None = None) -> None:
    """Keep these besides the others; a store that was measured again is measured anew. `on`: other words for how."""
    by_name = {one.store: one for one in (*kept(), *measured)}
    rows = [by_name[name].record() for name in ZOO if name in by_name]
    text = json.dumps({"how": how() if on is None else on, "stores": rows}, indent=1)
    MEASURED.write_text(text + "\n", encoding="utf-8")
