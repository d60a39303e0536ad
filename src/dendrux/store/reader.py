"""RunStore: everything that was persisted about runs, read-only, for routes, scripts and jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ClassVar, Final, Self, cast

from sqlalchemy.ext.asyncio import AsyncEngine

from dendrux import errors
from dendrux.db.session import get_engine
from dendrux.live.follow import GRACE_S, POLL_MIN_S, Followers, heads_of, seconds
from dendrux.runtime.blobs import BlobStore
from dendrux.runtime.legacy import adapted
from dendrux.runtime.pending import PendingWork
from dendrux.runtime.state import StateStore
from dendrux.runtime.values import RunEventRecord
from dendrux.store import views
from dendrux.store.blobaccess import BlobAccessor
from dendrux.store.factory import store_for_engine
from dendrux.store.views import (
    EventView,
    FollowedEvent,
    LLMCall,
    PausePair,
    RunDetail,
    RunNote,
    RunNotFoundError,
    RunSubtree,
    RunSummary,
    StoredEvent,
    ToolInvocation,
    TraceEntry,
)
from dendrux.vocabulary import (
    RUN_PAUSED,
    RUN_RESUMED,
    TERMINAL_EVENTS,
    TERMINAL_STATUSES,
    UNSCOPED,
    TenantScope,
    blob_scope,
)

PAGE: Final = 1000
"""Rows that a read with `limit=None` gives: one page. The `iter_` methods go on to the end."""


def _built_in(engine: AsyncEngine) -> StateStore:
    """The store of the engine's database. Its methods are bound at run time, which widens the literals they answer."""
    return cast("StateStore", store_for_engine(engine))


