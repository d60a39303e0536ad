"""The adapter to the vendors' library, against a local server that speaks the wire format of one of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("any_llm", reason="the extra llm is not installed")

import dendrux
from agent.flows import add, store_at
from dendrux.llm.adapter import AnyLLMProvider
from dendrux.runtime.results import RunEventType


class Vendor:
    """A server of chat completions that answers from a list, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        vendor = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                vendor.asked.append({"path": self.path, "key": self.headers["authorization"], **request})
                answer = vendor.answers.pop(0)
                if isinstance(answer, int):
                    self.reply(answer, "application/json", b'{"error": {"message": "no", "type": "x"}}')
                elif request.get("stream"):
                    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in answer]
                    self.reply(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())
                else:
                    self.reply(200, "application/json", json.dumps(answer).encode())

            def reply(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *given: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    made = Vendor()
    yield made
    made.server.shutdown()
    made.server.server_close()


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def whole(message: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    """An answer in one piece."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": reason}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [choice], "usage": USAGE}


def chunk(delta: dict[str, Any], reason: str | None = None, usage: Any = None) -> dict[str, Any]:
    """A piece of an answer."""
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}] if usage is None else []
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m-1",
        "choices": choices,
        "usage": usage,
    }


def asks(arguments: str, index: int = 0) -> dict[str, Any]:
    """A call of the tool."""
    return {"index": index, "id": f"c{index}", "type": "function", "function": {"name": "add", "arguments": arguments}}


def provider_of(vendor: Vendor, **options: Any) -> AnyLLMProvider:
    return AnyLLMProvider("openai:m", api_key="secret", api_base=vendor.url, max_retries=0, **options)


async def test_a_run_over_the_wire(vendor: Vendor, tmp_path: Path) -> None:
    vendor.answers = [
        whole({"content": "let me see", "tool_calls": [asks('{"a": 1, "b": 2}'), asks("{", 1)]}, "tool_calls"),
        whole({"content": "three"}),
    ]
    prices: list[str] = []

    def price(model: str, usage: Any) -> float:
        prices.append(model)
        return usage.input_tokens * 0.001

    async with store_at(tmp_path / "s.db") as store:
        provider = provider_of(vendor, price=price)
        agent = dendrux.Agent(prompt="Help.", tools=[add], provider=provider, state_store=store)
        done = await agent.run("sum", temperature=0.5)
        await provider.close()
        assert (done.status, done.answer, done.stop_reason) == ("success", "three", "stop")
        assert done.usage.cost_usd is not None
        assert float(done.usage.cost_usd) == 0.12
        assert (done.usage.input_tokens, done.usage.cache_read_input_tokens) == (120, 80)
        assert (done.usage.output_tokens, done.usage.reasoning_tokens, done.usage.total_tokens) == (40, 10, 240)
        assert prices == ["m-1", "m-1"]
        outcomes = [result.outcome for result in done.steps[0].results]
        assert outcomes == ["completed", "invalid"]
        first, second = await store.get_llm_interactions(done.run_id)
        assert (first.provider, first.model, second.provider_response["id"]) == ("openai", "m-1", "1")
    one, two = vendor.asked
    assert (one["path"], one["key"], one["model"], one["temperature"]) == (
        "/v1/chat/completions",
        "Bearer secret",
        "m",
        0.5,
    )
    assert one["messages"] == [{"role": "system", "content": "Help."}, {"role": "user", "content": "sum"}]
    assert one["tools"][0]["function"]["name"] == "add"
    assert one["tools"][0]["function"]["parameters"]["required"] == ["a"]
    said = two["messages"][2:]
    assert (said[0]["content"], said[0]["tool_calls"][0]["id"]) == ("let me see", "c0")
    assert [(m["role"], m["tool_call_id"]) for m in said[1:]] == [("tool", "c0"), ("tool", "c1")]
    assert said[1]["content"] == "3"
    assert "no JSON" in said[2]["content"]


async def test_a_stream_over_the_wire(vendor: Vendor, tmp_path: Path) -> None:
    parts = [
        asks(""),
        {"index": 0, "function": {"arguments": '{"a": 1,'}},
        {"index": 0, "function": {"arguments": ' "b": 4}'}},
    ]
    vendor.answers = [
        [*[chunk({"tool_calls": [part]}) for part in parts], chunk({}, "tool_calls"), chunk({}, usage=USAGE)],
        [chunk({"content": "fi"}), chunk({"content": "ve"}), chunk({}, "stop"), chunk({}, usage=USAGE)],
    ]
    async with store_at(tmp_path / "s.db") as store:
        provider = provider_of(vendor)
        agent = dendrux.Agent(prompt="Help.", tools=[add], provider=provider, state_store=store)
        stream = agent.stream("sum")
        pieces = [event.text async for event in stream if event.type is RunEventType.TEXT_DELTA]
        await provider.close()
        assert pieces == ["fi", "ve"]
        assert stream.result is not None
        assert (stream.result.answer, stream.result.usage.input_tokens) == ("five", 120)
        assert stream.result.steps[0].results[0].payload == "5"
    assert vendor.asked[0]["stream_options"] == {"include_usage": True}


async def test_a_filter_and_a_refusal_end_the_run(vendor: Vendor, tmp_path: Path) -> None:
    vendor.answers = [whole({"content": "I"}, "content_filter"), whole({"refusal": "I will not"})]
    async with store_at(tmp_path / "s.db") as store:
        provider = provider_of(vendor)
        agent = dendrux.Agent(prompt="Help.", provider=provider, state_store=store)
        ends = [await agent.run("x"), await agent.run("y")]
        vendor.answers = [[chunk({"refusal": "I will"}), chunk({"refusal": " not"}), chunk({}, "stop")]]
        stream = agent.stream("z")
        assert [event.type async for event in stream][-1] is RunEventType.RUN_ERROR
        await provider.close()
        assert stream.result is not None
        assert [(end.status, end.error) for end in (*ends, stream.result)] == [
            ("error", "the vendor stopped the answer: content_filter"),
            ("error", "I will not"),
            ("error", "I will not"),
        ]


async def test_an_error_of_the_vendor_ends_the_run_and_reaches_the_caller(vendor: Vendor, tmp_path: Path) -> None:
    vendor.answers = [429]
    async with store_at(tmp_path / "s.db") as store:
        provider = provider_of(vendor)
        with pytest.raises(Exception, match=r"."):
            await dendrux.Agent(prompt="Help.", provider=provider, state_store=store).run("x")
        await provider.close()
        (run,) = await store.list_runs()
        assert run.status == "error"
        assert "secret" not in run.error


def test_names_without_a_vendor_are_refused() -> None:
    for name in ("model", ":model", "vendor:"):
        with pytest.raises(ValueError, match="vendor:model"):
            AnyLLMProvider(name)
