"""Each fixture missing under each declaration, and each kind of clock: what a declaration obliges, and what it does not."""

from __future__ import annotations

import pytest

from kit.conftest import FIXTURES, Project, line, summary, verdict
from kit.test_verdict import without

NAMES = {
    "second": "dendrux_store_second_instance",
    "reopen": "dendrux_store_reopen",
    "clock": "dendrux_clock",
    "injector": "dendrux_fault_injector",
    "live": "dendrux_live_store_factory",
}
OBLIGED = {
    ("second", "single_host", False),
    ("second", "single_host", True),
    ("second", "multi_server", False),
    ("second", "multi_server", True),
    ("reopen", "single_process", True),
    ("reopen", "single_host", True),
    ("reopen", "multi_server", True),
    ("clock", "single_process", True),
    ("clock", "single_host", True),
    ("clock", "multi_server", True),
}
"""Missing fixture, deployment, recovery declared: together they forbid a certificate."""
CAVEATS = {
    "second": None,
    "reopen": "unverified: contracts about a restart: there is no fixture dendrux_store_reopen",
    "clock": "unverified: time-based contracts: there is no fixture dendrux_clock",
    "injector": "crash recovery: not certified",
    "live": "live updates: not tested",
}
"""What a missing fixture is, where nothing obliges it."""
EVERYTHING = "[*tiny.TINY, tiny.tiny('basic.restarted', needs={'reopen'})]"
DEPLOYMENTS = ("single_process", "single_host", "multi_server")


@pytest.mark.parametrize("recovery", [False, True])
@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("missing", FIXTURES)
def test_a_missing_fixture(project: Project, missing: str, deployment: str, recovery: bool) -> None:
    project.conftest(f"deployment={deployment!r}, recovery={recovery}", fixtures=without(missing), catalogue=EVERYTHING)
    result = project.certify()
    if (missing, deployment, recovery) in OBLIGED:
        assert verdict(result).startswith(f"NOT CERTIFIED: {NAMES[missing]} is missing")
        result.stdout.fnmatch_lines([f"*the fixture {NAMES[missing]} is missing: the store declares *"])
        assert result.ret == 1
        return
    assert verdict(result).startswith("CERTIFIED with caveats: ")
    assert result.ret == 0
    caveats = verdict(result).partition("(caveats: ")[2]
    for name, caveat in CAVEATS.items():
        if caveat is not None:
            assert (caveat in caveats) == (name == missing), caveat
            assert (f"  {caveat}" in summary(result)) == (name == missing)


def test_no_fixture_but_the_factory_under_a_declaration_of_nothing(project: Project) -> None:
    project.conftest("deployment='single_process'", fixtures=(), catalogue=EVERYTHING)
    result = project.certify()
    assert all(caveat is None or caveat in verdict(result) for caveat in CAVEATS.values())
    assert result.ret == 0


def test_every_fixture_is_missing_under_a_declaration_of_everything(project: Project) -> None:
    project.conftest("deployment='multi_server', recovery=True", fixtures=(), catalogue=EVERYTHING)
    result = project.certify()
    assert verdict(result).startswith("NOT CERTIFIED: ")
    for name in ("second", "reopen", "clock"):
        assert f"{NAMES[name]} is missing" in verdict(result)
    assert result.ret == 1


def test_a_live_factory_without_a_second_instance(project: Project) -> None:
    """Nobody else can see what was announced: whatever needs an independent reader never passes."""
    watched = "[*tiny.TINY, tiny.tiny('live_updates.visible', needs={'second_instance'})]"
    project.conftest("deployment='single_process'", fixtures=without("second"), catalogue=watched)
    result = project.certify()
    assert line(result, "live_updates") == "1 skipped"
    assert "live_updates" not in verdict(result).partition(" (caveats: ")[0]
    project.conftest("deployment='single_host'", fixtures=without("second"), catalogue=watched)
    result = project.certify()
    assert line(result, "live_updates") == "1 failed"
    assert verdict(result).startswith("NOT CERTIFIED: dendrux_store_second_instance is missing")


# -- clocks -----------------------------------------------------------------------------------------------------------

LOOK = """
from datetime import UTC, datetime, timedelta
async def ages(situation):
    aged = await situation.bench.advance(60.0)
    assert aged == timedelta(seconds={aged}), aged
class Moves(tiny.Clock):
    moved = timedelta(0)
    def advance(self, delta): self.moved += delta
    def now(self): return datetime.now(UTC) + self.moved
"""
MOVES = "@pytest.fixture\ndef dendrux_clock(): return Moves()\n"


@pytest.mark.parametrize("recovery", [False, True])
@pytest.mark.parametrize(("more", "aged"), [(FIXTURES["clock"], 60), (MOVES, 0)], ids=["ages", "has now"])
def test_a_clock(project: Project, more: str, aged: int, recovery: bool) -> None:
    """What ages rows moves stored times, which the kit adds back; what moves the store's time leaves them."""
    catalogue = "[*tiny.TINY, tiny.tiny('basic.time', check=ages, needs={'clock'})]"
    project.conftest(
        f"deployment='single_host', recovery={recovery}",
        fixtures=without("clock"),
        catalogue=catalogue,
        more=LOOK.replace("{aged}", str(aged)) + more,
    )
    result = project.certify()
    assert line(result, "basic").startswith("5 passed" if recovery else "4 passed")
    assert verdict(result).startswith("CERTIFIED with caveats")
    assert "time-based" not in verdict(result)
    assert result.ret == 0


@pytest.mark.parametrize("recovery", [False, True])
def test_no_clock(project: Project, recovery: bool) -> None:
    project.conftest(f"deployment='single_host', recovery={recovery}", fixtures=without("clock"))
    result = project.certify()
    assert result.ret == int(recovery)
    assert ("dendrux_clock is missing" in verdict(result)) == recovery
    assert ("unverified: time-based contracts" in verdict(result)) != recovery
