"""Bad arguments are refused before any SQL, naming the parameter, and every good value comes back as it went in."""

from __future__ import annotations

import inspect
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
import pytest_asyncio

from dendrux.store import SQLStateStore, UsageStats
from dendrux.store.arguments import CHECKS
from dendrux.store.binding import Operation
from dendrux.vocabulary import UNSCOPED
from unit.store_support import built_in, counted

NAN, INF = math.nan, math.inf
DEEP: list = []
for _ in range(150):
    DEEP = [DEEP]

IDS = ["", "a\0b", "\ud800", "x" * 65, 7, b"x", None]
NAMES = ["", "a\0b", "\ud800", "x" * 256, 7]
JSON = [
    [],
    "x",
    {"a": NAN},
    {"a": INF},
    {"a": "\ud800"},
    {"\udfff": 1},
    {1: 2},
    {"a": object()},
    {"a": DEEP},
    {"a": {1, 2}},
]
EPOCHS = [0, -1, True, "1", 1.0, 2**40]
LIMITS = [0, 1001, -1, True, "5", None]

BAD = {
    "create_run": (
        {"run_id": "r", "agent_name": "a"},
        {
            "run_id": IDS,
            "agent_name": [*NAMES, None],
            "tenant_id": ["a\0b", "\ud800", "x" * 256, 7, UNSCOPED],
            "meta": JSON,
            "input_data": JSON,
            "model": NAMES,
            "strategy": ["", "x" * 101],
            "idempotency_key": NAMES,
            "idempotency_fingerprint": ["x" * 65, 7],
            "delegation_level": [-1, True, "1", 2**40],
            "parent_claim_epoch": EPOCHS,
            "parent_run_id": [i for i in IDS if i is not None],
        },
    ),
    "save_trace": (
        {"run_id": "r", "role": "user", "content": "x", "order_index": 0},
        {
            "run_id": IDS,
            "content": ["\ud800", 7, None],
            "role": ["", "x" * 101, None],
            "order_index": [-1, True, None, 2**40, 1.0],
            "trace_kind": ["other", None],
            "trace_id": [i for i in IDS if i is not None],
            "claim_epoch": EPOCHS,
            "meta": JSON,
        },
    ),
    "save_run_event": (
        {"run_id": "r", "event_type": "x"},
        {
            "event_type": ["", "x" * 101, None],
            "correlation_id": NAMES,
            "data": JSON,
            "event_id": [i for i in IDS if i is not None],
            "claim_epoch": EPOCHS,
            "iteration_index": [-1, True, None],
        },
    ),
    "save_llm_interaction": (
        {"run_id": "r", "iteration_index": 0, "usage": UsageStats()},
        {
            "usage": [
                None,
                {},
                UsageStats(input_tokens=-1),
                UsageStats(output_tokens=True),
                UsageStats(total_tokens=1.5),
                UsageStats(cost_usd=-1),
                UsageStats(cost_usd=NAN),
                UsageStats(cost_usd=INF),
                UsageStats(cost_usd=Decimal("1e12")),
                UsageStats(cost_usd="1"),
                UsageStats(cost_usd=True),
            ],
            "semantic_request": JSON,
            "duration_ms": [-1, 1.5],
        },
    ),
    "save_tool_call": (
        {
            "run_id": "r",
            "tool_call_id": "c",
            "provider_tool_call_id": None,
            "tool_name": "t",
            "target": "server",
            "params": None,
            "result_payload": "1",
            "success": True,
            "duration_ms": 1,
            "iteration_index": 0,
        },
        {"success": [1, None, "yes"], "result_payload": ["\ud800", None, {}], "outcome": ["", 7]},
    ),
    "add_note": (
        {"run_id": "r", "note_id": "n", "text": "x"},
        {"text": ["\ud800", None], "metadata": [NAN, {"a": object()}, DEEP], "max_pending": [-1, None, True]},
    ),
    "get_run_events": (
        {"run_id": "r"},
        {
            "limit": LIMITS,
            "after_sequence_index": [-2, True, "1"],
            "event_types": ["x", [""], [7]],
            "before": [datetime(2026, 1, 1), "2026"],  # noqa: DTZ001
        },
    ),
    "list_runs": (
        {},
        {
            "limit": LIMITS,
            "offset": [-1, True],
            "status": ["nonsense", ["running", 7], 7],
            "started_after": [datetime(2026, 1, 1)],  # noqa: DTZ001
            "tenant_id": [7, "x" * 256],
            "metadata_filter": [{"a b": 1}, {"a.b": 1}, {"": 1}, {"a": 2**64}, {"a": NAN}, [], {"a": [2**64]}],
        },
    ),
    "get_run_statuses": ({"run_ids": ["r"]}, {"run_ids": ["r", [""], ["x"] * 201, None, [7]]}),
    "get_events_for_runs": (
        {"heads": {}, "limit_per_run": 1},
        {"limit_per_run": [0, 101, True], "heads": [[], {"": 1}, {"r": -2}, {str(n): 0 for n in range(201)}]},
    ),
    "pause_with_event": (
        {"run_id": "r", "status": "paused", "pause_data": {}},
        {
            "status": ["running", "success", "", None],
            "pause_data": [*JSON, None],
            "pii_mapping": [{"a": 1}, [], {1: "a"}],
            "total_usage": [{}, UsageStats(cost_usd=-1)],
        },
    ),
    "finalize_with_event": (
        {
            "run_id": "r",
            "status": "success",
            "allowed_current_statuses": ["running"],
            "event_type": "run.completed",
        },
        {
            "status": ["cancelled", "running", None],
            "event_type": ["run.paused", "x", "run.cancelled", "run.error", "run.interrupted"],
            "allowed_current_statuses": [[], ["success"], "running", None, ["nonsense"]],
            "failure_reason": ["x" * 101, 7],
            "answer": ["\ud800", 7],
        },
    ),
    "release_run_claim": ({"run_id": "r", "claim_epoch": 1}, {"claim_epoch": [*EPOCHS, None]}),
    "submit_and_claim": (
        {"run_id": "r", "expected_status": "paused", "submitted_data": {}},
        {"validate": [7], "expected_status": ["running", None], "submitted_data": [*JSON, None]},
    ),
}
CASES = [
    pytest.param(operation, name, value, id=f"{operation}-{name}-{number}")
    for operation, (_, bad) in BAD.items()
    for name, values in bad.items()
    for number, value in enumerate(values)
]


