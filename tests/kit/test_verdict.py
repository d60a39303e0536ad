"""Each rule of the verdict, in a project of its own."""

from __future__ import annotations

import pytest

from kit.conftest import EVERYTHING, Project, line, summary, verdict

SHARED = "deployment='single_host', fenced_writes=True, retry_ids=True"
RECOVERY = "deployment='single_host', recovery=True"
FORMAT_2 = "deployment='single_host', fenced_writes=True, retry_ids=True, checkpointing=True, atomic_completion=True"
USAGE = "unverified: save_usage retry identity: nobody reads usage rows"
GROUPS = "declaration, basic, fenced_writes, retry_ids, concurrency, crash_recovery"
LATER = "not part of this version: agent_flows, checkpointing, atomic_completion, live_updates"


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in EVERYTHING if name not in names)


# -- certified --------------------------------------------------------------------------------------------------------


def test_the_summary_of_a_store_that_keeps_everything(project: Project) -> None:
    project.conftest(SHARED)
    result = project.certify()
    assert summary(result) == [
        "Store (deployment=single_host, capabilities=fenced_writes,retry_ids)",
        "  declaration        3 passed",
        "  basic              3 passed, 1 skipped",
        "  agent_flows        not part of this version",
        "  fenced_writes      1 passed, 1 skipped",
        "  retry_ids          1 passed, 1 skipped",
        "  checkpointing      not part of this version",
        "  atomic_completion  not part of this version",
        "  recovery           1 skipped",
        "  concurrency        1 passed",
        "  crash_recovery     2 passed",
        "  live_updates       not part of this version",
        f"  {USAGE}",
        f"  CERTIFIED with caveats: {GROUPS} (caveats: {USAGE}; {LATER})",
    ]
    assert result.ret == 0


def test_a_certificate_without_caveats(project: Project) -> None:
    project.conftest(FORMAT_2 + ", recovery=True", catalogue="tiny.EVERY_GROUP", body="format = 2")
    result = project.certify()
    assert verdict(result).startswith("CERTIFIED: declaration, basic, agent_flows, ")
    assert result.ret == 0


# -- broken, or nothing to judge --------------------------------------------------------------------------------------


def test_a_broken_promise(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.BROKEN]")
    result = project.certify()
    assert "    basic.broken: The promise of basic.broken." in summary(result)
    assert line(result, "basic") == "3 passed, 1 failed, 1 skipped"
    assert verdict(result) == "NOT CERTIFIED: basic: 1 failed"
    assert result.ret == 1
    result.stdout.fnmatch_lines(["The promise of basic.broken.", "what is wrong*it does not", "likely cause*made so."])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_no_deployment(project: Project) -> None:
    project.conftest("deployment=None")
    result = project.certify()
    assert verdict(result).startswith("NOT CERTIFIED: the store declares no deployment")
    assert result.ret == 1


def test_an_unknown_deployment(project: Project) -> None:
    project.conftest("deployment='everywhere'")
    result = project.certify()
    assert verdict(result).startswith("NOT CERTIFIED: declaration: ")
    result.stdout.fnmatch_lines(
        ["*deployment='everywhere'; it must be one of single_process, single_host, multi_serv*"]
    )


def test_a_method_that_a_capability_needs(project: Project) -> None:
    project.conftest(SHARED, body="save_usage = None")
    result = project.certify()
    assert "    declaration.methods: " in "\n".join(summary(result))
    result.stdout.fnmatch_lines(["*'fenced_writes': the method save_usage is missing*"])


def test_a_capability_without_contracts_is_not_certified(project: Project) -> None:
    project.conftest("checkpointing=True")
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: checkpointing is declared and this version has no contracts for it"
    assert result.ret == 1


def test_a_capability_whose_contracts_all_skipped(project: Project) -> None:
    only = "[*tiny.DECLARATION, tiny.tiny('basic.one'), tiny.tiny('fenced_writes.two', needs={'second_instance'})]"
    project.conftest("fenced_writes=True", catalogue=only)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: fenced_writes: every contract was skipped"
    assert result.ret == 1


