"""What becomes of runs whose owner is gone: sweeps that end or mark them, and reclaims that take them over.

Nothing here works on a run. Whoever is answered a claim epoch owns that run from then on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, cast

from dendrux.errors import REFUSALS, UNAVAILABLE, PersistenceError
from dendrux.runtime.legacy import adapted
from dendrux.runtime.state import StateStore
from dendrux.runtime.values import ExpiredLease, FailedRun, RunRecord, SweptRun
from dendrux.vocabulary import LIMIT_MAX, RUNNING, UNSCOPED, TenantScope

OnStale = Literal["error", "mark", "reclaim"]
OnPoison = Literal["keep", "error"]

ON_STALE: Final = ("error", "mark", "reclaim")
ON_POISON: Final = ("keep", "error")
RECLAIMS_MAX: Final = 3
"""Takeovers after which a run is thought to bring its owners down."""
RECLAIM_LIMIT: Final = "reclaim_limit"
"""The failure reason of a run that was ended for that."""
OLDEST: Final = timedelta(days=365_000)
LEASES_PAGE: Final = 100
ANSWERED: tuple[type[Exception], ...] = (PersistenceError, *REFUSALS)
"""What a store says of one run, after which the others are still treated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimedRun:
    """A run that the caller owns now: work on it under `claim_epoch`, well within its lease, or somebody else will."""

    run_id: str
    agent_name: str
    tenant_id: str | None
    claim_epoch: int
    reclaim_count: int
    """How often it was taken over, this time included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonRun:
    """A run that was taken over so often that nobody is handed it again unless the limit is raised."""

    run_id: str
    agent_name: str
    reclaim_count: int
    ended: bool
    """It was ended with an error. Otherwise it stays as it is: running, its lease marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimResult:
    """What a reclaim took over, and what it left."""

    reclaimed: tuple[ReclaimedRun, ...]
    set_aside: tuple[PoisonRun, ...]
    lost: tuple[str, ...]
    """Runs that somebody else took over first, or whose owner came back."""
    failed: tuple[FailedRun, ...]
    """Runs that could not be treated. With the code `store_outcome_unknown` nobody may work on the claim: the lease
    runs out and the run comes back."""
    next_after: str | None
    """Where the next reclaim goes on; None when the list of expired leases was read to its end."""


@dataclass(slots=True, kw_only=True)
class SweepResult:
    """What a sweep did, over all its pages."""

    stale_running: list[SweptRun] = field(default_factory=list)
    """Running runs that it ended."""
    abandoned_waiting: list[SweptRun] = field(default_factory=list)
    """Waiting runs that it ended."""
    marked: list[str] = field(default_factory=list)
    """Running runs whose leases it marked expired: they can be reclaimed."""
    reclaimed: list[ReclaimedRun] = field(default_factory=list)
    set_aside: list[PoisonRun] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    failed: list[FailedRun] = field(default_factory=list)
    next_after: str | None = None
    """Where the next sweep goes on, when this one stopped at its bound; None when it came to its end."""


# -- reclaim ----------------------------------------------------------------------------------------------------------


async def reclaim(
    store: StateStore,
    *,
    limit: int = 10,
    after: str | None = None,
    agents: Collection[str] | None = None,
    max_reclaims: int | None = RECLAIMS_MAX,
    on_poison: OnPoison = "keep",
    tenant_id: TenantScope = UNSCOPED,
) -> ReclaimResult:
    """Take over runs with expired leases, the oldest first: at most `limit`, only those of `agents` when given.

    A run that was taken over `max_reclaims` times is set aside: left as it is, or ended with an error (`on_poison`).
    Take what you can begin with at once: the lease of each runs from here on. What was taken over is answered whatever
    happens after it; only a cancellation loses it to its lease.
    Refuses: NotImplementedError and StoreCapabilityError before any write; ValueError; what the store raises before
    the first run was treated.
    """
    require_recovery(store, "reclaim()")
    wanted = _reclaim_arguments(limit, agents, max_reclaims, on_poison)
    return await _Reclaim(adapted(store), limit, wanted, max_reclaims, on_poison).over(after, tenant_id)


def _reclaim_arguments(
    limit: int, agents: Collection[str] | None, max_reclaims: int | None, on_poison: str
) -> frozenset[str] | None:
    """Refuses: TypeError and ValueError, naming the argument. Answers the agents whose runs are wanted."""
    _bounded("limit", limit, 1, LIMIT_MAX)
    if max_reclaims is not None:
        _bounded("max_reclaims", max_reclaims, 0, 2**31 - 1)
    if on_poison not in ON_POISON:
        raise ValueError(f"on_poison must be one of {', '.join(ON_POISON)}")
    if isinstance(agents, str):
        raise TypeError("agents must be names of agents, not one str")
    return None if agents is None else frozenset(agents)


