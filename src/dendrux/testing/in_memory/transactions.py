"""One call of the reference store as transactions: each is a step of the model, repeated as on a database.

Without a cut there is exactly one. After a cut the class of the operation's lost acknowledgement decides: what is
recognised by its identity, or harmless twice, is done again; for the rest nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dendrux.errors import PersistenceError, StoreOutcomeUnknown, StoreUnavailableError
from dendrux.testing.in_memory.cuts import Cut
from dendrux.testing.in_memory.refusals import error_of
from dendrux_model.operations import Operation
from dendrux_model.outcomes import Outcome, Refused, Returned

if TYPE_CHECKING:
    from dendrux.testing.in_memory.store import ReferenceStore

TRIES_MAX: Final = 6
"""Transactions of one call, when the connection is lost in each."""


@dataclass(slots=True)
class Transactions:
    """The transactions of one call of a method."""

    store: ReferenceStore
    method: str
    announces: bool
    doubt: int = 0
    """How often it is unknown whether the last operation's transaction was applied."""
    first: Outcome | None = None
    """What the transaction in doubt would have answered."""

    def value(self, operation: Operation) -> object:
        """What an operation answers, in the model's words. Raises what the model refuses."""
        world = self.store._data.world
        outcome = self.outcome(operation)
        if isinstance(outcome, Returned):
            return outcome.value
        assert isinstance(outcome, Refused)  # a step of the model always knows
        raise error_of(world, operation, outcome)

    def outcome(self, operation: Operation) -> Outcome:
        """What the model says of an operation, applied.

        Refuses: StoreOutcomeUnknown, StoreUnavailableError and PersistenceError, each after a cut only.
        """
        tries, again, self.doubt, self.first = 0, True, 0, None
        while again:
            tries += 1
            try:
                return self._once(operation)
            except Cut as cut:
                at_commit, disconnected = cut.at_commit, cut.disconnected
            if at_commit:
                self.doubt += 1
                again = operation.lost_ack == "identity" or (operation.lost_ack == "natural" and self.doubt == 1)
            else:
                again = disconnected
            again = again and tries < TRIES_MAX
        kind = StoreOutcomeUnknown if self.doubt else StoreUnavailableError if disconnected else PersistenceError
        raise kind(operation=self.method, run_id=run_of(operation), attempts=tries)

    def _once(self, operation: Operation) -> Outcome:
        """One transaction: a step on the world as it is now, which takes its place."""
        store, data = self.store, self.store._data
        before = data.world._replace(now=data.tick(), new_format=store._new_format)
        if operation.lost_ack == "read":
            return operation.step(before)[1]
        store._reach("statement")
        after, outcome = operation.step(before)
        if after is before:  # a repeat that finds its own work done has the answer of that work
            return outcome if self.first is None else self.first
        self.first = outcome
        store._reach("before_commit")
        data.commit(before, after)
        changed = run_of(operation)
        if self.announces and changed is not None and store.live_updates is not None:
            store.live_updates.enqueue([changed])
        store._reach("after_commit")
        return outcome


def run_of(operation: Operation) -> str | None:
    """The run that an operation names."""
    return getattr(operation, "run_id", getattr(operation, "root_run_id", None))