def test_a_factory_that_makes_no_store(project: Project) -> None:
    project.conftest(SHARED, body="def __init__(self, **declared): raise RuntimeError('no database')")
    result = project.certify()
    assert result.outlines.count("E   RuntimeError: no database") == 1
    assert verdict(result) == "NOT CERTIFIED (incomplete run): no store was made"
    assert result.ret == 1


# -- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deployment", ["single_host", "multi_server"])
def test_no_second_instance_of_a_shared_deployment(project: Project, deployment: str) -> None:
    project.conftest(f"deployment={deployment!r}", fixtures=without("second"))
    result = project.certify()
    assert verdict(result).startswith("NOT CERTIFIED: dendrux_store_second_instance is missing")
    assert line(result, "concurrency") == "1 failed"
    assert line(result, "declaration") == "2 passed, 1 failed"
    result.stdout.fnmatch_lines(
        [f"*dendrux_store_second_instance is missing: the store declares deployment={deployment}*"]
    )
    assert result.ret == 1


@pytest.mark.parametrize("fixtures", [EVERYTHING, without("second")])
def test_a_second_instance_of_a_single_process_is_an_ordinary_skip(project: Project, fixtures: tuple[str, ...]) -> None:
    project.conftest("deployment='single_process'", fixtures=fixtures)
    result = project.certify()
    assert line(result, "concurrency") == "1 skipped"
    assert verdict(result).startswith("CERTIFIED with caveats")


@pytest.mark.parametrize(("name", "fixture"), [("clock", "dendrux_clock"), ("reopen", "dendrux_store_reopen")])
def test_what_recovery_obliges(project: Project, name: str, fixture: str) -> None:
    project.conftest(RECOVERY, fixtures=without(name))
    result = project.certify()
    assert f"{fixture} is missing" in verdict(result)
    assert verdict(result).startswith("NOT CERTIFIED: ")
    assert line(result, "recovery") == "1 failed"
    result.stdout.fnmatch_lines([f"*the fixture {fixture} is missing: the store declares recovery*"])
    assert result.ret == 1


def test_recovery_with_its_fixtures(project: Project) -> None:
    project.conftest(RECOVERY)
    result = project.certify()
    assert line(result, "recovery") == "1 passed"
    assert verdict(result).startswith("CERTIFIED with caveats")


def test_no_clock_without_recovery_is_unverified(project: Project) -> None:
    project.conftest(SHARED, fixtures=without("clock"))
    result = project.certify()
    assert "  unverified: time-based contracts: there is no fixture dendrux_clock" in summary(result)
    assert verdict(result).startswith("CERTIFIED with caveats")
    assert result.ret == 0


def test_a_plain_clock_is_asked_for_after_the_first_store(project: Project) -> None:
    made = "made = []\n@pytest.fixture\ndef dendrux_clock():\n    assert made\n    return tiny.Clock()\n"
    body = "def __init__(self, **declared): made.append(super().__init__(**declared))"
    project.conftest(RECOVERY, fixtures=without("clock"), body=body, more=made)
    result = project.certify()
    assert line(result, "recovery") == "1 passed"


def test_an_asynchronous_clock(project: Project) -> None:
    clock = "import pytest_asyncio\n@pytest_asyncio.fixture\nasync def dendrux_clock():\n    yield tiny.Clock()\n"
    project.conftest(RECOVERY, fixtures=without("clock"), more=clock)
    result = project.certify()
    assert line(result, "recovery") == "1 passed"


def test_no_fault_injector(project: Project) -> None:
    project.conftest(SHARED, fixtures=without("injector"))
    result = project.certify()
    assert line(result, "crash_recovery") == "2 skipped"
    assert "  crash recovery: not certified" in summary(result)
    assert verdict(result).startswith("CERTIFIED with caveats")
    assert "crash recovery: not certified" in verdict(result)
    assert result.ret == 0


def test_no_live_factory(project: Project) -> None:
    project.conftest(SHARED, fixtures=without("live"))
    result = project.certify()
    assert "  live updates: not tested" in summary(result)
    assert "live updates: not tested" in verdict(result)
    assert result.ret == 0


def test_an_injector_that_never_cuts(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.CUT]")
    result = project.certify()
    assert line(result, "crash_recovery") == "2 passed, 1 failed"
    result.stdout.fnmatch_lines(["*1 cuts were asked for and 0 happened: the fault injector does not cut*"])
    assert verdict(result) == "NOT CERTIFIED: crash_recovery: 1 failed"


