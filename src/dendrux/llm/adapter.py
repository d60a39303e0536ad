"""Models of many vendors through one library, any-llm (extra `llm`): names, keys and settings are those of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from decimal import Decimal
from typing import Any

from dendrux.llm.protocol import LLMProvider, LLMResponse, Message, TextDelta, ToolCall, ToolDef
from dendrux.runtime.values import JsonObject, UsageStats

Price = Callable[[str, UsageStats], Decimal | float | None]
"""What a call of a model costs in US dollars, by the model's name and what it used; None when that is not known."""

REFUSED = frozenset({"content_filter"})
"""Reasons to stop after which there is no answer."""


class AnyLLMProvider(LLMProvider):
    """A model by the name that any-llm has for it, `vendor:model`.

    `api_key` and `api_base` go to the vendor's client, which else finds them in its own environment variables; `client`
    are its other settings. A cost is known only through `price`.

    Refuses: ImportError naming the extra; ValueError for a name without a vendor. What the library raises for an
    unknown vendor, a missing key, or while it is asked, passes through.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_base: str | None = None,
        price: Price | None = None,
        **client: Any,
    ) -> None:
        vendor, colon, name = model.partition(":")
        if not (vendor and colon and name):
            raise ValueError(f"model must be 'vendor:model', not {model!r}")
        try:
            from any_llm import AnyLLM
        except ImportError:
            raise ImportError('models of vendors need the extra llm: pip install "dendrux[llm]"') from None
        self.vendor = vendor
        self._model = name
        self._price = price
        self._client: Any = AnyLLM.create(vendor, api_key=api_key, api_base=api_base, **client)

    @property
    def model(self) -> str:
        """The model's name, as its vendor has it."""
        return self._model

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDef] = (), model: str | None = None, **options: Any
    ) -> LLMResponse:
        """One response. `options` are those of any-llm's completion, such as temperature or max_tokens."""
        name = model or self._model
        found = await self._client.acompletion(model=name, messages=_sent(messages), tools=_told(tools), **options)
        choice = found.choices[0]
        calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
        return self._response(
            name,
            text=choice.message.content or "",
            calls=calls,
            usage=found.usage,
            stop=choice.finish_reason,
            refusal=getattr(choice.message, "refusal", None),
            answered=found.model,
            raw=found.model_dump(mode="json", exclude_none=True),
        )

    async def complete_stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDef] = (), model: str | None = None, **options: Any
    ) -> AsyncIterator[TextDelta | LLMResponse]:
        """The same as it comes in. The vendor is asked for the usage at its end, unless the options say otherwise."""
        name = model or self._model
        asked = {"stream_options": {"include_usage": True}, **options}
        chunks = await self._client.acompletion(
            model=name, messages=_sent(messages), tools=_told(tools), stream=True, **asked
        )
        text: list[str] = []
        refusal: list[str] = []
        calls: dict[int, list[str]] = {}
        usage = stop = answered = None
        async for chunk in chunks:
            usage = chunk.usage or usage
            answered = chunk.model or answered
            for choice in chunk.choices[:1]:
                stop = choice.finish_reason or stop
                if choice.delta.content:
                    text.append(choice.delta.content)
                    yield TextDelta(choice.delta.content)
                refusal.append(getattr(choice.delta, "refusal", None) or "")
                for part in choice.delta.tool_calls or ():
                    call = calls.setdefault(part.index, ["", "", ""])
                    call[0] = part.id or call[0]
                    call[1] += (part.function and part.function.name) or ""
                    call[2] += (part.function and part.function.arguments) or ""
        whole = [(call[0] or None, call[1], call[2]) for _, call in sorted(calls.items())]
        yield self._response(
            name,
            text="".join(text),
            calls=whole,
            usage=usage,
            stop=stop,
            answered=answered,
            refusal="".join(refusal) or None,
        )

    def _response(
        self,
        name: str,
        *,
        text: str,
        calls: Sequence[tuple[str | None, str, str]],
        usage: Any,
        stop: str | None,
        answered: str | None,
        refusal: str | None = None,
        raw: JsonObject | None = None,
    ) -> LLMResponse:
        used = _used(usage)
        cost = None if self._price is None else self._price(answered or name, used)
        if cost is not None:
            used = UsageStats(**{**_fields(used), "cost_usd": cost, "cost_source": "table"})
        error = refusal or (f"the vendor stopped the answer: {stop}" if stop in REFUSED else None)
        return LLMResponse(
            text=text,
            tool_calls=() if error else tuple(_call(*call) for call in calls),
            usage=used,
            model=answered or name,
            stop_reason=stop,
            error=error,
            provider_response=raw,
        )

    async def close(self) -> None:
        """Close the vendor's client, where it can be closed."""
        inner = getattr(self._client, "client", None)
        close = getattr(inner, "close", None) or getattr(inner, "aclose", None)
        if close is not None:
            await close()


def _sent(messages: Sequence[Message]) -> list[JsonObject]:
    """Messages in the form that the library takes for every vendor."""
    return [_one(message) for message in messages]


def _one(message: Message) -> JsonObject:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": _said(message), "content": message.content}
    sent: JsonObject = {"role": message.role, "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": call.provider_tool_call_id or call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.params, ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    return sent


def _said(message: Message) -> str | None:
    return message.provider_tool_call_id or message.call_id


def _told(tools: Sequence[ToolDef]) -> list[JsonObject] | None:
    """Tools in the form that the library takes; None when there are none."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ] or None


def _call(call_id: str | None, name: str, arguments: str) -> ToolCall:
    """A call that a model asks for. Arguments that are no JSON object are told to it, and not guessed at."""
    problem = None
    params: Any = {}
    try:
        params = json.loads(arguments or "{}")
    except ValueError as wrong:
        problem = f"the arguments are no JSON: {wrong}"
    if not isinstance(params, dict):
        params, problem = {}, f"the arguments must be a JSON object, not {type(params).__name__}"
    return ToolCall(name=name, params=params, provider_tool_call_id=call_id, parse_error=problem)


def _used(usage: Any) -> UsageStats:
    """Tokens of a call. `input_tokens` counts fresh ones: what was read from a cache is told apart."""
    if usage is None:
        return UsageStats()
    read = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    thought = getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None)
    sent, answered = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return UsageStats(
        input_tokens=max(0, sent - (read or 0)),
        output_tokens=answered,
        total_tokens=usage.total_tokens or sent + answered,
        cache_read_input_tokens=read,
        reasoning_tokens=thought,
    )


def _fields(usage: UsageStats) -> JsonObject:
    return {name: getattr(usage, name) for name in UsageStats.__dataclass_fields__}
