"""The list of the earlier release's weaknesses names tests that exist; those that no other test names are here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import exc, text

from dendrux.errors import RunNotFoundError
from dendrux.store import SQLiteStateStore, SQLStateStore
from unit.pointers import missing, pointers, rows
from unit.store_support import built_in
from unit.test_store_statements import END, PAUSE

PAGE = "tests/weaknesses.md"
SHOWN = set(range(1, 29)) - {21}
EXPLAINED = {21, 29}
"""Numbers that come with a reason instead."""


def test_every_weakness_is_on_the_page() -> None:
    assert {int(number) for number in rows(PAGE)} == SHOWN | EXPLAINED


@pytest.mark.parametrize("number", sorted(SHOWN | EXPLAINED))
def test_what_the_page_names_exists(number: int) -> None:
    _, shown_by = rows(PAGE)[str(number)]
    named = pointers(shown_by)
    assert bool(named) == (number in SHOWN)
    assert named or shown_by.endswith(".")
    assert missing(named) == []


@pytest_asyncio.fixture
async def store(tmp_path: Any) -> AsyncIterator[SQLStateStore]:
    async with built_in(tmp_path, SQLiteStateStore) as store:
        await store.create_run("r", "agent")
        yield store


async def test_a_claim_renews_the_lease(store: SQLStateStore) -> None:
    await store.pause_with_event("r", **PAUSE)
    before = (await store.get_run("r")).last_progress_at
    await asyncio.sleep(0.002)
    assert await store.claim_paused_run("r", expected_status="paused") == 2
    assert (await store.get_run("r")).last_progress_at > before


async def test_an_end_is_never_overwritten(tmp_path: Any) -> None:
    async with built_in(tmp_path, SQLiteStateStore) as store:
        if getattr(store.capabilities, "checkpointing", False):
            narrow(store)
        await store.create_run("r", "agent")
        await store.finalize_with_event("r", **END, answer="first")
        ended = await store.get_run("r")
        assert await store.finalize_run("r", status="error", error="late") is False
        assert await store.finalize_with_event("r", **END, answer="second") is None
        with pytest.raises(RuntimeError):
            await store.pause_run("r", **PAUSE)
        assert await store.get_run("r") == ended
        with pytest.raises(RunNotFoundError):
            await store.finalize_run("nowhere", status="error")


def narrow(store: SQLStateStore) -> None:
    """Make the store's new runs those of format 1."""
    store.capabilities = replace(store.capabilities, checkpointing=False)


async def test_nobody_claims_what_is_asked_to_cancel(store: SQLStateStore) -> None:
    await store.pause_with_event("r", **PAUSE)
    assert await store.request_cancel("r")
    assert await store.claim_paused_run("r", expected_status="paused") is None
    assert await store.submit_and_claim("r", expected_status="paused", submitted_data={}) is None
    assert (await store.get_run("r")).claim_epoch == 1


async def test_no_row_of_a_run_that_does_not_exist(store: SQLStateStore) -> None:
    with pytest.raises(RunNotFoundError):
        await store.save_trace("nowhere", "user", "x", order_index=0)
    row = "INSERT INTO react_traces (id, agent_run_id, role, content, order_index, created_at) VALUES (:i, :r, '', '', 0, :t)"
    with pytest.raises(exc.IntegrityError):
        async with store._engine.begin() as connection:
            await connection.execute(text(row), {"i": "t", "r": "nowhere", "t": "2026-01-01 00:00:00.000000"})


async def test_a_json_null_of_an_older_row_is_nothing(store: SQLStateStore) -> None:
    async with store._engine.begin() as connection:
        await connection.execute(
            text("UPDATE agent_runs SET meta = 'null', input_data = 'null', pause_data = 'null', pii_mapping = 'null'")
        )
    run = await store.get_run("r")
    assert (run.meta, run.input_data) == (None, None)
    assert await store.get_pause_state("r") is None
    assert await store.get_pii_mapping("r") is None
    assert await store.list_runs(metadata_filter={"a": None}) == []
    await store.update_run_meta("r", {"a": None})
    assert (await store.get_run("r")).meta == {"a": None}
    assert len(await store.list_runs(metadata_filter={"a": None})) == 1
