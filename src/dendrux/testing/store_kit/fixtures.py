"""The fixtures that a store's author gives, and what the first store made with them shows."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Final

import pytest

from dendrux.lab.seam import engine_of
from dendrux.store import SQLStateStore
from dendrux.testing.bench import Bench, kind, settled
from dendrux.testing.driver import new_namespace
from dendrux.testing.peers import NoPeer, pair
from dendrux.testing.recording import RecordingUpdates
from dendrux.testing.store_kit.obligations import (
    CLOCK,
    FACTORY,
    FIXTURES,
    INJECTOR,
    LIVE,
    REOPEN,
    SECOND,
    SHARED_DEPLOYMENTS,
    Declaration,
)
from dendrux.vocabulary import CAPABILITIES

DEFAULT_FORMS: Final = ("invalidated",)
"""What an injector without disconnect_forms offers."""


def visible(node: Any) -> frozenset[str]:
    """The fixtures of the kit that exist for a node of the collection tree."""
    return frozenset(name for name in FIXTURES if definition(node, name) is not None)


def definition(node: Any, name: str) -> Any:
    """The definition of a fixture that applies at a node, or None."""
    found = node.session._fixturemanager.getfixturedefs(name, node)
    return found[-1] if found else None


def beforehand(node: Any) -> tuple[str, ...]:
    """The fixtures to set up before the loop runs: asynchronous ones cannot be asked for inside it.

    A plain clock is asked for only after the first store exists, because it may look at that store's engine; what it
    depends on is set up before.
    """
    names = [name for name in (FACTORY, REOPEN, SECOND, INJECTOR, LIVE) if definition(node, name) is not None]
    clock = definition(node, CLOCK)
    if clock is not None:
        inside = inspect.iscoroutinefunction(clock.func) or inspect.isasyncgenfunction(clock.func) or clock.params
        names += [CLOCK] if inside else [name for name in clock.argnames if name != "request"]
    return tuple(names)


class Given:
    """The fixtures of one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.names = visible(request.node)

    def get(self, name: str) -> Any:
        """The value of a fixture, or None when the author gave none."""
        return self.request.getfixturevalue(name) if name in self.names else None

    async def bench(self, *, live: bool = False) -> Bench:
        """A bench whose first store exists: an announcing one if asked for and its factory was given."""
        factory, recording = self.get(FACTORY), None
        if live and LIVE in self.names:
            recording = RecordingUpdates()
            factory = partial(self.get(LIVE), recording)
        others = {"second": self.get(SECOND), "reopen": self.get(REOPEN), "injector": self.get(INJECTOR)}
        bench = Bench(factory, **others, live=recording)
        await bench.instance()
        bench.clock = self.get(CLOCK)
        return bench


async def declaration_of(bench: Bench, fixtures: frozenset[str]) -> Declaration:
    """What the first store of a bench says of itself and shows, with one run created on it."""
    store = await bench.instance()
    declared = getattr(store, "capabilities", None)
    return Declaration(
        name=type(store).__name__,
        module=type(store).__module__,
        deployment=getattr(declared, "deployment", None),
        capabilities=tuple(name for name in CAPABILITIES if getattr(declared, name, False) is True),
        fixtures=fixtures,
        format=await format_of(store),
        sql=isinstance(store, SQLStateStore) and engine_of(store) is not None,
        releases_claims=callable(getattr(store, "release_run_claim", None)),
        disconnect_forms=await forms_of(bench.injector, store),
        processes=await processes_of(store),
        kind=kind(store),
    )


async def format_of(store: Any) -> int | None:
    """The storage format of a run that this store creates; None when it creates none, which contracts will say."""
    try:
        created = await store.create_run(f"{new_namespace()}format", "format")
    except Exception:
        return None
    found = getattr(created, "format", None)
    return found if found in (1, 2) else None


async def processes_of(store: Any) -> str | None:
    """Why a second process cannot make this store, tried once; None when it can, or need not."""
    if getattr(getattr(store, "capabilities", None), "deployment", None) not in SHARED_DEPLOYMENTS:
        return None
    if not isinstance(store, SQLStateStore):
        return "it is no SQLStateStore"
    try:
        await (await pair(store)).close()
    except NoPeer as lacking:
        return str(lacking)
    return None


async def forms_of(injector: Any, store: Any) -> tuple[str, ...]:
    """The forms of disconnect that an injector offers for a store."""
    if injector is None:
        return ()
    offers = getattr(injector, "disconnect_forms", None)
    return DEFAULT_FORMS if offers is None else tuple(await settled(offers(store)))
