"""Executes runs for an agent: makes one, or takes one over, works on it under its lease, and says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dendrux.errors import (
    PersistenceError,
    RunAlreadyActiveError,
    RunAlreadyClaimedError,
    RunAlreadyTerminalError,
    RunNotFoundError,
    StaleClaimError,
    StatementTooLargeError,
    StoreOutcomeUnknown,
    WriteConflictError,
)
from dendrux.llm.protocol import Message
from dendrux.runtime.context import Place, place_of
from dendrux.runtime.conversation import as_seed, meta_of
from dendrux.runtime.lease import LAST_WORDS_S, Lease
from dendrux.runtime.loop import Behaviour, ReActLoop
from dendrux.runtime.pauses import still_at
from dendrux.runtime.pending import PendingCall
from dendrux.runtime.recorder import Owned, Recorder, sure
from dendrux.runtime.results import RunEvent, RunEventType, RunResult
from dendrux.runtime.stream import CLOSED
from dendrux.runtime.tools import problem
from dendrux.runtime.values import CreateRunResult, JsonObject, RunRecord
from dendrux.runtime.work import MODEL, OPTIONS, SEEDS, Work, begin, take_up, work_of
from dendrux.store.capabilities import StoreCapabilities
from dendrux.store.ids import derived_id, new_id
from dendrux.vocabulary import (
    CAPABILITIES,
    FORMAT_2_CAPABILITIES,
    META_LOOP,
    META_MAX_DEPTH,
    PAUSED_STATUSES,
    RECOVERABLE_LOOP,
    TERMINAL_STATUSES,
    UNSCOPED,
    TenantScope,
    Unscoped,
)

LOG: Final = logging.getLogger("dendrux.runtime")
Emit = Callable[[RunEvent], None]
NOT_OURS = (StaleClaimError, RunAlreadyTerminalError)
"""The run belongs to somebody else, or has ended: nothing is written any more."""

UNANSWERED = (RunNotFoundError, StoreOutcomeUnknown)


def nobody(event: RunEvent) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run that is asked for."""

    run_id: str
    user_input: str
    history: tuple[Message, ...] = ()
    tenant_id: str | Unscoped | None = UNSCOPED
    metadata: JsonObject
    options: JsonObject
    model: str | None = None
    max_depth: int | None = None
    idempotency_key: str | None = None
    retry_of: str | None = None

    def messages(self) -> list[Message]:
        """What the conversation begins with. A retry brings its input in its history."""
        said = [] if self.retry_of is not None else [Message(role="user", content=self.user_input)]
        return [*self.history, *said]

    def fingerprint(self, agent_name: str) -> str:
        """What two requests under one key have to have in common."""
        said = [agent_name, self.user_input, [[m.role, m.content, meta_of(m)] for m in self.history]]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class Runner:
    """The executions of one agent on one store."""

    def __init__(
        self,
        agent: Behaviour,
        store: Any,
        capabilities: StoreCapabilities,
        *,
        max_depth: int | None,
        lease_s: float,
        heartbeat_s: float,
    ) -> None:
        self.agent = agent
        self.store = store
        self.capabilities = capabilities
        self.max_depth = max_depth
        self.lease_s = lease_s
        self.heartbeat_s = heartbeat_s

    # -- a new run ----------------------------------------------------------------------------------------------------

    async def start(self, request: Request, emit: Emit = nobody, *, streaming: bool = False) -> RunResult:
        """Make a run and work on it; a run that exists under the key is answered instead."""
        place = place_of(self.store, tenant_id=request.tenant_id, max_depth=request.max_depth)
        messages = request.messages()
        made, seeded = await self._create(request, place, messages)
        if made.outcome == "existing_active":
            raise RunAlreadyActiveError(made.run_id, made.status)
        if made.outcome == "existing_terminal":
            return await result_of(self.store, made.run_id)
        work = Work(
            run_id=made.run_id,
            tenant_id=place.tenant_id,
            level=place.level,
            max_depth=place.max_depth,
            model=request.model,
            options=request.options,
        )
        emit(RunEvent(type=RunEventType.RUN_STARTED, run_id=made.run_id))
        owned = Owned(run_id=made.run_id, claim_epoch=made.claim_epoch, format=made.format)

        async def prepare(recorder: Recorder) -> Work:
            more = {} if request.retry_of is None else {"retry_of": request.retry_of}
            await begin(recorder, self.agent.name, self.agent.prompt, **more)
            for number, message in enumerate(messages):
                if not seeded:
                    await recorder.trace(message, number, derived_id(made.run_id, number, "seed"), "seed")
                work.conversation.add(message, number)
            return work

        return await self._execute(owned, prepare, emit, streaming=streaming)

    async def _create(
        self, request: Request, place: Place, messages: Sequence[Message]
    ) -> tuple[CreateRunResult, bool]:
        """The row of a run, and whether its first messages are part of the same transaction, as on format 2."""
        given: dict[str, Any] = {
            "input_data": {
                "user_input": request.user_input,
                OPTIONS: request.options,
                MODEL: request.model,
                SEEDS: len(messages),
            },
            "model": request.model or self.agent.provider.model,
            "strategy": "native_tool_calling",
            "delegation_level": place.level,
            "tenant_id": place.tenant_id,
            "meta": {**request.metadata, META_LOOP: RECOVERABLE_LOOP},
        }
        if place.max_depth is not None:
            given["meta"][META_MAX_DEPTH] = place.max_depth  # whoever takes the run up is bound by it too
        if place.parent_run_id is not None:
            given["parent_run_id"] = place.parent_run_id
            if self.capabilities.fenced_writes:
                given["parent_claim_epoch"] = place.parent_claim_epoch
        if request.retry_of is not None:
            given["retry_of_run_id"] = request.retry_of
        if request.idempotency_key is not None:
            given["idempotency_key"] = request.idempotency_key
            given["idempotency_fingerprint"] = request.fingerprint(self.agent.name)
        if {name for name in CAPABILITIES if getattr(self.capabilities, name)} >= FORMAT_2_CAPABILITIES:
            seeds = [as_seed(message) for message in messages]
            try:
                return await self._made(request, given, seed_traces=seeds), True
            except ValueError:
                # A database that is not activated makes runs of format 1, which take no seeds, and nothing in the
                # protocol tells beforehand. Whatever else is wrong is refused again.
                LOG.debug("create_run refused seeds; the run begins without them")
        return await self._made(request, given), False

    async def _made(self, request: Request, given: JsonObject, **seeds: Any) -> CreateRunResult:
        made: CreateRunResult = await sure(
            lambda: self.store.create_run(request.run_id, self.agent.name, **given, **seeds),
            repeatable=self.capabilities.retry_ids,
        )
        return made

    # -- a run that waits ---------------------------------------------------------------------------------------------

    async def claim(self, record: RunRecord, submitted: JsonObject, pause_id: str | None, scope: TenantScope) -> Owned:
        """Take a paused run and leave a submission with it.

        Refuses: RunAlreadyClaimedError, RunAlreadyTerminalError, PauseStatusMismatchError; StoreOutcomeUnknown when
        nobody can say whether the claim happened: then nothing is worked on, and the lease brings the run back.
        """
        submission = {"submission_id": new_id()} if self.capabilities.checkpointing else {}
        tenant = {} if scope is UNSCOPED else {"tenant_id": scope}
        epoch = await self.store.submit_and_claim(
            record.id,
            expected_status=record.status,
            submitted_data=submitted,
            validate=still_at(record.id, record.status, pause_id),
            **submission,
            **tenant,
        )
        if epoch is None:
            now = await self.store.get_run(record.id)
            if now is not None and now.status in TERMINAL_STATUSES:
                raise RunAlreadyTerminalError(record.id, now.status)
            raise RunAlreadyClaimedError(record.id)
        return Owned(run_id=record.id, claim_epoch=epoch, format=record.format)

    async def go_on(
        self, owned: Owned, emit: Emit = nobody, *, repair: bool = False, streaming: bool = False
    ) -> RunResult:
        """Work on a run that this process was given under this epoch, from where earlier owners stopped.

        `repair` says that the last owner was lost in the middle of its work, and did not pause the run.
        """

        async def prepare(recorder: Recorder) -> Work:
            return await take_up(
                await found(self.store, owned.run_id),
                recorder,
                self.agent.limits,
                max_depth=self.max_depth,
                prompt=self.agent.prompt,
                repair=repair,
            )

        emit(RunEvent(type=RunEventType.RUN_RESUMED, run_id=owned.run_id))
        return await self._execute(owned, prepare, emit, streaming=streaming)

    # -- working ------------------------------------------------------------------------------------------------------

    async def _execute(
        self, owned: Owned, prepare: Callable[[Recorder], Any], emit: Emit, *, streaming: bool
    ) -> RunResult:
        """Work under the lease. Whatever is raised carries `run_id`, and ended the run unless it is not ours."""
        recorder = Recorder(self.store, owned, self.capabilities)
        recorder.lease = lease = Lease(owned.run_id, recorder.touch, lease_s=self.lease_s, heartbeat_s=self.heartbeat_s)
        loops: list[ReActLoop] = []

        async def working() -> RunResult:
            loop = ReActLoop(self.agent, await prepare(recorder), recorder, emit=emit, streaming=streaming)
            loops.append(loop)
            return await loop.run()

        try:
            return await lease.hold(working())
        except asyncio.CancelledError as cancelled:
            await self._cancelled(recorder, loops, closed=CLOSED in cancelled.args)
            raise
        except Exception as error:
            _of_run(error, owned.run_id)
            if isinstance(error, NOT_OURS) or lease.lost is not None:
                raise
            await self._failed(error, recorder, loops)
            raise

    async def _failed(self, error: Exception, recorder: Recorder, loops: list[ReActLoop]) -> None:
        """End a run whose work raised. A store that cannot be reached leaves the run to its lease."""
        answered = (StatementTooLargeError, WriteConflictError)
        if isinstance(error, PersistenceError) and not isinstance(error, answered):
            return
        try:
            loop = loops[0] if loops else await self._bare(recorder)
            await loop.failed(problem(error))
        except (PersistenceError, *NOT_OURS, *UNANSWERED):
            return  # the first error is the one to tell; the lease brings the run back

    async def _cancelled(self, recorder: Recorder, loops: list[ReActLoop], *, closed: bool) -> None:
        """End a run whose task was cancelled, if that can be done in a moment; else its lease brings it back.

        What its model had said of an answer is kept when a stream was closed by its reader.
        """

        async def end() -> None:
            loop = loops[0] if loops else await self._bare(recorder)
            if closed:
                await loop.cancelled("stream_closed", answer=loop.said or None)
            else:
                await loop.cancelled("task_cancelled")

        ending = asyncio.ensure_future(end())
        now = asyncio.get_running_loop().time
        until = now() + LAST_WORDS_S
        while not ending.done() and (left := until - now()) > 0:
            with contextlib.suppress(asyncio.CancelledError):  # the caller raises the first one
                await asyncio.wait({ending}, timeout=left)
        if not ending.done():
            ending.add_done_callback(lambda end: end.cancelled() or end.exception())
            ending.cancel()
            LOG.warning("run %s: its cancellation could not be stored in time", recorder.run_id)
            return
        error = None if ending.cancelled() else ending.exception()
        if error is not None and not isinstance(error, (PersistenceError, *NOT_OURS, *UNANSWERED)):
            LOG.warning("run %s: its cancellation could not be stored (%s)", recorder.run_id, type(error).__name__)

    async def _bare(self, recorder: Recorder) -> ReActLoop:
        """A loop that knows of the run what its row says, to end a run that could not be taken up."""
        work = work_of(await found(self.store, recorder.run_id), self.max_depth)
        return ReActLoop(self.agent, work, recorder, emit=nobody)


