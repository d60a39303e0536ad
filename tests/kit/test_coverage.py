"""What the summary says of the machines: the pairs they reached, those they did not, and those nobody could."""

from __future__ import annotations

from dendrux.testing.store_kit.contract import Contract
from dendrux.testing.store_kit.coverage import line
from dendrux.testing.store_kit.machines import Machine
from dendrux.testing.store_kit.obligations import CLOCK, Declaration, Skip
from dendrux.testing.store_kit.report import body
from dendrux.testing.store_kit.verdict import Examined, Result
from dendrux_model.branches import TIMED, known_branches
from kit.tiny import tiny

PLAIN = tiny("basic.stateful.plain", check=Machine(profile="all", examples=1))
TIMELY = tiny(
    "recovery.stateful.timely", check=Machine(profile="time", examples=1, ticks=True), capability=None, needs={"clock"}
)
MISSED = ("CancelSubtree", "invalid")


def examined(*results: tuple[Contract, Result], format: int = 2, more: tuple[Contract, ...] = ()) -> Examined:
    store = Declaration(name="S", module="m", format=format)
    contracts = [contract for contract, _ in results]
    return Examined(store, [*contracts, *more], {contract.id: result for contract, result in results})


def passed(pairs: object) -> Result:
    return Result(outcome="passed", notes={"branches": pairs})


def test_everything_is_reached() -> None:
    one = examined((PLAIN, passed(known_branches(2) - TIMED)), (TIMELY, passed(TIMED)))
    assert (
        line(one) == f"machines: reached {len(known_branches(2))} of {len(known_branches(2))} (operation, branch) pairs"
    )
    assert f"  {line(one)}" in body(one, verbose=False)


def test_what_was_not_reached_is_named() -> None:
    one = examined((PLAIN, passed(known_branches(2) - {MISSED, ("AddNote", "full")})), (TIMELY, passed(set())))
    text = line(one)
    assert text is not None
    assert text.endswith("pairs; not reached: AddNote full, CancelSubtree invalid")
    assert f"reached {len(known_branches(2)) - 2} of {len(known_branches(2))} " in text


def test_a_way_that_the_model_does_not_count_is_not_counted() -> None:
    pairs = known_branches(2) | {("TouchProgress", "store_outcome_unknown")}
    text = line(examined((PLAIN, passed(pairs)), (TIMELY, passed(set()))))
    assert text is not None
    assert f"reached {len(known_branches(2))} of {len(known_branches(2))} " in text


def test_pairs_that_need_a_clock_do_not_count_without_one() -> None:
    skipped = Result(outcome="skipped", skip=Skip("unverified", f"there is no fixture {CLOCK}"))
    for form in (1, 2):
        timed = len(TIMED & known_branches(form))
        possible = len(known_branches(form)) - timed
        text = line(examined((PLAIN, passed(known_branches(form) - TIMED)), (TIMELY, skipped), format=form))
        assert text == (
            f"machines: reached {possible} of {possible} (operation, branch) pairs "
            f"({timed} more need fixtures or capabilities that this store lacks)"
        )


def test_a_machine_that_did_not_run_leaves_the_line_out() -> None:
    assert line(examined((PLAIN, passed(known_branches(2))), more=(TIMELY,))) is None
    assert line(examined((PLAIN, passed(known_branches(2))), (TIMELY, Result(outcome="skipped")))) is None
    assert line(examined((tiny("basic.one"), Result(outcome="passed")))) is None
