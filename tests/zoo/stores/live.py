"""Broken stores whose announcements are wrong. The data of each is right, so that nothing else catches them."""

from __future__ import annotations

import asyncio
from typing import Any

from dendrux.errors import PersistenceError
from zoo.stores.base import BrokenStore


class Deaf:
    """Live updates that nobody hears."""

    def enqueue(self, run_ids: Any) -> None: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...


class Silenced(BrokenStore):
    """A store of the zoo that announces by hand what the base would."""

    def __init__(self, engine: Any, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.heard = self.live_updates
        self.live_updates = None if self.heard is None else Deaf()

    async def tell(self, *run_ids: str) -> None:
        if self.heard is not None:
            self.heard.enqueue(run_ids)
            await self.heard.flush()


class AnnouncesBeforeCommit(BrokenStore):
    breaks = "save_run_event announces the run first, and writes then"
    killed_by = "live_updates.save_run_event.announced"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        if self.live_updates is not None:
            self.live_updates.enqueue([run_id])
            await self.live_updates.flush()
        return await super().save_run_event(run_id, **given)


class EnqueuesBeforeCommit(BrokenStore):
    breaks = "the id is handed over before the write, which may fail"
    killed_by = "live_updates.save_run_event.failed_before_commit"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        if self.live_updates is not None:
            self.live_updates.enqueue([run_id])
        return await super().save_run_event(run_id, **given)


class AnnouncesLostWrites(BrokenStore):
    breaks = "a claim that somebody else won is announced"
    killed_by = "live_updates.save_run_event.not_applied"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        epoch = await super().claim_paused_run(run_id, **given)
        if epoch is None and self.live_updates is not None:
            self.live_updates.enqueue([run_id])
            await self.live_updates.flush()
        return epoch


class AnnouncesOnSuccessOnly(Silenced):
    breaks = "a claim whose outcome is unknown is never announced: its ids are enqueued when it returns well"
    killed_by = "live_updates.claim_paused_run.commit_issued_lost_connection"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        epoch = await super().claim_paused_run(run_id, **given)
        await self.tell(run_id)
        return epoch


class FlushesAndFails(BrokenStore):
    breaks = "a claim whose caller was cancelled waits for the transport before it ends"
    killed_by = "live_updates.claim_paused_run.commit_issued_cancelled"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        try:
            return await super().claim_paused_run(run_id, **given)
        except asyncio.CancelledError:
            if self.live_updates is not None:
                await self.live_updates.flush()
            raise


class FlushesAndRefuses(BrokenStore):
    breaks = "a refused write flushes what an earlier call left"
    killed_by = "live_updates.claim_paused_run.commit_issued_error"

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        try:
            return await super().save_run_event(run_id, **given)
        except PersistenceError:
            if self.live_updates is not None:
                await self.live_updates.flush()
            raise


class NeverFlushes(Silenced):
    breaks = "the ids are handed over and stay until the store is closed"
    killed_by = "live_updates.create_run.announced"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        answer = await super().create_run(run_id, agent_name, **given)
        if self.heard is not None:
            self.heard.enqueue([run_id])
        return answer


class AnnouncesAnotherId(Silenced):
    breaks = "pause_with_event announces the id of its event, not of the run"
    killed_by = "live_updates.pause_with_event.announced"

    async def pause_with_event(self, run_id: str, *, event_id: str | None = None, **given: Any) -> int | None:
        index = await super().pause_with_event(run_id, event_id=event_id, **given)
        if index is not None:
            await self.tell(event_id or run_id[::-1])
        return index


class AnnouncesEventsOnly(BrokenStore):
    breaks = "a request that changes a flag and writes no event is not announced"
    killed_by = "live_updates.request_cancel.announced"

    async def request_cancel(self, run_id: str) -> bool:
        heard, self.live_updates = self.live_updates, None if self.live_updates is None else Deaf()
        try:
            return await super().request_cancel(run_id)
        finally:
            self.live_updates = heard


class AnnouncesTheRootOnly(Silenced):
    breaks = "cancel_subtree announces the root, and not what is below it"
    killed_by = "live_updates.cancel_subtree.each_of_several"

    async def cancel_subtree(self, root_run_id: str, **given: Any) -> Any:
        page = await super().cancel_subtree(root_run_id, **given)
        await self.tell(root_run_id)
        return page


class KeepsItsTransportOpen(BrokenStore):
    breaks = "close does not close the live updates"
    killed_by = "live_updates.create_run.closes_its_instance"

    async def close(self) -> None: ...


class HidesItsTransport(Silenced):
    breaks = "the live updates are not where a reader looks for them"
    killed_by = "live_updates.create_run.shows_its_instance"