class RunStore:
    """Reads over a StateStore. An async context manager; leaving it closes what it owns.

    Its only writes are `blobs.purge` and `blobs.collect_garbage`.
    """

    queries_per_s: ClassVar[float] = 200.0
    """What all followers of one reader may ask the database in a second, beside reading what they are behind."""

    def __init__(self, store: StateStore, *, blob_store: BlobStore | None = None) -> None:
        self._store = adapted(store)
        self._followers = Followers(self._store, self.queries_per_s)
        self._blob_store = blob_store
        self._owned: AsyncEngine | None = None
        self.blobs: Final = BlobAccessor(store, blob_store)

    @classmethod
    def from_database_url(cls, database_url: str, *, blob_store: BlobStore | None = None) -> RunStore:
        """A reader with an engine of its own, which `close` disposes. A SQLite schema is brought up on first use.

        Refuses: ValueError for a database without a built-in store.
        """
        engine = get_engine(database_url)
        reader = cls(_built_in(engine), blob_store=blob_store)
        reader._owned = engine
        return reader

    @classmethod
    def from_engine(cls, engine: AsyncEngine, *, blob_store: BlobStore | None = None) -> RunStore:
        """A reader on an engine that stays the caller's: `close` does nothing then."""
        return cls(_built_in(engine), blob_store=blob_store)

    @property
    def state_store(self) -> StateStore:
        """The store that is read: the one that was given, behind an adapter where it is of an earlier release."""
        return self._store

    async def close(self) -> None:
        """Dispose the engine that this reader made, if it made one. Idempotent."""
        engine, self._owned = self._owned, None
        if engine is not None:
            await self._store.close()
            await engine.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def list_runs(
        self,
        *,
        status: str | list[str] | None = None,
        agent_name: str | None = None,
        parent_run_id: str | None = None,
        tenant_id: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[RunSummary]:
        """A page of runs, newest first. No tenant means no filter; `iter_runs` reads on to the end."""
        found = await self._store.list_runs(
            status=status,
            agent_name=agent_name,
            parent_run_id=parent_run_id,
            tenant_id=UNSCOPED if tenant_id is None else tenant_id,
            started_after=started_after,
            started_before=started_before,
            metadata_filter=metadata_filter,
            limit=limit,
            offset=offset,
        )
        return [views.summary(run) for run in found]

    async def iter_runs(
        self,
        *,
        status: str | list[str] | None = None,
        agent_name: str | None = None,
        parent_run_id: str | None = None,
        tenant_id: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> AsyncIterator[RunSummary]:
        """Every run that the filters find and that had begun when the iteration began, newest first, page by page.

        Each run comes once. One that stops matching meanwhile may push another out of sight.
        """
        upto = datetime.now(UTC) if started_before is None else started_before
        offset, seen = 0, set[str]()
        while True:
            page = await self.list_runs(
                status=status,
                agent_name=agent_name,
                parent_run_id=parent_run_id,
                tenant_id=tenant_id,
                started_after=started_after,
                started_before=upto,
                metadata_filter=metadata_filter,
                limit=PAGE,
                offset=offset,
            )
            for run in page:
                if run.run_id not in seen:
                    yield run
            if len(page) < PAGE:
                return
            offset, seen = offset + PAGE, {run.run_id for run in page}

    async def count_runs(
        self,
        *,
        status: str | list[str] | None = None,
        agent_name: str | None = None,
        parent_run_id: str | None = None,
        tenant_id: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """How many runs a list with the same filters would show."""
        return await self._store.count_runs(
            status=status,
            agent_name=agent_name,
            parent_run_id=parent_run_id,
            tenant_id=UNSCOPED if tenant_id is None else tenant_id,
            started_after=started_after,
            started_before=started_before,
            metadata_filter=metadata_filter,
        )

    async def get_run(self, run_id: str) -> RunDetail | None:
        """One run; None when it does not exist."""
        found = await self._store.get_run(run_id)
        return None if found is None else views.detail(found)

    async def get_subtree(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> RunSubtree:
        """The whole tree below a run with its live usage, breadth first, root first.

        Refuses: RunNotFoundError when the root does not exist or is outside the scope.
        """
        found = await self._store.get_subtree(run_id, tenant_id=tenant_id)
        if found is None:
            raise RunNotFoundError(run_id)
        return views.subtree(run_id, found)

    # -- the log ------------------------------------------------------------------------------------------------------

    async def get_events(
        self,
        run_id: str,
        *,
        after_sequence_index: int | None = None,
        limit: int | None = None,
        event_types: list[str] | None = None,
        before: datetime | None = None,
    ) -> list[StoredEvent]:
        """A page of the log above an index. `limit=None` is 1000: go on after the last index, or use `iter_events`."""
        found = await self._events(run_id, after_sequence_index, PAGE if limit is None else limit, event_types, before)
        return [views.event(record) for record in found]

    async def iter_events(
        self,
        run_id: str,
        *,
        after_sequence_index: int | None = None,
        event_types: list[str] | None = None,
        before: datetime | None = None,
    ) -> AsyncIterator[StoredEvent]:
        """The log above an index to its present end, page by page."""
        async for record in self._every_event(run_id, after_sequence_index, event_types, before):
            yield views.event(record)

    async def get_pauses(self, run_id: str) -> list[PausePair]:
        """Every pause of a run with the resume that followed it, paired by their order in the log."""
        wanted = [RUN_PAUSED, RUN_RESUMED]
        return views.pauses([record async for record in self._every_event(run_id, None, wanted, None)])

    async def _events(
        self,
        run_id: str,
        after: int | None,
        limit: int,
        event_types: list[str] | None,
        before: datetime | None,
    ) -> list[RunEventRecord]:
        return await self._store.get_run_events(
            run_id, after_sequence_index=after, limit=limit, event_types=event_types, before=before
        )

    async def _every_event(
        self, run_id: str, after: int | None, event_types: list[str] | None, before: datetime | None
    ) -> AsyncIterator[RunEventRecord]:
        while True:
            page = await self._events(run_id, after, PAGE, event_types, before)
            for record in page:
                yield record
            if len(page) < PAGE:
                return
            after = page[-1].sequence_index

    # -- following ----------------------------------------------------------------------------------------------------

    def follow(
        self,
        run_ids: str | Iterable[str],
        *,
        after: int | Mapping[str, int] | None = None,
        poll_interval_s: float = 0.5,
        idle_timeout_s: float | None = None,
        tenant_id: TenantScope = UNSCOPED,
    ) -> AsyncIterator[FollowedEvent]:
        """Every event of one run or several above `after`, once and each run's in order, as they are stored.

        Ends when every run has ended and its log is read, or when nothing came for `idle_timeout_s`. To go on after any
        end, pass the index of the last event (for several runs, of each). What a store raises ends it, too.

        Refuses: TypeError and ValueError at once; RunNotFoundError before the first event.
        """
        heads = heads_of(run_ids, after)
        poll_interval_s = seconds("poll_interval_s", poll_interval_s, POLL_MIN_S)
        if idle_timeout_s is not None:
            idle_timeout_s = seconds("idle_timeout_s", idle_timeout_s, 0.0)
        return self._followed(heads, poll_interval_s, idle_timeout_s, tenant_id)

    async def _followed(
        self, heads: dict[str, int], poll_interval_s: float, idle_timeout_s: float | None, tenant_id: TenantScope
    ) -> AsyncIterator[FollowedEvent]:
        missing: str | None = None
        found = self._followers.follow(
            heads, poll_interval_s=poll_interval_s, idle_timeout_s=idle_timeout_s, tenant_id=tenant_id
        )
        async with aclosing(found):
            try:
                async for run_id, record in found:
                    yield views.followed(run_id, record)
            except errors.RunNotFoundError as refused:
                missing = refused.run_id
        if missing is not None:
            raise RunNotFoundError(missing)

    def stream_events(
        self, run_id: str, *, after_sequence_index: int | None = None, poll_interval_s: float = 0.5
    ) -> AsyncIterator[FollowedEvent]:
        """`follow` of one run.

        Refuses: as `follow` does.
        """
        return self.follow(run_id, after=after_sequence_index, poll_interval_s=poll_interval_s)

    async def get_event_view(
        self,
        run_id: str,
        *,
        after_sequence_index: int | None = None,
        limit: int = 100,
        tenant_id: TenantScope = UNSCOPED,
    ) -> EventView:
        """A page of the log with the status of the run, for a reader that follows by asking again.

        Refuses: RunNotFoundError for a run that is missing or outside the scope.
        """
        run = await self._store.get_run(run_id, tenant_id=tenant_id)
        if run is None:
            raise RunNotFoundError(run_id)
        found = await self._events(run_id, after_sequence_index, limit, None, None)
        ended = run.status in TERMINAL_STATUSES and len(found) < limit
        if ended and not (self._followers.ends_whole and found and found[-1].event_type in TERMINAL_EVENTS):
            # The last event may be a write of its own that is just being made: one more look.
            await asyncio.sleep(GRACE_S)
            found = await self._events(run_id, after_sequence_index, limit, None, None)
            ended = len(found) < limit
        return EventView(
            run_id=run_id,
            status=run.status,
            events=[views.event(record) for record in found],
            next_after=found[-1].sequence_index if found else after_sequence_index,
            ended=ended,
        )

    # -- evidence -----------------------------------------------------------------------------------------------------

    async def get_llm_calls(
        self,
        run_id: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        offset: int = 0,
        before: datetime | None = None,
    ) -> list[LLMCall]:
        """A page of the run's model calls. `limit=None` is 1000: go on with `offset`."""
        found = await self._store.get_llm_interactions(
            run_id, iteration_index=iteration, limit=PAGE if limit is None else limit, offset=offset, before=before
        )
        return [views.llm_call(record) for record in found]

    async def get_tool_invocations(
        self,
        run_id: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        offset: int = 0,
        before: datetime | None = None,
    ) -> list[ToolInvocation]:
        """A page of the run's tool calls. `limit=None` is 1000: go on with `offset`."""
        found = await self._store.get_tool_calls(
            run_id, iteration_index=iteration, limit=PAGE if limit is None else limit, offset=offset, before=before
        )
        return [views.tool_invocation(record) for record in found]

    async def get_traces(self, run_id: str, *, limit: int | None = None, offset: int = 0) -> list[TraceEntry]:
        """A page of the conversation. `limit=None` is 1000: go on with `offset`, or use `iter_traces`."""
        found = await self._store.get_traces(run_id, limit=PAGE if limit is None else limit, offset=offset)
        return [views.trace(record) for record in found]

    async def iter_traces(self, run_id: str) -> AsyncIterator[TraceEntry]:
        """The conversation to its present end, page by page."""
        offset = 0
        while True:
            page = await self.get_traces(run_id, offset=offset)
            for entry in page:
                yield entry
            if len(page) < PAGE:
                return
            offset += PAGE

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def get_pending(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> PendingWork | None:
        """What a paused run waits for; None when it is missing, outside the scope, or not paused."""
        return await self._store.get_pending(run_id, tenant_id=tenant_id)

    async def get_pii_mapping(self, run_id: str) -> dict[str, str]:
        """What the placeholders of a run stand for; empty when there are none."""
        return await self._store.get_pii_mapping(run_id) or {}

    async def get_notes(
        self, run_id: str, *, undelivered_only: bool = False, tenant_id: TenantScope = UNSCOPED
    ) -> list[RunNote]:
        """The whole inbox in the order of delivery.

        Refuses: RunNotFoundError when a scope is given that the run is not in.
        """
        notes: list[RunNote] = []
        after: str | None = None
        while True:
            try:
                page = await self._store.get_notes(
                    run_id, undelivered_only=undelivered_only, limit=PAGE, after=after, tenant_id=tenant_id
                )
            except errors.RunNotFoundError:
                page = None
            if page is None:
                raise RunNotFoundError(run_id)
            notes += [views.note(record) for record in page]
            if len(page) < PAGE:
                return notes
            after = page[-1].id

    # -- images -------------------------------------------------------------------------------------------------------

    async def read_image(self, run_id: str, sha256: str, *, tenant_id: TenantScope = UNSCOPED) -> bytes:
        """The bytes of an image, verified, if this run is in the scope and refers to them.

        Refuses: BlobNotFoundError for a missing run or blob, another tenant's and an unreferenced one alike;
        BlobIntegrityError.
        """
        run = await self._store.get_run(run_id, tenant_id=tenant_id)
        if run is None:
            raise errors.BlobNotFoundError(sha256)
        return await self._store.read_blob(
            sha256, tenant_scope=blob_scope(run.tenant_id), run_id=run_id, blob_store=self._blob_store
        )
