"""Bytes outside the database: every contract of blobs again with a BlobStore, and what only a BlobStore can go through.

The model knows one place for bytes. What it says of them holds wherever they are, so the programs are the same; the kit
keeps the objects and compares them with the blobs that the model says are live.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

from dendrux.errors import BlobIntegrityError, BlobNotFoundError
from dendrux.testing.driver import Driver
from dendrux.testing.execution import Execution
from dendrux.testing.store_kit.contract import CONTRACTS, Need, NotKept, Situation, contract
from dendrux.testing.store_kit.contracts.blobs import MINE, SCOPE, edge, looks, put
from dendrux.vocabulary import GARBAGE_AGE_S, NO_TENANT, blob_scope
from dendrux_model.operations import PutBlob
from dendrux_model.programs import Do, Program, Tick, calls
from dendrux_model.world import World

T = TypeVar("T")

HOUR: Final = timedelta(seconds=GARBAGE_AGE_S)
DAY: Final = timedelta(hours=24)
PAGES_MAX: Final = 1000
"""Pages after which a collection is taken to have no end."""


class Lost(Exception):
    """What a BlobStore raises that does not answer."""


class Objects:
    """A BlobStore in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.silent = False
        """Whether every call raises."""

    def answers(self) -> None:
        """Raise when it does not."""
        if self.silent:
            raise Lost

    async def put(self, key: str, data: bytes) -> None:
        """Keep an object."""
        self.answers()
        self.kept[key] = data

    async def get(self, key: str) -> bytes | None:
        """The object, None when there is none."""
        self.answers()
        return self.kept.get(key)

    async def delete(self, key: str) -> None:
        """Forget an object."""
        self.answers()
        self.kept.pop(key, None)


def expect(kept: bool, why: str) -> None:
    """Raise what was not kept."""
    if not kept:
        raise NotKept(why)


async def refused(call: Awaitable[Any], kind: type[Exception], why: str) -> None:
    """Expect a call to raise this."""
    try:
        await call
    except kind:
        return
    except Exception as error:
        raise NotKept(f"{why}; it raised {type(error).__name__}") from None
    raise NotKept(f"{why}; it answered")


# -- the same programs, with the bytes outside ------------------------------------------------------------------------


@dataclass(frozen=True)
class Outside:
    """A check: a program with a BlobStore, which at its end holds the bytes of each live blob, and no others."""

    program: Program

    async def __call__(self, situation: Situation) -> None:
        objects = Objects()
        driver = Driver(blob_store=objects)
        execution = Execution(situation.bench, World(new_format=situation.format), driver, whole=False)
        await execution.run(self.program)
        live = {
            (driver.blobs.scope(blob.tenant_scope), driver.blobs.bytes_of(blob.sha256))
            for blob in execution.worlds.possible[0].world.blobs
            if blob.state == "live"
        }
        names = {f"{quote(scope, safe='')}/{hashlib.sha256(data).hexdigest()}": data for scope, data in live}
        found = [(name.rpartition("/")[0], data) for name, data in objects.kept.items()]
        if sorted(found) != sorted(names.items()):
            raise NotKept(f"{len(names)} blobs are live, and the BlobStore holds {len(found)} objects or others")


WITH_STORE: Final = ("put_blob", "read_blob", "purge_blob", "collect_garbage")

for _inside in [*CONTRACTS.values()]:
    _group, _method, *_ = _inside.id.split(".")
    _puts = any(isinstance(do.operation, PutBlob) for do in calls(_inside.program or ()))
    if _group == "basic" and _method in WITH_STORE and _puts:
        contract(
            f"{_inside.id}_outside",
            f"With a BlobStore: {_inside.promise[0].lower()}{_inside.promise[1:]} It holds the bytes of each live blob "
            "and no others.",
            check=Outside(_inside.program or ()),
            needs=_inside.needs,
            cause="A method drops its blob_store, or forgets the object when it forgets the blob.",
        )

# -- a BlobStore that is absent, lies or does not answer --------------------------------------------------------------