class _Reclaim:
    """One reclaim: what it has found so far, and what it does with the next expired lease."""

    def __init__(
        self,
        store: StateStore,
        limit: int,
        agents: frozenset[str] | None,
        max_reclaims: int | None,
        on_poison: OnPoison,
    ) -> None:
        self.store = store
        self.limit = limit
        self.agents = agents
        self.max_reclaims = max_reclaims
        self.on_poison = on_poison
        self.reclaimed: list[ReclaimedRun] = []
        self.set_aside: list[PoisonRun] = []
        self.lost: list[str] = []
        self.failed: list[FailedRun] = []

    def result(self, next_after: str | None) -> ReclaimResult:
        return ReclaimResult(
            reclaimed=tuple(self.reclaimed),
            set_aside=tuple(self.set_aside),
            lost=tuple(self.lost),
            failed=tuple(self.failed),
            next_after=next_after,
        )

    async def over(self, after: str | None, tenant_id: TenantScope) -> ReclaimResult:
        """Go through the list of expired leases from this cursor on."""
        cursor = after
        while True:
            try:
                leases = await self.store.get_lease_expired(limit=LEASES_PAGE, after=cursor, tenant_id=tenant_id)
            except PersistenceError:
                if not (self.reclaimed or self.set_aside):
                    raise
                # Runs taken over are worth more than the reason why the list ends here: the next reclaim meets it.
                return self.result(cursor)
            for lease in leases:
                if len(self.reclaimed) == self.limit:
                    return self.result(cursor)
                try:
                    await self.treat(lease)
                except UNAVAILABLE as error:
                    if not (self.reclaimed or self.set_aside):
                        raise
                    self.failed.append(FailedRun(run_id=lease.run_id, code=error.code))
                    return self.result(cursor)
                except ANSWERED as error:
                    self.failed.append(FailedRun(run_id=lease.run_id, code=str(getattr(error, "code", "error"))))
                cursor = lease.cursor
            if len(leases) < LEASES_PAGE:
                return self.result(None)

    async def treat(self, lease: ExpiredLease) -> None:
        """Take over one run, set it aside, or leave it to the agents it belongs to."""
        run = await self.store.get_run(lease.run_id)
        if run is None:
            self.lost.append(lease.run_id)
            return
        if self.agents is not None and run.agent_name not in self.agents:
            return
        poison = self.max_reclaims is not None and lease.reclaim_count >= self.max_reclaims
        if poison and self.on_poison == "keep":
            self.set_aside.append(_poison(run, lease.reclaim_count, ended=False))
            return
        epoch = await self.store.reclaim_run(lease.run_id, expected_epoch=lease.claim_epoch)
        if epoch is None:
            self.lost.append(lease.run_id)
        elif poison:
            await self.end(run, epoch, lease.reclaim_count)
        else:
            self.reclaimed.append(
                ReclaimedRun(
                    run_id=run.id,
                    agent_name=run.agent_name,
                    tenant_id=run.tenant_id,
                    claim_epoch=epoch,
                    reclaim_count=lease.reclaim_count + 1,
                )
            )

    async def end(self, run: RunRecord, epoch: int, reclaims: int) -> None:
        """End a run that was just taken over. Taken over first: an owner that was only slow kept it until then."""
        await self.store.finalize_with_event(
            run.id,
            status="error",
            allowed_current_statuses=[RUNNING],
            event_type="run.error",
            event_data={"failure_reason": RECLAIM_LIMIT, "reclaim_count": reclaims},
            error=f"Run taken over {reclaims} times without an end",
            failure_reason=RECLAIM_LIMIT,
            claim_epoch=epoch,
        )
        self.set_aside.append(_poison(run, reclaims, ended=True))


def _poison(run: RunRecord, reclaims: int, *, ended: bool) -> PoisonRun:
    return PoisonRun(run_id=run.id, agent_name=run.agent_name, reclaim_count=reclaims, ended=ended)


def require_recovery(store: object, asking: str) -> None:
    """Refuses: NotImplementedError for a store that does not declare recovery, StoreCapabilityError for one that
    declares what its methods cannot keep. Writes nothing.
    """
    from dendrux.store.capabilities import validate_capabilities

    if not getattr(getattr(store, "capabilities", None), "recovery", False):
        raise NotImplementedError(
            f'{asking} needs a store that declares recovery, and {type(store).__name__} does not: use on_stale="error"'
        )
    validate_capabilities(store)


# -- sweep ------------------------------------------------------------------------------------------------------------


