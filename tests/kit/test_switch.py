"""When the kit is on, and when it refuses to be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kit.conftest import OPTIONS, Project, summary, verdict

OWN = "def test_mine(): pass"
TITLE = "*dendrux store kit: certification summary*"


def test_named_with_p(project: Project) -> None:
    project.conftest()
    assert summary(project.certify())


def test_the_option(project: Project) -> None:
    project.conftest()
    assert summary(project.run("--dendrux-store-kit"))


def test_the_setting(project: Project) -> None:
    project.conftest()
    project.pytester.makepyprojecttoml(
        "[tool.pytest.ini_options]\ndendrux_store_kit = true\nasyncio_default_fixture_loop_scope = 'function'\n"
    )
    (project.pytester.path / "tox.ini").unlink()
    assert summary(project.run())


def test_all_ways_at_once_are_one_kit(project: Project) -> None:
    project.conftest()
    result = project.run("--dendrux-store-kit", "-p", "dendrux.testing.store_kit", "-o", "dendrux_store_kit=true")
    assert sum("certification summary" in text for text in result.outlines) == 1
    assert result.ret == 0


def test_merely_installed_collects_nothing(project: Project) -> None:
    project.conftest()
    project.pytester.makepyfile(OWN)
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line(TITLE)
    assert result.ret == 0


def test_listed_in_pytest_plugins_collects_nothing(project: Project) -> None:
    project.conftest(more="pytest_plugins = ['dendrux.testing.store_kit']\n")
    project.pytester.makepyfile(OWN)
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line(TITLE)


def test_listed_in_the_environment_collects_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_PLUGINS", "dendrux.testing.store_kit")
    project.conftest()
    project.pytester.makepyfile(OWN)
    project.run().assert_outcomes(passed=1)


def test_listed_in_pytest_plugins_and_named_with_p(project: Project) -> None:
    project.conftest(more="pytest_plugins = ['dendrux.testing.store_kit']\n")
    assert verdict(project.certify()).startswith("CERTIFIED with caveats")


def test_blocked(project: Project) -> None:
    project.conftest()
    project.pytester.makepyfile(OWN)
    result = project.run("-p", "no:dendrux.testing.store_kit")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("module", ["pytest_asyncio", "hypothesis"])
def test_what_the_kit_needs_is_not_installed(project: Project, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import _dendrux_pytest

    def find_spec(name: str) -> object | None:
        return None if name == module else object()

    monkeypatch.setattr(_dendrux_pytest, "find_spec", find_spec)
    project.conftest()
    result = project.certify()
    result.stderr.fnmatch_lines([f'ERROR: *needs {module.replace("_", "-")}: pip install "dendrux?testkit?"*'])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_asyncio_installed_and_switched_off(project: Project) -> None:
    project.pytester.makeini("[pytest]")
    project.conftest()
    result = project.certify("-p", "no:asyncio")
    result.stderr.fnmatch_lines(["ERROR: *needs pytest-asyncio*add -p pytest_asyncio"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_modes_of_asyncio(project: Project, mode: str) -> None:
    project.conftest()
    result = project.certify("-o", f"asyncio_mode={mode}", "-W", "error")
    assert verdict(result).startswith("CERTIFIED with caveats")


def test_strict_markers(project: Project) -> None:
    project.conftest()
    assert project.certify("--strict-markers", "--strict-config").ret == 0


def test_workers_are_refused(project: Project) -> None:
    project.conftest()
    result = project.certify("-n", "2")
    result.stderr.fnmatch_lines(["ERROR: *does not run on several workers*leave out -n*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert project.certify().ret == 0


def test_no_example_is_refused(project: Project) -> None:
    project.conftest()
    result = project.certify("--dendrux-examples", "0")
    result.stderr.fnmatch_lines(["ERROR: *--dendrux-examples=0*"])


def test_options_reach_the_contracts(project: Project) -> None:
    seen = "async def look(situation):\n    s = situation.settings\n    assert (s.examples, s.seed, s.matrix) == (7, 3, 'all')\n"
    project.conftest(catalogue="[*tiny.TINY, tiny.tiny('basic.look', check=look)]", more=seen)
    result = project.certify("--dendrux-examples=7", "--dendrux-seed=3", "--dendrux-matrix=all")
    assert result.ret == 0


def test_the_bootstrap_imports_nothing_of_dendrux() -> None:
    program = "import _dendrux_pytest, sys; assert 'dendrux' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_session_without_the_kit_imports_nothing_of_dendrux(project: Project) -> None:
    project.pytester.makepyfile("import sys\ndef test_mine(): assert 'dendrux' not in sys.modules")
    result = project.pytester.runpytest_subprocess(*OPTIONS)
    result.assert_outcomes(passed=1)