class Scene:
    """A run of a tenant, its store, a BlobStore, and one blob in it."""

    def __init__(self, situation: Situation) -> None:
        self.execution = Execution(situation.bench, World(new_format=situation.format))
        self.bench = situation.bench
        self.blobs = self.execution.driver.blobs
        self.objects = Objects()
        self.scope = self.blobs.scope(SCOPE)

    async def begin(self, *before: Any) -> Any:
        """The store after these steps."""
        await self.execution.run(before, look=False)
        return await self.bench.instance()

    async def put(self, store: Any, text: str = "outside", **given: Any) -> str:
        """The digest of bytes that were put outside."""
        data = self.blobs.bytes_of(text)
        await store.put_blob(data, tenant_scope=self.scope, blob_store=self.objects, **given)
        return self.blobs.digest(text)

    async def pass_time(self, time: timedelta) -> None:
        """Let it pass."""
        await self.execution.step(Tick(int(time.total_seconds())))

    async def reads(self, store: Any, sha256: str, text: str = "outside") -> None:
        """Expect the bytes to be there."""
        found = await store.read_blob(sha256, tenant_scope=self.scope, blob_store=self.objects)
        expect(found == self.blobs.bytes_of(text), "the bytes that were put outside are not those that are read")


async def verified(situation: Situation) -> None:
    """Bytes that are not those that were put are not answered."""
    scene = Scene(situation)
    store = await scene.begin(*MINE)
    sha256 = await scene.put(store)
    right = scene.objects.kept.copy()
    expect(len(right) == 1, "bytes that were put with a BlobStore are one object there")
    (data,) = right.values()
    for wrong, what in (
        (data[:-1], "cut off"),
        (data[:-1] + b"!", "changed"),
        (data + b"!", "too long"),
        (b"", "gone"),
    ):
        scene.objects.kept = dict.fromkeys(right, wrong)
        call = store.read_blob(sha256, tenant_scope=scene.scope, blob_store=scene.objects)
        await refused(call, BlobIntegrityError, f"read_blob answers bytes that are {what}")
    scene.objects.kept = {}
    call = store.read_blob(sha256, tenant_scope=scene.scope, blob_store=scene.objects)
    await refused(call, BlobIntegrityError, "read_blob of an object that is missing is a BlobIntegrityError")
    scene.objects.kept = right
    await scene.reads(store, sha256)


async def absent(situation: Situation) -> None:
    """Without the BlobStore bytes outside are neither read nor purged nor collected, and with it they still can be."""
    scene = Scene(situation)
    store = await scene.begin(*MINE)
    first, second = await scene.put(store), await scene.put(store, "collected")
    without = {"tenant_scope": scene.scope}
    await refused(store.read_blob(first, **without), ValueError, "read_blob without the blob_store is a ValueError")
    await scene.reads(store, first)
    await refused(store.purge_blob(first, **without), ValueError, "purge_blob without the blob_store is a ValueError")
    purged = await store.purge_blob(first, blob_store=scene.objects, **without)
    expect(purged.state == "purged", "a purge goes on when it is given the blob_store")
    expect(len(scene.objects.kept) == 1, "a purge that goes on removes the object")
    await scene.pass_time(HOUR)
    await store.collect_garbage(older_than=HOUR, **without)
    await scene.reads(store, second, "collected")
    await scene.pass_time(HOUR)
    await store.collect_garbage(older_than=HOUR, blob_store=scene.objects, **without)
    expect(not scene.objects.kept, "a collection with the blob_store removes the objects of old blobs")
    expect(await store.blob_info(second, **without) is None, "a collection with the blob_store drops old blobs")


async def silent(situation: Situation) -> None:
    """What a BlobStore raises reaches the caller as it is, and the same call later goes on."""
    scene = Scene(situation)
    store = await scene.begin(*MINE)
    given: dict[str, Any] = {"tenant_scope": scene.scope, "blob_store": scene.objects}
    sha256 = scene.blobs.digest("outside")
    scene.objects.silent = True
    await refused(scene.put(store), Lost, "put_blob lets pass what the BlobStore raises")
    await refused(store.read_blob(sha256, **given), BlobNotFoundError, "bytes that could not be put are not there")
    scene.objects.silent = False
    await scene.put(store)
    await scene.reads(store, sha256)
    scene.objects.silent = True
    await refused(store.read_blob(sha256, **given), Lost, "read_blob lets pass what the BlobStore raises")
    await refused(store.purge_blob(sha256, **given), Lost, "purge_blob lets pass what the BlobStore raises")
    scene.objects.silent = False
    await refused(store.read_blob(sha256, **given), BlobNotFoundError, "bytes that are being purged are not read")
    purged = await store.purge_blob(sha256, **given)
    expect(
        purged.state == "purged" and not scene.objects.kept, "a purge that was cut short goes on when it is repeated"
    )


