"""Arguments and stored values that are nearly right: subclasses, documents changed meanwhile, values at the edge."""

from __future__ import annotations

import asyncio
import contextlib
import decimal
import functools
import gc
import time
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from dendrux.db.models import settings
from dendrux.db.types import money
from dendrux.errors import (
    PersistenceError,
    SchemaOutOfDateError,
    StaleClaimError,
    StoreOutcomeUnknown,
    StoreUnavailableError,
)
from dendrux.store import SQLiteStateStore, SQLStateStore, UsageStats
from dendrux.store.arguments import CHECKS
from dendrux.store.tx import Stopped, Tx
from unit.store_support import another_process, built_in, counted, plain_engine


class Word(str, Enum):  # noqa: UP042  a StrEnum has the str() of a plain string
    """An Enum of strings whose str() is not its characters."""

    RUN = "r1"
    AGENT = "agent"
    WAITING = "waiting_human_input"
    KEY = "key"
    VALUE = "value"


class Level(IntEnum):
    ONE = 1
    SEVEN = 7


@pytest_asyncio.fixture
async def store(tmp_path):
    async with built_in(tmp_path, SQLiteStateStore) as made:
        yield made


async def paused(store: SQLStateStore, run_id: str = "r1", **document) -> None:
    await store.create_run(run_id, "a")
    await store.pause_with_event(run_id, status="waiting_human_input", pause_data=document, claim_epoch=1)


# -- subclasses of str and int ----------------------------------------------------------------------------------------


async def test_an_enum_of_strings_is_stored_as_its_characters(store):
    await store.create_run(Word.RUN, Word.AGENT, model=Word.VALUE, meta={Word.KEY: [Word.VALUE, {Word.KEY: Level.ONE}]})
    run = await store.get_run("r1")
    assert (run.id, run.agent_name, run.model) == ("r1", "agent", "value")
    assert run.meta == {"key": ["value", {"key": 1}]}
    await store.pause_with_event(Word.RUN, status=Word.WAITING, pause_data={"why": Word.VALUE}, claim_epoch=Level.ONE)
    assert (await store.get_run("r1")).status == "waiting_human_input"
    assert [found.id for found in await store.list_runs(status=Word.WAITING, metadata_filter={})] == ["r1"]
    assert await store.count_runs(metadata_filter={"missing": Word.VALUE}) == 0


async def test_text_and_numbers_of_subclasses_are_plain(store):
    await store.create_run("r1", "a")
    await store.save_trace("r1", "user", Word.VALUE, order_index=Level.SEVEN, trace_id="t", claim_epoch=Level.ONE)
    await store.save_trace("r1", "user", "value", order_index=7, trace_id="t", claim_epoch=1)
    usage = UsageStats(input_tokens=Level.SEVEN, reasoning_tokens=Level.ONE)
    await store.save_llm_interaction("r1", iteration_index=Level.ONE, usage=usage, interaction_id="i")
    [found] = await store.get_llm_interactions("r1")
    assert (found.iteration_index, found.input_tokens, found.reasoning_tokens) == (1, 7, 1)
    [trace] = await store.get_traces("r1")
    assert (trace.content, trace.order_index) == ("value", 7)
    assert type(CHECKS["content"]("content", Word.VALUE)) is str
    assert type(CHECKS["usage"]("usage", usage).input_tokens) is int


# -- arguments changed while the call runs ----------------------------------------------------------------------------


async def test_a_document_is_stored_as_it_was_when_the_call_started(store):
    await store.create_run("r1", "a")
    data, ids = {"n": [1]}, ["n1"]
    call = asyncio.create_task(store.save_run_event("r1", event_type="x", data=data, event_id="e"))
    note = asyncio.create_task(store.mark_notes_delivered("r1", ids, iteration=1))
    await asyncio.sleep(0)
    data["n"].append(2)
    ids.append(object())
    await asyncio.gather(call, note)
    [event] = await store.get_run_events("r1")
    assert event.data == {"n": [1]}
    assert await store.save_run_event("r1", event_type="x", data={"n": [1]}, event_id="e") == 0


# -- validate ---------------------------------------------------------------------------------------------------------


async def _async_validate(document):
    raise AssertionError("never runs")


class AsyncCallable:
    async def __call__(self, document):
        raise AssertionError("never runs")


def validate_that_returns_a_coroutine(document):
    return _async_validate(document)


def submission(store, validate=None, **options):
    return store.submit_and_claim(
        "r1", expected_status="waiting_human_input", submitted_data={"a": 1}, validate=validate, **options
    )


@pytest.mark.parametrize("validate", [_async_validate, AsyncCallable(), functools.partial(_async_validate)])
async def test_an_async_validate_is_refused_before_any_statement(store, validate):
    await paused(store)
    with counted(store._engine) as statements, pytest.raises(TypeError, match="validate must be a plain function"):
        await submission(store, validate)
    assert statements == []