# -- results that are read --------------------------------------------------------------------------------------------


async def found(store: Any, run_id: str, tenant_id: TenantScope = UNSCOPED) -> RunRecord:
    """A run of this scope. Refuses: RunNotFoundError."""
    scope = {} if tenant_id is UNSCOPED else {"tenant_id": tenant_id}
    run: RunRecord | None = await store.get_run(run_id, **scope)
    if run is None:
        raise RunNotFoundError(run_id)
    return run


async def result_of(store: Any, run_id: str, tenant_id: TenantScope = UNSCOPED) -> RunResult:
    """Where a run stands, as its row tells: without steps. Refuses: RunNotFoundError."""
    record = await found(store, run_id, tenant_id)
    document = await store.get_pause_state(run_id) if record.status in PAUSED_STATUSES else None
    targets = (document or {}).get("pending_targets") or {}
    calls = (document or {}).get("pending_tool_calls") or ()
    return RunResult(
        run_id=record.id,
        status=record.status,
        answer=record.answer,
        error=record.error,
        failure_reason=record.failure_reason,
        iteration_count=record.iteration_count,
        usage=work_of(record, None).usage,
        pause_id=(document or {}).get("pause_id"),
        pending_tool_calls=tuple(
            PendingCall(id=c["id"], name=c["name"], params=c["params"], target=targets.get(c["id"])) for c in calls
        ),
    )


def _of_run(error: BaseException, run_id: str) -> None:
    """Let an error say of which run it is, where it does not already."""
    if getattr(error, "run_id", None) is None:
        try:
            error.run_id = run_id  # type: ignore[attr-defined]
        except AttributeError:
            return
