"""Possible worlds: every state a store may be in, given what it answered so far.

A known outcome keeps the worlds that agree. An unknown one keeps both the world where the call took effect and the one
where it did not; a later answer decides. No world left is a violation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dendrux_model.operations import Operation
from dendrux_model.outcomes import OUTCOME_UNKNOWN, Broken, Cancelled, Outcome, Returned, Unavailable, Unknown
from dendrux_model.values import At, Minted, Unordered
from dendrux_model.world import SECOND, World

Clock = Mapping[tuple[str, int], int]
"""What the store showed for an instant of the model at a place: equal instants must show equal times."""


class Possible(NamedTuple):
    """One world the store may be in, and the times it showed there."""

    world: World
    clock: Clock


class Cut(NamedTuple):
    """A fault that fired during a call. `at_commit`: COMMIT had been issued. `lasting`: repeats are cut as well.

    `cancelled`: the caller was cancelled, and nothing failed.
    """

    at_commit: bool
    lasting: bool = False
    cancelled: bool = False


class Violation(AssertionError):
    """The store did what no possible world allows."""

    def __init__(self, operation: Operation, observed: Outcome, allowed: tuple[Outcome, ...], why: str) -> None:
        self.operation = operation
        self.observed = observed
        self.allowed = allowed
        self.why = why
        super().__init__(why)


class Worlds:
    """The oracle of a sequence of calls."""

    def __init__(self, world: World) -> None:
        self.possible: tuple[Possible, ...] = (Possible(world, {}),)
        self.instant = 0

    def tick(self) -> int:
        """The next instant: every call has one of its own."""
        self.instant += 1
        return self.instant

    def pass_time(self, seconds: float) -> None:
        """Time passes: every lease and every pause is that much older."""
        self.instant += int(seconds * SECOND)

    def allowed(self, operation: Operation) -> tuple[Outcome, ...]:
        """What the model would answer, in each possible world, now."""
        return distinct(operation.step(p.world._replace(now=self.instant))[1] for p in self.possible)

    def saw(self, operation: Operation, observed: Outcome, *, cut: Cut | None = None) -> None:
        """Keep the worlds that explain this answer; raise Violation when there is none."""
        allowed = self.allowed(operation)
        instant = self.tick()
        kept: list[Possible] = []
        for possible in self.possible:
            kept.extend(explain(possible, operation, observed, instant, cut))
        if not kept:
            raise Violation(operation, observed, allowed, reason(observed, allowed, cut))
        self.possible = tuple(unique(kept))

    def replace(self, possible: Iterable[Possible]) -> None:
        """Go on from these worlds, as a linearization of a parallel block found them."""
        self.possible = tuple(unique(possible))


def explain(
    possible: Possible, operation: Operation, observed: Outcome, instant: int, cut: Cut | None
) -> list[Possible]:
    """The worlds after this call that agree with what was observed of it, from one world before it."""
    before = possible.world._replace(now=instant)
    after, expected = operation.step(before)
    applied = after is not before
    if isinstance(observed, Broken):
        return []
    if (cut is not None and cut.cancelled) or isinstance(observed, Cancelled):
        if cut is None or not cut.cancelled or not isinstance(observed, Cancelled):
            return []  # swallowed, or invented
        ends = dict.fromkeys((before, after, *operation.partly(before)))
        return [Possible(end, possible.clock) for end in ends]
    if isinstance(observed, Unavailable):
        # A promise of no effect, believable only when something was in the way.
        return [Possible(before, possible.clock)] if cut is not None else []
    if isinstance(observed, Unknown):
        if expected == OUTCOME_UNKNOWN:
            return [Possible(before, possible.clock)]
        if cut is None or not may_be_unknown(operation, cut):
            return []
        return [Possible(before, possible.clock), *([Possible(after, possible.clock)] if applied else [])]
    if cut is not None and cut.at_commit and operation.lost_ack == "claim" and applied:
        return []  # whatever a later read shows, a claim whose acknowledgement was lost has no known outcome
    steps = [(after, expected)]
    if cut is not None:
        steps += operation.cut_steps(before, at_commit=cut.at_commit)
    kept = []
    for end, answer in steps:
        clock = agree(answer, observed, possible.clock, place(operation))
        if clock is not None:
            kept.append(Possible(end, clock))
    return kept


def may_be_unknown(operation: Operation, cut: Cut) -> bool:
    """Whether a cut call may answer that its outcome is unknown; what can be repeated must be, unless cuts last."""
    if not cut.at_commit and not cut.lasting:
        return False
    if cut.lasting or operation.lost_ack in ("claim", "unknown"):
        return True
    return operation.lost_ack == "identity" and getattr(operation, str(operation.identity)) is None


def reason(observed: Outcome, allowed: tuple[Outcome, ...], cut: Cut | None) -> str:
    """One sentence: what was answered, and what the model allows."""
    may = " or ".join(str(outcome) for outcome in allowed)
    if cut is not None and cut.cancelled and not isinstance(observed, Broken):
        return f"the caller was cancelled and the store answered {observed}: a cancellation was swallowed"
    if cut is not None and cut.at_commit and isinstance(observed, Returned):
        return f"after a lost acknowledgement the store answered {observed}; the model allows {may} (a claim: unknown)"
    return f"the store answered {observed}; the model allows {may}"


def place(operation: Operation) -> str:
    """Where times of this answer belong: to a run, or to a blob of a scope."""
    content = getattr(operation, "sha256", getattr(operation, "payload", None))
    if content is not None:
        return f"{getattr(operation, 'tenant_scope', '')} {content}"
    return str(getattr(operation, "run_id", ""))


def agree(expected: Outcome, observed: Outcome, clock: Clock, where: str) -> Clock | None:
    """The clock after comparing two outcomes, or None when they differ."""
    if isinstance(expected, Returned) and isinstance(observed, Returned):
        seen = dict(clock)
        return seen if same(expected.value, observed.value, seen, where) else None
    return clock if type(expected) is type(observed) and expected == observed else None


def same(expected: Any, observed: Any, seen: dict[tuple[str, int], int], where: str) -> bool:
    """Whether a store's value is the model's: types and order count, minted values and instants by role."""
    if isinstance(expected, Minted):
        return isinstance(observed, str) and observed != ""
    if isinstance(expected, At):
        return isinstance(observed, At) and seen.setdefault((where, expected.instant), observed.instant) == (
            observed.instant
        )
    if type(expected) is Unordered:
        return isinstance(observed, list) and matched(expected, observed, seen, where)
    if isinstance(expected, dict):
        return (
            isinstance(observed, dict)
            and expected.keys() == observed.keys()
            and all(same(value, observed[key], seen, f"{where}.{key}") for key, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(observed, list)
            and len(expected) == len(observed)
            and all(same(e, o, seen, f"{where}[{i}]") for i, (e, o) in enumerate(zip(expected, observed, strict=True)))
        )
    return type(expected) is type(observed) and bool(expected == observed)


def matched(expected: list[Any], observed: list[Any], seen: dict[tuple[str, int], int], where: str) -> bool:
    """Whether each expected row is one of the observed, in any order."""
    left = list(observed)
    for row in expected:
        partner = next((other for other in left if same(row, other, seen, where)), None)
        if partner is None:
            return False
        left.remove(partner)
    return not left


def difference(expected: Any, observed: Any, where: str = "") -> str | None:
    """The first place where two values differ, for people."""
    if isinstance(expected, dict) and isinstance(observed, dict) and expected.keys() == observed.keys():
        return first(difference(value, observed[key], f"{where}.{key}") for key, value in expected.items())
    if isinstance(expected, list) and isinstance(observed, list) and len(expected) == len(observed):
        pairs = enumerate(zip(expected, observed, strict=True))
        return first(difference(e, o, f"{where}[{i}]") for i, (e, o) in pairs)
    if same(expected, observed, {}, ""):
        return None
    return f"{where.lstrip('.') or 'value'}: the model has {expected!r}, the store {observed!r}"


def first(found: Iterable[str | None]) -> str | None:
    """The first that is not None."""
    return next((item for item in found if item is not None), None)


def distinct(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Outcomes without repetitions; values may be unhashable."""
    kept: list[Outcome] = []
    for outcome in outcomes:
        if not any(type(outcome) is type(other) and outcome == other for other in kept):
            kept.append(outcome)
    return tuple(kept)


def unique(possible: Iterable[Possible]) -> list[Possible]:
    """Possible worlds without repetitions."""
    kept: dict[tuple[World, frozenset[Any]], Possible] = {}
    for one in possible:
        kept.setdefault((one.world, frozenset(one.clock.items())), one)
    return list(kept.values())
