"""Times at their bounds: what is stored at exactly a bound, and the time that every change of what is shown moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import Need, NotKept, Situation, contract, needs_of
from dendrux.testing.store_kit.contracts._reads import begun, expect
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import DUE, LEASE_S, OPEN, REACT, born, paused, world_after
from dendrux.vocabulary import LIMIT_MAX, PAUSED_STATUSES
from dendrux_model.operations import MarkLeaseExpired, Operation
from dendrux_model.programs import Do, Program, lasting
from dendrux_model.world import World, find

MOMENT: Final = timedelta(microseconds=1)

# -- bounds -----------------------------------------------------------------------------------------------------------


async def lists_at_a_bound(situation: Situation) -> None:
    """The runs that lists and counts find with a bound at, just before and just after the time a run was created."""
    execution, store, first = await begun(situation, born("r2"))
    agent = execution.driver.inside("agent_name", "agent")
    second = execution.driver.inside("run_id", "r2")
    made = (await store.get_run(second)).created_at
    whole = [second, first]
    for given, expected in (
        ({"started_after": made}, [second]),
        ({"started_after": made + MOMENT}, []),
        ({"started_before": made}, [first]),
        ({"started_before": made + MOMENT}, whole),
        ({"started_after": made, "started_before": made}, []),
        ({"started_after": made, "started_before": made + MOMENT}, [second]),
    ):
        listed = [run.id for run in await store.list_runs(agent_name=agent, **given)]
        expect(f"runs listed by {', '.join(given)} at the time one was created", listed, expected)
        counted = await store.count_runs(agent_name=agent, **given)
        expect(f"runs counted by {', '.join(given)} at the time one was created", counted, len(expected))


async def leases_at_the_cutoff(situation: Situation) -> None:
    """A run whose last progress is at exactly the cutoff, and the same run when the cutoff is a moment later."""
    execution = Execution(situation.bench, World(new_format=situation.format))
    # Whatever other programs left is marked, or ended, first; then the first page shows this one's.
    await execution.run((*DUE, Do(MarkLeaseExpired(cutoff_s=LEASE_S)), born("r2", meta=REACT)), look=False)
    store, run_id = await situation.bench.instance(), execution.driver.inside("run_id", "r2")
    progress = (await store.get_run(run_id)).last_progress_at
    for cutoff, expected in ((progress - MOMENT, []), (progress, []), (progress + MOMENT, [run_id])):
        marked: list[Any] = []
        after = None
        while True:
            page = await store.mark_lease_expired(cutoff=cutoff, limit=LIMIT_MAX, after=after)
            marked += [one for one in page.marked if one == run_id]
            after = page.next_after
            if after is None:
                break
        expect(f"runs marked by a cutoff {(cutoff - progress).microseconds} us from their progress", marked, expected)


contract(
    "basic.list_runs.bounds_at_a_stored_time",
    "started_after takes a run that was created at exactly that time, started_before does not.",
    check=lists_at_a_bound,
    cause="A bound is compared the other way, or in whole milliseconds.",
)
contract(
    "recovery.mark_lease_expired.at_the_cutoff",
    "A lease ran out when the last progress is before the cutoff, not when it is at it.",
    group="recovery",
    needs=needs_of(DUE) | {"format_2"},
    check=leases_at_the_cutoff,
    cause="The cutoff is compared with <= instead of <, or rounded.",
)

# -- the time of the last change --------------------------------------------------------------------------------------


def moved(before: Program, operation: Operation, storage_format: int, run_id: str) -> bool:
    """Whether the model moves the run's updated_at with this call."""
    world = world_after(before, storage_format)
    was = find(world, run_id)
    run = find(operation.step(world._replace(now=lasting(before)))[0], run_id)
    return was is not None and run is not None and run.updated_at > was.updated_at


def paused_in(status: str) -> str:
    """The run that is paused in a status."""
    return f"r-{status}"


PAUSED: Final[Program] = tuple(
    step for status in sorted(PAUSED_STATUSES) for step in (born(paused_in(status)), paused(paused_in(status), status))
)
"""A run in every status a run can be paused in."""


def of_paused_runs(operation: Operation) -> Iterator[Operation]:
    """The call for each of these runs, where it can be about one of them."""
    subject = "run_id" if hasattr(operation, "run_id") else "root_run_id"
    if getattr(operation, subject, None) != "r":
        return
    for status in sorted(PAUSED_STATUSES):
        given: dict[str, Any] = {
            subject: paused_in(status),
            "expected_status": status,
            "expected_current_status": status,
        }
        given |= {"allowed_current_statuses": OPEN}
        # Identities are of one run each.
        given |= {name: f"{name}-{status}" for name in ("event_id", "submission_id") if getattr(operation, name, None)}
        yield replace(operation, **{name: value for name, value in given.items() if hasattr(operation, name)})


@dataclass(frozen=True)
class MovesTheTime:
    """A check: of the runs that a call changes, updated_at is later than before; on paused runs of each status, too."""

    sample: Sample

    async def __call__(self, situation: Situation) -> None:
        call, form = self.sample.operation, situation.format
        if self.own(form):
            await self.check(situation, self.sample.before, (call,))
        if others := self.others(form):
            await self.check(situation, PAUSED, others)

    def own(self, storage_format: int) -> bool:
        """Whether the sample moves the time of its run."""
        return moved(self.sample.before, self.sample.operation, storage_format, "r")

    def others(self, storage_format: int) -> tuple[Operation, ...]:
        """The calls that move the time of a paused run."""
        calls = of_paused_runs(self.sample.operation)
        return tuple(one for one in calls if moved(PAUSED, one, storage_format, subject_of(one)))

    async def check(self, situation: Situation, before: Program, calls: tuple[Operation, ...]) -> None:
        """Each call in turn, with a look at its run before it and after it."""
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run(before, look=False)
        store = await situation.bench.instance()
        if hasattr(situation.bench.clock, "now"):
            await situation.bench.advance(1)  # a clock that stands still would show no difference
        for call in calls:
            run_id = execution.driver.inside("run_id", subject_of(call))
            was = await store.get_run(run_id)
            await execution.step(Do(call))
            run = await store.get_run(run_id)
            if run.updated_at <= was.updated_at:
                raise NotKept(
                    f"{call.method} changed a run that was {was.status} and left its updated_at at {was.updated_at}"
                )


def subject_of(call: Operation) -> str:
    """The run that a call is about."""
    return str(getattr(call, "run_id", getattr(call, "root_run_id", "r")))


def moves(sample: Sample) -> None:
    """The contract of one write, where it moves the time of some run."""
    check = MovesTheTime(sample)
    forms = [form for form in (1, 2) if check.own(form) or check.others(form)]
    if not forms:
        return
    only: frozenset[Need] = frozenset() if len(forms) == 2 else sample.needs
    contract(
        f"basic.{sample.method}.moves_updated_at",
        f"What {sample.method} changes of a run moves its updated_at, whatever the status it was paused in.",
        check=check,
        capability=sample.capability,
        needs=needs_of(sample.before) | only,
        cause="A statement that changes a field of the run leaves updated_at out, on every run or on some.",
    )


for writing in samples():
    if writing.operation.lost_ack != "read":
        moves(writing)
