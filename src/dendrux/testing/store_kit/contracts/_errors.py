"""What errors say and what they keep to themselves; what a validation sees; what a cancellation leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from dendrux.errors import IdempotencyConflictError, RunAlreadyTerminalError
from dendrux.lab.seam import engine_of
from dendrux.testing.driver import refuse
from dendrux.testing.execution import Execution
from dendrux.testing.leaks import CANARY
from dendrux.testing.store_kit.contract import NotKept, Situation, contract
from dendrux.testing.store_kit.contracts._nasty import DOCUMENTS
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import WAITING, born, ended, paused
from dendrux_model.operations import (
    AddNote,
    CreateRun,
    GetRun,
    GetRunEvents,
    Operation,
    PauseRun,
    SaveRunEvent,
    UpdateRunMeta,
)
from dendrux_model.outcomes import INVALID, Unknown
from dendrux_model.possible import Cut
from dendrux_model.programs import Do, Look, Program
from dendrux_model.values import json_text
from dendrux_model.world import World

TEXTS: Final = ("content_text", "text", "answer", "error", "error_message", "reason")
CONTENT: Final = (
    "input_data",
    "meta",
    "data",
    "patch",
    "pause_data",
    "event_data",
    "submitted_data",
    "params",
    "semantic_request",
    "semantic_response",
    "provider_request",
    "provider_response",
    "pii_mapping",
)
"""Parameters whose values are nobody's business but the run's."""
HALF: Final = "\ud800"


def filled(sample: Sample, text: str) -> Any:
    """The sample with this text in all its content."""
    given: dict[str, Any] = {name: text for name in TEXTS if sample.takes(name)}
    given |= {name: {"k": text} for name in CONTENT if sample.takes(name)}
    if sample.takes("metadata"):
        given["metadata"] = [text]
    if sample.takes("result_payload"):
        given["result_payload"] = f'["{text}"]'
    return replace(sample.operation, **given)


def canaries(sample: Sample) -> list[Any]:
    """Calls with the canary that are refused for one reason or another, after the first, which may be well."""
    call = filled(sample, CANARY)
    found = [call, filled(sample, f"{CANARY} again")]
    if sample.takes("run_id") and sample.method != "create_run":
        found.append(replace(call, run_id="nowhere"))
    if sample.takes("parent_run_id"):
        found.append(replace(call, run_id="new", parent_run_id="nowhere", delegation_level=1))
        found.append(replace(call, run_id="new", parent_run_id="r", delegation_level=1, parent_claim_epoch=9))
    if sample.takes("claim_epoch"):
        found.append(replace(call, claim_epoch=9))
    return found


@dataclass(frozen=True)
class TellsNothing:
    """A check: calls with the canary in their content, the driver looks into every error."""

    before: Program
    calls: tuple[Operation, ...]
    bad: Operation

    async def __call__(self, situation: Situation) -> None:
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run((*self.before, *map(Do, self.calls)), look=False)
        outcome = await execution.driver.call(await situation.bench.instance(), self.bad)
        if outcome != INVALID:
            raise execution.beside(f"text that is none should be refused with a ValueError; the store {outcome}")
        await execution.run((ended(), *map(Do, self.calls)))


for _sample in samples():
    if _sample.operation.lost_ack != "read" and filled(_sample, CANARY) != _sample.operation:
        contract(
            f"basic.{_sample.method}.errors_tell_nothing",
            f"No refusal of {_sample.method} carries content, SQL or the driver's text, in no part of it.",
            check=TellsNothing(_sample.before, tuple(canaries(_sample)), filled(_sample, CANARY + HALF)),
            cause="The driver's error, or the value that was refused, is chained to the store's own error.",
        )


async def ended_runs(situation: Situation) -> None:
    """RunAlreadyTerminalError has the run's id and its status."""
    for status in ("success", "cancelled"):
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run((born(), ended(status=status)), look=False)
        store = await situation.bench.instance()
        late: Operation = SaveRunEvent(run_id="r", event_type="x")
        if situation.format == 1:
            late = PauseRun(run_id="r", status=WAITING, pause_data={})
        try:
            await getattr(store, late.method)(**execution.driver.arguments(late))
        except RunAlreadyTerminalError as error:
            said = execution.driver.outside(error.run_id), error.current_status
        else:
            raise NotKept(f"{late.method} on a run that has ended must raise RunAlreadyTerminalError")
        if said != ("r", status):
            raise NotKept(f"RunAlreadyTerminalError says {said}; the run is 'r' and its status {status!r}")