@pytest.fixture(scope="module")
def unused_store():
    """A store whose engine cannot be used: whatever reaches it fails in another way."""

    class Engine:
        dialect = type("Dialect", (), {"name": "sqlite"})

    return SQLStateStore(Engine())


@pytest.mark.asyncio
@pytest.mark.parametrize(("operation", "name", "value"), CASES)
async def test_a_bad_argument_is_named_before_any_sql(unused_store, operation, name, value):
    arguments = {**BAD[operation][0], name: value}
    with pytest.raises((ValueError, TypeError), match=name) as raised:
        await getattr(unused_store, operation)(**arguments)
    assert raised.value.__context__ is None


def test_every_parameter_has_a_check():
    for name, bound in vars(SQLStateStore).items():
        if isinstance(bound, Operation):
            for parameter in bound.names:
                assert f"{name}.{parameter}" in CHECKS or parameter in CHECKS, (name, parameter)
    known = {f"{n}.{p}" for n, b in vars(SQLStateStore).items() if isinstance(b, Operation) for p in b.names}
    assert {key for key in CHECKS if "." in key} <= known, "a check of an operation that does not exist"


@pytest.mark.asyncio
async def test_wrong_calls_get_pythons_own_words(unused_store):
    for call in (
        unused_store.get_run,
        lambda: unused_store.get_run("r", "x"),
        lambda: unused_store.get_run("r", run_id="r"),
        lambda: unused_store.get_run("r", nonsense=1),
        lambda: unused_store.save_trace("r", "user", "x"),
    ):
        with pytest.raises(TypeError, match=r"argument"):
            await call()
    assert inspect.signature(unused_store.get_run).parameters.keys() == {"run_id", "tenant_id"}


# -- round trips ------------------------------------------------------------------------------------------------------

NASTY = {
    "unicode": "é\0\x01\x1a\x7f\x85\u2028\ufeff😀e\u0301 \t\n\r\\\"'/%_",
    "numbers": [1, 1.0, -0.0, 0.0, 1e16, 1e-300, 5e-324, 1.7976931348623157e308, 2**53 + 1, 2**63, -(2**63), 10**60],
    "order": {"b": 1, "a": 2, "": {"é\0": None}},
    "empty": [[], {}, "", None, False, True],
    "long": "x" * 100_000,
}


@pytest_asyncio.fixture
async def store(tmp_path):
    async with built_in(tmp_path) as store:
        yield store


