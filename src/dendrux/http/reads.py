"""The router: the reads of a RunStore, each within what the caller is authorized to see."""

# No postponed annotations: FastAPI reads those of the functions below, one of which names what is local to its maker.

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query
from starlette.responses import Response

from dendrux.http.answers import answer, refusals
from dendrux.http.sse import EventStream
from dendrux.runtime.values import RunRecord
from dendrux.store import RunNotFoundError, RunStore, views
from dendrux.vocabulary import ID_LENGTH, LIMIT_MAX, UNSCOPED, TenantScope, Unscoped

KEEPALIVE_S: Final = 15.0
INDEX_MAX: Final = 2**31 - 1

RunId = Annotated[str, Path(min_length=1, max_length=ID_LENGTH)]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Offset = Annotated[int, Query(ge=0, le=INDEX_MAX)]
After = Annotated[int | None, Query(ge=-1, le=INDEX_MAX, description="only events above this index")]
Iteration = Annotated[int | None, Query(ge=0, le=INDEX_MAX)]
LastEventId = Annotated[int | None, Header(ge=-1, le=INDEX_MAX, alias="Last-Event-ID")]


def make_read_router(*, store: RunStore, authorize: Callable[..., Any], keepalive_s: float = KEEPALIVE_S) -> APIRouter:
    """A router with the reads of a store, to be included in an application.

    `authorize` is a FastAPI dependency that refuses with an HTTPException or answers whose runs the caller may see: a
    tenant, None for runs that belong to no tenant, or UNSCOPED for all. Every route but `/health` asks it, and a run
    outside the scope does not exist. Any other answer is a TypeError: a scope is never guessed.
    """

    async def scope_of(found: Annotated[Any, Depends(authorize)]) -> TenantScope:
        if found is None or isinstance(found, str | Unscoped):
            return found
        raise TypeError(f"authorize must answer a tenant, None or UNSCOPED, not {type(found).__name__}")

    async def run_of(run_id: RunId, scope: Annotated[TenantScope, Depends(scope_of)]) -> RunRecord:
        with refusals():
            run = await store.state_store.get_run(run_id, tenant_id=scope)
            if run is None:
                raise RunNotFoundError(run_id)
            return run

    router = APIRouter()

    @router.get("/health")
    async def health() -> Response:
        """The application answers. Asks neither the database nor for permission."""
        return answer({"status": "ok"})

    _runs(router, store, Depends(scope_of), Depends(run_of))
    _log(router, store, Depends(scope_of), Depends(run_of), keepalive_s)
    _evidence(router, store, Depends(run_of))
    return router


def _runs(router: APIRouter, store: RunStore, scope_of: Any, run_of: Any) -> None:
    @router.get("/runs")
    async def list_runs(
        status: Annotated[list[str] | None, Query()] = None,
        agent_name: str | None = None,
        parent_run_id: str | None = None,
        tenant_id: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        limit: Limit = 50,
        offset: Offset = 0,
        scope: TenantScope = scope_of,
    ) -> Response:
        """A page of runs, newest first, and how many there are."""
        filters: dict[str, Any] = {
            "status": status,
            "agent_name": agent_name,
            "parent_run_id": parent_run_id,
            "tenant_id": narrowed(scope, tenant_id),
            "started_after": started_after,
            "started_before": started_before,
        }
        with refusals():
            found = await store.state_store.list_runs(limit=limit, offset=offset, **filters)
            total = await store.state_store.count_runs(**filters)
        items = [views.summary(run) for run in found]
        return answer({"items": items, "total": total, "limit": limit, "offset": offset})

    @router.get("/runs/{run_id}")
    async def get_run(run: RunRecord = run_of) -> Response:
        """One run."""
        return answer(views.detail(run))


def _log(router: APIRouter, store: RunStore, scope_of: Any, run_of: Any, keepalive_s: float) -> None:
    @router.get("/runs/{run_id}/events")
    async def get_events(
        after: After = None, limit: Limit = 100, run: RunRecord = run_of, scope: TenantScope = scope_of
    ) -> Response:
        """A page of the log. `ended`: the run has ended and this page is the last."""
        with refusals():
            view = await store.get_event_view(run.id, after_sequence_index=after, limit=limit, tenant_id=scope)
        return answer(
            {"items": view.events, "next_cursor": view.next_after, "status": view.status, "ended": view.ended}
        )

    @router.get("/runs/{run_id}/events/stream")
    async def stream_events(
        after: After = None,
        last_event_id: LastEventId = None,
        run: RunRecord = run_of,
        scope: TenantScope = scope_of,
    ) -> Response:
        """The log as server-sent events. 204, which tells a browser not to come back, when there will be none."""
        cursor = after if last_event_id is None else last_event_id
        with refusals():
            view = await store.get_event_view(run.id, after_sequence_index=cursor, limit=1, tenant_id=scope)
            if view.ended and not view.events:
                return Response(status_code=204)
            return EventStream(store, run.id, after=cursor, scope=scope, keepalive_s=keepalive_s)


def _evidence(router: APIRouter, store: RunStore, run_of: Any) -> None:
    @router.get("/runs/{run_id}/llm-calls")
    async def get_llm_calls(
        iteration: Iteration = None, limit: Limit = 100, offset: Offset = 0, run: RunRecord = run_of
    ) -> Response:
        """A page of the run's calls of models."""
        with refusals():
            items = await store.get_llm_calls(run.id, iteration=iteration, limit=limit, offset=offset)
        return answer({"items": items, "limit": limit, "offset": offset})

    @router.get("/runs/{run_id}/tool-calls")
    async def get_tool_calls(
        iteration: Iteration = None, limit: Limit = 100, offset: Offset = 0, run: RunRecord = run_of
    ) -> Response:
        """A page of the run's calls of tools."""
        with refusals():
            items = await store.get_tool_invocations(run.id, iteration=iteration, limit=limit, offset=offset)
        return answer({"items": items, "limit": limit, "offset": offset})

    @router.get("/runs/{run_id}/traces")
    async def get_traces(limit: Limit = 100, offset: Offset = 0, run: RunRecord = run_of) -> Response:
        """A page of the run's conversation."""
        with refusals():
            items = await store.get_traces(run.id, limit=limit, offset=offset)
        return answer({"items": items, "limit": limit, "offset": offset})

    @router.get("/runs/{run_id}/pauses")
    async def get_pauses(run: RunRecord = run_of) -> Response:
        """Every pause of the run with its resume."""
        with refusals():
            return answer({"items": await store.get_pauses(run.id)})


def narrowed(scope: TenantScope, tenant_id: str | None) -> TenantScope:
    """The scope of a list that asks for one tenant. Refuses: 403 for a tenant outside the caller's scope."""
    if tenant_id is None or tenant_id == scope:
        return scope
    if scope is UNSCOPED:
        return tenant_id
    raise HTTPException(403, detail={"code": "outside_scope", "message": "this tenant's runs are not yours to see"})