# -- skips that the store causes --------------------------------------------------------------------------------------


def test_runs_of_format_1_under_a_declaration_of_format_2(project: Project) -> None:
    tagged = "[*tiny.TINY, tiny.tiny('checkpointing.one'), tiny.tiny('atomic_completion.one')]"
    project.conftest(FORMAT_2, catalogue=tagged)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: fenced_writes: 1 skipped by the store"
    start = summary(result).index("  skipped by the store:")
    assert summary(result)[start + 1].startswith(
        "    fenced_writes: 1 contract: the four format-2 capabilities are decl"
    )
    assert result.ret == 1


def test_runs_of_format_2_under_a_declaration_of_format_2(project: Project) -> None:
    tagged = "[*tiny.TINY, tiny.tiny('checkpointing.one'), tiny.tiny('atomic_completion.one')]"
    project.conftest(FORMAT_2, catalogue=tagged, body="format = 2")
    result = project.certify()
    assert line(result, "fenced_writes") == "2 passed"
    assert verdict(result).startswith("CERTIFIED with caveats")


def test_an_injector_without_a_form_of_disconnect(project: Project) -> None:
    injector = "class Formless(tiny.Injector):\n    forms = ()\n@pytest.fixture\ndef dendrux_fault_injector(): return Formless()\n"
    project.conftest(SHARED, fixtures=without("injector"), more=injector)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: crash_recovery: 1 skipped by the store"
    assert "  skipped by the store:" in summary(result)
    assert result.ret == 1


@pytest.mark.parametrize("others", [True, False])
def test_a_form_that_does_not_exist_is_ordinary_when_another_form_ran(project: Project, others: bool) -> None:
    catalogue = "[*tiny.DECLARATION, tiny.tiny('basic.one'), tiny.ENDED" + (", tiny.TINY[-1]]" if others else "]")
    project.conftest(SHARED.replace("fenced_writes=True, retry_ids=True", ""), catalogue=catalogue)
    result = project.certify()
    if others:
        assert line(result, "crash_recovery") == "1 passed, 1 skipped"
        assert verdict(result).startswith("CERTIFIED with caveats")
    else:
        assert verdict(result) == "NOT CERTIFIED: crash_recovery: 1 skipped by the store"


def test_no_release_run_claim(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.RELEASE]", body="release_run_claim = None")
    result = project.certify()
    assert "    basic: 1 contract: the store has no release_run_claim" in summary(result)
    assert verdict(result) == "NOT CERTIFIED: basic: 1 skipped by the store"
    assert result.ret == 1


# -- several stores ---------------------------------------------------------------------------------------------------


def test_two_classes_of_one_name_are_told_apart_by_their_modules(project: Project) -> None:
    for name in ("one", "two"):
        folder = project.pytester.mkdir(name)
        project.conftest(SHARED, folder=folder, body=f"__module__ = 'package_{name}.store'")
    result = project.certify("one", "two")
    headings = [text.split(" (")[0] for text in summary(result) if text.startswith("package_")]
    assert headings == ["package_one.store.Store", "package_two.store.Store"]
    assert result.ret == 0


def test_one_class_in_two_directories_is_two_stores(project: Project) -> None:
    for name, declared in (("one", SHARED), ("two", "deployment=None")):
        project.conftest(declared, folder=project.pytester.mkdir(name))
    result = project.certify("one", "two")
    headings = [text for text in summary(result) if text.startswith("Store")]
    assert [text.rpartition(" ")[2] for text in headings] == ["one", "two"]
    assert result.ret == 1


def test_a_parametrized_factory_is_several_stores(project: Project) -> None:
    project.conftest(SHARED)
    path = project.pytester.path / "conftest.py"
    text = path.read_text().replace(
        "@pytest.fixture\ndef dendrux_store_factory():\n    return lambda: Store(",
        "@pytest.fixture(params=['single_host', None])\ndef dendrux_store_factory(request):\n"
        "    return lambda: Store(deployment=request.param)\n    return lambda: Store(",
    )
    path.write_text(text)
    result = project.certify()
    assert sum(text.startswith("Store (") for text in summary(result)) == 2
    assert result.ret == 1