async def key_conflicts(situation: Situation) -> None:
    """IdempotencyConflictError has the id of the run that holds the key."""
    first = CreateRun(run_id="r", agent_name="agent", idempotency_key="key", idempotency_fingerprint="one")
    execution = Execution(situation.bench, World(new_format=situation.format))
    await execution.run((Do(first),), look=False)
    store = await situation.bench.instance()
    other = replace(first, run_id="s", idempotency_fingerprint="two")
    try:
        await store.create_run(**execution.driver.arguments(other))
    except IdempotencyConflictError as error:
        said = execution.driver.outside(error.run_id), execution.driver.outside(error.idempotency_key)
    else:
        raise NotKept("create_run under a used key with another fingerprint must raise IdempotencyConflictError")
    if said != ("r", "key"):
        raise NotKept(f"IdempotencyConflictError says {said}; the key 'key' is held by the run 'r'")


async def validations(situation: Situation) -> None:
    """A validation is called with the document, once per try, before and after other submissions."""
    for document in ({"question": "May I?"}, *DOCUMENTS):
        execution = Execution(situation.bench, World(new_format=situation.format))
        await execution.run((born(), paused(pause_data=document)), look=False)
        store = await situation.bench.instance()
        run_id = execution.driver.inside("run_id", "r")
        seen: list[Any] = []

        def look(shown: dict[str, Any], seen: list[Any] = seen) -> None:
            seen.append(json_text(shown))
            refuse(shown)

        given = {"run_id": run_id, "expected_status": WAITING, "submitted_data": {"k": 1}}
        for submission_id in (None, execution.driver.inside("submission_id", "s")):
            try:
                await store.submit_and_claim(**given, submission_id=submission_id, validate=look)
            except Exception as error:
                if type(error).__name__ != "ValidationRefused":
                    raise NotKept(f"validate raised and the store raised {type(error).__name__} instead") from None
        if not seen or any(one != json_text(document) for one in seen):
            raise NotKept(f"validate was called with {seen[:1]}; the pause document is {json_text(document)}")


contract(
    "basic.save_run_event.ended_run_is_named",
    "The refusal of a run that has ended names the run and its status.",
    check=ended_runs,
)
contract(
    "basic.create_run.key_conflict_names_the_run",
    "The refusal of a used key names the key and the run that holds it.",
    check=key_conflicts,
)
contract(
    "basic.submit_and_claim.validate_sees_the_document",
    "A validation is called with exactly the pause document.",
    check=validations,
    cause="validate is given the submission, or the document with the submission laid over it.",
)

# -- cancellation -----------------------------------------------------------------------------------------------------

MOMENTS_S: Final = (0.0, 0.0, 0.0001, 0.0002, 0.0004, 0.0007, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006)
"""How long a call has run when it is cancelled; the first one has not begun."""
CALLS: Final[tuple[Callable[[str], Operation], ...]] = (
    lambda name: SaveRunEvent(run_id="r", event_type="x", event_id=name),
    lambda name: AddNote(run_id="r", note_id=name, text="look here"),
    lambda name: UpdateRunMeta(run_id="r", patch={"k": name}),
    lambda name: GetRun(run_id="r"),
    lambda name: GetRunEvents(run_id="r"),
)


async def cancelled(situation: Situation) -> None:
    """Calls cancelled at several moments: each raises CancelledError, and its repeat is answered as usual."""
    store = await situation.bench.instance()
    engine = engine_of(store)
    if engine is not None and engine.dialect.driver == "inline":
        return  # the kit's own engine has nothing to wait for, so nothing can be cancelled
    execution = Execution(situation.bench, World(new_format=situation.format))
    await execution.run((born(),), look=False)
    for number, call in enumerate(CALLS):
        for moment, seconds in enumerate(MOMENTS_S):
            operation = call(f"c{number}-{moment}")
            task = asyncio.ensure_future(execution.driver.call(store, operation))
            if moment:
                await asyncio.sleep(seconds)
            if not task.cancel():
                execution.worlds.saw(operation, task.result())
                break
            await asyncio.wait({task}, timeout=30)
            if not task.cancelled():
                said = f"answered {task.result()}" if task.done() else "did not end"
                raise NotKept(f"a cancelled {operation.method} {said}; it must raise CancelledError")
            execution.worlds.saw(operation, Unknown(), cut=Cut(at_commit=True, lasting=True))
            await execution.step(Do(operation))
    await execution.step(Look())


contract(
    "basic.save_run_event.cancelled_calls",
    "A cancelled call raises CancelledError, happens at most once, and leaves a store that works.",
    check=cancelled,
    cause="CancelledError is caught and not raised again, or a connection goes back in the middle of a transaction.",
)
