"""Content equality: what a repeat has to carry again, and what it need not."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from dendrux.runtime.values import UsageStats
from dendrux.vocabulary import UNSCOPED
from dendrux_model.operations import (
    OPERATIONS,
    AddNote,
    CreateRun,
    FinalizeWithEvent,
    PauseWithEvent,
    SaveLLMInteraction,
    SaveRunEvent,
    SaveToolCall,
    SaveTrace,
    SaveUsage,
    SubmitAndClaim,
)
from dendrux_model.values import decoded, json_text, money
from dendrux_model.worlds import SMALL_WORLDS

EVENT = SaveRunEvent(run_id="r1", event_type="x", event_id="e1")
USAGE = SaveUsage(run_id="r1", iteration_index=0, usage=UsageStats(input_tokens=1), usage_id="u1")
CALL = SaveToolCall(run_id="r1", tool_call_id="c1", tool_name="look", row_id="k1")
CREATE = CreateRun(run_id="r1", agent_name="a")
NOTE = AddNote(run_id="r1", note_id="n1", text="hi")
SUBMIT = SubmitAndClaim(run_id="r1", expected_status="paused", submitted_data={"a": 1}, submission_id="s1")
END = FinalizeWithEvent(
    run_id="r1", status="success", allowed_current_statuses=("running",), event_type="run.completed", event_id="f1"
)
PAUSE = PauseWithEvent(run_id="r1", status="paused", pause_data={"a": 1}, event_id="p1")
ENTRIES = (EVENT, USAGE, CALL, CREATE, NOTE, SUBMIT, END, PAUSE)

DIFFERENT = [1, 1.0, True, "1", 10**16, 1e16, 0.0, -0.0, None, "", [], {}, [1, 2], [2, 1], "é", "e\u0301", 2**70]


@pytest.mark.parametrize("one", range(len(DIFFERENT)))
@pytest.mark.parametrize("other", range(len(DIFFERENT)))
def test_json_values_are_equal_only_to_themselves(one, other):
    first, second = (replace(EVENT, data={"v": [DIFFERENT[i]]}) for i in (one, other))
    assert (first.content == second.content) == (one == other)


def test_the_order_of_members_does_not_count_and_the_order_of_items_does():
    first, second = {"a": {"x": 1, "y": 2}, "b": 1}, {"b": 1, "a": {"y": 2, "x": 1}}
    assert replace(EVENT, data=first).content == replace(EVENT, data=second).content
    assert json_text(first) != json_text(second), "what is read back keeps its order"
    assert replace(EVENT, data={"a": [1, 2]}).content != replace(EVENT, data={"a": [2, 1]}).content


def test_an_absent_document_is_not_an_empty_one():
    assert replace(EVENT, data=None).content != replace(EVENT, data={}).content


@pytest.mark.parametrize("operation", ENTRIES, ids=lambda operation: operation.method)
def test_every_given_value_counts_but_epoch_and_ids(operation):
    for name in ("claim_epoch", "run_id", operation.identity):
        if name in operation.__dataclass_fields__:
            assert replace(operation, **{name: 7 if name == "claim_epoch" else "other"}).content == operation.content


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        (NOTE, {"max_pending": 1, "tenant_id": "t"}),
        (
            SUBMIT,
            {"expected_status": "waiting_approval", "validate": "accept", "tenant_id": None, "submission_id": "s2"},
        ),
        (END, {"allowed_current_statuses": ("paused",)}),
        (CREATE, {"parent_claim_epoch": 3}),
        (CREATE, {"idempotency_fingerprint": ""}),
    ],
    ids=["add_note", "submit_and_claim", "finalize_with_event", "create_run", "create_run_fingerprint"],
)
def test_what_is_not_persisted_does_not_count(operation, changes):
    assert replace(operation, **changes).content == operation.content


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        (EVENT, {"iteration_index": 1}),
        (EVENT, {"correlation_id": "c"}),
        (CALL, {"duration_ms": 1}),
        (CALL, {"success": False}),
        (NOTE, {"metadata": {}}),
        (NOTE, {"text": "hi "}),
        (CREATE, {"tenant_id": ""}),
        (CREATE, {"idempotency_key": "k"}),
        (END, {"answer": ""}),
        (END, {"failure_reason": "x"}),
        (PAUSE, {"iteration_count": 0}),
        (PAUSE, {"total_usage": UsageStats()}),
        (PAUSE, {"pii_mapping": {}}),
        (SUBMIT, {"submitted_data": {"a": True}}),
        (SaveTrace(run_id="r1", role="user", content_text="x", order_index=0), {"trace_kind": "observation"}),
        (SaveLLMInteraction(run_id="r1", iteration_index=0, usage=UsageStats()), {"provider_response": {}}),
    ],
    ids=lambda given: given.method if hasattr(given, "method") else "-".join(given),
)
def test_what_is_persisted_counts(operation, changes):
    assert replace(operation, **changes).content != operation.content


def test_the_same_id_used_by_another_operation_is_other_content():
    contents = {operation.content for operation in ENTRIES}
    assert len(contents) == len(ENTRIES)


# -- usage and money --------------------------------------------------------------------------------------------------


def cost(amount, **given):
    return replace(USAGE, usage=UsageStats(input_tokens=1, cost_usd=amount, **given)).content


def test_the_source_of_a_cost_is_not_persisted():
    assert cost(0.5, cost_source="table") == cost(0.5)
    assert replace(USAGE, usage=UsageStats(input_tokens=1, reasoning_tokens=0)).content != USAGE.content


def test_costs_are_compared_as_they_are_rounded():
    assert cost(0.1) == cost(Decimal("0.1")) == cost(Decimal("0.1000004"))
    assert cost(0.1) != cost(Decimal("0.1000006"))
    assert cost(0) == cost(0.0) == cost(-0.0) != cost(None)


@pytest.mark.parametrize(
    ("amount", "stored"),
    [
        (None, None),
        (0.1, 0.1),
        (Decimal("0.0000005"), 0.0),
        (Decimal("0.0000015"), 0.000002),
        (Decimal("0.0000025"), 0.000002),
        (1.0000005, 1.0),
        (99999999999, 99999999999.0),
        (1e-9, 0.0),
    ],
)
def test_money_is_rounded_half_even_to_six_places(amount, stored):
    assert money(amount) == stored


# -- results of tools -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("null", None),
        ("done", {"raw": "done"}),
        ("", {"raw": ""}),
        ("NaN", {"raw": "NaN"}),
        ("1e999", {"raw": "1e999"}),
        ('"\\ud800"', {"raw": '"\\ud800"'}),
    ],
)
def test_a_result_is_decoded_or_kept_as_text(payload, value):
    assert decoded(payload) == value


def test_results_are_compared_as_they_are_decoded():
    first, second = (replace(CALL, result_payload=text) for text in ('{"a": 1, "b": 2}', '{"b":2,"a":1}'))
    assert first.content == second.content
    assert replace(CALL, result_payload="1").content != replace(CALL, result_payload="1.0").content


# -- operations as values ---------------------------------------------------------------------------------------------


def test_operations_print_as_the_call_they_stand_for():
    assert (
        str(replace(EVENT, claim_epoch=1))
        == "save_run_event(run_id='r1', event_type='x', event_id='e1', claim_epoch=1)"
    )
    assert "tenant_id" not in str(NOTE)
    assert replace(NOTE, tenant_id=UNSCOPED) == NOTE


def test_every_operation_is_used_by_a_small_world():
    used = {type(operation).__name__ for small in SMALL_WORLDS.values() for operation in small.alphabet}
    assert used - {"Pass"} == set(OPERATIONS)
