"""Broken stores that announce on most paths through an operation, or where nothing is to be announced."""

from __future__ import annotations

from typing import Any

from zoo.stores.base import BrokenStore
from zoo.stores.live import Deaf


class Sometimes(BrokenStore):
    """A store of the zoo that can be told to announce nothing for the time of one call."""

    async def unheard(self, call: Any, silent: bool) -> Any:
        heard = self.live_updates
        if silent and heard is not None:
            self.live_updates = Deaf()
        try:
            return await call
        finally:
            self.live_updates = heard


class SilentPages(Sometimes):
    breaks = "only the first page of a cancellation is announced"
    killed_by = "live_updates.cancel_subtree.each_of_a_later_page"

    async def cancel_subtree(self, root_run_id: str, *, after: Any = None, **given: Any) -> Any:
        return await self.unheard(super().cancel_subtree(root_run_id, after=after, **given), after is not None)


class SilentValidated(Sometimes):
    breaks = "a submission that was validated is not announced"
    killed_by = "live_updates.submit_and_claim.announced_with_everything"

    async def submit_and_claim(self, run_id: str, *, validate: Any = None, **given: Any) -> Any:
        return await self.unheard(super().submit_and_claim(run_id, validate=validate, **given), validate is not None)


class SilentTrace(Sometimes):
    breaks = "an end with a final message is not announced"
    killed_by = "live_updates.finalize_with_event.announced_with_everything"

    async def finalize_with_event(self, run_id: str, *, trace: Any = None, **given: Any) -> Any:
        return await self.unheard(super().finalize_with_event(run_id, trace=trace, **given), trace is not None)


class SilentChild(Sometimes):
    breaks = "a run with a parent is not announced"
    killed_by = "live_updates.create_run.announced_with_everything"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        silent = given.get("parent_run_id") is not None
        return await self.unheard(super().create_run(run_id, agent_name, **given), silent)


class AnnouncesEmptyPatch(BrokenStore):
    breaks = "a patch without members is announced"
    killed_by = "live_updates.update_run_meta.nothing_to_announce"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        await super().update_run_meta(run_id, patch, **given)
        if not patch and self.live_updates is not None:
            self.live_updates.enqueue([run_id])
            await self.live_updates.flush()


class AnnouncesNotes(BrokenStore):
    breaks = "a note is announced, though no follower is shown any"
    killed_by = "live_updates.add_note.nothing_to_announce"

    async def add_note(self, run_id: str, **given: Any) -> Any:
        outcome = await super().add_note(run_id, **given)
        if self.live_updates is not None:
            self.live_updates.enqueue([run_id])
            await self.live_updates.flush()
        return outcome
