"""One call of the reference store: its arguments as an operation of the model, the model's answer as its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from dendrux.runtime.values import LLMInteractionWrite, ToolCallWrite, TraceWrite, UsageWrite
from dendrux.store import SQLStateStore
from dendrux.store.binding import Operation as Bound
from dendrux.store.ids import MintedId
from dendrux.testing.in_memory.answers import ANSWERS, real
from dendrux.testing.in_memory.data import Data
from dendrux.testing.in_memory.transactions import Transactions
from dendrux_model.operations import OPERATIONS, Operation

if TYPE_CHECKING:
    from dendrux.testing.in_memory.store import ReferenceStore

BY_METHOD: Final[dict[str, type[Operation]]] = {operation.method: operation for operation in OPERATIONS.values()}
PARAMETERS: Final[dict[str, frozenset[str]]] = {
    method: frozenset(operation.renamed.get(f.name, f.name) for f in fields(operation))
    for method, operation in BY_METHOD.items()
}
"""The parameters of each method that the model's operation has."""
ANNOUNCED: Final = frozenset(
    name for name, bound in vars(SQLStateStore).items() if isinstance(bound, Bound) and bound.announces
)
"""Methods whose changes a store announces, the same for every store."""
CARRIERS: Final = (LLMInteractionWrite, ToolCallWrite, TraceWrite, UsageWrite)
"""Values with an id that the checks of arguments mint where it is left out."""


class Call:
    """One call of a method on a store: its checked arguments, and the transactions that answer it."""

    def __init__(self, store: ReferenceStore, method: str, given: dict[str, Any]) -> None:
        self.store = store
        self.data: Data = store._data
        self.method = method
        self.given = given
        self.transactions = Transactions(store, method, method in ANNOUNCED)

    def operation(self, **instead: Any) -> Any:
        """The model's operation for these arguments, some of them replaced; others than the model's are left out."""
        given = {**self.given, **instead}
        known = PARAMETERS[self.method]
        arguments = {name: asked(value) for name, value in given.items() if name in known}
        return BY_METHOD[self.method].called(arguments)

    def value(self, operation: Operation) -> Any:
        """What the operation answers, in the model's words."""
        return self.transactions.value(operation)

    def answer(self, value: Any) -> Any:
        """A value of the model as the method's answer."""
        made = ANSWERS.get(self.method)
        return real(value) if made is None else made(self.data, self.given, value)

    def plain(self) -> Any:
        """The answer of the operation of the same name."""
        return self.answer(self.value(self.operation()))


Handler = Callable[[Call], Any]
"""Answers a method of which the protocol says more than the model; the answer may have to be awaited."""


def asked(value: Any) -> Any:
    """An argument as the model takes it: lists as tuples, and rows without ids that nobody chose.

    A minted id would be taken for content, so that a repeat would be another write; the rows get theirs when stored.
    """
    if isinstance(value, list):
        return tuple(map(asked, value))
    if isinstance(value, CARRIERS):
        unchosen: dict[str, Any] = {f.name: None for f in fields(value) if isinstance(getattr(value, f.name), MintedId)}
        return replace(value, **unchosen)
    return value
