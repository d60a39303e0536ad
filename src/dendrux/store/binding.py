"""How a plain function `op(tx, ...)` becomes a public method of the store.

    create_run = writes(runs.create_run, lost="identity", announces=True)
    get_run    = reads(runs.get_run)

The method has the function's signature without `tx`, its name and its docstring, because capability validation and
`help()` read them; overriding it with `async def` and calling `super()` works.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast, overload

from dendrux.store.announcing import flush
from dendrux.store.arguments import checked
from dendrux.store.attempts import Attempts
from dendrux.store.firstuse import bind_loop
from dendrux.store.ids import new_id
from dendrux.store.paging import Pages
from dendrux.store.tx import LostAck, Outcome, Tx

if TYPE_CHECKING:
    from dendrux.store.base import SQLStateStore

P = ParamSpec("P")
R = TypeVar("R")
Body = Callable[Concatenate[Tx, P], Awaitable[R]]

MINTED: Final = frozenset({"event_id", "trace_id", "row_id", "usage_id", "interaction_id", "submission_id"})
"""Ids that a caller may leave out: minted once, before the first transaction, and kept through its retries."""

LINKS: Final = frozenset({"start_tool_call.trace_id"})
"""Parameters of these names that point at a row which exists already, so that nothing is minted for them."""

_inside: ContextVar[frozenset[int]] = ContextVar("dendrux_stores_inside", default=frozenset())
"""The stores, by their id, inside whose calls this one is made. A call inside one of another store is an outer call."""


class Operation(Generic[P, R]):
    """A descriptor: one operation of the store, on one line of its class."""

    def __init__(
        self, body: Callable[..., Awaitable[Any]], *, lost: LostAck, announces: bool, reading: bool, paged: bool = False
    ) -> None:
        self.body = body
        self.paged = paged
        self.name = body.__name__
        self.lost = lost
        self.announces = announces
        self.reading = reading
        signature = inspect.signature(body)
        parameters = list(signature.parameters.values())[1:]
        self.names = tuple(p.name for p in parameters)
        self.required = frozenset(p.name for p in parameters if p.default is p.empty)
        self.positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        self.minted = tuple(name for name in self.names if name in MINTED and f"{self.name}.{name}" not in LINKS)
        receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.method = self._method(signature.replace(parameters=[receiver, *parameters]))

    def _method(self, signature: inspect.Signature) -> Callable[..., Coroutine[Any, Any, R]]:
        async def method(self: SQLStateStore, *args: Any, **kwargs: Any) -> R:
            return cast("R", await operation.call(self, args, kwargs))

        operation = self
        method.__name__ = method.__qualname__ = self.name
        method.__doc__ = self.body.__doc__
        method.__module__ = self.body.__module__
        method.__signature__ = signature  # type: ignore[attr-defined]
        return method

    def __set_name__(self, owner: type, name: str) -> None:
        if name != self.name:
            raise TypeError(f"{owner.__name__}.{name} binds the operation {self.name}: use its own name")
        self.method.__qualname__ = f"{owner.__qualname__}.{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, instance: SQLStateStore, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, instance: SQLStateStore | None, owner: type) -> Any:
        return self.method if instance is None else MethodType(self.method, instance)

    # -- one call -----------------------------------------------------------------------------------------------------

    async def call(self, store: SQLStateStore, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Check the arguments, run the transaction, tell the followers."""
        given = checked(self.name, self.arranged(args, kwargs))
        for name in self.minted:
            if given.get(name) is None:
                given[name] = new_id()
        bind_loop(store)
        attempts = self.attempts(store, given)
        outer = _inside.get()
        token = _inside.set(outer | {id(store)})
        try:
            answer = await to_its_end(attempts)
        finally:
            _inside.reset(token)
        if not self.reading and id(store) not in outer:
            await flush(store)
        return answer

    def attempts(self, store: SQLStateStore, given: dict[str, Any]) -> Attempts | Pages:
        """What runs the body: in one transaction, or in one for each run of a page."""
        if self.paged:
            return Pages(
                store,
                self.name,
                lambda pages: self.body(pages, **given),
                lambda **facts: Attempts(store=store, **facts),
                announces=self.announces,
            )
        return Attempts(
            store=store,
            operation=self.name,
            run_id=given.get("run_id"),
            body=lambda tx: self.body(tx, **given),
            lost_ack=self.lost,
            announces=self.announces,
            reading=self.reading,
        )

    def arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. Refuses: TypeError, in Python's own words."""
        given = dict(zip(self.positional, args, strict=False))
        if (
            len(args) > len(self.positional)
            or not given.keys().isdisjoint(kwargs)
            or not kwargs.keys() <= set(self.names)
            or not self.required <= given.keys() | kwargs.keys()
        ):
            inspect.signature(self.method).bind(None, *args, **kwargs)  # raises
        return {**given, **kwargs}


async def to_its_end(attempts: Attempts | Pages) -> Any:
    """Run the transaction in a task of its own and wait for its end, also when the caller is cancelled meanwhile.

    A cancelled caller gets its CancelledError, which wins over any error of the transaction, once the transaction has
    rolled back at its next boundary or committed. A second cancellation waits, too. On a server the wait is bounded:
    then the task is cancelled, which throws its connection away.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(attempts.run(), name=f"dendrux {attempts.operation}")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            if cancelled is None and attempts.store.supports_row_locks:
                loop.call_later(attempts.store.cancel_grace_s, task.cancel)
            cancelled = error
            attempts.stop()
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen: the cancellation wins over it
        raise cancelled
    return task.result()


def writes(
    body: Callable[Concatenate[Tx, P], Awaitable[Outcome[R]]], *, lost: LostAck, announces: bool = False
) -> Operation[P, R]:
    """A write: one real transaction. `lost` says what happens when the acknowledgement of COMMIT is lost."""
    return Operation(body, lost=lost, announces=announces, reading=False)


def reads(body: Callable[Concatenate[Tx, P], Awaitable[R]]) -> Operation[P, R]:
    """A read: one statement that sees one committed state."""
    return Operation(body, lost="natural", announces=False, reading=True)


def pages(body: Callable[Concatenate[Pages, P], Awaitable[R]], *, announces: bool = True) -> Operation[P, R]:
    """An operation over many runs: `body` reads which are next and gives each of them a transaction of its own."""
    return Operation(body, lost="unknown", announces=announces, reading=False, paged=True)
