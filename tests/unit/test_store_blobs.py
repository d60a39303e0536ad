"""Blobs on the built-in store: bytes outside the database, crashes between two transactions, pages, statements."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta

import pytest
import pytest_asyncio

from dendrux.blobs import FsspecBlobStore
from dendrux.errors import BlobIntegrityError, BlobNotFoundError, StoreBusyError
from dendrux.runtime.values import BlobEdge
from dendrux.store import RunStore, blob_scope
from dendrux.testing.store_kit.sql import SqlClock
from unit.store_support import counted

pytestmark = pytest.mark.asyncio

SCOPE = blob_scope("t")
SHA = hashlib.sha256(b"picture").hexdigest()
HOUR = timedelta(hours=1)


class Crash(Exception):
    """The process dies here."""


class Outside:
    """Bytes in memory, with a place to crash at or to wait at."""

    def __init__(self):
        self.kept = {}
        self.crash = None
        self.before = {}

    async def _at(self, what):
        if what in self.before:
            await self.before.pop(what)()
        if self.crash == what:
            raise Crash

    async def put(self, key, data):
        await self._at("put")
        self.kept[key] = data
        await self._at("after_put")

    async def get(self, key):
        return self.kept.get(key)

    async def delete(self, key):
        await self._at("delete")
        self.kept.pop(key, None)
        await self._at("after_delete")


@pytest_asyncio.fixture
async def store(database, tmp_path):
    async with database.store(tmp_path) as store:
        await store.create_run("r", "agent", tenant_id="t")
        yield store


@pytest.fixture
def outside():
    return Outside()


@pytest.fixture
def clock(store):
    return SqlClock(lambda: store._engine)


def edge(sha256=SHA, **given):
    return BlobEdge(
        **{"tenant_scope": SCOPE, "sha256": sha256, "owner_kind": "trace", "owner_id": "0", "ordinal": 0, **given}
    )


async def put(store, outside=None, data=b"picture"):
    return await store.put_blob(data, tenant_scope=SCOPE, media_type="image/png", blob_store=outside)


async def refer(store, *edges):
    await store.save_trace(
        "r", "user", "look", order_index=0, trace_id="m", blob_refs=list(edges or (edge(),)), claim_epoch=1
    )


# -- outside the database ---------------------------------------------------------------------------------------------


async def test_outside_bytes_are_put_read_and_purged(store, outside):
    info = await put(store, outside)
    assert (info.storage, info.state, info.sha256) == ("external", "live", SHA)
    [(key, kept)] = outside.kept.items()
    assert kept == b"picture"
    assert key == f"t%3At/{SHA}/{info.generation}"
    assert await store.read_blob(SHA, tenant_scope=SCOPE, blob_store=outside) == b"picture"
    await refer(store)
    purged = await store.purge_blob(SHA, tenant_scope=SCOPE, reason="asked", blob_store=outside)
    assert (purged.state, purged.purge_reason, outside.kept) == ("purged", "asked", {})
    assert len(await store.blob_references(SHA, tenant_scope=SCOPE)) == 1
    with pytest.raises(BlobNotFoundError):
        await put(store, outside)
    assert outside.kept == {}


async def test_outside_bytes_need_their_blob_store(store, outside):
    await put(store, outside)
    with pytest.raises(ValueError, match="read_blob needs the blob_store"):
        await store.read_blob(SHA, tenant_scope=SCOPE)
    with pytest.raises(ValueError, match="purge_blob needs the blob_store"):
        await store.purge_blob(SHA, tenant_scope=SCOPE, reason="asked")
    assert (await store.blob_info(SHA, tenant_scope=SCOPE)).state == "purging"  # the intent is stored
    with pytest.raises(BlobNotFoundError):
        await store.read_blob(SHA, tenant_scope=SCOPE, blob_store=outside)
    assert (await store.purge_blob(SHA, tenant_scope=SCOPE, blob_store=outside)).purge_reason == "asked"
    assert outside.kept == {}


@pytest.mark.parametrize(("damage", "check"), [(None, "presence"), (b"pictur", "length"), (b"pictUre", "sha256")])
async def test_every_read_is_verified(store, outside, damage, check):
    await put(store, outside)
    [key] = outside.kept
    outside.kept = {} if damage is None else {key: damage}
    with pytest.raises(BlobIntegrityError, match=check) as caught:
        await store.read_blob(SHA, tenant_scope=SCOPE, blob_store=outside)
    assert caught.value.check == check


async def test_no_transaction_is_open_while_a_blob_store_is_asked(store, outside, clock):
    async def somebody_writes():
        await asyncio.wait_for(store.update_run_meta("r", {"a": 1}), 1)
        assert store._engine.sync_engine.pool.checkedout() == 0

    outside.before = {"put": somebody_writes, "after_put": somebody_writes}
    await put(store, outside)
    await clock.advance(HOUR)
    outside.before = {"delete": somebody_writes}
    result = await store.collect_garbage(older_than=HOUR, blob_store=outside)
    assert (result.deleted_blobs, outside.before, outside.kept) == (1, {}, {})


async def test_what_a_blob_store_raises_passes_through(store, outside):
    outside.crash = "put"
    with pytest.raises(Crash):
        await put(store, outside)


async def test_a_cancelled_put_ends_at_once(store, outside):
    begun, never = asyncio.Event(), asyncio.Event()

    async def hang():
        begun.set()
        await never.wait()

    outside.before = {"put": hang}
    task = asyncio.create_task(put(store, outside))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    assert (await store.blob_info(SHA, tenant_scope=SCOPE)).state == "pending"


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["put", "after_put"])
async def test_a_put_that_crashed_is_finished_by_the_next_put(store, outside, place):
    outside.crash = place
    with pytest.raises(Crash):
        await put(store, outside)
    with pytest.raises(BlobNotFoundError):
        await refer(store)  # pending bytes can be referred to by nobody
    outside.crash = None
    assert (await put(store, outside)).state == "live"
    assert len(outside.kept) == 1
    assert await store.read_blob(SHA, tenant_scope=SCOPE, blob_store=outside) == b"picture"


@pytest.mark.parametrize("place", ["put", "after_put"])
async def test_a_put_that_crashed_is_collected(store, outside, clock, place):
    outside.crash = place
    with pytest.raises(Crash):
        await put(store, outside)
    outside.crash = None
    young = await store.collect_garbage(older_than=HOUR, blob_store=outside)
    assert young.retried_deletes == 0
    await clock.advance(HOUR)
    assert (await store.collect_garbage(older_than=HOUR, blob_store=outside)).retried_deletes == 1
    assert outside.kept == {}
    assert await store.blob_info(SHA, tenant_scope=SCOPE) is None


@pytest.mark.parametrize("place", ["delete", "after_delete"])
async def test_a_collection_that_crashed_is_finished_by_the_next_one(store, outside, clock, place):
    await put(store, outside)
    await clock.advance(HOUR)
    outside.crash = place
    with pytest.raises(Crash):
        await store.collect_garbage(older_than=HOUR, blob_store=outside)
    assert (await store.blob_info(SHA, tenant_scope=SCOPE)).state == "deleting"
    with pytest.raises(BlobNotFoundError):
        await refer(store)
    outside.crash = None
    assert (await store.collect_garbage(older_than=HOUR, blob_store=outside)).retried_deletes == 0  # perhaps at work
    await clock.advance(HOUR)
    assert (await store.collect_garbage(older_than=HOUR, blob_store=outside)).retried_deletes == 1
    assert await store.blob_info(SHA, tenant_scope=SCOPE) is None
    assert outside.kept == {}


@pytest.mark.parametrize("place", ["delete", "after_delete"])
async def test_a_put_revives_what_a_crashed_collection_marked(store, outside, clock, place):
    first = await put(store, outside)
    await clock.advance(HOUR)
    outside.crash = place
    with pytest.raises(Crash):
        await store.collect_garbage(older_than=HOUR, blob_store=outside)
    outside.crash = None
    revived = await put(store, outside)
    assert revived.generation != first.generation
    assert list(outside.kept) == [f"t%3At/{SHA}/{revived.generation}"]
    await clock.advance(HOUR)
    await refer(store)
    assert (await store.collect_garbage(older_than=HOUR, blob_store=outside)).skipped_referenced == 1
    assert await store.read_blob(SHA, tenant_scope=SCOPE, blob_store=outside) == b"picture"


async def test_a_slow_collector_does_not_touch_what_was_revived(store, outside, clock):
    await put(store, outside)
    await clock.advance(HOUR)

    async def revive():
        await put(store, outside)
        await refer(store)

    outside.before = {"delete": revive}
    await store.collect_garbage(older_than=HOUR, blob_store=outside)
    assert await store.read_blob(SHA, tenant_scope=SCOPE, blob_store=outside) == b"picture"
    assert len(outside.kept) == 1


async def test_a_slow_put_meets_a_collection_of_its_mark(store, outside, clock):
    async def collected():
        await clock.advance(HOUR)
        assert (await store.collect_garbage(older_than=HOUR, blob_store=outside)).retried_deletes == 1

    outside.before = {"put": collected}
    info = await put(store, outside)
    assert list(outside.kept) == [f"t%3At/{SHA}/{info.generation}"]


async def test_a_purge_that_crashed_is_completed_by_a_collection(store, outside, clock):
    await put(store, outside)
    outside.crash = "delete"
    with pytest.raises(Crash):
        await store.purge_blob(SHA, tenant_scope=SCOPE, blob_store=outside)
    outside.crash = None
    await clock.advance(HOUR)
    assert (await store.collect_garbage(older_than=HOUR, blob_store=outside)).completed_purges == 1
    assert (await store.blob_info(SHA, tenant_scope=SCOPE)).state == "purged"
    assert outside.kept == {}


async def test_two_puts_at_once_leave_one_object(store, outside):
    async def other():
        await put(store, outside)

    outside.before = {"put": other}
    await put(store, outside)
    assert len(outside.kept) == 1
    assert await store.read_blob(SHA, tenant_scope=SCOPE, blob_store=outside) == b"picture"


async def test_a_put_gives_up_when_others_keep_taking_the_blob_away(store, outside, clock):
    async def collected():
        await clock.advance(HOUR)
        await store.collect_garbage(older_than=HOUR, blob_store=outside)
        outside.before["put"] = collected

    outside.before = {"put": collected}
    with pytest.raises(StoreBusyError):
        await put(store, outside)
    assert outside.kept == {}


async def test_outside_bytes_are_left_alone_without_their_blob_store(store, outside, clock):
    await put(store, outside)
    await clock.advance(HOUR)
    assert (await store.collect_garbage(older_than=HOUR)).deleted_blobs == 0
    assert len(outside.kept) == 1


# -- pages and failures -----------------------------------------------------------------------------------------------


async def test_a_collection_goes_on_page_by_page(store, clock):
    for number in range(7):
        await put(store, data=b"%d" % number)
    await refer(store, *(edge(hashlib.sha256(b"%d" % n).hexdigest(), ordinal=n) for n in (1, 4)))
    await clock.advance(HOUR)
    after, pages = None, []
    while True:
        page = await store.collect_garbage(older_than=HOUR, limit=2, after=after)
        pages.append((page.deleted_blobs, page.skipped_referenced))
        after = page.next_after
        if after is None:
            break
    assert sum(d for d, _ in pages) == 5
    assert sum(s for _, s in pages) == 2
    assert all(d + s <= 2 for d, s in pages)
    with pytest.raises(ValueError, match="after"):
        await store.collect_garbage(older_than=HOUR, after="nonsense")


async def test_one_tenant_can_be_collected(store, clock):
    await put(store)
    await store.put_blob(b"picture", tenant_scope=blob_scope(None))
    await clock.advance(HOUR)
    reader = RunStore(store)
    assert (await reader.blobs.collect_garbage(older_than=HOUR, tenant_id="t")).deleted_blobs == 1
    assert (await reader.blobs.collect_garbage(older_than=HOUR)).deleted_blobs == 1


async def test_many_references_in_one_write(store):
    shas = [(await put(store, data=b"%d" % n)).sha256 for n in range(100)]
    await refer(store, *(edge(sha, ordinal=n) for n, sha in enumerate(shas)))
    for sha in shas:
        assert len(await store.blob_references(sha, tenant_scope=SCOPE)) == 1
    with pytest.raises(ValueError, match="at most 100"):
        await refer(store, *(edge(shas[0], ordinal=n) for n in range(101)))


# -- statements -------------------------------------------------------------------------------------------------------

CALL = {
    "tool_call_id": "c",
    "provider_tool_call_id": None,
    "tool_name": "t",
    "target": "server",
    "params": {},
    "result_payload": "1",
    "success": True,
    "duration_ms": 1,
    "iteration_index": 0,
}


@pytest.mark.parametrize(
    ("operation", "budget", "arguments"),
    [
        ("create_run", 1, {"run_id": "new", "agent_name": "agent", "tenant_id": "t"}),
        ("save_trace", 2, {"run_id": "r", "role": "user", "content": "x", "order_index": 0, "claim_epoch": 1}),
        ("save_tool_call", 2, {"run_id": "r", **CALL, "claim_epoch": 1}),
        ("submit_and_claim", 2, {"run_id": "p", "expected_status": "paused", "submitted_data": {}}),
    ],
)
async def test_references_cost_one_statement(store, operation, budget, arguments):
    await put(store)
    await put(store, data=b"other")
    await store.create_run("p", "agent", tenant_id="t")
    await store.pause_with_event("p", status="paused", pause_data={})
    other = edge(hashlib.sha256(b"other").hexdigest(), ordinal=1)
    with counted(store._engine) as statements:
        await getattr(store, operation)(**arguments, blob_refs=[edge(), other], blob_refs_scope=SCOPE)
    reads = 0 if store.supports_update_returning or budget == 1 else 1  # what RETURNING would tell, it reads before
    again = 0 if store.supports_insert_returning or budget > 1 else 1  # the format that the new run got
    assert len(statements) == budget + 1 + reads + again, statements


async def test_reads_take_one_statement_and_read_image_two(store):
    await put(store)
    await refer(store)
    reader = RunStore(store)
    for call, budget in (
        (lambda: store.read_blob(SHA, tenant_scope=SCOPE), 1),
        (lambda: store.blob_info(SHA, tenant_scope=SCOPE), 1),
        (lambda: store.blob_references(SHA, tenant_scope=SCOPE), 1),
        (lambda: reader.read_image("r", SHA, tenant_id="t"), 2),
        (lambda: put(store, data=b"new"), 2),
        (lambda: put(store), 4),
        (lambda: store.purge_blob(SHA, tenant_scope=SCOPE), 3),
    ):
        with counted(store._engine) as statements:
            await call()
        assert len(statements) == budget, statements


# -- fsspec -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "memory"])
async def test_any_fsspec_url_holds_the_bytes(store, tmp_path, kind):
    blobs = FsspecBlobStore(f"file://{tmp_path}/blobs" if kind == "file" else "memory://blobs")
    data = bytes(range(256)) * 10
    info = await put(store, blobs, data)
    assert await store.read_blob(info.sha256, tenant_scope=SCOPE, blob_store=blobs) == data
    assert await blobs.get("t/missing/g") is None
    await blobs.delete("t/missing/g")
    await store.purge_blob(info.sha256, tenant_scope=SCOPE, blob_store=blobs)
    with pytest.raises(BlobNotFoundError):
        await store.read_blob(info.sha256, tenant_scope=SCOPE, blob_store=blobs)
    assert await blobs.get(f"t%3At/{info.sha256}/{info.generation}") is None
