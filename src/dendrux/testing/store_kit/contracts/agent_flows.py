"""A real agent against the store: it runs, calls tools, waits, is answered, asked to stop, and goes on after a restart.

These contracts say nothing that those of the operations do not; they show that the promises are enough together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dendrux.llm import calling
from dendrux.runtime.context import current
from dendrux.runtime.results import RunEventType
from dendrux.runtime.tools import tool
from dendrux.testing.bench import settled
from dendrux.testing.flows import Flow, Unkept, add, follow, locate
from dendrux.testing.store_kit.contract import Need, NotKept, Situation, contract

BEGUN: Final = ["run.started", "llm.started", "llm.completed"]
TURN: Final = ["llm.started", "llm.completed"]
CALLED: Final = ["tool.started", "tool.completed"]
LEASE_S: Final = 600.0
Steps = Callable[[Flow], Awaitable[None]]


def flow(
    id: str,
    promise: str,
    *,
    cause: str | None = None,
    needs: frozenset[Need] | set[Need] = frozenset(),
    capability: str | None = None,
) -> Callable[[Steps], Steps]:
    """Add a flow to the catalogue."""

    def enter(steps: Steps) -> Steps:
        async def check(situation: Situation) -> None:
            try:
                await follow(Flow(situation.bench, situation.format), steps)
            except Unkept as unkept:
                raise NotKept(str(unkept)) from unkept.__cause__

        contract(
            f"agent_flows.{id}",
            promise,
            group="agent_flows",
            check=check,
            cause=cause,
            needs=needs,
            capability=capability,
        )
        return steps

    return enter


@flow("run", "An agent answers, and the store shows the answer, the conversation, the usage and the log.")
async def _run(flow: Flow) -> None:
    agent = await flow.agent(["hello \u00e9\U0001f600"])
    flow.at = "a run of one turn"
    done = await agent.run("hi \u0000", tenant_id=f"{flow.namespace}t", metadata={"thread": "x"})
    await flow.expect("the result", (done.status, done.answer), ("success", "hello \u00e9\U0001f600"), done.run_id)
    await flow.row(
        done.run_id,
        status="success",
        answer="hello \u00e9\U0001f600",
        iteration_count=1,
        total_input_tokens=10,
        total_output_tokens=5,
        tenant_id=f"{flow.namespace}t",
        format=flow.format,
    )
    await flow.conversation(done.run_id, [("user", "hi \u0000"), ("assistant", "hello \u00e9\U0001f600")])
    await flow.log(done.run_id, [*BEGUN, "run.completed"])
    usage = await (await flow.store()).run_usage(done.run_id)
    await flow.expect("the usage", (usage.input_tokens, usage.llm_calls), (10, 1), done.run_id)


@flow("server_tool", "A tool of the agent runs between its stored intent and its stored result.")
async def _server_tool(flow: Flow) -> None:
    seen: list[Any] = []

    @tool
    async def look() -> str:
        """What the store shows while the tool runs."""
        around = current()
        assert around is not None
        seen.extend(await (await flow.store()).get_tool_calls(around.run_id))
        seen.append((await flow.types(around.run_id))[-1])
        return "seen"

    agent = await flow.agent([calling(("look", {})), calling(("add", {"a": 1, "b": 2})), "done"], [look, add])
    flow.at = "a run that calls two tools"
    done = await agent.run("go")
    await flow.expect("the status", done.status, "success", done.run_id)
    await flow.expect("the last event while a tool runs", seen[-1], "tool.started", done.run_id)
    if flow.format == 2:
        await flow.expect("what is stored of a tool that runs", [c.completed for c in seen[:-1]], [False], done.run_id)
    calls = await (await flow.store()).get_tool_calls(done.run_id)
    await flow.expect(
        "the results",
        [(c.tool_name, c.result, c.success) for c in calls],
        [("look", "seen", True), ("add", 3, True)],
        done.run_id,
    )
    await flow.conversation(
        done.run_id,
        [
            ("user", "go"),
            ("assistant", ""),
            ("tool", '"seen"'),
            ("assistant", ""),
            ("tool", "3"),
            ("assistant", "done"),
        ],
    )
    await flow.log(done.run_id, [*BEGUN, *CALLED, *TURN, *CALLED, *TURN, "run.completed"])


@flow(
    "client_tool",
    "A run waits for a client's tool, is answered once, and goes on with the answer.",
    cause="get_pause_state does not show what was submitted, or consume_submission hands it out twice or not at all.",
)
async def _client_tool(flow: Flow) -> None:
    agent = await flow.agent([calling(("add", {"a": 1, "b": 2}), ("locate", {})), "at home"], [add, locate])
    flow.at = "a run that calls a client's tool"
    paused = await agent.run("where?")
    await flow.expect("the status", paused.status, "waiting_client_tool", paused.run_id)
    waits = (await (await flow.store()).get_pending(paused.run_id)).calls
    await flow.expect(
        "what it waits for",
        [(c.id, c.name) for c in waits],
        [(c.id, "locate") for c in paused.pending_tool_calls],
        paused.run_id,
    )
    flow.at = "the answer to the client's tool"
    done = await agent.submit_tool_results(paused.run_id, {waits[0].id: {"place": "home"}})
    await flow.expect("the result", (done.status, done.answer), ("success", "at home"), paused.run_id)
    calls = {call.tool_name: call for call in await (await flow.store()).get_tool_calls(paused.run_id)}
    await flow.expect("the client's result", calls["locate"].result, {"place": "home"}, paused.run_id)
    await flow.log(
        paused.run_id,
        [*BEGUN, *CALLED, "tool.started", "run.paused", "run.resumed", "tool.completed", *TURN, "run.completed"],
    )


@flow("approval", "A gated tool runs after it was approved and never after it was rejected.")
async def _approval(flow: Flow) -> None:
    ran: list[str] = []

    @tool
    def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return what

    for approved in (True, False):
        agent = await flow.agent([calling(("act", {"what": str(approved)})), "done"], [act], require_approval=["act"])
        flow.at = f"a call that waits for approval and gets {approved}"
        gate = await agent.run("go")
        await flow.expect("the run that waits", (gate.status, ran), ("waiting_approval", ["True"] * (not approved)))
        done = await agent.submit_approval(gate.run_id, approved=approved)
        await flow.expect("the result", (done.status, ran), ("success", ["True"]), gate.run_id)
        calls = await (await flow.store()).get_tool_calls(gate.run_id)
        await flow.expect("the stored call", [call.success for call in calls], [approved], gate.run_id)


@flow("cancel_waiting", "A run that waits ends when it is cancelled, and nobody goes on with it.")
async def _cancel_waiting(flow: Flow) -> None:
    agent = await flow.agent([calling(("locate", {}))], [locate])
    flow.at = "a cancelled run that waited"
    paused = await agent.run("where?")
    ended = await agent.cancel_run(paused.run_id)
    await flow.expect("the status", ended.status, "cancelled", paused.run_id)
    try:
        await agent.submit_tool_results(paused.run_id, {paused.pending_tool_calls[0].id: 1})
    except RuntimeError as refused:
        await flow.expect("the refusal", getattr(refused, "code", None), "run_terminal", paused.run_id)
    else:
        raise Unkept(f"{flow.at}: it went on after its end")
    await flow.log(paused.run_id, [*BEGUN, "tool.started", "run.paused", "run.cancelled"])
    await flow.expect("the pause document", await (await flow.store()).get_pause_state(paused.run_id), None)


@flow(
    "cancel_working",
    "A run at work sees a request to cancel at its next step and ends as cancelled.",
    cause="request_cancel does not set the flag, or get_run_control does not show it.",
)
async def _cancel_working(flow: Flow) -> None:
    @tool
    async def stop() -> str:
        """Ask for the end of the own run."""
        around = current()
        assert around is not None
        await agent.cancel_run(around.run_id)
        return "asked"

    agent = await flow.agent([calling(("stop", {})), "never said"], [stop])
    flow.at = "a run that is cancelled by its own tool"
    done = await agent.run("go")
    await flow.expect("the result", (done.status, done.answer), ("cancelled", None), done.run_id)
    await flow.row(done.run_id, status="cancelled", cancel_requested=False, answer=None)
    await flow.log(done.run_id, [*BEGUN, *CALLED, "run.cancelled"])


@flow("pause_and_note", "A run pauses on request, reads the notes of its inbox when it goes on, and each once.")
async def _pause_and_note(flow: Flow) -> None:
    @tool
    async def pause() -> str:
        """Ask for a pause of the own run."""
        around = current()
        assert around is not None
        await agent.request_pause(around.run_id, reason="lunch")
        return "asked"

    agent = await flow.agent([calling(("pause", {})), calling(("pause", {})), "done"], [pause])
    flow.at = "a pause on request"
    paused = await agent.run("go")
    await flow.expect("the status", paused.status, "paused", paused.run_id)
    await agent.submit_note(paused.run_id, "hurry")
    flow.at = "the first turn after a note"
    again = await agent.resume(paused.run_id)
    await flow.expect("the second pause", again.status, "paused", paused.run_id)
    flow.at = "the turn after that"
    done = await agent.resume(paused.run_id)
    await flow.expect("the status", done.status, "success", paused.run_id)
    traces = await (await flow.store()).get_traces(paused.run_id)
    told = [trace.content for trace in traces if trace.role == "user"]
    await flow.expect("what the user said", told, ["go", "NOTE FROM USER:\nhurry"], paused.run_id)
    notes = await (await flow.store()).get_notes(paused.run_id)
    await flow.expect("the delivered notes", [note.delivered_iteration for note in notes], [2], paused.run_id)


@flow("stream", "A stream tells of every step in order and ends with the result that the store shows.")
async def _stream(flow: Flow) -> None:
    agent = await flow.agent([calling(("add", {"a": 1, "b": 2}), text="let me see"), "three"], [add])
    flow.at = "a stream"
    stream = agent.stream("go")
    seen = [event.type async for event in stream]
    kinds = RunEventType
    wanted = [kinds.RUN_STARTED, kinds.TEXT_DELTA, kinds.TOOL_USE_START, kinds.TOOL_RESULT, kinds.TEXT_DELTA]
    await flow.expect("the stream", seen, [*wanted, kinds.RUN_COMPLETED], stream.run_id)
    await flow.row(stream.run_id, status="success", answer="three")
    flow.at = "a stream that is closed early"
    async with (await flow.agent([calling(("add", {"a": 1, "b": 2})), "never"], [add])).stream("go") as closed:
        async for event in closed:
            if event.type is kinds.TOOL_RESULT:
                break
    await flow.row(closed.run_id, status="cancelled")


@flow(
    "resume_after_restart",
    "What one process began another one goes on with: the same conversation, the same settings of its model.",
    needs={"reopen"},
    cause="A part of the run lives in the instance of the store and not in its data.",
)
async def _resume_after_restart(flow: Flow) -> None:
    agent = await flow.agent([calling(("add", {"a": 1, "b": 2}), ("locate", {}), text="one moment")], [add, locate])
    flow.at = "a run that waits while its process ends"
    paused = await agent.run("where?", model="special", temperature=0.25)
    await flow.bench.restart()
    flow.at = "the run after the restart"
    again = await flow.agent(["at home"], [add, locate])
    stands = await again.result(paused.run_id)
    await flow.expect("what it waits for", stands.pending_tool_calls, paused.pending_tool_calls, paused.run_id)
    done = await again.submit_tool_results(paused.run_id, {stands.pending_tool_calls[0].id: "home"})
    await flow.expect("the result", (done.status, done.answer), ("success", "at home"), paused.run_id)
    provider: Any = again.provider
    asked = provider.call_history[0]
    said = [(message.role, message.content) for message in asked.messages[1:]]
    wanted = [("user", "where?"), ("assistant", "one moment"), ("tool", "3"), ("tool", '"home"')]
    await flow.expect("what the model was shown", said, wanted, paused.run_id)
    await flow.expect("the settings", (asked.model, asked.options), ("special", {"temperature": 0.25}), paused.run_id)
    await flow.row(paused.run_id, iteration_count=2, total_input_tokens=20)


@flow("failure", "What a model's provider raises ends the run, with its text on the row and in the log.")
async def _failure(flow: Flow) -> None:
    agent = await flow.agent([calling(("add", {"a": "x"})), OSError("the vendor is away")], [add])
    flow.at = "a provider that raises"
    try:
        await agent.run("go")
    except OSError as raised:
        run_id = str(getattr(raised, "run_id", ""))
    else:
        raise Unkept(f"{flow.at}: nothing was raised")
    await flow.row(run_id, status="error", error="OSError: the vendor is away")
    await flow.log(run_id, [*BEGUN, *CALLED, "llm.started", "run.error"])


@flow("delegation", "A run inside a tool is a child of the tool's run: parent, level and tenant are stored.")
async def _delegation(flow: Flow) -> None:
    child = await flow.agent(["below"], name="child")

    @tool
    async def delegate() -> str:
        """Let another agent do it."""
        return str((await child.run("task")).answer)

    parent = await flow.agent([calling(("delegate", {})), "done"], [delegate])
    flow.at = "a run that delegates"
    done = await parent.run("go", tenant_id=f"{flow.namespace}t")
    await flow.expect("the status", done.status, "success", done.run_id)
    below = await (await flow.store()).child_runs_page(done.run_id)
    await flow.expect("the children", [run.agent_name for run in below], ["child"], done.run_id)
    await flow.row(
        below[0].run_id, parent_run_id=done.run_id, delegation_level=1, tenant_id=f"{flow.namespace}t", status="success"
    )
    usage = await (await flow.store()).subtree_usage(done.run_id)
    await flow.expect("the usage of both", usage.llm_calls, 3, done.run_id)


@flow(
    "taken_over",
    "A run whose process died is taken over: completed calls do not run again, begun ones do and are listed.",
    needs={"reopen", "clock", "format_2"},
    capability="recovery",
)
async def _taken_over(flow: Flow) -> None:
    ran: list[str] = []

    @tool(parallel=False)
    async def act(what: str) -> str:
        """Act; the second time, the process dies while it does."""
        ran.append(what)
        if ran == ["first", "second"]:
            raise Died
        return what

    flow.at = "a process that dies while a tool runs"
    agent = await flow.agent([calling(("act", {"what": "first"}), ("act", {"what": "second"}))], [act])
    try:
        await agent.run("go")
    except Died:
        run_id = f"{flow.namespace}run{flow.runs}"
    else:
        raise Unkept(f"{flow.at}: it lived")
    store = await flow.bench.restart()
    flow.at = "the process that takes the run over"
    clock = flow.bench.clock
    await flow.bench.advance(LEASE_S)
    now = await settled(clock.now()) if hasattr(clock, "now") else datetime.now(UTC)
    await _marked(store, run_id, now - timedelta(seconds=LEASE_S / 2))
    epoch = await store.reclaim_run(run_id, expected_epoch=1)
    await flow.expect("the new epoch", epoch, 2, run_id)
    done = await (await flow.agent(["done"], [act])).resume_claimed(run_id, claim_epoch=epoch)
    await flow.expect("the status", done.status, "success", run_id)
    await flow.expect("what ran", ran, ["first", "second", "second"], run_id)
    replayed = (await store.get_replayed_tool_calls(run_id)).calls
    await flow.expect("the replayed calls", [call.params for call in replayed], [{"what": "second"}], run_id)
    await flow.log(
        run_id,
        [
            *[*BEGUN, *CALLED, "tool.started", "run.lease_expired", "run.reclaimed"],
            *[*CALLED, *TURN, "run.completed"],
        ],
    )


class Died(BaseException):
    """What ends a process in a flow: no handler of an error sees it."""


async def _marked(store: Any, run_id: str, cutoff: datetime) -> None:
    """Mark expired leases, page by page, until this run's is among them; others' runs may be there too."""
    after: str | None = None
    while True:
        page = await store.mark_lease_expired(cutoff=cutoff, limit=1000, after=after)
        if run_id in page.marked:
            return
        after = page.next_after
        if after is None:
            raise Unkept(f"the lease of a run whose owner was silent for {LEASE_S:.0f} s is not marked: {run_id}")
