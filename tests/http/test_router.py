"""The read router: an application behind a real server, asked by a real client over a socket."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
import pytest_asyncio
import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.middleware.base import BaseHTTPMiddleware

from dendrux.db.session import get_engine
from dendrux.errors import StoreUnavailableError
from dendrux.http import make_read_router
from dendrux.runtime.state import UNSCOPED, EventWrite, TraceWrite, UsageStats
from dendrux.store import RunStore, store_for_engine

pytestmark = pytest.mark.asyncio
PATHS = ("", "/events", "/events/stream", "/llm-calls", "/tool-calls", "/traces", "/pauses")


async def authorize(who: Annotated[str | None, Header()] = None):
    """Who asks: everybody's keeper, a tenant, nobody's tenant, or somebody we do not know."""
    if who is None:
        raise HTTPException(401, detail="who are you?")
    return {"keeper": UNSCOPED, "nobody": None, "odd": 7}.get(who, who)


async def until(holds):
    """Wait for what nobody announces."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(0.01)


@asynccontextmanager
async def served(app):
    """A server of this application on a free port; its URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await serving


@pytest_asyncio.fixture
async def store(tmp_path):
    engine = get_engine(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
    yield store_for_engine(engine)
    await engine.dispose()


@pytest.fixture
def reader(store):
    return RunStore(store)


@pytest_asyncio.fixture
async def client(reader):
    app = FastAPI()
    app.include_router(make_read_router(store=reader, authorize=authorize, keepalive_s=0.2), prefix="/api")
    async with served(app) as url, httpx.AsyncClient(base_url=f"{url}/api", headers={"who": "keeper"}) as asking:
        yield asking


async def some(store):
    await store.create_run("r", "writer", tenant_id="t", input_data={"q": "hi"}, meta={"dendrux.loop": "react"})
    await store.save_run_event("r", event_type="run.started", claim_epoch=1, data={"big": 2**70, "text": "\0ä\n"})
    await store.save_llm_interaction("r", iteration_index=1, usage=UsageStats(input_tokens=3), claim_epoch=1)
    await store.save_trace("r", "user", "hi", order_index=0, claim_epoch=1)
    await store.start_tool_call(
        "r", row_id="row", tool_call_id="call", provider_tool_call_id=None, tool_name="search", target="server",
        params={}, iteration_index=1, claim_epoch=1, event=EventWrite(event_type="tool.started"),
    )  # fmt: skip
    await store.complete_tool_call(
        "r", row_id="row", result_payload="3", success=True, outcome=None, duration_ms=1, claim_epoch=1,
        trace=TraceWrite(role="tool", content="3", order_index=1), event=EventWrite(event_type="tool.completed"),
    )  # fmt: skip
    await store.create_run("free", "asker")
    await store.pause_with_event(
        "free", status="waiting_human_input", pause_data={}, event_data={"status": "waiting_human_input"}
    )


async def end(store, run_id="r"):
    return await store.finalize_with_event(
        run_id, status="success", allowed_current_statuses=["running"], event_type="run.completed", answer="done"
    )


async def frames(response):
    """Each frame as a dict of its fields; a comment counts as one."""
    found: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line:
            yield found
            found = {}
        else:
            name, _, value = line.partition(": ")
            found[name or "comment"] = value


# -- reads ------------------------------------------------------------------------------------------------------------


async def test_a_list_is_a_page_with_its_total(client, store):
    await some(store)
    page = (await client.get("/runs", params={"limit": 1})).json()
    assert [run["run_id"] for run in page["items"]] == ["free"]
    assert (page["total"], page["limit"], page["offset"]) == (2, 1, 0)
    assert page["items"][0]["created_at"].endswith("Z")
    assert "+00:00" not in page["items"][0]["created_at"]
    wanted = {"status": ["running", "success"], "agent_name": "writer", "started_after": "2020-01-01T00:00:00Z"}
    assert [run["run_id"] for run in (await client.get("/runs", params=wanted)).json()["items"]] == ["r"]


async def test_what_is_known_of_a_run(client, store):
    await some(store)
    assert (await client.get("/runs/r")).json()["input_data"] == {"q": "hi"}
    page = (await client.get("/runs/r/events", params={"limit": 2})).json()
    assert [event["event_type"] for event in page["items"]] == ["run.started", "tool.started"]
    assert page["items"][0]["data"] == {"big": 2**70, "text": "\0ä\n"}
    assert (page["next_cursor"], page["status"], page["ended"]) == (1, "running", False)
    empty = (await client.get("/runs/r/events", params={"after": 2})).json()
    assert (empty["items"], empty["next_cursor"]) == ([], 2)
    assert (await client.get("/runs/r/llm-calls", params={"iteration": 1})).json()["items"][0]["input_tokens"] == 3
    assert (await client.get("/runs/r/tool-calls")).json()["items"][0]["result"] == 3
    traces = (await client.get("/runs/r/traces", params={"offset": 1})).json()
    assert ([trace["content"] for trace in traces["items"]], traces["offset"]) == (["3"], 1)
    (pause,) = (await client.get("/runs/free/pauses")).json()["items"]
    assert (pause["reason"], pause["resume_at"]) == ("waiting_human_input", None)


async def test_health_asks_nobody(client):
    answered = await client.get("/health", headers={"who": "odd"})
    assert (answered.status_code, answered.json()) == (200, {"status": "ok"})


# -- who may see what -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("who", ["T", "tt", "nobody", ""])
async def test_a_run_outside_the_scope_does_not_exist(client, store, path, who):
    await some(store)
    outside = await client.get(f"/runs/r{path}", headers={"who": who})
    missing = await client.get(f"/runs/absent{path}", headers={"who": who})
    assert outside.status_code == 404
    assert outside.json() == missing.json()


@pytest.mark.parametrize("path", PATHS)
async def test_nobody_is_served_without_permission(reader, store, path):
    await some(store)
    app = FastAPI()
    app.include_router(make_read_router(store=reader, authorize=authorize))
    async with served(app) as url, httpx.AsyncClient(base_url=url) as asking:
        for wanted in (f"/runs/r{path}", f"/runs/absent{path}", "/runs"):
            assert (await asking.get(wanted)).status_code == 401


async def test_lists_show_the_scope_and_refuse_another_tenant(client, store):
    await some(store)

    async def ids(who, **params):
        answered = await client.get("/runs", headers={"who": who}, params=params)
        if answered.status_code != 200:
            return answered.status_code
        page = answered.json()
        assert page["total"] == len(page["items"])
        return [run["run_id"] for run in page["items"]]

    assert await ids("keeper") == ["free", "r"]
    assert await ids("keeper", tenant_id="t") == ["r"]
    assert await ids("t") == ["r"]
    assert await ids("t", tenant_id="t") == ["r"]
    assert await ids("t", tenant_id="u") == 403
    assert await ids("nobody") == ["free"]
    assert await ids("nobody", tenant_id="t") == 403


async def test_a_scope_is_never_guessed(client, store):
    await some(store)
    answered = await client.get("/runs/r", headers={"who": "odd"})
    assert answered.status_code == 500
    assert "input_data" not in answered.text


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/runs?limit=0",
        "/runs?limit=1001",
        "/runs?offset=-1",
        "/runs?started_after=2020-01-01T00:00:00",
        "/runs?agent_name=%00",
        "/runs/r/events?after=-2",
        "/runs/r/events?after=99999999999",
        "/runs/" + "x" * 65,
        "/runs/%00",
    ],
)
async def test_bad_arguments(client, store, path):
    await some(store)
    assert (await client.get(path)).status_code == 422


@pytest.mark.parametrize("last", ["x", "-2", "1.5"])
async def test_an_id_that_no_event_has(client, store, last):
    await some(store)
    answered = await client.get("/runs/r/events/stream", headers={"Last-Event-ID": last})
    assert answered.status_code == 422


async def test_a_database_that_cannot_be_reached(client, store, monkeypatch):
    async def unreachable(*args, **kwargs):
        raise StoreUnavailableError

    monkeypatch.setattr(store, "get_run", unreachable, raising=False)
    answered = await client.get("/runs/r")
    assert (answered.status_code, answered.json()["detail"]["code"]) == (503, "store_unavailable")
    assert answered.headers["retry-after"] == "1"


# -- the stream -------------------------------------------------------------------------------------------------------


async def test_a_stream_ends_with_its_run(client, store):
    await some(store)
    seen = []
    async with client.stream("GET", "/runs/r/events/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        async for found in frames(response):
            if "comment" in found:
                continue
            seen.append(found)
            if len(seen) == 3:
                await store.save_run_event("r", event_type="late", claim_epoch=1)
                await end(store)
    assert [found["event"] for found in seen] == ["message"] * 5 + ["end"]
    assert [found.get("id") for found in seen] == ["0", "1", "2", "3", "4", None]
    events = [json.loads(found["data"]) for found in seen]
    assert [event.get("event_type") for event in events] == [
        "run.started", "tool.started", "tool.completed", "late", "run.completed", None,
    ]  # fmt: skip
    assert events[0]["data"]["text"] == "\0ä\n"
    assert events[0]["created_at"].endswith("Z")
    assert events[-1] == {"run_id": "r", "status": "success"}


async def test_a_reader_goes_on_behind_the_last_event_it_saw(client, store):
    await some(store)
    await end(store)

    async def ids(last=None, after=None):
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        params = {} if after is None else {"after": after}
        async with client.stream("GET", "/runs/r/events/stream", headers=headers, params=params) as response:
            return response.status_code, [found["id"] async for found in frames(response) if "id" in found]

    assert await ids(last=1) == (200, ["2", "3"])
    assert await ids(last=1, after=0) == (200, ["2", "3"])
    assert await ids(after=2) == (200, ["3"])
    # A browser comes back after the end; 204 is what makes it stay away.
    assert await ids(last=3) == (204, [])


async def test_an_idle_stream_is_kept_alive(client, store):
    await some(store)
    async with client.stream("GET", "/runs/r/events/stream", params={"after": 2}) as response:
        coming = frames(response)
        found = [await anext(coming) for _ in range(2)]
    assert [frame["comment"] for frame in found] == ["keepalive", "keepalive"]


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_reader_that_goes_leaves_nobody_following(reader, store, middleware):
    await some(store)
    app = FastAPI()
    if middleware:

        async def passing(request, call_next):
            return await call_next(request)

        app.add_middleware(BaseHTTPMiddleware, dispatch=passing)
    app.include_router(make_read_router(store=reader, authorize=lambda: UNSCOPED, keepalive_s=30))
    async with served(app) as url, httpx.AsyncClient(base_url=url) as asking:
        for _ in range(3):
            async with asking.stream("GET", "/runs/r/events/stream") as response:
                coming = frames(response)
                assert [(await anext(coming))["id"] for _ in range(3)] == ["0", "1", "2"]
                assert reader._followers._by_run
        await until(lambda: not reader._followers._by_run)


async def test_a_stream_breaks_off_when_the_store_fails(client, store, monkeypatch):
    await some(store)
    async with client.stream("GET", "/runs/r/events/stream") as response:
        coming = frames(response)
        found = [await anext(coming) for _ in range(3)]

        async def unreachable(*args, **kwargs):
            raise StoreUnavailableError

        for name in ("get_events_for_runs", "get_run_events", "get_run_statuses"):
            monkeypatch.setattr(store, name, unreachable, raising=False)
        found += [frame async for frame in coming]
    assert found[2]["id"] == "2"
    assert "end" not in {frame.get("event") for frame in found}


async def test_authorize_may_have_dependencies_of_its_own(reader, store):
    await some(store)

    def allowed(found: str = Depends(authorize)):
        return found.removeprefix("of ")

    app = FastAPI()
    app.include_router(make_read_router(store=reader, authorize=allowed))
    async with served(app) as url, httpx.AsyncClient(base_url=url) as asking:
        assert (await asking.get("/runs/r", headers={"who": "of t"})).status_code == 200
        assert (await asking.get("/runs/free", headers={"who": "of t"})).status_code == 404
        assert "/runs/{run_id}/events/stream" in (await asking.get("/openapi.json")).json()["paths"]
