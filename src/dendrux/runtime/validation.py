"""What is checked before an agent does anything: its store's promises, its parameters, what fits a statement."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from dendrux.llm.protocol import LLMProvider, Message
from dendrux.runtime.conversation import complete_turns
from dendrux.runtime.limits import Limits
from dendrux.runtime.tools import Tool, problem
from dendrux.store.capabilities import StoreCapabilities, validate_capabilities
from dendrux.vocabulary import META_ERROR_INFO, NAME_LENGTH

T = TypeVar("T")
LOG: Final = logging.getLogger("dendrux.runtime")
ITERATIONS_MAX: Final = 200
STORE_STATEMENT_LIMIT: Final = "store_statement_limit"
"""The log code of limits that a store's statements cannot carry."""

RESERVED_META: Final = "dendrux."
assert META_ERROR_INFO.startswith(RESERVED_META)


def checked_store(state_store: Any, database_url: str | None) -> StoreCapabilities:
    """Check a store's declaration; a store without one promises nothing.

    Refuses: ValueError for a store beside a URL and for a text that is no URL; TypeError for what is neither;
    StoreCapabilityError, a TypeError, with the repair.
    """
    if state_store is not None and database_url is not None:
        raise ValueError("give state_store= or database_url=, not both")
    if inspect.isclass(state_store):
        raise TypeError(f"state_store must be a store, not the class {state_store.__name__}")
    if database_url is not None:
        from dendrux.db.urls import read_url

        read_url(database_url, "database_url")
    if state_store is None:
        return StoreCapabilities()
    if not callable(getattr(state_store, "create_run", None)):
        raise TypeError(f"state_store must be a store, not {type(state_store).__name__}")
    validate_capabilities(state_store)
    return declared(state_store)


def declared(store: Any) -> StoreCapabilities:
    """What a store promises: nothing unless it says so, whatever its methods are called."""
    found = getattr(store, "capabilities", None)
    return found if isinstance(found, StoreCapabilities) else StoreCapabilities()


def checked_name(name: Any) -> str:
    """Refuses: ValueError for a name that no store takes."""
    if not isinstance(name, str) or not name or len(name) > NAME_LENGTH:
        raise ValueError(f"name must be 1 to {NAME_LENGTH} characters, not {name!r}")
    return name


def checked_prompt(prompt: Any, limits: Limits) -> str:
    """Refuses: ValueError for a missing or oversized prompt."""
    if not isinstance(prompt, str) or not prompt:
        raise ValueError("an Agent needs a prompt: pass prompt=, or set it as a class attribute")
    if (size := len(prompt.encode())) > limits.max_input_bytes:
        raise ValueError(f"prompt has {size} bytes, and Limits.max_input_bytes is {limits.max_input_bytes}")
    return prompt


def checked_tools(tools: Sequence[Any]) -> dict[str, Tool]:
    """Tools by name. Refuses: TypeError for what is no tool, ValueError for two of one name."""
    found: dict[str, Tool] = {}
    for one in tools:
        if not isinstance(one, Tool):
            raise TypeError(f"tools must be made with @tool, and {getattr(one, '__name__', one)!r} is not")
        if one.name in found:
            raise ValueError(f"two tools are named {one.name!r}")
        found[one.name] = one
    return found


def checked_approval(names: Iterable[str], tools: dict[str, Tool]) -> frozenset[str]:
    """Refuses: ValueError for unknown tools, and for tools that this process does not run."""
    if isinstance(names, str):
        raise TypeError("require_approval is a collection of tool names, not one string")
    wanted = frozenset(names)
    if unknown := sorted(wanted - set(tools)):
        raise ValueError(f"require_approval names unknown tools: {', '.join(unknown)}")
    if elsewhere := sorted(name for name in wanted if tools[name].target != "server"):
        raise ValueError(f"require_approval is for server tools, and these are not: {', '.join(elsewhere)}")
    return wanted


def checked_iterations(count: Any) -> int:
    """Refuses: ValueError outside 1..200."""
    if type(count) is not int or not 1 <= count <= ITERATIONS_MAX:
        raise ValueError(f"max_iterations must be 1 to {ITERATIONS_MAX}, not {count!r}")
    return count


def checked_depth(depth: Any) -> int | None:
    """Refuses: ValueError for a negative depth."""
    if depth is not None and (type(depth) is not int or depth < 0):
        raise ValueError(f"max_delegation_depth must be 0 or more, or None, not {depth!r}")
    return depth


def checked_provider(provider: Any) -> LLMProvider | None:
    """Refuses: TypeError for what cannot be asked."""
    if provider is not None and not isinstance(provider, LLMProvider):
        raise TypeError(f"provider must be an LLMProvider, not {type(provider).__name__}")
    return provider


def checked_kind(name: str, value: Any, kind: type[T]) -> T:
    """Refuses: TypeError naming the parameter for a value of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of class {kind.__name__}, not {type(value).__name__}")
    return value


def checked_history(history: Any) -> tuple[Message, ...]:
    """Refuses: TypeError for what is no list of messages, ValueError for calls that have no result."""
    if isinstance(history, str) or not isinstance(history, Sequence):
        raise TypeError(f"history must be a list of messages, not {type(history).__name__}")
    messages = tuple(checked_kind("a message of history", message, Message) for message in history)
    if len(complete_turns(messages)) < len(messages):
        raise ValueError("history ends with tool calls that have no result")
    return messages


def checked_meta(metadata: Any) -> dict[str, Any]:
    """Refuses: TypeError for what is no dict, ValueError for keys that the runtime owns."""
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError(f"metadata must be a dict, not {type(metadata).__name__}")
    if reserved := sorted(key for key in metadata or {} if str(key).startswith(RESERVED_META)):
        raise ValueError(
            f"metadata keys that begin with {RESERVED_META!r} belong to the runtime: {', '.join(reserved)}"
        )
    return dict(metadata or {})


def size_of(value: Any, what: str) -> int:
    """Bytes of a value as JSON. Refuses: ValueError for one that cannot be stored, such as NaN or half a character."""
    try:
        return len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as wrong:
        raise ValueError(f"{what} cannot be stored as JSON: {problem(wrong)}") from None


async def check_statements(store: Any, limits: Limits) -> None:
    """Before the first use: can the store's statements carry what the limits allow?

    `statement_capacity` is looked up on the class: what an instance or a forwarding wrapper answers promises nothing.
    Refuses: ValueError naming both numbers.
    """
    if getattr(type(store), "statement_capacity", None) is None:
        return
    capacity = await store.statement_capacity()
    largest = limits.largest_statement
    if capacity is None or largest <= capacity:
        return
    LOG.error(
        "%s: the limits allow statements of %d bytes, and %s takes %d",
        STORE_STATEMENT_LIMIT,
        largest,
        type(store).__name__,
        capacity,
    )
    raise ValueError(
        f"the largest statement that Limits can produce has {largest} bytes, and {type(store).__name__} takes "
        f"{capacity}: lower max_input_bytes, max_response_bytes or max_tool_result_bytes, or raise the server's limit"
    )