@pytest.mark.asyncio
async def test_json_comes_back_as_it_went_in(store):
    await store.create_run("r", "agent", meta=NASTY, input_data=NASTY)
    await store.save_run_event("r", event_type="x", data=NASTY)
    await store.save_trace("r", "user", NASTY["unicode"], order_index=0, meta=NASTY)
    await store.add_note("r", note_id="n", text=NASTY["unicode"], metadata=[NASTY, 1.0])
    await store.pause_with_event("r", status="paused", pause_data=NASTY, pii_mapping={"<1>": NASTY["unicode"]})
    run = await store.get_run("r")
    assert repr(run.meta) == repr(run.input_data) == repr(NASTY)
    assert repr((await store.get_run_events("r"))[0].data) == repr(NASTY)
    trace = (await store.get_traces("r"))[0]
    assert (trace.content, repr(trace.meta)) == (NASTY["unicode"], repr(NASTY))
    note = (await store.get_notes("r"))[0]
    assert (note.text, repr(note.metadata)) == (NASTY["unicode"], repr([NASTY, 1.0]))
    assert repr(await store.get_pause_state("r")) == repr(NASTY)
    assert await store.get_pii_mapping("r") == {"<1>": NASTY["unicode"]}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ("1", 1),
        ("1.0", 1.0),
        ('"x"', "x"),
        ("null", None),
        ('{"a": [1, 2]}', {"a": [1, 2]}),
        ("not json", {"raw": "not json"}),
        ("", {"raw": ""}),
        ("NaN", {"raw": "NaN"}),
        ("1e999", {"raw": "1e999"}),
        ('"\\ud800"', {"raw": '"\\ud800"'}),
        ("[" * 200 + "]" * 200, {"raw": "[" * 200 + "]" * 200}),
    ],
)
async def test_a_tool_result_is_decoded_or_kept_raw(store, payload, result):
    await store.create_run("r", "agent")
    arguments = {**BAD["save_tool_call"][0], "result_payload": payload}
    await store.save_tool_call(**arguments)
    found = (await store.get_tool_calls("r"))[0]
    assert repr(found.result) == repr(result)
    assert found.completed


@pytest.mark.asyncio
async def test_money_is_rounded_half_even_and_counts_so_for_equality(store):
    await store.create_run("r", "agent")
    costs = {
        "0.0000005": 0.0,
        "0.0000015": 0.000002,
        "0.1234565": 0.123456,
        "99999999999.999999": 99999999999.999999,
        "-0.0": 0.0,
    }
    for number, (cost, stored) in enumerate(costs.items()):
        await store.save_llm_interaction(
            "r", iteration_index=number, usage=UsageStats(cost_usd=Decimal(cost)), interaction_id=f"i{number}"
        )
        assert (await store.get_llm_interactions("r", iteration_index=number))[0].cost_usd == stored
        await store.save_llm_interaction(
            "r", iteration_index=number, usage=UsageStats(cost_usd=stored), interaction_id=f"i{number}"
        )


@pytest.mark.asyncio
async def test_times_are_aware_utc_whatever_zone_they_are_given_in(store):
    await store.create_run("r", "agent")
    created = (await store.get_run("r")).created_at
    assert created.tzinfo is UTC
    there = created.astimezone(timezone(timedelta(hours=-9, minutes=-30)))
    assert await store.count_runs(started_after=there) == 1
    assert await store.count_runs(started_before=there) == 0
    assert await store.count_runs(started_before=there + timedelta(microseconds=1)) == 1


@pytest.mark.asyncio
async def test_identifiers_and_tenants_compare_exactly(store):
    tenants = ["t", "T", "t ", " t", "é", "e\u0301", "", None]
    for number, tenant in enumerate(tenants):
        await store.create_run(f"r{number}", "agent", tenant_id=tenant, idempotency_key="k" if tenant else None)
    for number, tenant in enumerate(tenants):
        assert [r.id for r in await store.list_runs(tenant_id=tenant)] == [f"r{number}"]
    assert await store.count_runs(tenant_id=UNSCOPED) == len(tenants)
    assert await store.get_run("R0") is None
    assert await store.get_run("r0 ") is None


@pytest.mark.asyncio
async def test_nothing_to_ask_for_needs_no_statement(store):
    await store.create_run("r", "agent")
    with counted(store._engine) as statements:
        assert await store.get_run_statuses([]) == {}
        assert await store.get_events_for_runs({}, limit_per_run=1) == {}
    assert statements == []
    assert await store.list_runs(status=[]) == []
    assert await store.get_run_events("r", event_types=[]) == []
