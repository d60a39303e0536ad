"""RunStore, the read facade: the signatures and fields of the public reference, and what each read answers."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

import dendrux.errors
from dendrux import store as public
from dendrux.db.session import get_engine
from dendrux.errors import BlobNotFoundError
from dendrux.runtime.values import BlobEdge
from dendrux.store import RunNotFoundError, RunStore, UsageStats, blob_scope
from unit.store_support import counted

pytestmark = pytest.mark.asyncio

FIELDS = {
    "RunSummary": "run_id agent_name status created_at updated_at iteration_count total_input_tokens total_output_tokens total_cache_read_tokens total_cache_creation_tokens total_cost_usd model parent_run_id delegation_level",
    "StoredEvent": "sequence_index iteration_index event_type correlation_id data created_at",
    "LLMCall": "iteration provider model input_tokens output_tokens total_tokens cache_read_input_tokens cache_creation_input_tokens cost_usd duration_ms provider_request provider_response created_at",
    "ToolInvocation": "iteration tool_name tool_call_id provider_tool_call_id target params result success error duration_ms created_at",
    "TraceEntry": "role content order_index meta created_at phase",
    "PausePair": "pause_sequence_index pause_at resume_sequence_index resume_at reason pending_tool_calls submitted_results user_input",
    "SubtreeNode": "run depth usage",
    "RunSubtree": "root_run_id nodes usage",
    "RunUsage": "input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens cost_usd known_cost_usd unpriced_calls llm_calls",
    "RunNote": "note_id run_id text metadata created_at delivered_at delivered_iteration",
}
DETAIL = "strategy input_data answer error failure_reason cancel_requested pause_requested error_info"

PARAMETERS = {
    "list_runs": "status agent_name parent_run_id tenant_id started_after started_before metadata_filter limit=50 offset=0",
    "count_runs": "status agent_name parent_run_id tenant_id started_after started_before metadata_filter",
    "get_run": "run_id!",
    "get_events": "run_id! after_sequence_index limit event_types before",
    "get_llm_calls": "run_id! iteration limit offset=0 before",
    "get_tool_invocations": "run_id! iteration limit offset=0 before",
    "get_traces": "run_id! limit offset=0",
    "get_pauses": "run_id!",
    "get_pii_mapping": "run_id!",
    "get_subtree": "run_id! tenant_id=UNSCOPED",
    "get_notes": "run_id! undelivered_only=False tenant_id=UNSCOPED",
    "get_pending": "run_id! tenant_id=UNSCOPED",
    "read_image": "run_id! sha256! tenant_id=UNSCOPED",
}


@pytest.mark.parametrize("name", FIELDS)
async def test_records_have_exactly_the_documented_fields(name):
    assert [f.name for f in dataclasses.fields(getattr(public, name))] == FIELDS[name].split()


async def test_a_detail_has_a_summary_and_more():
    names = [f.name for f in dataclasses.fields(public.RunDetail)]
    assert names == (FIELDS["RunSummary"] + " " + DETAIL).split()


@pytest.mark.parametrize("name", PARAMETERS)
async def test_reads_have_exactly_the_documented_signatures(name):
    shown = []
    for parameter in list(inspect.signature(getattr(RunStore, name)).parameters.values())[1:]:
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            shown.append(f"{parameter.name}!")
        else:
            shown.append(parameter.name if parameter.default is None else f"{parameter.name}={parameter.default!r}")
    assert shown == PARAMETERS[name].split()


@pytest_asyncio.fixture
async def store(database, tmp_path):
    async with database.store(tmp_path) as store:
        await store.create_run("r", "agent", tenant_id="t", meta={"n": 1, "thread": "a"})
        yield store


@pytest.fixture
def reader(store):
    return RunStore(store)


# -- constructors -----------------------------------------------------------------------------------------------------


async def test_a_reader_from_a_url_owns_its_engine(tmp_path):
    async with RunStore.from_database_url(f"sqlite+aiosqlite:///{tmp_path / 'new.db'}") as reader:
        assert await reader.list_runs() == []
        engine = reader._owned
        assert engine.sync_engine.pool.checkedin() > 0
    assert engine.sync_engine.pool.checkedin() == 0
    await reader.close()


async def test_a_reader_from_an_engine_leaves_it_alone(tmp_path):
    engine = get_engine(f"sqlite+aiosqlite:///{tmp_path / 'new.db'}")
    async with RunStore.from_engine(engine) as reader:
        assert await reader.count_runs() == 0
    await reader.close()
    assert engine.sync_engine.pool.checkedin() > 0
    assert await reader.count_runs() == 0
    await engine.dispose()


async def test_the_two_errors_are_two_classes():
    assert public.RunNotFoundError is not dendrux.errors.RunNotFoundError
    assert not issubclass(public.RunNotFoundError, dendrux.errors.RunNotFoundError)


# -- runs -------------------------------------------------------------------------------------------------------------


async def test_runs_are_listed_and_shown(store, reader):
    await store.create_run("s", "other", meta={"n": 1.0})
    await store.request_cancel("r")
    await store.finalize_with_event(
        "r",
        status="error",
        allowed_current_statuses=["running"],
        event_type="run.error",
        event_data={"error_info": {"code": "boom"}},
        error="boom",
        total_usage=UsageStats(input_tokens=3, cost_usd=0.5),
    )
    assert [run.run_id for run in await reader.list_runs()] == ["s", "r"]
    assert [run.run_id for run in await reader.list_runs(tenant_id="t")] == ["r"]
    assert [run.run_id for run in await reader.list_runs(tenant_id=None, status=["running"])] == ["s"]
    assert [run.run_id for run in await reader.list_runs(metadata_filter={"n": 1})] == ["r"]
    assert await reader.count_runs(metadata_filter={"n": 1.0}) == 1
    assert await reader.count_runs(metadata_filter={"n": True}) == 0
    detail = await reader.get_run("r")
    assert (detail.status, detail.error, detail.error_info) == ("error", "boom", {"code": "boom"})
    assert (detail.total_input_tokens, detail.total_cost_usd, detail.cancel_requested) == (3, 0.5, False)
    assert await reader.get_run("missing") is None
    assert (await reader.get_run("s")).error_info is None


async def test_runs_are_iterated_beyond_a_page(store, reader, monkeypatch):
    monkeypatch.setattr("dendrux.store.reader.PAGE", 3)
    for number in range(8):
        await store.create_run(f"n{number}", "many")
    seen = []
    async for run in reader.iter_runs(agent_name="many"):
        seen.append(run.run_id)
        if len(seen) == 3:
            await store.create_run("late", "many")
    assert seen == [f"n{number}" for number in reversed(range(8))]


async def test_a_subtree_is_shown_with_its_usage(store, reader):
    await store.create_run("child", "agent", tenant_id="t", parent_run_id="r", delegation_level=1)
    await store.save_llm_interaction("r", iteration_index=0, usage=UsageStats(input_tokens=2, cost_usd=0.25))
    await store.save_llm_interaction("child", iteration_index=0, usage=UsageStats(output_tokens=5))
    tree = await reader.get_subtree("r", tenant_id="t")
    assert [(node.run.run_id, node.depth) for node in tree.nodes] == [("r", 0), ("child", 1)]
    assert tree.root is tree.nodes[0]
    assert (tree.root.usage.cost_usd, tree.nodes[1].usage.cost_usd) == (0.25, None)
    assert (tree.usage.input_tokens, tree.usage.output_tokens, tree.usage.llm_calls) == (2, 5, 2)
    assert (tree.usage.cost_usd, tree.usage.known_cost_usd, tree.usage.unpriced_calls) == (None, 0.25, 1)
    for run_id, scope in (("missing", "t"), ("r", None), ("r", "T")):
        with pytest.raises(RunNotFoundError):
            await reader.get_subtree(run_id, tenant_id=scope)


# -- log and evidence -------------------------------------------------------------------------------------------------


async def test_events_are_filtered_and_iterated(store, reader, monkeypatch):
    for number in range(7):
        await store.save_run_event("r", event_type="even" if number % 2 == 0 else "odd", data={"n": number})
    assert [e.sequence_index for e in await reader.get_events("r")] == list(range(7))
    assert [e.sequence_index for e in await reader.get_events("r", after_sequence_index=2, limit=2)] == [3, 4]
    assert [e.data["n"] for e in await reader.get_events("r", event_types=["odd"])] == [1, 3, 5]
    assert await reader.get_events("r", event_types=[]) == []
    monkeypatch.setattr("dendrux.store.reader.PAGE", 2)
    assert [e.sequence_index async for e in reader.iter_events("r")] == list(range(7))
    assert [e.data["n"] async for e in reader.iter_events("r", event_types=["even"])] == [0, 2, 4, 6]
    assert len(await reader.get_events("r")) == 2  # one page


async def test_before_is_exclusive_and_aware(store, reader):
    await store.save_run_event("r", event_type="x")
    await store.save_llm_interaction("r", iteration_index=1, usage=UsageStats(total_tokens=9), model="m")
    await store.save_tool_call(
        "r",
        tool_call_id="c",
        provider_tool_call_id=None,
        tool_name="t",
        target="server",
        params={"a": 1},
        result_payload="[1]",
        success=False,
        duration_ms=3,
        iteration_index=1,
        error_message="no",
    )
    later = datetime.now(UTC) + timedelta(seconds=1)
    for read in (reader.get_events, reader.get_llm_calls, reader.get_tool_invocations):
        [row] = await read("r", before=later)
        assert await read("r", before=row.created_at) == []
        with pytest.raises(ValueError, match="before"):
            await read("r", before=datetime(2026, 1, 1))  # noqa: DTZ001
    [call] = await reader.get_llm_calls("r", iteration=1)
    assert (call.iteration, call.model, call.total_tokens) == (1, "m", 9)
    assert await reader.get_llm_calls("r", iteration=0) == []
    [tool] = await reader.get_tool_invocations("r")
    assert (tool.iteration, tool.result, tool.error, tool.success) == (1, [1], "no", False)


async def test_traces_tell_their_phase(store, reader, monkeypatch):
    metas = [None, {"phase": "commentary"}, {"phase": "final_answer"}, {"phase": 7}, {}]
    for number, meta in enumerate(metas):
        await store.save_trace("r", "assistant", f"m{number}", order_index=number, meta=meta)
    entries = await reader.get_traces("r")
    assert [entry.phase for entry in entries] == [None, "commentary", "final_answer", None, None]
    assert [entry.content for entry in await reader.get_traces("r", limit=2, offset=3)] == ["m3", "m4"]
    monkeypatch.setattr("dendrux.store.reader.PAGE", 2)
    assert [entry.content async for entry in reader.iter_traces("r")] == [f"m{n}" for n in range(5)]


async def test_pauses_are_paired_by_order(store, reader):
    calls = [{"id": "c", "name": "ask", "target": "client", "params": {}}]
    for number in range(2):
        said = {"status": "waiting_client_tool", "pending_tool_calls": calls}
        await store.pause_with_event("r", status="waiting_client_tool", pause_data={}, event_data=said)
        if number == 0:
            await store.claim_paused_run("r", expected_status="waiting_client_tool")
            await store.save_run_event("r", event_type="run.resumed", data={"submitted_results": [{"call_id": "c"}]})
    first, second = await reader.get_pauses("r")
    assert (first.pause_sequence_index, first.resume_sequence_index, first.reason) == (0, 1, "waiting_client_tool")
    assert (first.pending_tool_calls, first.submitted_results, first.user_input) == (calls, [{"call_id": "c"}], None)
    assert (second.pause_sequence_index, second.resume_sequence_index, second.resume_at) == (2, None, None)
    assert await reader.get_pauses("missing") == []


# -- waiting ----------------------------------------------------------------------------------------------------------

DOCUMENT = {
    "pause_reason": "approval",
    "iteration": 4,
    "pending_tool_calls": [{"id": "c", "name": "mail", "params": {"n": 1.0, "to": "é"}}, {"odd": 1}],
    "pending_targets": {"c": "client"},
    "history": ["x" * 1000],
}


async def test_pending_work_is_read_without_the_document(store, reader):
    assert await reader.get_pending("r") is None
    await store.pause_with_event("r", status="waiting_approval", pause_data=DOCUMENT)
    with counted(store._engine) as statements:
        pending = await reader.get_pending("r", tenant_id="t")
    assert len(statements) == 1
    assert (pending.status, pending.reason, pending.iteration) == ("waiting_approval", "approval", 4)
    [call] = pending.calls
    assert (call.id, call.name, call.params, call.target) == ("c", "mail", {"n": 1.0, "to": "é"}, "client")
    assert pending.paused_at is not None
    for run_id, scope in (("missing", "t"), ("r", "T"), ("r", None)):
        assert await reader.get_pending(run_id, tenant_id=scope) is None
    await store.claim_paused_run("r", expected_status="waiting_approval")
    assert await reader.get_pending("r") is None


@pytest.mark.parametrize("reason", ["a\u0000b", "\\u0000", "plain"])
@pytest.mark.parametrize("iteration", [2**70, 3, 1.0])
async def test_pending_work_survives_values_a_database_bends(store, reader, reason, iteration):
    await store.pause_with_event(
        "r", status="paused", pause_data={**DOCUMENT, "pause_reason": reason, "iteration": iteration}
    )
    pending = await reader.get_pending("r")
    assert pending.reason == reason
    assert pending.iteration == (iteration if isinstance(iteration, int) else None)


@pytest.mark.only("sqlite")
async def test_pending_work_falls_back_to_the_document(store, reader, monkeypatch):
    from sqlalchemy import literal_column

    await store.pause_with_event("r", status="paused", pause_data=DOCUMENT)
    broken = [literal_column(f"json_extract('{{', '$.{n}')") for n in range(5)]
    monkeypatch.setattr(type(store), "pause_projection", lambda self, col: broken)
    with pytest.raises(dendrux.errors.PersistenceError):
        await reader.get_pending("r")
    monkeypatch.setattr(type(store), "json_conversion_error", lambda self, exc: "malformed JSON" in str(exc))
    assert (await reader.get_pending("r")).reason == "approval"


async def test_notes_come_in_the_order_of_delivery(store, reader, monkeypatch):
    monkeypatch.setattr("dendrux.store.reader.PAGE", 2)
    for number in range(5):
        await store.add_note("r", note_id=f"n{number}", text=f"note {number}", metadata={"n": number})
    await store.mark_notes_delivered("r", ["n0", "n3"], iteration=2)
    notes = await reader.get_notes("r", tenant_id="t")
    assert [note.note_id for note in notes] == [f"n{n}" for n in range(5)]
    assert [note.delivered_iteration for note in notes] == [2, None, None, 2, None]
    assert [note.note_id for note in await reader.get_notes("r", undelivered_only=True)] == ["n1", "n2", "n4"]
    assert await reader.get_notes("missing") == []
    for run_id, scope in (("missing", "t"), ("r", "T"), ("r", None)):
        with pytest.raises(RunNotFoundError):
            await reader.get_notes(run_id, tenant_id=scope)


async def test_the_mapping_is_empty_where_there_is_none(store, reader):
    assert await reader.get_pii_mapping("r") == {}
    assert await reader.get_pii_mapping("missing") == {}
    await store.pause_with_event("r", status="paused", pause_data={}, pii_mapping={"<A>": "Ada"})
    assert await reader.get_pii_mapping("r") == {"<A>": "Ada"}


# -- images -----------------------------------------------------------------------------------------------------------


async def test_an_image_is_read_through_a_run_that_refers_to_it(store, reader):
    sha = hashlib.sha256(b"png").hexdigest()
    other = hashlib.sha256(b"other").hexdigest()
    for scope in (blob_scope("t"), blob_scope("T"), blob_scope(None)):
        await store.put_blob(b"png", tenant_scope=scope)
    await store.put_blob(b"other", tenant_scope=blob_scope("t"))
    await store.create_run("theirs", "agent", tenant_id="T")
    refs = [BlobEdge(tenant_scope=blob_scope("t"), sha256=sha, owner_kind="trace", owner_id="0", ordinal=0)]
    await store.save_trace("r", "user", "look", order_index=0, blob_refs=refs)
    assert await reader.read_image("r", sha) == b"png"
    assert await reader.read_image("r", sha, tenant_id="t") == b"png"
    said = set()
    for run_id, wanted, scope in (
        ("r", sha, "T"),
        ("r", sha, None),
        ("theirs", sha, "T"),
        ("missing", sha, "t"),
        ("r", other, "t"),
    ):
        with pytest.raises(BlobNotFoundError) as caught:
            await reader.read_image(run_id, wanted, tenant_id=scope)
        said.add(str(caught.value).replace(wanted, "it"))
    assert len(said) == 1
    await reader.blobs.purge(sha, tenant_id="t", reason="asked")
    with pytest.raises(BlobNotFoundError):
        await reader.read_image("r", sha)


async def test_the_accessor_reads_and_tells(store, reader):
    info = await store.put_blob(b"png", tenant_scope=blob_scope(None), media_type="image/png", width=3, height=4)
    assert await reader.blobs.read(info.sha256) == b"png"
    assert await reader.blobs.info(info.sha256) == info
    assert await reader.blobs.info(info.sha256, tenant_id="t") is None
    assert await reader.blobs.references(info.sha256) == []
    with pytest.raises(ValueError, match="older_than"):
        await reader.blobs.collect_garbage(older_than=timedelta(minutes=59))
