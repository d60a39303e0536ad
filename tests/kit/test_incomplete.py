"""A verdict is about a complete run: whatever is left out is noticed."""

from __future__ import annotations

import pytest

from kit.conftest import Project, summary, verdict
from kit.test_verdict import SHARED, without

INCOMPLETE = "NOT CERTIFIED (incomplete run): "


@pytest.fixture
def sound(project: Project) -> Project:
    project.conftest(SHARED)
    return project


def test_a_selection_by_keyword(sound: Project) -> None:
    result = sound.certify("-k", "fenced")
    result.assert_outcomes(passed=2, skipped=1, deselected=12)
    assert verdict(result) == INCOMPLETE + "12 of 15 contracts did not run to a result"
    assert result.ret == 1


def test_a_selection_that_takes_nothing(sound: Project) -> None:
    result = sound.certify("-k", "nothing_is_called_so")
    assert verdict(result) == INCOMPLETE + "14 of 15 contracts did not run to a result"
    assert result.ret == 1


def test_a_group_is_selected_by_its_name(sound: Project) -> None:
    result = sound.certify("-k", "crash_recovery")
    result.assert_outcomes(passed=3, deselected=12)


def test_obliged_fixtures_are_checked_whatever_is_selected(project: Project) -> None:
    project.conftest(SHARED, fixtures=without("second"))
    result = project.certify("-k", "basic.one")
    assert verdict(result).startswith(INCOMPLETE)
    assert "dendrux_store_second_instance is missing" in verdict(result)
    result.assert_outcomes(passed=1, failed=1, deselected=13)


def test_deselected_by_node_id(sound: Project) -> None:
    result = sound.certify("--deselect", "dendrux-store-kit::basic.one")
    assert verdict(result) == INCOMPLETE + "1 of 15 contracts did not run to a result"
    assert result.ret == 1


def test_stopped_at_the_first_failure(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.DECLARATION, tiny.BROKEN, *tiny.TINY[3:]]")
    result = project.certify("-x")
    assert verdict(result) == INCOMPLETE + "12 of 16 contracts did not run to a result; basic: 1 failed"
    assert result.ret == 1


def test_only_collected(sound: Project) -> None:
    result = sound.certify("--collect-only")
    result.stdout.fnmatch_lines(["*<Coroutine basic.one>"])
    assert verdict(result).startswith(INCOMPLETE)
    assert result.ret == 1


def test_interrupted(project: Project) -> None:
    stop = "async def stop(situation): raise KeyboardInterrupt\n"
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.tiny('basic.stop', check=stop)]", more=stop)
    project.pytester.makepyfile("def test_mine(): pass")
    result = project.pytester.runpytest_subprocess("-p", "dendrux.testing.store_kit")
    assert verdict(result).startswith(INCOMPLETE)
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_one_file(sound: Project) -> None:
    sound.pytester.makepyfile(test_own="def test_mine(): pass")
    result = sound.certify("test_own.py")
    result.assert_outcomes(passed=1)
    assert verdict(result).startswith(INCOMPLETE + "no contract was collected")
    assert result.ret == 1


def test_one_node(sound: Project) -> None:
    sound.pytester.makepyfile(test_own="def test_mine(): pass")
    result = sound.certify("test_own.py::test_mine")
    result.assert_outcomes(passed=1)
    assert verdict(result).startswith(INCOMPLETE)
    assert result.ret == 1


def test_a_fixture_that_skips(project: Project) -> None:
    project.conftest(SHARED, more="@pytest.fixture\ndef dendrux_store_factory(): pytest.skip('no server')\n")
    result = project.certify()
    assert verdict(result).startswith(INCOMPLETE)
    assert result.ret == 1


def test_an_expected_failure_is_a_failure(project: Project) -> None:
    mark = "def pytest_collection_modifyitems(items):\n    for item in items: item.add_marker(pytest.mark.xfail)\n"
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.BROKEN]", more=mark)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: basic: 1 failed"
    assert result.ret == 1


def test_a_failure_of_the_teardown_counts(project: Project) -> None:
    more = (
        "@pytest.fixture\ndef dendrux_fault_injector():\n    yield tiny.Injector()\n    raise OSError('still locked')\n"
    )
    project.conftest(SHARED, fixtures=without("injector"), more=more)
    result = project.certify()
    assert verdict(result).startswith("NOT CERTIFIED: declaration: 3 failed")
    assert result.ret == 1


def test_collection_errors_beside(sound: Project) -> None:
    sound.pytester.makepyfile("import nothing_is_called_so")
    result = sound.certify()
    assert verdict(result).startswith(INCOMPLETE)
    assert result.ret != 0


def test_the_last_failed(project: Project) -> None:
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.BROKEN]")
    assert project.certify().ret == 1
    result = project.certify("--lf")
    assert verdict(result).startswith(("NOT CERTIFIED:", INCOMPLETE))
    assert result.ret == 1
    assert summary(result)
