"""Which contracts of live updates run, with which fixtures."""

from __future__ import annotations

from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.obligations import FACTORY, LIVE, SECOND, Declaration, Lacking, Run, Skip, plan
from dendrux.vocabulary import CAPABILITIES

GROUP = [c for c in catalogue() if c.group == "live_updates" and not c.needs & {"format_1", "clock", "fault_injector"}]
SEEING = [c for c in GROUP if "reader" in c.needs]
REST = [c for c in GROUP if "reader" not in c.needs]


def declared(deployment: str, *fixtures: str) -> Declaration:
    return Declaration(
        name="Store",
        module="store",
        deployment=deployment,
        capabilities=tuple(one for one in CAPABILITIES if one != "recovery"),
        fixtures=frozenset({FACTORY, *fixtures}),
        format=2,
    )


def plans(contracts: list, declaration: Declaration) -> set:
    return {plan(c, declaration) for c in contracts if c.capability != "recovery"}


def test_without_its_factory_the_group_is_skipped() -> None:
    (skip,) = plans(GROUP, declared("single_host", SECOND))
    assert isinstance(skip, Skip)
    assert (skip.reason, LIVE in skip.text) == ("ordinary", True)


def test_with_both_fixtures_everything_runs() -> None:
    assert len(SEEING) > 15
    assert plans(GROUP, declared("multi_server", SECOND, LIVE)) == {Run()}


def test_without_an_independent_reader_what_it_would_see_is_unverified_and_never_a_pass() -> None:
    (skip,) = plans(SEEING, declared("single_process", LIVE))
    assert isinstance(skip, Skip)
    assert (skip.reason, SECOND in skip.text) == ("unverified", True)
    assert plans(REST, declared("single_process", LIVE)) == {Run()}


def test_a_shared_store_owes_the_reader() -> None:
    (lacking,) = plans(SEEING, declared("multi_server", LIVE))
    assert isinstance(lacking, Lacking)
    assert lacking.fixture == SECOND
