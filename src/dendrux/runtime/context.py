"""Delegation: an agent that runs inside another agent's tool becomes a child of that run."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from dendrux.errors import DelegationDepthExceededError
from dendrux.vocabulary import UNSCOPED, Unscoped


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The run whose tool is being executed here."""

    run_id: str
    level: int
    tenant_id: str | None
    store_identity: object
    claim_epoch: int | None
    """Under which its owner holds it; None where the store does not fence."""
    max_depth: int | None


_CURRENT: Final[ContextVar[Delegation | None]] = ContextVar("dendrux_delegation", default=None)


def current() -> Delegation | None:
    """The run around this code; None outside every run. A tool may ask for its own run's id here."""
    return _CURRENT.get()


@contextmanager
def inside(run: Delegation) -> Any:
    """Code that runs for a run: what it starts are its children."""
    token = _CURRENT.set(run)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def store_identity(store: Any) -> object:
    """What two stores over the same data have in common: their word for it, or the URL of their engine.

    A store in memory is its engine, since another engine with the same URL has other data.
    """
    store = getattr(store, "wrapped", store)  # an adapter is the store that it stands before
    said = getattr(store, "store_identity", None)
    if isinstance(said, str):
        return said
    engine = getattr(store, "_engine", None)
    if engine is None:
        return id(store)
    from dendrux.db.session import is_memory

    return id(engine) if is_memory(engine.url) else engine.url


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a new run stands in its family."""

    parent_run_id: str | None = None
    level: int = 0
    tenant_id: str | None = None
    parent_claim_epoch: int | None = None
    max_depth: int | None = None


def place_of(store: Any, *, tenant_id: str | Unscoped | None, max_depth: int | None) -> Place:
    """The place of a run that begins here.

    Ensures: a child has its parent's tenant and at most its parent's depth. A parent in another store is no parent
    there, but its depth counts.
    Refuses: ValueError for another tenant than the parent's; DelegationDepthExceededError.
    """
    around = current()
    own = None if isinstance(tenant_id, Unscoped) else tenant_id
    if around is None:
        return Place(tenant_id=own, max_depth=max_depth)
    bounds = [bound for bound in (max_depth, around.max_depth) if bound is not None]
    depth = min(bounds) if bounds else None
    level = around.level + 1
    if depth is not None and level > depth:
        raise DelegationDepthExceededError(level, depth)
    linked = around.store_identity == store_identity(store)
    if not linked:
        return Place(level=level, tenant_id=own, max_depth=depth)
    if tenant_id is not UNSCOPED and tenant_id != around.tenant_id:
        raise ValueError("tenant_id differs from that of the run that delegates; leave it out to inherit it")
    return Place(
        parent_run_id=around.run_id,
        level=level,
        tenant_id=around.tenant_id,
        parent_claim_epoch=around.claim_epoch,
        max_depth=depth,
    )