async def test_a_validate_that_returns_something_to_await_is_refused_and_changes_nothing(store, recwarn):
    await paused(store)
    with pytest.raises(TypeError, match="validate must be a plain function"):
        await submission(store, validate_that_returns_a_coroutine)
    run = await store.get_run("r1")
    assert (run.status, run.claim_epoch) == ("waiting_human_input", 1)
    assert not [str(w.message) for w in recwarn if "never awaited" in str(w.message)]


async def test_stop_iteration_of_validate_is_named_and_is_the_cause(store):
    await paused(store)
    mine = StopIteration("no more")
    with pytest.raises(RuntimeError, match="validate raised StopIteration") as caught:
        await submission(store, lambda _document: next(iter_raising(mine)))
    assert caught.value.__cause__ is mine
    assert (await store.get_run("r1")).status == "waiting_human_input"


class iter_raising:  # noqa: N801
    def __init__(self, error):
        self.error = error

    def __next__(self):
        raise self.error


async def test_a_stored_unconsumed_submission_is_named_as_such(store):
    await paused(store)
    assert await submission(store, submission_id="s") == 2
    with pytest.raises(StoreOutcomeUnknown, match=r"stored and unconsumed.*may not be this caller"):
        await submission(store, submission_id="s")


async def test_the_words_of_a_stale_claim_fit_a_run_that_waits(store):
    await paused(store)
    with pytest.raises(StaleClaimError, match="does not hold this run under that epoch"):
        await store.save_trace("r1", "user", "x", order_index=0, claim_epoch=1)


