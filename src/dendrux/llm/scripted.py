"""A provider that answers from a list: for tests, and for trying an agent without a model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dendrux.llm.protocol import LLMProvider, LLMResponse, Message, ToolCall, ToolDef
from dendrux.runtime.values import UsageStats

Answer = LLMResponse | str | BaseException | Callable[[Sequence[Message]], "LLMResponse | str | Awaitable[Any]"]
"""A response, its text alone, an error to raise, or a function of the conversation that gives one of these."""

USAGE = UsageStats(input_tokens=10, output_tokens=5, total_tokens=15)
"""What a scripted response costs when it does not say."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One call of the provider, as it was made."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDef, ...]
    model: str | None
    options: dict[str, Any]


def calling(*calls: tuple[str, dict[str, Any]], text: str = "") -> LLMResponse:
    """A response that asks for these calls, each a name with its arguments."""
    asked = tuple(
        ToolCall(name=name, params=params, provider_tool_call_id=f"call_{number}")
        for number, (name, params) in enumerate(calls)
    )
    return LLMResponse(text=text, tool_calls=asked, usage=USAGE)


class ScriptedLLM(LLMProvider):
    """Answers from a list, in order, and remembers what it was asked."""

    vendor = "scripted"

    def __init__(self, answers: Iterable[Answer], *, model: str = "scripted") -> None:
        self._answers = list(answers)
        self._model = model
        self.call_history: list[Asked] = []

    @property
    def model(self) -> str:
        """The name it was given."""
        return self._model

    @property
    def exhausted(self) -> bool:
        """Whether every answer was given."""
        return len(self.call_history) >= len(self._answers)

    async def complete(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDef] = (), model: str | None = None, **options: Any
    ) -> LLMResponse:
        """The next answer. Raises IndexError when there is none left."""
        number = len(self.call_history)
        self.call_history.append(
            Asked(messages=tuple(messages), tools=tuple(tools), model=model, options=dict(options))
        )
        if number >= len(self._answers):
            raise IndexError(f"the script has {len(self._answers)} answers, and this is call {number + 1}")
        answer: Any = self._answers[number]
        if callable(answer):
            answer = answer(messages)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            answer = LLMResponse(text=answer, usage=USAGE)
        if not isinstance(answer, LLMResponse):
            raise TypeError(f"an answer of a script is a response, a text or an error, not {type(answer).__name__}")
        return answer if answer.model is not None else replace(answer, model=model or self._model)
