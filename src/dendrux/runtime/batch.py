"""The calls of one turn: which need an approval, which run here and how many at once, which somebody else answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from dendrux.errors import StaleClaimError
from dendrux.llm.protocol import ToolCall
from dendrux.runtime.context import Delegation, inside
from dendrux.runtime.conversation import Turn, observation
from dendrux.runtime.pauses import Pause
from dendrux.runtime.recorder import Recorder
from dendrux.runtime.results import RunEvent, RunEventType, ToolResult
from dendrux.runtime.tools import Tool, failed
from dendrux.runtime.work import Work, result_of
from dendrux.store.ids import derived_id, new_id
from dendrux.vocabulary import WAITING_APPROVAL, WAITING_CLIENT, WAITING_HUMAN

APPROVAL_REQUESTED = "approval.requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the calls of a turn are run with."""

    tools: Mapping[str, Tool]
    require_approval: frozenset[str]
    result_max: int
    parallel_max: int
    delegation: Delegation
    emit: Callable[[RunEvent], None]
    work: Work
    recorder: Recorder

    async def run(self, turn: Turn) -> Pause | None:
        """Bring every open call of the turn to a result, as far as this process can. Answers why the run has to wait.

        A request to cancel is seen between two groups of calls; then the rest stays open and nothing is answered.
        """
        calls = self.work.conversation.outstanding()
        refused = {call.id: said for call in calls if (said := self._refused(call, calls)) is not None}
        gated = [call for call in calls if call.id not in refused and self._needs_approval(call)]
        if gated:
            return await self._approval(gated, turn)
        mine = [call for call in calls if call.id in refused or self.tools[call.name].target == "server"]
        first = True
        for together, group in groupby(mine, lambda call: self._parallel(call, refused)):
            for part in [list(group)] if together else [[call] for call in group]:
                if not first and (await self.recorder.control()).cancel_requested:
                    return None
                first = False
                await self._together(part, turn, refused)
        return await self._others([call for call in calls if call not in mine], turn)

    # -- before anything runs -----------------------------------------------------------------------------------------

    def _refused(self, call: ToolCall, calls: Sequence[ToolCall]) -> ToolResult | None:
        """The answer to a call that is never executed."""
        tool = self.tools.get(call.name)
        if call.parse_error is not None:
            return failed(call, f"bad arguments: {call.parse_error}", outcome="invalid")
        if tool is None:
            known = ", ".join(sorted(self.tools)) or "none"
            return failed(call, f"there is no tool {call.name!r}; known are: {known}", outcome="invalid")
        decision = self.work.decisions.get(call.id)
        if decision is not None and not decision["approved"]:
            reason = decision.get("reason")
            return failed(call, "rejected" if not reason else f"rejected: {reason}", outcome="rejected")
        if tool.max_calls_per_run is not None:
            before = sum(other.name == call.name for other in calls[: calls.index(call)])
            if self.work.conversation.called(call.name) + before >= tool.max_calls_per_run:
                said = f"{call.name} may be called {tool.max_calls_per_run} times in a run"
                return failed(call, said, outcome="limited")
        return None

    def _needs_approval(self, call: ToolCall) -> bool:
        return call.name in self.require_approval and call.id not in self.work.decisions

    async def _approval(self, gated: Sequence[ToolCall], turn: Turn) -> Pause:
        """The whole rest of the batch waits, so that nothing runs beside what somebody is asked about."""
        for call in gated:
            await self.recorder.event(
                APPROVAL_REQUESTED,
                event_id=derived_id(call.id, APPROVAL_REQUESTED),
                iteration=turn.iteration,
                correlation_id=call.id,
                data={"tool_name": call.name, "call_id": call.id, "source": "static"},
            )
        return Pause(
            status=WAITING_APPROVAL,
            pause_id=new_id(),
            calls=tuple(gated),
            targets={call.id: "server" for call in gated},
            gates={call.id: {"source": "static", "reason": None} for call in gated},
        )

    def _parallel(self, call: ToolCall, refused: Mapping[str, ToolResult]) -> bool:
        return call.id in refused or self.tools[call.name].parallel

    # -- running ------------------------------------------------------------------------------------------------------

    async def _together(self, calls: Sequence[ToolCall], turn: Turn, refused: Mapping[str, ToolResult]) -> None:
        """Calls at the same time. The first error that is not a tool's ends all of them."""
        if len(calls) == 1:
            await self._call(calls[0], turn, refused.get(calls[0].id))
            return
        places = asyncio.Semaphore(self.parallel_max)

        async def one(call: ToolCall) -> None:
            async with places:
                await self._call(call, turn, refused.get(call.id))

        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(one(call))
        except BaseExceptionGroup as several:
            lost = [error for error in several.exceptions if isinstance(error, StaleClaimError)]
            raise (lost or several.exceptions)[0] from None

    async def _call(self, call: ToolCall, turn: Turn, refused: ToolResult | None) -> None:
        """One call: its intent is stored, then it runs, then what it came to is stored."""
        started = await self.recorder.start_call(call, turn)
        if started.completed is not None:
            self._answered(call, result_of(started.completed), turn)
            return
        self.emit(self._event(RunEventType.TOOL_USE_START, turn, tool_call=call))
        if refused is not None:
            result = refused
        else:
            if started.replayed:
                self.work.replayed.append({"call_id": call.id, "tool_name": call.name, "attempt": started.attempt})
            with inside(self.delegation):
                result = await self.tools[call.name].execute(call, result_max=self.result_max)
        result = replace(result, replayed=started.replayed)
        await self.recorder.complete_call(call, result, turn)
        self._answered(call, result, turn)
        self.emit(self._event(RunEventType.TOOL_RESULT, turn, tool_call=call, tool_result=result))

    def _answered(self, call: ToolCall, result: ToolResult, turn: Turn) -> None:
        self.work.conversation.add(observation(call, result, turn.iteration), turn.place(call))
        if self.work.steps and self.work.steps[-1].iteration == turn.iteration:
            last = self.work.steps[-1]
            order = {asked.id: number for number, asked in enumerate(last.tool_calls)}
            results = sorted((*last.results, result), key=lambda one: order.get(one.call_id, len(order)))
            self.work.steps[-1] = replace(last, results=tuple(results))

    def _event(self, kind: RunEventType, turn: Turn, **more: Any) -> RunEvent:
        return RunEvent(type=kind, run_id=self.work.run_id, iteration=turn.iteration, **more)

    # -- what somebody else answers -----------------------------------------------------------------------------------

    async def _others(self, calls: Sequence[ToolCall], turn: Turn) -> Pause | None:
        """Wait for clients first, all at once; then for people, one question at a time."""
        clients = [call for call in calls if self.tools[call.name].target == "client"]
        waiting = clients or calls[:1]
        if not waiting:
            return None
        target = self.tools[waiting[0].name].target
        for call in waiting:
            await self.recorder.announce_call(call, turn.iteration, target)
            self.emit(self._event(RunEventType.TOOL_USE_START, turn, tool_call=call))
        return Pause(
            status=WAITING_CLIENT if clients else WAITING_HUMAN,
            pause_id=new_id(),
            calls=tuple(waiting),
            targets=dict.fromkeys((call.id for call in waiting), target),
        )
