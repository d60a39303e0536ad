"""A contract that is obliged and did not run is noticed, whoever made it vanish and however quietly."""

from __future__ import annotations

import pytest

from kit.conftest import Project, summary, verdict
from kit.test_incomplete import INCOMPLETE
from kit.test_verdict import SHARED

ONE = INCOMPLETE + "1 of 15 contracts did not run to a result"
IS_ONE = "item.name == 'basic.one'"

QUIETLY = {
    "removed last": f"""
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items): items[:] = [item for item in items if not {IS_ONE}]
""",
    "removed first": f"""
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items): items[:] = [item for item in items if not {IS_ONE}]
""",
    "removed by a wrapper": f"""
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if not {IS_ONE}]
    yield
    items[:] = [item for item in items if not {IS_ONE}]
""",
    "removed when collected": f"""
@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    report.result = [item for item in report.result if not (isinstance(item, pytest.Item) and {IS_ONE})]
    return report
""",
    "removed before it runs": f"""
@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session): session.items[:] = [item for item in session.items if not {IS_ONE}]
""",
    "taken out of the loop": f"""
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item): return True if {IS_ONE} else None
""",
    "never called": f"""
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    item = pyfuncitem
    return True if {IS_ONE} else None
""",
    "skipped by a fixture": f"""
@pytest.fixture(autouse=True)
def strange(request):
    item = request.node
    if {IS_ONE}: pytest.skip('not today')
""",
    "skipped by a mark": f"""
def pytest_collection_modifyitems(items):
    for item in items:
        if {IS_ONE}: item.add_marker(pytest.mark.skip)
""",
    "skipped when set up": f"""
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if {IS_ONE}: pytest.skip('not today')
""",
    "expected to fail, and not run": f"""
def pytest_collection_modifyitems(items):
    for item in items:
        if {IS_ONE}: item.add_marker(pytest.mark.xfail(run=False))
""",
}


@pytest.mark.parametrize("how", QUIETLY)
def test_one_contract_vanishes(project: Project, how: str) -> None:
    project.conftest(SHARED, more=QUIETLY[how])
    result = project.certify()
    assert verdict(result) == ONE
    assert result.ret == 1


ALL = {
    "removed": """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    yield
    items[:] = []
""",
    "skipped": "@pytest.fixture(autouse=True)\ndef strange(): pytest.skip('not today')\n",
    "not called": "@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(): return True\n",
    "a loop of somebody's own": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop(): return True\n",
}


@pytest.mark.parametrize("how", ALL)
def test_every_contract_vanishes(project: Project, how: str) -> None:
    project.conftest(SHARED, more=ALL[how])
    result = project.certify()
    assert verdict(result).startswith(INCOMPLETE)
    assert result.ret == 1


def test_a_failure_that_is_reported_as_passed(project: Project) -> None:
    """The verdict rests on what the check found, not on what a plugin makes of the report."""
    more = """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    if item.name == 'basic.broken': report.outcome, report.longrepr = 'passed', None
    return report
"""
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.BROKEN]", more=more)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: basic: 1 failed"
    assert result.ret == 1


def test_an_exit_code_that_somebody_else_makes_well(project: Project) -> None:
    more = """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    session.exitstatus = 0
    yield
"""
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.BROKEN]", more=more)
    assert project.certify().ret == 1


def test_everything_that_every_store_promises_is_skipped(project: Project) -> None:
    """Nothing was exercised, for whatever reason: that certifies nothing."""
    only = "[*tiny.DECLARATION, tiny.tiny('basic.one', needs={'sql'}), tiny.tiny('basic.two', needs={'format_2'})]"
    project.conftest("deployment='single_process'", catalogue=only)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: basic: every contract was skipped"
    assert "  basic              2 skipped" in summary(result)
    assert result.ret == 1


def test_a_contract_that_a_repetition_hides(project: Project) -> None:
    """A contract that runs twice and fails once has failed."""
    more = """
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    from _pytest.runner import runtestprotocol
    if item.name == 'basic.sometimes':
        runtestprotocol(item, nextitem=item, log=False)
seen = []
async def sometimes(situation):
    seen.append(1)
    if len(seen) == 1: raise tiny.NotKept('the first time')
"""
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.tiny('basic.sometimes', check=sometimes)]", more=more)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: basic: 1 failed"
    assert result.ret == 1
