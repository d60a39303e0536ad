"""Language models as the agent sees them: one protocol, and a scripted model for tests."""

from __future__ import annotations

from dendrux.llm.protocol import LLMProvider, LLMResponse, Message, TextDelta, ToolCall, ToolDef
from dendrux.llm.scripted import ScriptedLLM, calling

__all__ = [
    "LLMProvider",
    "LLMResponse",
    "Message",
    "ScriptedLLM",
    "TextDelta",
    "ToolCall",
    "ToolDef",
    "calling",
]
