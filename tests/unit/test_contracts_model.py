"""The contracts pin the model down: each program is run on the model alone, in both formats where it applies to both."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import permutations

import pytest

from dendrux.runtime.state import StateStore
from dendrux.testing.execution import meets
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.contract import CONTRACTS, GROUPS, Contract
from dendrux.testing.store_kit.contracts._arguments import BAD, STATUSES, Refuses
from dendrux.testing.store_kit.contracts._formats import ByFormat
from dendrux.testing.store_kit.contracts._samples import SAMPLES, samples, stored
from dendrux_model.operations import OPERATIONS
from dendrux_model.outcomes import Refused, Returned
from dendrux_model.programs import (
    Do,
    Fault,
    Program,
    Step,
    Tick,
    Together,
    calls,
    from_json,
    instances,
    timed,
    to_json,
)
from dendrux_model.world import SECOND, World

MINE = [
    c
    for c in catalogue()
    if not c.id.startswith(("concurrency.pair_matrix.", "declaration.")) and ".stateful." not in c.id
]


def programs(contract: Contract) -> list[tuple[int, Program]]:
    """The programs of a contract with the format of the runs they are about."""
    if isinstance(contract.check, ByFormat):
        return [(1, contract.check.one), (2, contract.check.two)]
    program = contract.check.before if isinstance(contract.check, Refuses) else contract.program
    if not program:
        return []
    return [(form, program) for form in (1, 2) if f"format_{3 - form}" not in contract.needs]


PROGRAMS = [(f"{c.id}-format_{form}", form, program) for c in MINE for form, program in programs(c)]


def dated(program: Program) -> Iterator[tuple[int, Step]]:
    """Every step of a program with its instant; where time passes, the later ones are that much later."""
    instant = 0
    for step in program:
        instant += int(step.seconds * SECOND) if isinstance(step, Tick) else 1
        yield instant, step


def step_all(worlds: list[World], do: Do, instant: int) -> tuple[list[World], bool]:
    """The worlds after a call, and whether one of them answers what the contract expects."""
    stepped = [do.operation.step(world._replace(now=instant)) for world in worlds]
    met = do.expect is None or any(meets(outcome, do.expect) for _, outcome in stepped)
    return [world for world, _ in stepped], met


@pytest.mark.parametrize(
    ("form", "program"), [(form, p) for _, form, p in PROGRAMS], ids=[name for name, _, _ in PROGRAMS]
)
def test_the_model_answers_what_a_contract_expects(form: int, program: Program) -> None:
    worlds = [World(new_format=form)]
    for instant, step in dated(program):
        if isinstance(step, Do):
            worlds, met = step_all(worlds, step, instant)
            assert met, f"{step.operation}: the model does not answer {step.expect}"
        elif isinstance(step, Fault):
            worlds += step_all(worlds, step.do, instant)[0]  # applied or not
        elif isinstance(step, Together):
            orders = []
            for order in permutations(step.branches):
                some = worlds
                for do in order:
                    some, _ = step_all(some, do, instant)
                orders += some
            worlds = list(dict.fromkeys(orders))


def test_expectations_hold_in_every_order_of_a_race() -> None:
    """What a race expects afterwards must not depend on who won."""
    for _, form, program in PROGRAMS:
        if not any(isinstance(step, Together) for step in program):
            continue
        worlds = [World(new_format=form)]
        for instant, step in dated(program):
            if isinstance(step, Together):
                first, second = step.branches
                worlds = [
                    b.operation.step(a.operation.step(world._replace(now=instant))[0])[0]
                    for world in worlds
                    for a, b in ((first, second), (second, first))
                ]
            elif isinstance(step, Do):
                stepped = [step.operation.step(world._replace(now=instant)) for world in worlds]
                assert step.expect is None or all(meets(outcome, step.expect) for _, outcome in stepped), step
                worlds = [world for world, _ in stepped]


# -- the catalogue ----------------------------------------------------------------------------------------------------


def test_every_operation_has_contracts() -> None:
    used = Counter(call.operation.method for c in MINE for _, program in programs(c) for call in calls(program))
    assert {o.method for o in OPERATIONS.values()} <= set(used)
    named = {c.id.split(".")[1] for c in MINE}
    assert {o.method for o in OPERATIONS.values()} <= named


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda o: o.method)
def test_every_operation_has_the_generated_contracts(operation: type) -> None:
    method = operation.method
    wanted = {f"basic.{method}.bad_arguments"}
    if operation.fenced:
        wanted |= {
            f"fenced_writes.{method}.{claim}"
            for claim in ("refuses_old_epoch", "refuses_owner_of_ended_run", "accepts_owner")
        }
    if operation.identity:
        wanted.add(f"retry_ids.{method}.stored_once")
        if stored(SAMPLES[operation.__name__]):
            wanted.add(f"retry_ids.{method}.other_content_conflicts")
    if operation.lost_ack != "read":
        wanted |= {
            f"crash_recovery.{method}.{point}_{kind}"
            for point in ("before_commit", "after_commit")
            for kind in ("error", "invalidated")
        }
    if "tenant_id" in operation.__dataclass_fields__ and method != "create_run":
        wanted.add(f"basic.{method}.tenants_are_equal_as_written")
    assert wanted <= set(CONTRACTS)


def test_every_parameter_has_bad_values_or_takes_any() -> None:
    takes_any = {
        "after",  # a cursor, which is opaque
        "validate",
        "success",
        "role",
        "target",
        "outcome",
        "strategy",
        "undelivered_only",
        "after_sequence_index",
        "event_types",
        "expected_current_status",
        "status",
    }
    for sample in samples():
        for name in sample.parameters:
            assert name in BAD or name in takes_any, f"{sample.method}: {name}"
    assert set(STATUSES) <= {o.method for o in OPERATIONS.values()}


def test_ids_are_group_method_and_claim() -> None:
    for contract in MINE:
        group, *method, claim = contract.id.split(".", 1 if contract.group == "agent_flows" else 2)
        assert group == contract.group
        assert group in GROUPS
        # A flow of an agent calls many methods.
        assert set(method) <= {o.method for o in OPERATIONS.values()}, contract.id
        assert claim == claim.lower()
        assert claim.replace("_", "").replace(".", "").isalnum(), contract.id


def test_promises_are_sentences() -> None:
    for contract in MINE:
        assert contract.promise.endswith("."), contract.id
        assert "{" not in contract.promise, contract.id
        assert contract.cause is None or contract.cause.endswith("."), contract.id


def test_what_a_contract_needs_covers_its_programs() -> None:
    for contract in MINE:
        for _, program in programs(contract):
            assert instances(program) == 1 or "second_instance" in contract.needs, contract.id
            assert not any(isinstance(step, Fault) for step in program) or "fault_injector" in contract.needs, (
                contract.id
            )


def test_programs_survive_json() -> None:
    for name, _, program in PROGRAMS:
        assert to_json(from_json(to_json(program))) == to_json(program), name


def test_numbers_of_contracts() -> None:
    """At least what the protocol's nouns of this version give; a smaller number is a lost promise."""
    count = Counter(contract.group for contract in MINE)
    assert count["basic"] >= 150
    assert count["fenced_writes"] >= 100
    assert count["retry_ids"] >= 50
    assert count["concurrency"] >= 30
    assert count["crash_recovery"] >= 80


