"""Tools: schemas from type hints, arguments that fit or are refused in words for the model, results that are JSON."""

from __future__ import annotations

import asyncio
import enum
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import dendrux
from dendrux.llm import ToolCall
from dendrux.runtime.context import current
from dendrux.runtime.results import ToolResult
from dendrux.runtime.tools import Tool


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    title: str = "here"


@dataclass
class Pair:
    one: int


@dendrux.tool
def draw(
    point: Point,
    colour: Colour,
    json: Annotated[int, Field(ge=0, description="How often.")],
    model_config: Literal["a", "b"] = "a",
    title: str | None = None,
) -> list[Any]:
    """Draw a point.

    In a colour.
    """
    return [point, colour, json, model_config, title]


async def run(tool: Tool, result_max: int = 10_000, **params: Any) -> ToolResult:
    return await tool.execute(ToolCall(name=tool.name, params=params, id="c"), result_max=result_max)


def test_the_schema_comes_from_the_hints() -> None:
    made = draw.definition()
    assert (made.name, made.description) == ("draw", "Draw a point.\n\nIn a colour.")
    assert list(made.parameters["properties"]) == ["point", "colour", "json", "model_config", "title"]
    assert made.parameters["required"] == ["point", "colour", "json"]
    assert made.parameters["properties"]["json"] == {"description": "How often.", "minimum": 0, "type": "integer"}
    assert list(made.parameters["$defs"]["Point"]["properties"]) == ["x", "title"]
    assert made.parameters["additionalProperties"] is False


async def test_arguments_are_what_the_hints_say() -> None:
    done = await run(draw, point={"x": 1}, colour="red", json=2)
    assert (done.success, done.payload) == (True, '[{"x": 1, "title": "here"}, "red", 2, "a", null]')


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "point: Field required"),
        ({"point": {"x": "one"}, "colour": "red", "json": 1}, "point.x: "),
        ({"point": {"x": 1}, "colour": "blue", "json": 1}, "colour: "),
        ({"point": {"x": 1}, "colour": "red", "json": -1}, "json: "),
        ({"point": {"x": 1}, "colour": "red", "json": 1, "more": 1}, "more: "),
    ],
)
async def test_arguments_that_do_not_fit(params: dict[str, Any], said: str) -> None:
    done = await run(draw, **params)
    assert (done.success, done.outcome) == (False, "invalid")
    assert said in (done.error or "")


async def test_a_given_schema_is_taken_as_it_is() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    @dendrux.tool(name="any-name", parameters=schema)
    def anything(**given: Any) -> Any:
        return given

    assert anything.definition().parameters == schema
    assert (await run(anything, n="x", m=None)).payload == '{"n": "x", "m": null}'


async def test_failures_are_results() -> None:
    @dendrux.tool
    def fails(kind: str) -> Any:
        if kind == "exit":
            raise SystemExit(3)
        if kind == "stop":
            raise StopIteration
        if kind == "timeout":
            raise TimeoutError("the tool's own")
        return {"nan": float("nan"), "object": object(), "surrogate": "\ud800", "long": "x" * 50_000}[kind]

    @dendrux.tool
    async def fails_too() -> Any:
        raise LookupError("x" * 10_000)

    for kind in ("exit", "stop", "timeout", "nan", "object", "surrogate", "long"):
        done = await run(fails, kind=kind)
        assert (done.success, done.outcome) == (False, "failed"), kind
        assert done.error
    assert "50002 bytes" in (done.error or "")
    long = await run(fails_too)
    assert len(long.error or "") == 2000


async def test_results_are_json() -> None:
    @dendrux.tool
    def some() -> Any:
        return {"pair": Pair(1), "set": {1}, "text": "\u00e9\u0000"}

    assert (await run(some)).payload == '{"pair": {"one": 1}, "set": [1], "text": "\u00e9\\u0000"}'


async def test_a_plain_tool_has_its_own_thread_and_its_run() -> None:
    seen: list[Any] = []

    @dendrux.tool
    def where() -> None:
        seen.append((threading.current_thread().name, threading.current_thread().daemon, current()))

    await run(where)
    assert seen == [("dendrux-tool-where", True, None)]


async def test_a_cancelled_call_is_cancelled() -> None:
    begun = asyncio.Event()

    @dendrux.tool
    async def slow() -> None:
        begun.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(run(slow))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def no_hint(a) -> None: ...  # type: ignore[no-untyped-def]


def starred(*a: int) -> None: ...


def positional(a: int, /) -> None: ...


@pytest.mark.parametrize("function", [no_hint, starred, positional])
def test_signatures_without_a_schema_are_refused_where_they_are_written(function: Any) -> None:
    with pytest.raises(TypeError, match="parameter a"):
        dendrux.tool(function)


@pytest.mark.parametrize(
    "options",
    [{"name": "two words"}, {"target": "server2"}, {"max_calls_per_run": 0}, {"timeout_seconds": 0}],
)
def test_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        dendrux.tool(**options)(lambda: None)
    with pytest.raises(ValueError, match="name"):
        dendrux.tool(lambda: None)
