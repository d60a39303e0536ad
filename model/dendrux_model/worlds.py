"""Small worlds: a few runs, a few callers, a finite alphabet of operations, and a bound that makes the states finite.

Together they reach every way through every operation. Each is explored on both storage formats. The set-up happens at
instant 0 and everything else at instant 1, so a clock that moved is seen and worlds differ in little else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dendrux.runtime.values import UsageStats
from dendrux.vocabulary import OPEN_STATUSES
from dendrux_model.operations import (
    AddNote,
    ClaimPausedRun,
    CountRuns,
    CreateRun,
    FinalizeRun,
    FinalizeRunIfStatusIn,
    FinalizeWithEvent,
    GetLLMInteractions,
    GetNotes,
    GetPauseState,
    GetPending,
    GetPiiMapping,
    GetRun,
    GetRunControl,
    GetRunEvents,
    GetRunStatuses,
    GetToolCalls,
    GetTraces,
    ListRuns,
    MarkNotesDelivered,
    Operation,
    PauseRun,
    PauseWithEvent,
    ReleaseRunClaim,
    RequestCancel,
    RequestPause,
    SaveLLMInteraction,
    SaveRunEvent,
    SaveToolCall,
    SaveTrace,
    SaveUsage,
    SubmitAndClaim,
    TouchProgress,
    TryPauseRun,
    UpdateRunMeta,
)
from dendrux_model.outcomes import Returned
from dendrux_model.world import World

Bound = Callable[[World], bool]


@dataclass(frozen=True, kw_only=True)
class SmallWorld:
    """What to explore: from the world after `setup`, by every operation of `alphabet`, as long as `within` says so."""

    name: str
    statement: str
    format: int
    setup: tuple[Operation, ...]
    alphabet: tuple[Operation, ...]
    within: Bound = lambda _world: True
    """A world outside the bound is counted and checked, but not left."""
    starts_at: int = 1
    """The instant of everything after the set-up, which happens at 0."""
    sometimes: tuple[str, ...] = ()
    """The properties that some program in this world must show."""

    def initial(self) -> World:
        """The world after the set-up, an instant later."""
        world = World(new_format=self.format)
        for operation in self.setup:
            world, outcome = operation.step(world)
            if not isinstance(outcome, Returned):
                raise ValueError(f"{self.name}: the set-up is refused: {operation} {outcome}")
        return world._replace(now=self.starts_at)


SMALL_WORLDS: Final[dict[str, SmallWorld]] = {}
"""By name: `name` on format 2, `name_format_1` on format 1."""


def small_world(build: Callable[[int], dict[str, Any]]) -> Callable[[int], dict[str, Any]]:
    """Enter a small world into the table, once for each format; its docstring says what it is."""
    for storage_format, name in ((2, build.__name__), (1, f"{build.__name__}_format_1")):
        statement = (build.__doc__ or "").strip()
        SMALL_WORLDS[name] = SmallWorld(name=name, statement=statement, format=storage_format, **build(storage_format))
    return build


R1, R2, R3, MISSING = "r1", "r2", "r3", "r9"
APPROVAL, HUMAN = "waiting_approval", "waiting_human_input"


def run(run_id: str, **given: Any) -> CreateRun:
    """A run of the only agent there is."""
    return CreateRun(run_id=run_id, agent_name="a", **given)


def pause(run_id: str, event_id: str, epoch: int | None, status: str = APPROVAL, **given: Any) -> PauseWithEvent:
    """A pause whose document is one question."""
    return PauseWithEvent(
        run_id=run_id, event_id=event_id, claim_epoch=epoch, status=status, **{"pause_data": {"q": 1}, **given}
    )


def end(run_id: str, event_id: str, epoch: int | None, status: str = "success", **given: Any) -> FinalizeWithEvent:
    """The end of a run, unless `allowed` says otherwise of a running one."""
    kind = {"success": "run.completed", "error": "run.error", "cancelled": "run.cancelled"}[status]
    allowed = given.pop("allowed", ("running",))
    return FinalizeWithEvent(
        run_id=run_id,
        event_id=event_id,
        claim_epoch=epoch,
        status=status,
        **{"event_type": kind, "allowed_current_statuses": allowed, **given},
    )


ANY_OPEN: Final = tuple(sorted(OPEN_STATUSES))


def legacy(run_id: str) -> list[Operation]:
    """The pause and finalize methods that format 2 refuses."""
    document: dict[str, Any] = {"status": APPROVAL, "pause_data": {"q": 1}}
    allowed = (APPROVAL,)
    return [
        PauseRun(run_id=run_id, claim_epoch=1, **document),
        TryPauseRun(run_id=run_id, claim_epoch=1, **document),
        FinalizeRun(run_id=run_id, status="success", answer="one", claim_epoch=1),
        FinalizeRunIfStatusIn(run_id=run_id, status="error", allowed_current_statuses=allowed, claim_epoch=2),
    ]


def misguided() -> list[Operation]:
    """Calls of a run that does not exist, and calls with arguments that no state makes right."""
    return [
        *legacy(MISSING),
        PauseRun(run_id=MISSING, status="success", pause_data={}),
        TryPauseRun(run_id=MISSING, status="running", pause_data={}),
        pause(MISSING, "p9", None, "success"),
        FinalizeRun(run_id=MISSING, status="running"),
        FinalizeRunIfStatusIn(run_id=MISSING, status="paused", allowed_current_statuses=ANY_OPEN),
        end(MISSING, "f9", None, event_type="run.cancelled"),
        end(MISSING, "f9", None, allowed=()),
        end(MISSING, "f9", None, allowed=("running", "success")),
        ClaimPausedRun(run_id=MISSING, expected_status=APPROVAL),
        SubmitAndClaim(run_id=MISSING, expected_status=APPROVAL, submitted_data={}),
        ReleaseRunClaim(run_id=MISSING, claim_epoch=1),
        RequestPause(run_id=MISSING),
        GetRunControl(run_id=MISSING),
        GetPauseState(run_id=MISSING),
    ]


@small_world
def two_owners(storage_format: int) -> dict[str, Any]:
    """One run, its creator and whoever claims it later, and strangers who ask for pauses, cancels and ends."""

    def submit(**given: Any) -> SubmitAndClaim:
        return SubmitAndClaim(run_id=R1, expected_status=APPROVAL, **given)

    alphabet: list[Operation] = [
        pause(R1, "p1", 1),
        pause(R1, "p1", 1, pause_data={"q": 2}),
        pause(R1, "p2", 2, HUMAN),
        pause(R1, "p3", 3),
        ClaimPausedRun(run_id=R1, expected_status=APPROVAL),
        ClaimPausedRun(run_id=R1, expected_status=HUMAN),
        submit(submission_id="s1", submitted_data={"ok": True}),
        submit(submission_id="s1", submitted_data={"ok": 1}),
        submit(submitted_data={"ok": True}, validate="refuse"),
        *(ReleaseRunClaim(run_id=R1, claim_epoch=epoch) for epoch in (1, 2, 3)),
        end(R1, "f1", 1, answer="one"),
        end(R1, "f1", 2, answer="two"),
        end(R1, "f2", 2, answer="two"),
        end(R1, "f3", None, "cancelled", allowed=ANY_OPEN),
        RequestCancel(run_id=R1),
        RequestPause(run_id=R1),
        RequestPause(run_id=R1, reason="lunch"),
        SaveRunEvent(run_id=R1, event_type="x", event_id="e1", claim_epoch=1),
        SaveRunEvent(run_id=R1, event_type="x", event_id="e1", claim_epoch=2),
        SaveRunEvent(run_id=R1, event_type="y", event_id="e1"),
        SaveRunEvent(run_id=R1, event_type="run.paused", event_id="e2", claim_epoch=1),
        SaveTrace(run_id=R1, role="user", content_text="one", order_index=0, trace_id="t1", claim_epoch=1),
        SaveTrace(run_id=R1, role="user", content_text="two", order_index=0, trace_id="t2", claim_epoch=2),
        SaveTrace(run_id=R1, role="user", content_text="three", order_index=1, trace_id="t3"),
        *(TouchProgress(run_id=R1, claim_epoch=epoch) for epoch in (1, 2, None)),
    ]
    if storage_format == 1:
        alphabet += legacy(R1)
    return {
        "setup": (run(R1),),
        "alphabet": tuple(alphabet),
        "within": lambda world: world.runs[0].claim_epoch <= 4,
        "sometimes": (
            "two_owners_alive",
            "cancel_while_paused",
            "release_then_claim",
            "resubmission",
            "end_told_again",
        ),
    }


@small_world
def inbox(storage_format: int) -> dict[str, Any]:
    """A run whose inbox holds two notes at most, an owner who delivers them, and writers who retry."""

    def note(note_id: str, text: str = "hi", epoch: int | None = None, **given: Any) -> AddNote:
        return AddNote(run_id=R1, note_id=note_id, text=text, claim_epoch=epoch, max_pending=2, **given)

    def delivered(*note_ids: str, iteration: int = 0, epoch: int | None = 1) -> MarkNotesDelivered:
        return MarkNotesDelivered(run_id=R1, note_ids=note_ids, iteration=iteration, claim_epoch=epoch)

    reads = (GetNotes(run_id=R1), GetNotes(run_id=R1, undelivered_only=True), GetNotes(run_id=R1, limit=1))
    return {
        "setup": (run(R1, tenant_id="t"), run(R2)),
        "alphabet": (
            note("n1"),
            note("n1", "other"),
            note("n2", tenant_id="t"),
            note("n2", tenant_id="T"),
            note("n3", epoch=1),
            note("n4", epoch=2),
            AddNote(run_id=R2, note_id="n1", text="hi"),
            AddNote(run_id=MISSING, note_id="n1", text="hi"),
            delivered("n1"),
            delivered("n2", "n3", "n9", iteration=1),
            delivered("n1", "n2", iteration=2, epoch=2),
            delivered("n3", "n4", iteration=3, epoch=None),
            MarkNotesDelivered(run_id=MISSING, note_ids=("n1",), iteration=1),
            pause(R1, "p1", 1),
            ClaimPausedRun(run_id=R1, expected_status=APPROVAL),
            end(R1, "f1", None, allowed=ANY_OPEN),
            *reads,
            GetNotes(run_id=R1, tenant_id="T"),
            GetNotes(run_id=MISSING),
            GetRunControl(run_id=R1),
        ),
        "sometimes": ("full_inbox", "room_again"),
    }


@small_world
def identities(storage_format: int) -> dict[str, Any]:
    """Two runs, and writers who retry ids and positions in both of them, with the same and with other content."""

    def call(run_id: str, row_id: str | None, **given: Any) -> SaveToolCall:
        return SaveToolCall(run_id=run_id, row_id=row_id, tool_call_id="c1", tool_name="look", **given)

    def trace(run_id: str, trace_id: str | None, text: str = "x", **given: Any) -> SaveTrace:
        return SaveTrace(run_id=run_id, trace_id=trace_id, role="user", content_text=text, order_index=0, **given)

    def event(run_id: str, event_id: str = "e1", event_type: str = "x", **given: Any) -> SaveRunEvent:
        return SaveRunEvent(run_id=run_id, event_id=event_id, event_type=event_type, **given)

    return {
        "setup": (run(R1), run(R2)),
        "alphabet": (
            *(event(run_id, claim_epoch=1) for run_id in (R1, R2, MISSING)),
            event(R1, event_type="y"),
            event(R1, "p1"),
            event(R2, "p1", claim_epoch=2),
            event(R1, "f1", "run.completed"),
            pause(R1, "p1", 1),
            pause(R1, "e1", 1),
            pause(MISSING, "p1", 1),
            end(R1, "f1", 1),
            end(R1, "e1", None, allowed=ANY_OPEN),
            end(MISSING, "f1", 1),
            end(R2, "f1", None, "error", failure_reason="x"),
            end(R2, "f2", None, "error", event_type="run.completed", event_data={"error_info": {"a": 1}}),
            end(R2, "f2", None, "error", event_type="run.cancelled"),
            *(call(run_id, "k1", claim_epoch=1) for run_id in (R1, R2, MISSING)),
            call(R1, "k1", claim_epoch=2),
            call(R1, "k2", params={"a": 1}),
            *(trace(run_id, "t1", claim_epoch=1) for run_id in (R1, R2, MISSING)),
            trace(R1, "t2", "y"),
            trace(R2, None),
            GetRunEvents(run_id=R1),
            GetTraces(run_id=R1),
            GetToolCalls(run_id=R1),
        ),
        "within": lambda world: all(len(run.traces) <= 2 for run in world.runs),
    }


@small_world
def bookkeeping(storage_format: int) -> dict[str, Any]:
    """Usage, interactions, metadata and progress of a run that is paused, claimed and ended meanwhile."""

    def usage(run_id: str, tokens: int, usage_id: str = "u1", **given: Any) -> SaveUsage:
        stats = UsageStats(input_tokens=tokens)
        return SaveUsage(run_id=run_id, usage_id=usage_id, iteration_index=0, usage=stats, **given)

    def interaction(run_id: str, tokens: int, **given: Any) -> SaveLLMInteraction:
        stats = UsageStats(input_tokens=tokens)
        return SaveLLMInteraction(run_id=run_id, interaction_id="i1", iteration_index=0, usage=stats, **given)

    def meta(run_id: str, patch: dict[str, Any], epoch: int | None = None) -> UpdateRunMeta:
        return UpdateRunMeta(run_id=run_id, patch=patch, claim_epoch=epoch)

    totals = UsageStats(input_tokens=3, cost_usd=0.5)
    return {
        "setup": (run(R1, meta={"a": 0}), run(R2)),
        "alphabet": (
            usage(R1, 1, claim_epoch=1),
            usage(R1, 1, claim_epoch=2),
            *(usage(run_id, 2) for run_id in (R1, R2, MISSING)),
            usage(R1, 2, "u2"),
            interaction(R1, 1, claim_epoch=1),
            interaction(R1, 1, claim_epoch=2),
            *(interaction(run_id, 2) for run_id in (R1, R2, MISSING)),
            meta(R1, {"a": 1, "b": True}, 1),
            meta(R1, {"a": None}, 2),
            meta(R1, {"b": 1}),
            meta(R1, {}),
            meta(MISSING, {}),
            *(TouchProgress(run_id=R1, claim_epoch=epoch) for epoch in (1, 2, None)),
            TouchProgress(run_id=MISSING),
            pause(R1, "p1", 1, iteration_count=1, total_usage=totals, pii_mapping={"x": "y"}),
            ClaimPausedRun(run_id=R1, expected_status=APPROVAL),
            end(R1, "f1", 2, iteration_count=2, total_usage=UsageStats(input_tokens=4)),
            GetLLMInteractions(run_id=R1),
            GetLLMInteractions(run_id=MISSING),
            GetPiiMapping(run_id=R1),
            GetRun(run_id=R1),
            GetRun(run_id=MISSING),
            GetPauseState(run_id=R1),
            *legacy(R1),
            *misguided(),
        ),
    }


@small_world
def tenants(storage_format: int) -> dict[str, Any]:
    """One paused run of a tenant, one of nobody, more under the same key, and callers of tenants that look alike."""
    names: tuple[str | None, ...] = ("t", "t ", "T", "", None)
    scoped: list[Operation] = []
    for name in names:
        scoped += [
            ClaimPausedRun(run_id=R1, expected_status=APPROVAL, tenant_id=name),
            SubmitAndClaim(
                run_id=R2, expected_status=APPROVAL, tenant_id=name, submission_id="s1", submitted_data={"a": 1}
            ),
            AddNote(run_id=R1, note_id="n1", text="hi", tenant_id=name),
            run(f"k-{name!r}", tenant_id=name, idempotency_key="k"),
            GetRun(run_id=R1, tenant_id=name),
            GetNotes(run_id=R1, tenant_id=name),
            GetPending(run_id=R1, tenant_id=name),
            ListRuns(agent_name="a", tenant_id=name),
            CountRuns(agent_name="a", tenant_id=name),
        ]
    return {
        "setup": (run(R1, tenant_id="t"), run(R2), pause(R1, "p1", 1), pause(R2, "p2", 1)),
        "alphabet": (
            *scoped,
            run("k-other", tenant_id="t", idempotency_key="k", idempotency_fingerprint="f"),
            run("k-'t'", tenant_id="T", idempotency_key="k"),
            end("k-'t'", "f1", None),
            end("k-None", "f2", None),
            ListRuns(agent_name="a"),
            ListRuns(agent_name="b"),
            CountRuns(agent_name="b"),
        ),
    }


@small_world
def family(storage_format: int) -> dict[str, Any]:
    """A parent that is paused, claimed, asked to cancel and ended while somebody begins its child and retries it."""

    def child(run_id: str = R2, level: int = 1, **given: Any) -> CreateRun:
        return run(run_id, **{"tenant_id": "t", "parent_run_id": R1, "delegation_level": level, **given})

    return {
        "setup": (run(R1, tenant_id="t"),),
        "alphabet": (
            child(),
            child(parent_claim_epoch=1),
            child(R3, parent_claim_epoch=2),
            child("child-key", idempotency_key="k"),
            child(level=2),
            child(R3, tenant_id="T"),
            child(R3, parent_run_id=MISSING),
            child(R3, 2, parent_run_id=R2),
            child(input_data={"a": 1}),
            run("retry", tenant_id="t", retry_of_run_id=R1),
            run("retry", tenant_id=None, retry_of_run_id=R1),
            run("again", tenant_id="t", idempotency_key="k"),
            run("other", tenant_id="t", idempotency_key="k", idempotency_fingerprint="f"),
            pause(R1, "p1", 1),
            ClaimPausedRun(run_id=R1, expected_status=APPROVAL),
            RequestCancel(run_id=R1),
            RequestCancel(run_id=R2),
            end(R1, "f1", None, "cancelled", allowed=ANY_OPEN),
            end(R2, "f2", 1),
            GetRunStatuses(run_ids=(R1, R2)),
            GetRunStatuses(run_ids=(R3,)),
            ListRuns(agent_name="a", parent_run_id=R1),
        ),
        "sometimes": ("child_outlives_parent", "key_answers_other_run"),
    }


from dendrux_model import (  # noqa: E402, F401  # the worlds of these nouns
    worlds_blobs,  # and those of stored bytes
    worlds_checkpoints,
    worlds_families,
    worlds_leases,  # and those of leases
    worlds_tools,  # the world of tool calls
)
