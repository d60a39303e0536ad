"""Where the kit's tests hang, and what runs beside them."""

from __future__ import annotations

import re

from kit.conftest import Project, summary, verdict
from kit.test_verdict import SHARED


def test_no_factory_fails_one_test_that_says_what_to_define(project: Project) -> None:
    result = project.certify()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "There is no fixture dendrux_store_factory, so the kit has no store to certify.",
            "Define it in a conftest.py in *",
            "*async def dendrux_store_factory(tmp_path):",
            "!*there is no fixture dendrux_store_factory*",
        ]
    )
    assert "Traceback" not in str(result.stdout)
    assert verdict(result) == "NOT CERTIFIED (incomplete run): there is no fixture dendrux_store_factory"
    assert result.ret == 1


def test_no_factory_stops_the_session(project: Project) -> None:
    project.pytester.makepyfile("def test_mine(): pass")
    result = project.certify()
    result.assert_outcomes(failed=1)


def test_a_selection_does_not_hide_the_missing_factory(project: Project) -> None:
    result = project.certify("-k", "fenced")
    result.assert_outcomes(failed=1)
    assert result.ret == 1


def test_a_factory_out_of_sight_is_pointed_at(project: Project) -> None:
    project.conftest(SHARED, folder=project.pytester.path / "below")
    project.pytester.makepyfile(**{"below/test_own": "def test_mine(): pass"})
    result = project.certify()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["There is one for below: run pytest on that directory."])


def test_a_conftest_below_the_root(project: Project) -> None:
    folder = project.pytester.path / "some" / "where"
    project.conftest(SHARED, folder=folder)
    result = project.certify("some/where")
    assert verdict(result).startswith("CERTIFIED with caveats")
    result.stdout.fnmatch_lines(["some/where/dendrux-store-kit *"])


def test_a_conftest_above_the_directory(project: Project) -> None:
    project.conftest(SHARED)
    project.pytester.mkdir("below")
    result = project.certify("below")
    assert verdict(result).startswith("CERTIFIED with caveats")


def test_a_directory_that_is_a_package(project: Project) -> None:
    folder = project.pytester.mkpydir("package")
    project.conftest(SHARED, folder=folder)
    assert verdict(project.certify("package")).startswith("CERTIFIED with caveats")


def test_a_directory_outside_the_root(project: Project) -> None:
    folder = project.pytester.mkdir("outside")
    project.conftest(SHARED, folder=folder)
    root = project.pytester.mkdir("root")
    assert verdict(project.certify(folder, "--rootdir", root)).startswith("CERTIFIED with caveats")


def test_run_from_below_the_root(project: Project) -> None:
    folder = project.pytester.mkdir("below")
    project.conftest(SHARED, folder=folder)
    project.pytester._monkeypatch.chdir(folder)
    assert verdict(project.certify()).startswith("CERTIFIED with caveats")


def test_paths_to_test_from_the_settings(project: Project) -> None:
    project.pytester.makeini("[pytest]\ntestpaths = below\nasyncio_default_fixture_loop_scope = function\n")
    project.conftest(SHARED, folder=project.pytester.path / "below")
    assert verdict(project.certify()).startswith("CERTIFIED with caveats")


def test_a_directory_without_a_factory_beside_one_with(project: Project) -> None:
    project.conftest(SHARED, folder=project.pytester.mkdir("store"))
    project.pytester.mkdir("unit")
    project.pytester.makepyfile(**{"unit/test_own": "def test_mine(): pass"})
    result = project.certify("unit", "store")
    result.assert_outcomes(passed=12, skipped=4)
    assert verdict(result).startswith("CERTIFIED with caveats")
    assert result.ret == 0


def test_tests_of_the_author_run_beside_and_do_not_count_for_the_verdict(project: Project) -> None:
    project.conftest(SHARED)
    project.pytester.makepyfile("def test_mine(): pass\ndef test_other(): assert False")
    result = project.certify()
    result.assert_outcomes(passed=12, failed=1, skipped=4)
    assert verdict(result).startswith("CERTIFIED with caveats")
    assert result.ret == 1


def test_a_file_beside_a_directory(project: Project) -> None:
    project.conftest(SHARED, folder=project.pytester.mkdir("store"))
    project.pytester.makepyfile("def test_mine(): pass")
    result = project.certify("test_a_file_beside_a_directory.py", "store")
    assert verdict(result).startswith("CERTIFIED with caveats")
    assert result.ret == 0


def test_the_summary_holds_no_run_data_and_no_driver_text(project: Project) -> None:
    raising = "async def check(situation):\n    raise RuntimeError('secret-run-data')\n"
    failing = "async def fails(situation):\n    raise tiny.NotKept('secret-driver-text')\n"
    catalogue = "[*tiny.TINY, tiny.tiny('basic.a', check=check), tiny.tiny('basic.b', check=fails)]"
    project.conftest(SHARED, catalogue=catalogue, more=raising + failing)
    result = project.certify()
    assert verdict(result) == "NOT CERTIFIED: basic: 2 failed"
    assert not re.search("secret", "\n".join(summary(result)))


def test_verbose_names_each_contract_without_a_place_of_the_kit(project: Project) -> None:
    project.conftest(SHARED)
    result = project.certify("-v")
    result.stdout.fnmatch_lines(["dendrux-store-kit::basic.one PASSED*"])
    result.stdout.no_fnmatch_line("*<-*")