async def sweep(
    *,
    database_url: str | None = None,
    state_store: StateStore | None = None,
    stale_running: timedelta | None = None,
    abandoned_waiting: timedelta | None = None,
    on_stale: OnStale = "error",
    limit: int = 100,
    max_pages: int | None = None,
    after: str | None = None,
    reclaim_limit: int = 10,
    agents: Collection[str] | None = None,
    max_reclaims: int | None = RECLAIMS_MAX,
    on_poison: OnPoison = "keep",
) -> SweepResult:
    """Treat runs whose owner shows no sign of life for `stale_running`, and end runs that wait for longer than
    `abandoned_waiting`. Each run is one transaction that looks again; pages of `limit` runs follow each other.

    A stale run is ended (`on_stale="error"`), or its lease is marked expired so that it can be reclaimed (`"mark"`), or
    that and up to `reclaim_limit` expired runs are taken over and answered (`"reclaim"`; `agents`, `max_reclaims` and
    `on_poison` as in `reclaim`). Marking ends stale runs that cannot be recovered. Safe at any time, in several
    processes at once, and again after a crash.

    After `max_pages` pages the sweep stops; `after=result.next_after` goes on from there.
    Refuses: ValueError unless one of url and store is given; NotImplementedError and StoreCapabilityError before any
    write when leases are asked for and the store has no recovery; what the store raises.
    """
    _bounded("limit", limit, 1, LIMIT_MAX)
    if max_pages is not None:
        _bounded("max_pages", max_pages, 1, 2**31 - 1)
    if on_stale not in ON_STALE:
        raise ValueError(f"on_stale must be one of {', '.join(ON_STALE)}")
    for name, age in (("stale_running", stale_running), ("abandoned_waiting", abandoned_waiting)):
        if age is not None and not isinstance(age, timedelta):
            raise TypeError(f"{name} must be a timedelta, not {type(age).__name__}")
        if age is not None and not timedelta(0) <= age <= OLDEST:
            raise ValueError(f"{name} must be from 0 to {OLDEST.days} days")
    if (database_url is None) == (state_store is None):
        raise ValueError("give either database_url or state_store")
    _reclaim_arguments(reclaim_limit, agents, max_reclaims, on_poison)
    async with _sweeping(database_url, state_store) as store:
        if on_stale != "error":
            require_recovery(store, f"sweep(on_stale={on_stale!r})")
        steps = _Sweep(store, stale_running, abandoned_waiting, on_stale, limit)
        result = await steps.over(after, max_pages)
        if result.next_after is None and on_stale == "reclaim":
            # Last, since nothing that is raised after it may lose the epochs.
            _taken(
                result,
                await reclaim(
                    store, limit=reclaim_limit, agents=agents, max_reclaims=max_reclaims, on_poison=on_poison
                ),
            )
        return result


def _taken(result: SweepResult, page: ReclaimResult) -> None:
    result.reclaimed += page.reclaimed
    result.set_aside += page.set_aside
    result.lost += page.lost
    result.failed += page.failed


@asynccontextmanager
async def _sweeping(database_url: str | None, state_store: StateStore | None) -> AsyncIterator[StateStore]:
    """The store of the caller, or one with an engine of its own for the time of the sweep."""
    if state_store is not None:
        yield state_store
        return
    from dendrux.db.session import get_engine
    from dendrux.store import store_for_engine

    assert database_url is not None
    engine = get_engine(database_url)
    store = cast("StateStore", store_for_engine(engine))
    try:
        yield store
    finally:
        await store.close()
        await engine.dispose()


class _Sweep:
    """The parts of one sweep, page by page. A cursor names its part: `stale`, `abandoned`."""

    def __init__(
        self,
        store: StateStore,
        stale: timedelta | None,
        abandoned: timedelta | None,
        on_stale: OnStale,
        limit: int,
    ) -> None:
        # A store of an earlier release has sweeps without pages.
        self.store = adapted(store)
        self.stale = stale
        self.abandoned = abandoned
        self.on_stale = on_stale
        self.limit = limit
        self.parts = [name for name, age in (("stale", stale), ("abandoned", abandoned)) if age is not None]
        if not self.parts and on_stale != "reclaim":
            raise ValueError("nothing to sweep: give stale_running or abandoned_waiting")

    async def over(self, after: str | None, max_pages: int | None) -> SweepResult:
        """Every page from this cursor on, or as many as are allowed."""
        parts, place = self._begin(after)
        result = SweepResult()
        pages = 0
        while parts:
            if max_pages is not None and pages == max_pages:
                result.next_after = f"{parts[0]} {place or ''}"
                return result
            place = await (self._stale(result, place) if parts[0] == "stale" else self._abandoned(result, place))
            pages += 1
            if place is None:
                parts = parts[1:]
        return result

    def _begin(self, after: str | None) -> tuple[list[str], str | None]:
        if after is None:
            return self.parts, None
        part, space, place = after.partition(" ")
        if not space or part not in self.parts:
            raise ValueError("after is no cursor of a sweep with these arguments")
        return self.parts[self.parts.index(part) :], place or None

    async def _stale(self, result: SweepResult, after: str | None) -> str | None:
        assert self.stale is not None
        if self.on_stale == "error":
            page = await self.store.sweep_stale_runs(older_than=self.stale, limit=self.limit, after=after)
            result.stale_running += page.swept
            result.failed += page.failed
            return page.next_after
        leases = await self.store.mark_lease_expired(
            cutoff=datetime.now(UTC) - self.stale, limit=self.limit, after=after, finalise_unrecoverable=True
        )
        result.marked += leases.marked
        result.stale_running += leases.finalised
        result.failed += leases.failed
        return leases.next_after

    async def _abandoned(self, result: SweepResult, after: str | None) -> str | None:
        assert self.abandoned is not None
        page = await self.store.sweep_abandoned_runs(older_than=self.abandoned, limit=self.limit, after=after)
        result.abandoned_waiting += page.swept
        result.failed += page.failed
        return page.next_after


def _bounded(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}")
