"""Broken conversations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dendrux.errors import RunAlreadyTerminalError, WriteConflictError
from zoo.stores.base import BrokenStore


class TraceWithoutFence(BrokenStore):
    breaks = "save_trace does not look at the epoch"
    killed_by = "fenced_writes.save_trace.refuses_old_epoch"

    async def save_trace(self, *args: Any, claim_epoch: int | None = None, **given: Any) -> None:
        await super().save_trace(*args, **given)


class NewlinesOfOneKind(BrokenStore):
    breaks = "a message comes back with its line ends as one system writes them"
    killed_by = "basic.save_trace.content_comes_back_exactly"

    async def save_trace(self, run_id: str, role: str, content: str, **given: Any) -> None:
        await super().save_trace(run_id, role, content.replace("\r\n", "\n").replace("\r", "\n"), **given)


class EveryTraceIsAMessage(BrokenStore):
    breaks = "save_trace forgets the kind it is given"
    killed_by = "basic.save_trace.every_kind"

    async def save_trace(self, run_id: str, role: str, content: str, **given: Any) -> None:
        await super().save_trace(run_id, role, content, **{**given, "trace_kind": "message"})


class LateMessages(BrokenStore):
    breaks = "a message that comes after the end is dropped without a word"
    killed_by = "basic.save_trace.after_the_end"

    async def save_trace(self, run_id: str, role: str, content: str, **given: Any) -> None:
        try:
            await super().save_trace(run_id, role, content, **given)
        except RunAlreadyTerminalError:
            return


class TwoAtOnePlace(BrokenStore):
    breaks = "a second message at a position is taken for the first one"
    killed_by = "retry_ids.save_trace.one_message_per_position"

    async def save_trace(self, run_id: str, role: str, content: str, **given: Any) -> None:
        try:
            await super().save_trace(run_id, role, content, **given)
        except WriteConflictError:
            held = [row for row in await self.get_traces(run_id) if row.order_index == given["order_index"]]
            if not held or held[0].id == given.get("trace_id"):
                raise


class ReferencesAreNoContent(BrokenStore):
    breaks = "a repeat of a message with other references is the same message"
    killed_by = "retry_ids.save_trace.references_are_content"

    async def save_trace(self, run_id: str, role: str, content: str, **given: Any) -> None:
        try:
            await super().save_trace(run_id, role, content, **given)
        except WriteConflictError:
            held = [row for row in await self.get_traces(run_id) if row.id == given.get("trace_id")]
            if not held or held[0].content != content:
                raise


class CachedConversations(BrokenStore):
    breaks = "get_traces is answered from a cache that only own writes clear"
    killed_by = "concurrency.get_run.sees_other_instances"

    async def get_traces(self, run_id: str, **given: Any) -> Any:
        cache = self.__dict__.setdefault("_cache", {})
        key = run_id, repr(given)
        if key not in cache:
            cache[key] = await super().get_traces(run_id, **given)
        return cache[key]

    async def save_trace(self, run_id: str, **given: Any) -> None:
        self.__dict__.pop("_cache", None)
        await super().save_trace(run_id, **given)


class ShortPages(BrokenStore):
    breaks = "no page of get_traces has more than a hundred rows"
    killed_by = "basic.get_traces.more_than_a_hundred"

    async def get_traces(self, run_id: str, *, limit: int = 1000, **given: Any) -> Any:
        return await super().get_traces(run_id, limit=min(limit, 100) if 0 < limit <= 1000 else limit, **given)


class MissingRunIsEmpty(BrokenStore):
    breaks = "a message for a run that does not exist is dropped without a word"
    killed_by = "basic.save_trace.missing_run"

    async def save_trace(self, run_id: str, role: str, content: str, **given: Any) -> None:
        if await self.get_run(run_id) is not None:
            await super().save_trace(run_id, role, content, **given)


# -- sizes -----------------------------------------------------------------------------------------------------------


class ShortPagesAfter(BrokenStore):
    breaks = "no page of get_traces_after has more than a hundred rows"
    killed_by = "basic.get_traces_after.more_than_a_hundred"

    async def get_traces_after(self, run_id: str, *, limit: int = 1000, **given: Any) -> Any:
        return await super().get_traces_after(run_id, limit=min(limit, 100) if 0 < limit <= 1000 else limit, **given)


class ConversationLosesItsTail(BrokenStore):
    breaks = "a page of a conversation ends after five hundred messages, and says that it is the last"
    killed_by = "basic.conversation_traces.more_than_a_hundred"

    async def conversation_traces(self, run_id: str, **given: Any) -> Any:
        page = await super().conversation_traces(run_id, **given)
        return replace(page, traces=page.traces[:500], next_after=None) if len(page.traces) > 500 else page
