"""What ReferenceStore keeps outside the model, and what a cut leaves: bytes, and writes that were lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dendrux.errors import BlobNotFoundError, PersistenceError, StoreOutcomeUnknown, StoreUnavailableError
from dendrux.runtime.values import BlobEdge
from dendrux.testing import ReferenceFaultInjector, ReferenceStore

SCOPE = "-"


@pytest.fixture
def store() -> ReferenceStore:
    return ReferenceStore()


# -- blobs ------------------------------------------------------------------------------------------------------------


class Shelf:
    """A BlobStore in memory."""

    def __init__(self):
        self.objects = {}

    async def put(self, key, data):
        self.objects[key] = data

    async def get(self, key):
        return self.objects.get(key)

    async def delete(self, key):
        self.objects.pop(key, None)


@pytest.mark.parametrize("outside", [False, True])
async def test_bytes_are_put_read_purged_and_collected(store, outside):
    shelf = Shelf() if outside else None
    info = await store.put_blob(b"bytes", tenant_scope=SCOPE, media_type="image/png", width=3, blob_store=shelf)
    assert (info.byte_length, info.width, info.media_type, info.state) == (5, 3, "image/png", "live")
    assert info.storage == ("external" if outside else "db")
    again = await store.put_blob(b"bytes", tenant_scope=SCOPE, blob_store=shelf)
    assert (again.generation, again.width) == (info.generation, 3)
    assert await store.read_blob(info.sha256, tenant_scope=SCOPE, blob_store=shelf) == b"bytes"
    await store.put_blob(b"garbage", tenant_scope=SCOPE, blob_store=shelf)
    await store.create_run("r", "agent")
    edge = BlobEdge(tenant_scope=SCOPE, sha256=info.sha256, owner_kind="trace", owner_id="t", ordinal=0)
    await store.save_trace("r", "user", "x", order_index=0, blob_refs=[edge])
    [reference] = await store.blob_references(info.sha256, tenant_scope=SCOPE)
    assert reference.run_id == "r"
    assert await store.blob_references(info.sha256, tenant_scope=SCOPE, offset=1) == []
    store.clock.advance(timedelta(days=2))
    collected = await store.collect_garbage(blob_store=shelf)
    assert (collected.deleted_blobs, collected.bytes_freed, collected.skipped_referenced) == (1, 7, 1)
    purged = await store.purge_blob(info.sha256, tenant_scope=SCOPE, reason="asked", blob_store=shelf)
    assert (purged.state, purged.purge_reason) == ("purged", "asked")
    for refused in (store.put_blob(b"bytes", tenant_scope=SCOPE), store.read_blob(info.sha256, tenant_scope=SCOPE)):
        with pytest.raises(BlobNotFoundError):
            await refused
    assert not outside or shelf.objects == {}


async def test_a_collection_comes_in_pages(store):
    for number in range(3):
        await store.put_blob(bytes([number]), tenant_scope=SCOPE)
    store.clock.advance(timedelta(days=2))
    page = await store.collect_garbage(limit=2)
    assert (page.deleted_blobs, (await store.collect_garbage(limit=2, after=page.next_after)).deleted_blobs) == (2, 1)


async def test_bytes_outside_need_their_blob_store(store):
    info = await store.put_blob(b"bytes", tenant_scope=SCOPE, blob_store=Shelf())
    for refused in (store.read_blob, store.purge_blob):
        with pytest.raises(ValueError, match="blob_store"):
            await refused(info.sha256, tenant_scope=SCOPE)
    assert (await store.blob_info(info.sha256, tenant_scope=SCOPE)).state == "live"


async def test_two_puts_at_once_leave_one_object(store):
    shelf = Shelf()
    puts = await asyncio.gather(*(store.put_blob(b"x", tenant_scope=SCOPE, blob_store=shelf) for _ in range(3)))
    assert len({info.generation for info in puts}) == len(shelf.objects) == 1
    assert await store.read_blob(puts[0].sha256, tenant_scope=SCOPE, blob_store=shelf) == b"x"


# -- cuts -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def injector():
    made = ReferenceFaultInjector()
    yield made
    made.close()


async def test_cuts_lose_a_write_or_its_answer(store, injector):
    await store.create_run("r", "agent")
    for point, applied in (("before_commit", False), ("after_commit", True)):
        injector.arm(store, point, kind="invalidated")
        with pytest.raises(StoreOutcomeUnknown):
            await store.update_run_meta("r", {point: 1})
        assert injector.fired(store) == 1
        injector.disarm(store)
        assert (point in ((await store.get_run("r")).meta or {})) == applied


@pytest.mark.parametrize(("kind", "error"), [("error", PersistenceError), ("invalidated", StoreUnavailableError)])
async def test_what_was_not_sent_is_not_written(store, injector, kind, error):
    await store.create_run("r", "agent")
    injector.arm(store, "statement", kind=kind, sticky=True)
    with pytest.raises(error) as refused:
        await store.save_run_event("r", event_type="x")
    assert type(refused.value) is error
    injector.disarm(store)
    assert await store.get_run_events("r") == []


async def test_a_lost_connection_is_made_again(store, injector):
    await store.create_run("r", "agent")
    injector.arm(store, "statement", kind="invalidated", after=1)
    assert await store.save_run_event("r", event_type="x") == 0
    assert injector.fired(store) == 0
    assert await store.save_run_event("r", event_type="x") == 1
    assert injector.fired(store) == 1


@pytest.mark.parametrize("point", ["statement", "before_commit", "after_commit"])
async def test_a_cancelled_call_raises_and_is_written_at_most_once(store, injector, point):
    await store.create_run("r", "agent")
    injector.arm(store, point, kind="cancel")
    with pytest.raises(asyncio.CancelledError):
        await store.save_run_event("r", event_type="x", event_id="e")
    assert len(await store.get_run_events("r")) == (point == "after_commit")
    assert await store.save_run_event("r", event_type="x", event_id="e") == 0


async def test_cuts_are_of_one_instance(store, injector):
    await store.create_run("r", "agent")
    injector.arm(store, "before_commit", sticky=True)
    assert await ReferenceStore(data_of=store).request_cancel("r")


def test_an_injector_refuses_what_it_cannot_cut(store, injector):
    with pytest.raises(ValueError, match="unknown point"):
        injector.arm(store, "nowhere")
    with pytest.raises(ValueError, match="unknown kind"):
        injector.arm(store, "statement", kind="stream_cut")
    with pytest.raises(ValueError, match="no ReferenceStore"):
        injector.arm(object(), "statement")


async def test_a_sweep_names_the_run_whose_answer_was_lost(store, injector):
    for name in ("a", "b"):
        await store.create_run(name, "agent")
    store.clock.advance(timedelta(hours=1))
    injector.arm(store, "after_commit")
    page = await store.sweep_stale_runs(older_than=timedelta(minutes=1))
    assert [(failed.run_id, failed.code) for failed in page.failed] == [("a", "store_outcome_unknown")]
    assert [run.run_id for run in page.swept] == ["b"]
    assert await store.get_run_statuses(["a", "b"]) == {"a": "error", "b": "error"}


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
async def test_a_cancellation_of_a_family_goes_on_after_a_cut(store, injector, point):
    await store.create_run("root", "agent")
    await store.create_run("child", "agent", parent_run_id="root", delegation_level=1)
    injector.arm(store, point)
    page = await store.cancel_subtree("root")
    assert ([failed.run_id for failed in page.failed], page.requested) == (["root"], ["child"])
    assert (await store.get_run("root")).cancel_requested == (point == "after_commit")


async def test_a_repeat_has_the_answer_of_the_write_that_it_finds(store, injector):
    await store.create_run("r", "agent")
    await store.put_blob(b"x", tenant_scope=SCOPE)
    store.clock.advance(timedelta(days=2))
    injector.arm(store, "after_commit", kind="invalidated")
    assert await store.add_note("r", note_id="n", text="x") == "added"
    injector.arm(store, "after_commit", kind="invalidated")
    assert (await store.collect_garbage()).deleted_blobs == 1