def test_strangers_are_refused_or_lose() -> None:
    for contract in MINE:
        if contract.group != "fenced_writes" or ".refuses_" not in contract.id:
            continue
        for form, program in programs(contract):
            world = World(new_format=form)
            for instant, do in timed(program):
                before = world._replace(now=instant)
                world, outcome = do.operation.step(before)
            assert world is before, contract.id
            assert isinstance(outcome, Refused) or outcome in (Returned(None), Returned(False)), contract.id


BESIDE: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("put_blob", "read_blob", "purge_blob"), frozenset({"blob_store"})),
    "collect_garbage": frozenset({"limit", "after", "blob_store"}),
    **dict.fromkeys(("get_run_events", "get_tool_calls", "get_llm_interactions"), frozenset({"before"})),
    "get_notes": frozenset({"after"}),
    **dict.fromkeys(("list_runs", "count_runs"), frozenset({"started_after", "started_before"})),
    **dict.fromkeys(
        ("mark_lease_expired", "get_lease_expired", "sweep_stale_runs", "sweep_abandoned_runs"), frozenset({"after"})
    ),
    "save_run_event": frozenset({"sequence_index"}),
    "get_pending": frozenset({"run_id", "tenant_id"}),
}
"""What no program passes, because the model has no word for it: plain checks and the driver do."""


def test_some_program_passes_every_parameter_another_value_than_its_default() -> None:
    """A parameter that no contract passes is one that a store may ignore."""
    passed: set[tuple[str, str]] = set()
    for contract in MINE:
        for operation in (call.operation for _, program in programs(contract) for call in calls(program)):
            for field in fields(operation):
                if getattr(operation, field.name) != field.default:
                    name = operation.renamed.get(field.name, field.name)
                    passed.add((operation.method, name.removesuffix("_s")))
    for method, declared in vars(StateStore).items():
        if inspect.iscoroutinefunction(declared):
            parameters = [*inspect.signature(declared).parameters][1:]
            left = {name for name in parameters if (method, name) not in passed} - BESIDE.get(method, frozenset())
            assert not left, f"{method}: {sorted(left)}"
