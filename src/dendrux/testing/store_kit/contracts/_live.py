"""Live updates: what a write changed is announced once it can be seen, and nothing else is.

The kit gives the store a recording LiveUpdates; a second instance is the follower that looks when an id is flushed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from dendrux.lab.seam import Seam, watching
from dendrux.testing.bench import settled
from dendrux.testing.driver import OVER_EVERY_RUN
from dendrux.testing.execution import Execution
from dendrux.testing.recording import RecordingUpdates
from dendrux.testing.store_kit.contract import Need, NotKept, Situation, contract, needs_of
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import LEASE_S, OWNED, REACT, WAITING, born, ended, paused, world_after
from dendrux_model.operations import (
    CancelSubtree,
    ClaimPausedRun,
    CreateRun,
    FinalizeWithEvent,
    MarkLeaseExpired,
    Operation,
    RequestCancel,
    SaveRunEvent,
    SweepStaleRuns,
)
from dendrux_model.outcomes import Unknown
from dendrux_model.programs import Do, Point, Program, Tick, lasting
from dendrux_model.world import Run, World, find

READER: Final[frozenset[Need]] = frozenset({"live", "reader"})
"""What a contract needs that compares announcements with what somebody else sees."""

STATEMENTS_MAX: Final = 12
"""Statements of one write at most before which a contract cuts."""


def shown(run: Run) -> tuple[Any, ...]:
    """What followers, status reads and lists show of a run: whatever they show moves its time, or is an event."""
    return run.status, run.updated_at, run.cancel_requested, run.pause_requested, len(run.events)


def touched(before: Program, operation: Operation, form: int) -> frozenset[str]:
    """The runs of which the model shows something else after this call."""
    old = world_after(before, form)._replace(now=lasting(before))
    new = operation.step(old)[0]
    changed = (run for run in new.runs if (was := find(old, run.id)) is None or shown(was) != shown(run))
    return frozenset(run.id for run in changed)


def live_of(situation: Situation) -> RecordingUpdates:
    """What the store of this situation announces through."""
    live = situation.bench.live
    if not isinstance(live, RecordingUpdates):
        raise NotKept("the store was made without the kit's LiveUpdates")
    return live


async def look(reader: Any, run_id: Any) -> Any:
    """What a follower with connections of its own sees of a run: its status, times and flags, and its log."""
    run = await reader.get_run(run_id) if isinstance(run_id, str) and run_id else None
    if run is None:
        return None
    events = await reader.get_run_events(run_id, limit=1000)
    seen = [event.sequence_index for event in events]
    return run.status, run.updated_at, run.cancel_requested, run.pause_requested, seen


@dataclass(frozen=True)
class Announced:
    """A check: the call announces exactly the runs that it changed, each once somebody else can see the change."""

    sample: Sample

    async def __call__(self, situation: Situation) -> None:
        live, call = live_of(situation), self.sample.operation
        await situation.bench.instance()
        reader = await situation.bench.instance(1)
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run(self.sample.before, look=False)
        live.forget()
        live.look = lambda run_id: look(reader, run_id)
        await execution.step(Do(call))
        live.look = None
        wanted = {execution.driver.inside("run_id", one) for one in touched(self.sample.before, call, situation.format)}
        mine = [one for one in live.sent if call.method not in OVER_EVERY_RUN or one.run_id in wanted]
        if live.pending:
            raise NotKept(f"{call.method} returned well and left {len(live.pending)} ids that it did not flush")
        if wrong := {one.run_id for one in mine} ^ wanted:
            how = "did not announce" if wrong & wanted else "announced what it did not change:"
            raise NotKept(f"{call.method} {how} {named(wrong & wanted or wrong, execution.driver.namespace)}")
        for one in mine:
            if one.seen != await look(reader, one.run_id):
                what = named((one.run_id,), execution.driver.namespace)
                raise NotKept(f"{call.method} announced {what} before another connection could see what it had written")


def named(run_ids: Iterable[Any], namespace: str) -> str:
    """Ids as a program names them."""
    return ", ".join(sorted(repr(run_id).replace(namespace, "") for run_id in run_ids))


def announces(sample: Sample, name: str = "announced") -> None:
    """The contract of one operation, on the formats on which its sample changes what is shown."""
    forms = [form for form in (1, 2) if touched(sample.before, sample.operation, form)]
    if not forms:
        return
    only: dict[tuple[int, ...], frozenset[Need]] = {(1,): frozenset({"format_1"}), (2,): frozenset({"format_2"})}
    contract(
        f"live_updates.{sample.method}.{name}",
        f"What {sample.method} changed is announced, with exactly the ids of these runs, once it can be seen.",
        group="live_updates",
        capability=sample.capability,
        needs=READER | needs_of(sample.before) | only.get(tuple(forms), frozenset()),
        check=Announced(sample),
        cause="Hand live_updates the ids of the runs that a write changed after its COMMIT; flush before returning.",
    )


for writing in samples():
    announces(writing)

FAMILY: Final[Program] = (
    born(),
    born("child", parent_run_id="r", delegation_level=1),
    born("waits", parent_run_id="r", delegation_level=1),
    paused("waits"),
    born("below", parent_run_id="child", delegation_level=2),
)
OLD: Final[Program] = (born(meta=REACT), born("r2", meta=REACT), born("r3"), Tick(LEASE_S))
for several, before in (
    (CancelSubtree(root_run_id="r"), FAMILY),
    (SweepStaleRuns(older_than_s=LEASE_S), OLD),
    (MarkLeaseExpired(cutoff_s=LEASE_S), OLD),
):
    announces(Sample(operation=several, before=before, others={}), "each_of_several")


# -- nothing to announce ----------------------------------------------------------------------------------------------

STORED: Final = SaveRunEvent(run_id="r", event_type="seen", event_id="seen")
NOT_APPLIED: Final[tuple[tuple[str, Program, Operation], ...]] = (
    ("a write under an old epoch", OWNED, SaveRunEvent(run_id="r", event_type="x", claim_epoch=1)),
    ("a lost claim", OWNED, ClaimPausedRun(run_id="r", expected_status=WAITING)),
    ("a lost end", OWNED, FinalizeWithEvent(
        run_id="r", status="success", allowed_current_statuses=(WAITING,), event_type="run.completed", event_id="lost",
    )),
    ("a repeat by its identity", (*OWNED, Do(STORED)), STORED),
    ("a second request to cancel", (*OWNED, Do(RequestCancel(run_id="r"))), RequestCancel(run_id="r")),
    ("a request to cancel an ended run", (*OWNED, ended()), RequestCancel(run_id="r")),
    ("a run that exists", OWNED, CreateRun(run_id="r", agent_name="agent")),
    ("a write on a run that does not exist", OWNED, SaveRunEvent(run_id="nowhere", event_type="x")),
)  # fmt: skip
"""Writes that change nothing, each with what comes before it."""


async def not_applied(situation: Situation) -> None:
    """Refusals, lost swaps and repeats."""
    live = live_of(situation)
    await situation.bench.instance()
    for what, before, call in NOT_APPLIED:
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run(before, look=False)
        live.forget()
        await execution.step(Do(call))
        nothing(live, what)


async def failed_before_commit(situation: Situation) -> None:
    """A write that fails before each of its statements in turn."""
    live, store, injector = live_of(situation), await situation.bench.instance(), situation.bench.injector
    for number in range(STATEMENTS_MAX):
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run((born(),), look=False)
        live.forget()
        call = SaveRunEvent(run_id="r", event_type="seen", event_id="seen")
        if not await cut(execution, injector, store, call, "statement", "error", number):
            return
        nothing(live, "a write that failed before its COMMIT")


def nothing(live: RecordingUpdates, what: str) -> None:
    """Whether nothing was announced, or waits to be."""
    if live.sent or live.pending:
        raise NotKept(f"{what} was announced, and nothing has changed")


async def cut(
    execution: Execution, injector: Any, store: Any, call: Operation, point: Point, kind: str, after: int = 0
) -> Any:
    """The outcome of a call that is cut at this point; None when it was not reached."""
    await settled(injector.arm(store, point, kind=kind, after=after))
    try:
        outcome = await execution.driver.call(store, call)
        fired = int(await settled(injector.fired(store)))
    finally:
        await settled(injector.disarm(store))
    return outcome if fired else None


# -- COMMIT was issued ------------------------------------------------------------------------------------------------

CLAIM: Final = ClaimPausedRun(run_id="r", expected_status=WAITING)
Failing = Callable[[Situation, Execution, Any], Awaitable[None]]


@dataclass(frozen=True)
class Later:
    """A check: a call fails after its COMMIT was issued. It does not flush, nor does a refusal after it; the next call
    that returns well announces the run.
    """

    fail: Failing

    async def __call__(self, situation: Situation) -> None:
        live, store = live_of(situation), await situation.bench.instance()
        reader = await situation.bench.instance(1)
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run((born(), paused()), look=False)
        live.forget()
        await self.fail(situation, execution, store)
        if live.flushes:
            raise NotKept("the call that failed flushed: it must return at once, with its own error")
        await execution.driver.call(store, SaveRunEvent(run_id="r", event_type="x", claim_epoch=9))
        if live.flushes:
            raise NotKept("a call that was refused flushed: only a call that returns well does")
        live.look = lambda run_id: look(reader, run_id)
        await execution.driver.call(store, CreateRun(run_id="next", agent_name="agent"))
        live.look = None
        run_id = execution.driver.inside("run_id", "r")
        found = [one for one in live.sent if one.run_id == run_id]
        if not found:
            raise NotKept(
                "a write whose COMMIT was issued was not announced by the next call that returned well: it may have "
                "landed, whatever its caller was told"
            )
        now = await look(reader, run_id)
        if any(one.seen != now for one in found):
            raise NotKept("a write whose COMMIT was issued was announced before another connection could see it")


def loses(kind: str) -> Failing:
    """The answer to COMMIT is lost in this form."""

    async def lose(situation: Situation, execution: Execution, store: Any) -> None:
        outcome = await cut(execution, situation.bench.injector, store, CLAIM, "after_commit", kind)
        if outcome is None:
            raise NotKept("a cut was asked for and did not happen: the fault injector does not cut, or miscounts")
        if not isinstance(outcome, Unknown):
            raise NotKept(f"claim_paused_run answered {outcome} after its COMMIT was not acknowledged")

    return lose


class CancelsAtCommit:
    """Cancels a task once COMMIT was applied."""

    def __init__(self) -> None:
        self.task: asyncio.Future[Any] | None = None
        self.cut = False

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None: ...

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None: ...

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        if wrote and self.task is not None and not self.cut:
            self.cut = self.task.cancel()

    def on_error(self, seam: Seam, error: BaseException) -> None: ...


async def cancelled(situation: Situation, execution: Execution, store: Any) -> None:
    """The caller is cancelled when COMMIT was applied and not yet answered."""
    watcher = CancelsAtCommit()
    with watching(store, watcher):
        watcher.task = asyncio.ensure_future(execution.driver.call(store, CLAIM))
        await asyncio.wait({watcher.task}, timeout=30)
    if not watcher.cut:
        raise NotKept("claim_paused_run wrote nothing through the store's engine")
    if not watcher.task.cancelled():
        raise NotKept("a call that was cancelled after its COMMIT did not raise CancelledError")


def later(name: str, promise: str, fail: Failing, *needs: Need) -> None:
    """Add the contract of one way to fail after COMMIT."""
    contract(
        f"live_updates.claim_paused_run.commit_issued_{name}",
        promise,
        group="live_updates",
        needs=READER | {*needs},
        check=Later(fail),
        cause="The ids are enqueued when the call returns, so a failed one forgets them, or the failed one flushes: "
        "enqueue them once COMMIT was issued, and flush on success only.",
    )


contract(
    "live_updates.save_run_event.not_applied",
    "A write that is refused, lost or a repeat announces nothing.",
    group="live_updates",
    needs={"live"},
    check=not_applied,
    cause="The ids are handed over before the transaction is decided, or for every call.",
)
contract(
    "live_updates.save_run_event.failed_before_commit",
    "A write that failed before its COMMIT announces nothing.",
    group="live_updates",
    needs={"live", "fault_injector"},
    check=failed_before_commit,
    cause="The ids are handed over before COMMIT: the transaction may still fail.",
)
later(
    "lost_connection",
    "A write whose acknowledgement was lost is announced by the next call that returns well.",
    loses("invalidated"),
    "fault_injector",
    "disconnect_form",
)
later(
    "error",
    "A write whose COMMIT ended with an error that proves nothing is announced by the next call that returns well.",
    loses("error"),
    "fault_injector",
)
later(
    "cancelled",
    "A write whose caller was cancelled after COMMIT is announced by the next call that returns well.",
    cancelled,
    "sql",
)


# -- the instance -----------------------------------------------------------------------------------------------------


async def bound(situation: Situation) -> None:
    """The store shows the instance, and belongs to it."""
    live, store = live_of(situation), await situation.bench.instance()
    if getattr(store, "live_updates", None) is not live:
        raise NotKept("store.live_updates is not the instance that the factory was given: RunStore would not listen")
    if [one for one in live.bound if one is not store] or not live.bound:
        raise NotKept("the store did not call live_updates.bind with itself in its constructor")


async def closes(situation: Situation) -> None:
    """Closing twice."""
    live, store = live_of(situation), await situation.bench.instance()
    await settled(store.close())
    if not live.closed:
        raise NotKept("store.close() did not close the live updates: what is pending is never sent")
    await settled(store.close())


contract(
    "live_updates.create_run.shows_its_instance",
    "The store belongs to its LiveUpdates and shows it as live_updates.",
    group="live_updates",
    needs={"live"},
    check=bound,
    cause="The constructor does not pass live_updates to super().__init__.",
)
contract(
    "live_updates.create_run.closes_its_instance",
    "Closing the store closes its LiveUpdates; closing it again does no harm.",
    group="live_updates",
    needs={"live"},
    check=closes,
)
