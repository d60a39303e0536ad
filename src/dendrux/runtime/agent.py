"""The agent: what it is, and everything that can be asked of its runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from dendrux.errors import (
    InboxFullError,
    PauseStatusMismatchError,
    RunAlreadyTerminalError,
    RunNotPausedError,
)
from dendrux.llm.protocol import LLMProvider, Message
from dendrux.runtime import pauses
from dendrux.runtime import validation as valid
from dendrux.runtime.conversation import complete_turns, load, meta_of
from dendrux.runtime.lease import check_heartbeat
from dendrux.runtime.legacy import adapted
from dendrux.runtime.limits import Budget, Limits
from dendrux.runtime.loop import Behaviour
from dendrux.runtime.recorder import Owned
from dendrux.runtime.results import PauseOutcome, RunResult
from dendrux.runtime.runner import Request, Runner, found, result_of
from dendrux.runtime.stream import RunStream
from dendrux.runtime.values import JsonObject, RunRecord
from dendrux.store.ids import new_id
from dendrux.vocabulary import (
    PAUSED,
    PAUSED_STATUSES,
    TERMINAL_STATUSES,
    UNSCOPED,
    WAITING_APPROVAL,
    WAITING_CLIENT,
    WAITING_HUMAN,
    TenantScope,
    Unscoped,
)

DATABASE_URL = "DENDRUX_DATABASE_URL"
IN_MEMORY = "sqlite+aiosqlite:///:memory:"
REASON_MAX = 1000


class Agent:
    """A model with a prompt and tools, whose runs are kept in a store. One instance serves any number of runs.

    The store is `state_store`, or one on `database_url`, or on the URL in DENDRUX_DATABASE_URL, or one in memory that
    goes with the process. A store of the caller's stays the caller's; `close` closes only what the agent made.
    """

    name: str | None = None
    prompt: str | None = None
    tools: ClassVar[Sequence[Any]] = ()

    # -- construction -------------------------------------------------------------------------------------------------

    def __init__(
        self,
        *,
        name: str | None = None,
        prompt: str | None = None,
        tools: Sequence[Any] | None = None,
        provider: LLMProvider | None = None,
        state_store: Any = None,
        database_url: str | None = None,
        database_options: Mapping[str, Any] | None = None,
        max_iterations: int = 10,
        max_delegation_depth: int | None = 10,
        limits: Limits | None = None,
        require_approval: Sequence[str] | frozenset[str] = (),
        budget: Budget | None = None,
        lease_s: float = 90.0,
        heartbeat_s: float | None = None,
    ) -> None:
        """Everything that can be known to be wrong is refused here, before any run starts.

        `lease_s` is the age at which this deployment's sweeps take a run for lost; a heartbeat renews it every
        `heartbeat_s` seconds, by default every sixth of it.

        Refuses: ValueError and TypeError naming the parameter; StoreCapabilityError for a store whose methods do not
        keep what it declares.
        """
        self.limits = Limits() if limits is None else valid.checked_kind("limits", limits, Limits)
        self.capabilities = valid.checked_store(state_store, database_url)
        if database_options is not None and database_url is None:
            raise ValueError("database_options needs database_url")
        self.name = valid.checked_name(name or self.name or type(self).__name__)
        self.prompt = valid.checked_prompt(prompt or self.prompt, self.limits)
        self._tools = valid.checked_tools(self.tools if tools is None else tools)
        self._require_approval = valid.checked_approval(require_approval, self._tools)
        self._max_iterations = valid.checked_iterations(max_iterations)
        self._max_depth = valid.checked_depth(max_delegation_depth)
        self.provider = valid.checked_provider(provider)
        self._budget = None if budget is None else valid.checked_kind("budget", budget, Budget)
        self._lease_s = lease_s
        self._heartbeat_s = lease_s / 6 if heartbeat_s is None else heartbeat_s
        check_heartbeat(self._lease_s, self._heartbeat_s)
        self._given_store = state_store
        self._database_url = database_url
        self._database_options = dict(database_options or {})
        self._engine: Any = None
        self._store: Any = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what the agent made: the store on its own URL, with its connections. Idempotent."""
        store, engine, self._store, self._engine = self._store, self._engine, None, None
        if engine is not None:
            await store.close()
            await engine.dispose()

    async def store(self) -> Any:
        """The store of the agent's runs, opened and checked when it is first used."""
        async with self._opening:
            if self._store is None:
                opened = self._given_store
                if opened is None:
                    from dendrux.db.session import get_engine
                    from dendrux.store import store_for_engine

                    url = self._database_url or os.environ.get(DATABASE_URL) or IN_MEMORY
                    self._engine = get_engine(url, **self._database_options)
                    opened = store_for_engine(self._engine)
                    self.capabilities = valid.declared(opened)
                await valid.check_statements(opened, self.limits)
                self._store = adapted(opened)
        return self._store

    async def _runner(self, provider: LLMProvider | None = None) -> Runner:
        asked = valid.checked_provider(provider) or self.provider
        if asked is None:
            raise ValueError(f"agent {self.name!r} has no provider: pass provider= to the Agent or to dendrux.run")
        assert self.name is not None
        assert self.prompt is not None
        behaviour = Behaviour(
            name=self.name,
            prompt=self.prompt,
            tools=self._tools,
            provider=asked,
            max_iterations=self._max_iterations,
            limits=self.limits,
            require_approval=self._require_approval,
            budget=self._budget,
        )
        return Runner(
            behaviour,
            await self.store(),
            self.capabilities,
            max_depth=self._max_depth,
            lease_s=self._lease_s,
            heartbeat_s=self._heartbeat_s,
        )

    # -- new runs -----------------------------------------------------------------------------------------------------

    async def run(self, user_input: str, *, provider: LLMProvider | None = None, **options: Any) -> RunResult:
        """Make a run and work on it until it ends or waits for somebody.

        Options: `history` (messages before the input), `tenant_id`, `metadata`, `model`, `max_delegation_depth`,
        `idempotency_key`; all others go to the provider, now and after every resume. Inside a tool of another run the
        new run is its child.

        Raises what the provider raised, once the run has ended with that error; StaleClaimError and
        RunAlreadyTerminalError when the run was lost, and then nothing was written; RunAlreadyActiveError and
        IdempotencyConflictError for a key that is in use; DelegationDepthExceededError. Each carries `run_id`.
        """
        return await (await self._runner(provider)).start(self._request(user_input, **options))

    def stream(self, user_input: str, *, provider: LLMProvider | None = None, **options: Any) -> RunStream:
        """The same as a stream of events. Arguments are refused here; the run begins when the stream is read."""
        request = self._request(user_input, **options)

        async def work(emit: Any) -> RunResult:
            return await (await self._runner(provider)).start(request, emit, streaming=True)

        return RunStream(request.run_id, work)

    async def retry(
        self, run_id: str, *, tenant_id: TenantScope = UNSCOPED, provider: LLMProvider | None = None, **options: Any
    ) -> RunResult:
        """A new run from what an ended one had come to: its conversation up to the last turn whose calls are answered.

        No answered call runs again. Refuses: RunNotFoundError; ValueError for a run that has not ended.
        """
        runner = await self._runner(provider)
        record = await found(runner.store, run_id, tenant_id)
        if record.status not in TERMINAL_STATUSES:
            raise ValueError(f"run {run_id!r} has status {record.status!r}; only an ended run is retried")
        given = record.input_data or {}
        seeds = int(given.get("seeds") or 0)
        said = await load(runner.store, run_id, format_2=record.format == 2, seeds=seeds, limits=self.limits)
        history = complete_turns(said.messages)
        if history and history[-1].role == "assistant" and not history[-1].tool_calls:
            history.pop()  # its answer is what is asked for again
        options.setdefault("model", given.get("model"))
        asked = self._request(
            str(given.get("user_input") or ""),
            history=history,
            tenant_id=record.tenant_id,
            retry_of=run_id,
            **{**(given.get("options") or {}), **options},
        )
        return await runner.start(asked)

    def new_run_id(self) -> str:
        """The id of the next run: unique for ever, 1 to 64 characters. A subclass may number runs its own way."""
        return new_id()

    def _request(
        self,
        user_input: str,
        *,
        history: Sequence[Message] = (),
        tenant_id: str | Unscoped | None = UNSCOPED,
        metadata: JsonObject | None = None,
        model: str | None = None,
        max_delegation_depth: int | None = None,
        idempotency_key: str | None = None,
        retry_of: str | None = None,
        **options: Any,
    ) -> Request:
        """Refuses: ValueError for an input that is too large or cannot be stored, and for an unfinished history."""
        if not isinstance(user_input, str):
            raise TypeError(f"user_input must be a string, not {type(user_input).__name__}")
        messages = valid.checked_history(history)
        bounds = [b for b in (max_delegation_depth, self._max_depth) if b is not None]
        request = Request(
            run_id=self.new_run_id(),
            user_input=user_input,
            history=messages,
            tenant_id=tenant_id,
            metadata=valid.checked_meta(metadata),
            options=options,
            model=model,
            max_depth=min(map(valid.checked_depth, bounds), default=None),  # type: ignore[type-var]
            idempotency_key=idempotency_key,
            retry_of=retry_of,
        )
        stored: list[Any] = [user_input, request.metadata, options]
        if retry_of is None:  # what a retry begins with was stored before, message by message
            stored += [[m.role, m.content, meta_of(m)] for m in messages]
        size = valid.size_of(stored, "the input with its history, metadata and options")
        if size > self.limits.max_input_bytes:
            raise ValueError(f"the input has {size} bytes, and Limits.max_input_bytes is {self.limits.max_input_bytes}")
        return request

    # -- runs that wait -----------------------------------------------------------------------------------------------

    async def submit_tool_results(
        self, run_id: str, results: Any, *, pause_id: str | None = None, tenant_id: TenantScope = UNSCOPED
    ) -> RunResult:
        """Answer client tool calls, each once, and go on. `results`: values by call id, or ToolResults.

        Refuses, with nothing changed: InvalidToolResultError; and what every submission refuses: RunNotFoundError,
        RunAlreadyTerminalError, RunNotPausedError, PauseStatusMismatchError (another status, or no longer the pause
        `pause_id`), RunAlreadyClaimedError. StoreOutcomeUnknown: nobody can say whether the run was claimed, and
        nothing was done with it.
        """
        record, document = await self._waiting(run_id, WAITING_CLIENT, tenant_id, pause_id)
        given = pauses.tool_results(run_id, results, document)
        return await self._answer(record, document, {pauses.RESULTS: given}, tenant_id)

    async def submit_input(
        self, run_id: str, text: str, *, pause_id: str | None = None, tenant_id: TenantScope = UNSCOPED
    ) -> RunResult:
        """Answer the question that the run asks a person, and go on."""
        record, document = await self._waiting(run_id, WAITING_HUMAN, tenant_id, pause_id)
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, not {type(text).__name__}")
        return await self._answer(record, document, {pauses.INPUT: text}, tenant_id)

    async def submit_approval(
        self,
        run_id: str,
        *,
        approved: bool | None = None,
        decisions: Mapping[str, bool] | None = None,
        rejection_reason: str | None = None,
        pause_id: str | None = None,
        tenant_id: TenantScope = UNSCOPED,
    ) -> RunResult:
        """Decide on gated calls, all at once or each by its id, and go on. Rejected calls are answered, never run."""
        record, document = await self._waiting(run_id, WAITING_APPROVAL, tenant_id, pause_id)
        chosen = pauses.decided(run_id, document, approved, decisions, rejection_reason)
        return await self._answer(record, document, {pauses.DECISIONS: chosen}, tenant_id)

    async def resume(
        self,
        run_id: str,
        *,
        tool_results: Any = None,
        user_input: str | None = None,
        pause_id: str | None = None,
        tenant_id: TenantScope = UNSCOPED,
    ) -> RunResult:
        """Go on with a run that was paused on request or by its budget; with an answer, as the submissions do."""
        if tool_results is not None and user_input is not None:
            raise ValueError("give tool_results or user_input, not both")
        if tool_results is not None:
            return await self.submit_tool_results(run_id, tool_results, pause_id=pause_id, tenant_id=tenant_id)
        if user_input is not None:
            return await self.submit_input(run_id, user_input, pause_id=pause_id, tenant_id=tenant_id)
        record, document = await self._waiting(run_id, PAUSED, tenant_id, pause_id)
        return await self._answer(record, document, {pauses.RESUMED: True}, tenant_id)

    async def resume_claimed(self, run_id: str, *, claim_epoch: int) -> RunResult:
        """Go on with a run that this process owns under this epoch, as a claim or a reclaim returned it.

        Continues from the last checkpoint: tool calls with a stored result do not run again; those that an earlier
        owner had begun do, and are listed in `meta["replayed_tool_calls"]`.
        """
        runner = await self._runner()
        record = await found(runner.store, run_id)
        self._is_mine(record)
        owned = Owned(run_id=run_id, claim_epoch=claim_epoch, format=record.format)
        return await runner.go_on(owned, repair=True)

    async def _waiting(
        self, run_id: str, status: str, tenant_id: TenantScope, pause_id: str | None
    ) -> tuple[RunRecord, JsonObject]:
        """The run and its document, if it waits for this. Nothing is written yet."""
        runner = await self._runner()
        record = await found(runner.store, run_id, tenant_id)
        self._is_mine(record)
        if record.status in TERMINAL_STATUSES:
            raise RunAlreadyTerminalError(run_id, record.status)
        if record.cancel_requested:
            raise RunAlreadyTerminalError(run_id, "cancelled")
        if record.status not in PAUSED_STATUSES:
            raise RunNotPausedError(run_id, record.status)
        if record.status != status:
            raise PauseStatusMismatchError(run_id, record.status, status)
        document = await runner.store.get_pause_state(run_id) or {}
        pauses.still_at(run_id, status, pause_id)(document)
        return record, document

    def _is_mine(self, record: RunRecord) -> None:
        if record.agent_name != self.name:
            raise ValueError(f"run {record.id!r} belongs to the agent {record.agent_name!r}, and this is {self.name!r}")

    async def _answer(
        self, record: RunRecord, document: JsonObject, submitted: JsonObject, tenant_id: TenantScope
    ) -> RunResult:
        """Claim the run at the pause that was looked at, with what is submitted; then go on."""
        size = valid.size_of(submitted, "what is submitted")
        if size > self.limits.max_tool_result_bytes:
            raise ValueError(
                f"what is submitted has {size} bytes, and Limits.max_tool_result_bytes is "
                f"{self.limits.max_tool_result_bytes}"
            )
        runner = await self._runner()
        return await runner.go_on(await runner.claim(record, submitted, document.get("pause_id"), tenant_id))

    # -- asking a run -------------------------------------------------------------------------------------------------

    async def cancel_run(self, run_id: str, *, cascade: bool = False, tenant_id: TenantScope = UNSCOPED) -> RunResult:
        """Cancel a run: one that waits has ended when this returns, one at work ends before its next step.

        `cascade` reaches every run below it, also those created meanwhile; what became of each is in
        `meta["cascade"]`. A run that has ended stays as it is.
        """
        from dendrux.runtime.asking import cancel

        return await cancel(await self.store(), run_id, cascade=cascade, tenant_id=tenant_id)

    async def request_pause(
        self, run_id: str, *, reason: str | None = None, cascade: bool = True, tenant_id: TenantScope = UNSCOPED
    ) -> PauseOutcome:
        """Ask a run at work, and with `cascade` those below it, to pause before its next turn."""
        from dendrux.runtime.asking import pause

        if reason is not None and len(reason) > REASON_MAX:
            raise ValueError(f"reason has {len(reason)} characters, and at most {REASON_MAX} are allowed")
        return await pause(await self.store(), run_id, reason=reason, cascade=cascade, tenant_id=tenant_id)

    async def submit_note(
        self, run_id: str, text: str, *, metadata: Any = None, tenant_id: TenantScope = UNSCOPED
    ) -> str:
        """Leave a note that the model reads before its next turn; the note's id.

        Refuses: RunNotFoundError, RunAlreadyTerminalError, InboxFullError; ValueError for an empty or oversized note.
        """
        limits = self.limits
        if not text or len(text.encode(errors="surrogatepass")) > limits.max_note_bytes:
            raise ValueError(f"a note has 1 to {limits.max_note_bytes} bytes")
        if valid.size_of(metadata, "a note's metadata") > limits.max_note_metadata_bytes:
            raise ValueError(f"a note's metadata has at most {limits.max_note_metadata_bytes} bytes")
        store, note_id = await self.store(), new_id()
        outcome = await store.add_note(
            run_id,
            note_id=note_id,
            text=text,
            metadata=metadata,
            max_pending=limits.max_pending_notes,
            tenant_id=tenant_id,
        )
        if outcome == "full":
            raise InboxFullError(run_id, limits.max_pending_notes)
        if outcome == "closed":
            raise RunAlreadyTerminalError(run_id, (await found(store, run_id)).status)
        return note_id

    async def result(self, run_id: str, *, tenant_id: TenantScope = UNSCOPED) -> RunResult:
        """Where a run stands, read from the store: without steps. Refuses: RunNotFoundError."""
        return await result_of(await self.store(), run_id, tenant_id)


async def run(agent: Agent, *, user_input: str, provider: LLMProvider | None = None, **options: Any) -> RunResult:
    """`agent.run` with a provider of the caller's choice."""
    return await agent.run(user_input, provider=provider, **options)
