"""What the agent asks of a language model: messages and tools in, one response out. No vendor is named here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dendrux.runtime.values import JsonObject, UsageStats

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that a model asks for."""

    name: str
    params: JsonObject = field(default_factory=dict)
    id: str = ""
    """Ours, unique in the run; the agent mints it, so a provider leaves it empty."""
    provider_tool_call_id: str | None = None
    """The vendor's word for the call, sent back with its result."""
    parse_error: str | None = None
    """Why the arguments were no JSON object. Such a call is answered and never executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant's message asks for."""
    call_id: str | None = None
    """The call that a tool's message answers."""
    provider_tool_call_id: str | None = None
    name: str | None = None
    """The tool that a tool's message comes from."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """What is stored beside the message and not sent to a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDef:
    """A tool as a model is told of it: `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMResponse:
    """What a model answered. Without tool calls its text is the answer of the run."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: UsageStats = field(default_factory=UsageStats)
    model: str | None = None
    """The model that answered; None: the one that was asked for."""
    stop_reason: str | None = None
    error: str | None = None
    """Why the model gave no answer, such as a refusal or a filter. The run ends with status `error` and this text."""
    provider_response: JsonObject | None = None
    """The vendor's answer, for the record."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text of a response that is still coming in."""

    text: str


class LLMProvider(ABC):
    """A model that can be asked. An instance may be shared by agents; it keeps nothing of a run."""

    vendor: str | None = None
    """Who serves the model, for the record."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The model that is asked when a run names no other."""

    @abstractmethod
    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDef] = (), model: str | None = None, **options: Any
    ) -> LLMResponse:
        """One response to a conversation. `options` are those of the run, stored with it and the same after a resume.

        Whatever it raises ends the run with status `error` and reaches the caller. Repeating a call that may succeed
        later is the provider's business: the agent asks once.
        """

    async def complete_stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDef] = (), model: str | None = None, **options: Any
    ) -> AsyncIterator[TextDelta | LLMResponse]:
        """The same with the text as it comes in; the response is the last item. By default the text comes at once."""
        response = await self.complete(messages, tools=tools, model=model, **options)
        if response.text:
            yield TextDelta(response.text)
        yield response

    async def close(self) -> None:
        """Let go of connections. Idempotent."""
        return