# -- values at the edge -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["started_after", "started_before"])
@pytest.mark.parametrize("edge", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
async def test_a_time_outside_the_calendar_of_utc_is_refused_by_name(store, name, edge):
    with pytest.raises(ValueError, match=f"{name} must be between the years"):
        await store.list_runs(**{name: datetime.fromisoformat(edge)})


@pytest.mark.parametrize(
    "context",
    [
        decimal.Context(prec=3),
        decimal.Context(rounding=decimal.ROUND_UP),
        decimal.Context(traps=[decimal.Inexact, decimal.Rounded, decimal.FloatOperation, decimal.Subnormal]),
        decimal.Context(Emax=2, Emin=-2),
        decimal.Context(traps=[]),
    ],
)
def test_money_does_not_depend_on_the_callers_decimal_context(context):
    with decimal.localcontext(context):
        assert money(1234567.8901235) == Decimal("1234567.890124")
        assert money(Decimal("0.0000005")) == Decimal("0.000000")
        assert money(-0.0).is_signed() is False
        for bad in (Decimal("NaN"), Decimal("sNaN"), float("inf"), -1, 10**12):
            with pytest.raises(ValueError, match="finite amount"):
                money(bad)


# -- waiting for a connection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("used_before", [False, True])
async def test_a_cancelled_call_does_not_wait_for_the_pool(tmp_path, used_before):
    async with plain_engine(tmp_path, pool_size=1, max_overflow=0, pool_timeout=20) as engine:
        store = SQLiteStateStore(engine)
        if used_before:
            await store.create_run("r1", "a")
        async with engine.connect():
            calls = [asyncio.create_task(store.request_cancel("r1")) for _ in range(2)]
            await asyncio.sleep(0.05)
            began = time.monotonic()
            for call in calls:
                call.cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert time.monotonic() - began < 2
            assert [type(error) for error in ended] == [asyncio.CancelledError] * 2
        await store.create_run("r2", "a")
        assert engine.sync_engine.pool.checkedout() == 0


async def test_a_pool_that_gives_no_connection_is_waited_for_once(tmp_path):
    async with plain_engine(tmp_path, pool_size=1, max_overflow=0, pool_timeout=0.2) as engine:
        store = SQLiteStateStore(engine)
        await store.create_run("r1", "a")
        async with engine.connect():
            with pytest.raises(StoreUnavailableError) as caught:
                await store.get_run("r1")
        assert caught.value.attempts == 1
        assert caught.value.kind == "connection_lost"
        assert await store.get_run("r1") is not None


@pytest.mark.parametrize("url", ["sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"])
async def test_memory_behind_a_pool_that_keeps_nothing_is_refused(url):
    engine = create_async_engine(url, poolclass=NullPool)
    with pytest.raises(ValueError, match="StaticPool"):
        await SQLiteStateStore(engine).get_run("r1")


# -- being stopped ----------------------------------------------------------------------------------------------------


async def test_a_step_of_a_stopped_transaction_is_not_left_unawaited(store, recwarn):
    tx = Tx(store, "x", None)
    async with store._engine.connect() as connection:
        tx.stopped = True
        with contextlib.suppress(Stopped):
            await tx.guarded(connection.begin())
    gc.collect()
    assert not [str(w.message) for w in recwarn if "never awaited" in str(w.message)]


def test_a_loop_that_shuts_down_reports_no_unhandled_error(tmp_path):
    reported, running = [], []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        async with plain_engine(tmp_path, poolclass=NullPool, connect_args={"timeout": 0.3}) as engine:
            store = SQLiteStateStore(engine)
            await store.create_run("r1", "a")
            other.execute("BEGIN IMMEDIATE")
            running.append(asyncio.create_task(store.request_cancel("r1")))
            await asyncio.sleep(0.05)

    with another_process(tmp_path / "plain.db") as other:
        asyncio.run(main())
    assert running[0].cancelled()
    assert reported == []


# -- filters ----------------------------------------------------------------------------------------------------------


def listed(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "wanted",
    [
        {f"k{n}": n for n in range(101)},
        {"v": list(range(1001))},
        {"v": {f"k{n}": [n] for n in range(501)}},
        {"v": listed(6)},
        {"v": {'quo"te': 1}},
        {"v": [{"back\\slash": 1}]},
        {"v": {"a": {"tab\t": 1}}},
        {"v": {"\0": 1}},
    ],
)
async def test_a_filter_that_no_expression_carries_is_refused_by_name(store, wanted):
    await store.create_run("r1", "a")
    for read in (store.list_runs, store.count_runs):
        with counted(store._engine) as statements, pytest.raises(ValueError, match="metadata_filter"):
            await read(metadata_filter=wanted)
        assert statements == []


@pytest.mark.parametrize(
    "wanted",
    [
        {f"k{n}": [n] for n in range(100)},
        {"v": list(range(1000))},
        {"v": {f"k{n}": n for n in range(1000)}},
        {"v": [f"s{n}" for n in range(120)]},
        {"v": listed(5)},
        {"v": {"a": {"b": {"c": {"d": {"e": {"f": [1, {"g": [{"h": [2]}]}]}}}}}}},
        {"v": {"": 1, "é.$[0]": {"'": None}}},
    ],
)
async def test_a_filter_within_the_bounds_finds_exactly_its_runs(store, wanted):
    await store.create_run("r1", "a", meta=wanted)
    await store.create_run("r2", "a", meta={key: [] for key in wanted})
    await store.create_run("r3", "a")
    assert [run.id for run in await store.list_runs(metadata_filter=wanted)] == ["r1"]


@pytest.mark.parametrize("text", ["a", "a\0b", "\0", "a\\u0000b", "a\0c", ""])
async def test_strings_with_nul_compare_exactly_inside_containers(store, text):
    texts = ["a", "a\0b", "\0", "a\\u0000b", "a\0c", ""]
    for number, stored in enumerate(texts):
        await store.create_run(f"r{number}", "a", meta={"v": [stored], "o": {"k": stored}, "d": [{"k": [stored]}]})
    mine = f"r{texts.index(text)}"
    for wanted in ({"v": [text]}, {"o": {"k": text}}, {"d": [{"k": [text]}]}):
        assert [run.id for run in await store.list_runs(metadata_filter=wanted)] == [mine], wanted


# -- stored values ----------------------------------------------------------------------------------------------------

SECRET = "geheim"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("created_at", SECRET),
        ("total_cost_usd", SECRET),
        ("meta", f'["{SECRET}"]'),
        ("meta", f'"{SECRET}"'),
        ("meta", f"{{{SECRET}"),
        ("last_progress_at", 5),
    ],
)
async def test_a_stored_value_that_cannot_be_read_is_a_failure_that_does_not_show_it(store, tmp_path, column, value):
    await store.create_run("r1", "a")
    with another_process(tmp_path / "store.db") as other:
        other.execute(f"UPDATE agent_runs SET {column} = ?", (value,))
    for read in (store.get_run("r1"), store.list_runs()):
        with pytest.raises(PersistenceError, match="stored value cannot be read") as caught:
            await read
        assert SECRET not in repr(vars(caught.value))
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
    if column == "meta":
        for patch in ({"plain": 1}, {"not plain": 1}):
            with pytest.raises(PersistenceError) as caught:
                await store.update_run_meta("r1", patch)
            assert SECRET not in str(caught.value)
            assert caught.value.__context__ is None
        with another_process(tmp_path / "store.db") as other:
            assert other.execute("SELECT meta FROM agent_runs").fetchone() == (value,)


async def test_a_format_of_a_later_release_is_refused_on_first_use(tmp_path):
    async with built_in(tmp_path) as store:
        await store.create_run("r1", "a")
        with another_process(tmp_path / "store.db") as other:
            other.execute(f"UPDATE {settings.name} SET value = '3' WHERE key = 'storage_format'")
            assert other.execute("SELECT changes()").fetchone() == (1,)
    async with built_in(tmp_path) as store:
        with pytest.raises(SchemaOutOfDateError, match="later release"):
            await store.get_run("r1")