contract(
    "basic.read_blob.outside_bytes_are_verified",
    "Bytes in a BlobStore that are cut off, changed or missing are a BlobIntegrityError, never an answer.",
    check=verified,
    cause="The object is answered as it came: compare its length and its sha256.",
)
contract(
    "basic.purge_blob.goes_on_with_its_blob_store",
    "Without the BlobStore that has the bytes, they are neither read, purged nor collected; with it they are.",
    check=absent,
    needs={"clock"},
    cause="The object is forgotten before it is deleted, or the row says nothing of where its bytes are.",
)
contract(
    "basic.put_blob.what_a_blob_store_raises_passes",
    "What a BlobStore raises reaches the caller as it is, and the same call later finishes what was begun.",
    check=silent,
    cause="An exception of the BlobStore is swallowed or wrapped, or the mark of the first try is in the way.",
)

# -- collections: pages, scopes, the default age ----------------------------------------------------------------------

OLD: Final = ("old 0", "old 1", "old 2", "old 3", "old 4")


async def by_pages(situation: Situation) -> None:
    """A page looks at `limit` old blobs, oldest first, and `next_after` goes on to the last one."""
    scene = Scene(situation)
    puts = [put(text, SCOPE) for text in OLD]
    store = await scene.begin(
        *MINE[:-1], *puts, Do(looks(0, edge(OLD[1], SCOPE))), Tick(GARBAGE_AGE_S), put("new", SCOPE)
    )
    after = None
    for deleted, skipped, left in ((1, 1, OLD[1:]), (2, 0, (OLD[1], OLD[4])), (1, 0, (OLD[1],))):
        page = await store.collect_garbage(older_than=HOUR, limit=2, after=after, tenant_scope=scene.scope)
        found = tuple([text for text in OLD if await there_is(scene, store, text, scene.scope)])
        expect(found == left, f"a page of 2 looks at the oldest 2 of {len(OLD)}, and the next page at the next 2")
        expect((page.deleted_blobs, page.skipped_referenced) == (deleted, skipped), "a page counts what it did")
        after = page.next_after
        expect(
            (after is None) == (deleted + skipped < 2), "a full page says where the next begins, the last one nothing"
        )
    expect(await there_is(scene, store, "new", scene.scope), "a collection leaves what is not old")


async def there_is(scene: Scene, store: Any, text: str, scope: str) -> bool:
    """Whether there is such a blob."""
    return await store.blob_info(scene.blobs.digest(text), tenant_scope=scope) is not None


async def everywhere(situation: Situation) -> None:
    """Without a scope and an age, a collection takes the garbage of every tenant that is a day old."""
    scene = Scene(situation)
    scopes = [blob_scope(tenant) for tenant in ("t", "T", "u")]
    puts = [put("old", scope) for scope in scopes]
    store = await scene.begin(*MINE, *puts, put("old", NO_TENANT), Do(looks(0, edge(tenant_scope=SCOPE))))
    inside = [scene.blobs.scope(scope) for scope in scopes]
    for time, kept in ((DAY - HOUR / 4, True), (HOUR / 4, False)):
        await scene.pass_time(time)
        await collected(store)
        found = [await there_is(scene, store, "old", scope) for scope in inside]
        what = "leaves what is no day old" if kept else "takes what is a day old, of every tenant"
        expect(found == [kept] * 3, f"collect_garbage without arguments {what}")
    expect(await there_is(scene, store, "picture", scene.scope), "a collection leaves what a run refers to")


async def collected(store: Any) -> None:
    """All pages of a collection without arguments: other programs' garbage may come first."""
    after = None
    for _ in range(PAGES_MAX):
        page = await store.collect_garbage(**({} if after is None else {"after": after}))
        after = page.next_after
        if after is None:
            return
    raise NotKept("a collection came to no last page")


CLOCK: Final[frozenset[Need]] = frozenset({"clock"})

contract(
    "basic.collect_garbage.page_by_page",
    "A page of a collection looks at as many old blobs as it is told, oldest first; the cursor goes on to the last.",
    check=by_pages,
    needs=CLOCK,
    cause="The cursor is left out, or a page is filled with what it deletes and not with what it looks at.",
)
contract(
    "basic.collect_garbage.of_every_scope_after_a_day",
    "A collection without arguments takes the garbage of every tenant that is a day old, and no other.",
    check=everywhere,
    needs=CLOCK,
    cause="No scope is taken for the scope of no tenant, or the age that is left out for another one.",
)
