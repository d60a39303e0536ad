"""Broken stores whose reads, bounds and clocks are wrong for some callers only."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import Any

from dendrux.errors import StaleClaimError
from zoo.stores.base import BrokenStore

MOMENT = timedelta(microseconds=1)

# -- what a pause waits for -------------------------------------------------------------------------------------------


class PendingWithoutWalls(BrokenStore):
    breaks = "get_pending answers whoever asks, of any tenant"
    killed_by = "basic.get_pending.tenants_are_equal_as_written"

    async def get_pending(self, run_id: str, **given: Any) -> Any:
        return await super().get_pending(run_id)


class PendingForgets(BrokenStore):
    breaks = "what a run waits for has no reason, no iteration and no time"
    killed_by = "basic.get_pending.every_paused_status"

    async def get_pending(self, run_id: str, **given: Any) -> Any:
        found = await super().get_pending(run_id, **given)
        return found and replace(found, paused_at=None, reason=None, iteration=None)


# -- cancellation, and what a call leaves -----------------------------------------------------------------------------


class SwallowsCancelPending(BrokenStore):
    breaks = "a cancelled get_pending answers that nothing is waited for"
    killed_by = "crash_recovery.get_pending.cancelled"

    async def get_pending(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().get_pending(run_id, **given)
        except asyncio.CancelledError:
            return None


class SwallowsCancelChildren(BrokenStore):
    breaks = "a cancelled child_runs_page answers that there are no children"
    killed_by = "crash_recovery.child_runs_page.cancelled"

    async def child_runs_page(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().child_runs_page(run_id, **given)
        except asyncio.CancelledError:
            return []


class LeaksOnRefusal(BrokenStore):
    breaks = "a refused save_tool_call keeps a connection of the pool"
    killed_by = "fenced_writes.save_tool_call.refuses_old_epoch"

    async def save_tool_call(self, run_id: str, **given: Any) -> None:
        try:
            await super().save_tool_call(run_id, **given)
        except StaleClaimError:
            self.__dict__.setdefault("kept", []).append(await self._engine.connect())
            raise

    async def close(self) -> None:
        """For the sake of the tests that come after: no connection is left to the garbage collector."""
        for connection in self.__dict__.pop("kept", ()):
            await connection.close()
        await super().close()


class CachedUsage(BrokenStore):
    breaks = "run_usage is answered from a cache that only the instance's own writes clear"
    killed_by = "concurrency.run_usage.sees_other_instances"

    async def run_usage(self, run_id: str, **given: Any) -> Any:
        known = self.__dict__.setdefault("usage", {})
        if (run_id, repr(given)) not in known:
            known[run_id, repr(given)] = await super().run_usage(run_id, **given)
        return known[run_id, repr(given)]

    async def save_llm_interaction(self, run_id: str, **given: Any) -> None:
        await super().save_llm_interaction(run_id, **given)
        self.__dict__.pop("usage", None)


# -- bounds and clocks ------------------------------------------------------------------------------------------------


def moved(given: dict[str, Any]) -> dict[str, Any]:
    """The filters of a list, its end a moment later."""
    end = given.get("started_before")
    return given if end is None else {**given, "started_before": end + MOMENT}


class StartedBeforeInclusive(BrokenStore):
    breaks = "started_before takes a run that was created at exactly that time"
    killed_by = "basic.list_runs.bounds_at_a_stored_time"

    async def list_runs(self, **given: Any) -> Any:
        return await super().list_runs(**moved(given))

    async def count_runs(self, **given: Any) -> int:
        return await super().count_runs(**moved(given))


class MarksAtTheCutoff(BrokenStore):
    breaks = "a run whose last progress is at exactly the cutoff is marked"
    killed_by = "recovery.mark_lease_expired.at_the_cutoff"

    async def mark_lease_expired(self, *, cutoff: Any, **given: Any) -> Any:
        return await super().mark_lease_expired(cutoff=cutoff + MOMENT, **given)


class CancelPausedKeepsClock(BrokenStore):
    breaks = "a request to cancel a run that waits for an approval does not move updated_at"
    killed_by = "basic.request_cancel.moves_updated_at"

    async def request_cancel(self, run_id: str) -> bool:
        run = await self.get_run(run_id)
        answer = await super().request_cancel(run_id)
        if run is not None and run.status == "waiting_approval":
            await self.run_sql("UPDATE agent_runs SET updated_at = paused_at WHERE id = :run", run=run_id)
        return answer


# -- odd input --------------------------------------------------------------------------------------------------------


class ZeroTotalsKeep(BrokenStore):
    breaks = "an end with totals of nothing leaves the totals that are there"
    killed_by = "basic.finalize_with_event.zero_is_a_value"

    async def finalize_with_event(self, run_id: str, *, total_usage: Any = None, **given: Any) -> Any:
        spent = total_usage if total_usage and total_usage.input_tokens else None
        return await super().finalize_with_event(run_id, total_usage=spent, **given)


class LateCopy(BrokenStore):
    breaks = "the document of a pause is copied after the call has waited"
    killed_by = "basic.pause_with_event.odd_input"

    async def pause_with_event(self, run_id: str, **given: Any) -> Any:
        await asyncio.sleep(0)
        return await super().pause_with_event(run_id, **given)


class RefusesEnums(BrokenStore):
    breaks = "save_run_event refuses a member of an enum as the type of its event"
    killed_by = "basic.save_run_event.odd_input"

    async def save_run_event(self, run_id: str, *, event_type: str, **given: Any) -> int:
        if isinstance(event_type, Enum):
            raise TypeError("event_type must be a str")
        return await super().save_run_event(run_id, event_type=event_type, **given)


class AsyncValidateAccepted(BrokenStore):
    breaks = "an async validate is never awaited, and every submission is accepted"
    killed_by = "basic.submit_and_claim.validation_cannot_wait"

    async def submit_and_claim(self, run_id: str, *, validate: Any = None, **given: Any) -> Any:
        judge = None if inspect.iscoroutinefunction(validate) else validate
        return await super().submit_and_claim(run_id, validate=judge, **given)
