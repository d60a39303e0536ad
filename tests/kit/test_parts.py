"""A certification in several processes ends as one in a single process does."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from dendrux.cli import main
from dendrux.testing import progress
from dendrux.testing.store_kit import plugin
from dendrux.testing.store_kit.contract import Contract
from kit import broken, tiny


async def leaves_its_pid(situation: Any) -> None:
    await asyncio.sleep(0.05)
    await asyncio.to_thread(Path(f"{os.getpid()}.pid").touch)


async def dies(situation: Any) -> None:
    os._exit(3)


def catalogue(monkeypatch: pytest.MonkeyPatch, *contracts: Contract) -> None:
    monkeypatch.setattr(plugin, "catalogue", lambda: [*broken.CATALOGUE, *contracts])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "HEARTBEAT_S", 1e9)  # how often lines come says nothing here
    return tmp_path


def summary(out: str) -> list[str]:
    """What is said after the progress, which shows how the processes overtook each other."""
    lines = out.splitlines()
    start = next(number for number, line in enumerate(lines) if "certification summary" in line)
    return [line for line in lines[start:] if " contracts in " not in line]


@pytest.mark.parametrize("store", ["sqlite", "kit.broken:Unfenced"])
def test_the_verdict_is_that_of_one_process(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(monkeypatch, tiny.BROKEN)
    said = []
    for jobs in ("1", "2"):
        assert main(["certify", store, "--jobs", jobs]) == 1
        said.append(summary(capsys.readouterr().out))
    assert said[0] == said[1]


def test_every_process_has_its_share(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue(monkeypatch, *(tiny.tiny(f"basic.number_{n}", check=leaves_its_pid) for n in range(8)))
    assert main(["certify", "sqlite", "--jobs", "2"]) == 0
    assert len(list(here.glob("*.pid"))) == 2
    assert main(["certify", "sqlite", "--jobs", "1"]) == 0
    assert (here / f"{os.getpid()}.pid").exists()


def test_a_database_that_was_given_is_not_shared_among_processes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue(monkeypatch, *(tiny.tiny(f"basic.number_{n}", check=leaves_its_pid) for n in range(4)))
    assert main(["certify", "sqlite", "--jobs", "2", "--url", f"sqlite+aiosqlite:///{here / 'mine.db'}"]) == 0
    assert list(here.glob("*.pid")) == [here / f"{os.getpid()}.pid"]


def test_a_process_that_ends_fails_its_contract_and_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue(monkeypatch, tiny.tiny("basic.dies", check=dies), tiny.tiny("basic.lives"))
    assert main(["certify", "sqlite", "--jobs", "2"]) == 1
    out = capsys.readouterr().out
    assert "    failed: basic.dies" in out.splitlines()
    assert "the process that ran this contract ended in the middle of it" in out
    assert "  basic              2 passed, 1 failed" in out.splitlines()
    assert "  NOT CERTIFIED: basic: 1 failed" in out.splitlines()


def test_when_every_process_ends_the_run_is_incomplete(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly = [tiny.tiny(f"basic.dies_{n}", check=dies) for n in range(2)]
    catalogue(monkeypatch, *deadly, tiny.tiny("crash_recovery.never_reached"))
    assert main(["certify", "sqlite", "--jobs", "2"]) == 1
    assert "NOT CERTIFIED (incomplete run)" in capsys.readouterr().out
