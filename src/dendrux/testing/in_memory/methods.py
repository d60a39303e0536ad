"""How a method of the protocol becomes a step of the model.

    create_run = modelled(StateStore.create_run)

The method has the protocol's signature. Most methods are answered by the operation of the same name alone; `HANDLERS`
holds those of which the protocol says more than the model does: filters by time, cursors, bytes, a callable.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast, overload

from dendrux.store.arguments import checked
from dendrux.store.binding import LINKS, MINTED
from dendrux.testing.in_memory import blobs, claims, pages, reads
from dendrux.testing.in_memory.call import BY_METHOD, Call, Handler

if TYPE_CHECKING:
    from dendrux.testing.in_memory.store import ReferenceStore

P = ParamSpec("P")
R = TypeVar("R")

HANDLERS: Final[dict[str, Handler]] = {**reads.HANDLERS, **claims.HANDLERS, **pages.HANDLERS, **blobs.HANDLERS}


class Modelled(Generic[P, R]):
    """A descriptor: one method of the protocol, answered by the model."""

    def __init__(self, declared: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        self.name = declared.__name__
        self.signature = inspect.signature(declared)
        names = self.signature.parameters
        self.minted = tuple(name for name in names if name in MINTED and f"{self.name}.{name}" not in LINKS)
        self.reading = self.name not in BY_METHOD or BY_METHOD[self.name].lost_ack == "read"
        self.method = self._method()

    def _method(self) -> Callable[..., Coroutine[Any, Any, R]]:
        async def method(self: ReferenceStore, *args: Any, **kwargs: Any) -> R:
            return cast("R", await answering.call(self, args, kwargs))

        answering = self
        method.__name__ = method.__qualname__ = self.name
        method.__doc__ = f"What the model says of {self.name}."
        method.__signature__ = self.signature  # type: ignore[attr-defined]
        return method

    def __set_name__(self, owner: type, name: str) -> None:
        if name != self.name:
            raise TypeError(f"{owner.__name__}.{name} answers {self.name}: use its own name")
        self.method.__qualname__ = f"{owner.__qualname__}.{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, instance: ReferenceStore, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, instance: ReferenceStore | None, owner: type) -> Any:
        return self.method if instance is None else MethodType(self.method, instance)

    async def call(self, store: ReferenceStore, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Check the arguments, let others have their turn as a database would, and answer.

        Between its turn and its answer a call waits for nothing but a BlobStore, so it happens at one instant.
        """
        bound = self.signature.bind(store, *args, **kwargs)
        bound.apply_defaults()
        given = checked(self.name, {name: value for name, value in bound.arguments.items() if name != "self"})
        for name in self.minted:
            if given[name] is None:
                given[name] = store._data.mint()
        await asyncio.sleep(0)
        answer = HANDLERS.get(self.name, Call.plain)(Call(store, self.name, given))
        if isinstance(answer, Awaitable):
            answer = await answer
        if not self.reading and store.live_updates is not None:
            await store.live_updates.flush()
        return answer


def modelled(declared: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Modelled[P, R]:
    """A method of the protocol, answered by the model."""
    return Modelled(declared)
