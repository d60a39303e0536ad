"""The live instances of one store over the same data, as an author's fixtures make them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from dendrux.lab.seam import take_off
from dendrux.lab.waits import forget

INSTANCES_MAX = 12
"""Instances that one test asks the fixtures for at most: each may be an engine of its own, open until the test ends."""


class Missing(Exception):
    """A fixture that this program needs was not given."""

    def __init__(self, fixture: str) -> None:
        super().__init__(f"this needs the fixture {fixture}")
        self.fixture = fixture


class Unlike(AssertionError):
    """The fixtures made a store of another class, or with another declaration, than the first one."""


class Bench:
    """Stores by number. Number 0 is made by the factory, the others are second instances over the same data."""

    def __init__(
        self,
        factory: Callable[..., Any],
        *,
        second: Callable[[Any], Any] | None = None,
        reopen: Callable[[Any], Any] | None = None,
        clock: Any = None,
        injector: Any = None,
        live: Any = None,
    ) -> None:
        self._factory = factory
        self._second = second
        self._reopen = reopen
        self.clock = clock
        self.injector = injector
        self.live = live
        """What the factory's stores announce through, where it makes such."""
        self.stores: list[Any] = []
        self.made: list[Any] = []

    @property
    def has_second(self) -> bool:
        """Whether there can be more instances than one."""
        return self._second is not None

    async def instance(self, number: int = 0) -> Any:
        """The live instance of this number, made when first asked for."""
        while len(self.stores) <= number:
            if not self.stores:
                self.stores.append(await self._make(self._factory))
            elif self._second is None:
                raise Missing("dendrux_store_second_instance")
            else:
                self.stores.append(await self._make(self._second, self.stores[0]))
        return self.stores[number]

    async def restart(self, number: int = 0) -> Any:
        """A new instance over the same data takes this number; the old one is left as a dead process leaves it."""
        if self._reopen is None:
            raise Missing("dendrux_store_reopen")
        self.stores[number] = await self._make(self._reopen, await self.instance(number))
        return self.stores[number]

    async def advance(self, seconds: float) -> timedelta:
        """Let time pass. Answers by how much stored times were aged: nothing for a clock that moves forward."""
        if self.clock is None:
            raise Missing("dendrux_clock")
        delta = timedelta(seconds=seconds)
        await settled(self.clock.advance(delta))
        return timedelta(0) if hasattr(self.clock, "now") else delta

    async def close(self) -> None:
        """Close every store that was made; engines belong to the fixtures."""
        for store in self.made:
            await forget(store)
            take_off(store)
            if hasattr(store, "close"):
                await settled(store.close())

    def room(self) -> int:
        """How many instances more this bench may ask the fixtures for."""
        return INSTANCES_MAX - len(self.made)

    async def _make(self, make: Callable[..., Any], *arguments: Any) -> Any:
        store = await settled(make(*arguments))
        self.made.append(store)
        if kind(store) != kind(self.made[0]):
            raise Unlike(f"the fixtures made {kind(self.made[0])}, and then {kind(store)}: one store is certified")
        return store


def kind(store: Any) -> str:
    """What every instance has in common: its class and what it declares."""
    return f"{type(store).__module__}.{type(store).__qualname__} with {getattr(store, 'capabilities', None)}"


async def settled(value: Any) -> Any:
    """The value, awaited when it has to be: fixtures may return plain or async callables."""
    return await value if inspect.isawaitable(value) else value
