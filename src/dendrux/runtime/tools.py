"""Tools: functions that a model may call. Schemas come from type hints; each call is executed within its bounds."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import re
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Literal, get_type_hints, overload

from dendrux.llm.protocol import ToolCall, ToolDef
from dendrux.runtime.results import ToolResult
from dendrux.runtime.values import JsonObject

Target = Literal["server", "client", "human"]
TARGETS: Final = ("server", "client", "human")
"""Who executes a call: this process, whoever submits its result, or a person who is asked a question."""

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What vendors take as the name of a tool."""

ERROR_MAX: Final = 2000
"""Characters of a tool's error that are kept."""


class BadArguments(ValueError):
    """The model's arguments do not fit the tool's schema. The message is for the model."""


class Tool:
    """A tool of an agent. Made by the decorator `tool`; calling it calls the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        target: Target = "server",
        parallel: bool = True,
        max_calls_per_run: int | None = None,
        timeout_seconds: float | None = 120.0,
        parameters: JsonObject | None = None,
    ) -> None:
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", ""))
        if not NAME.fullmatch(self.name):
            raise ValueError(f"a tool's name is 1 to 64 letters, digits, _ and -, not {self.name!r}")
        if target not in TARGETS:
            raise ValueError(f"{self.name}: target must be one of {', '.join(TARGETS)}, not {target!r}")
        if max_calls_per_run is not None and max_calls_per_run < 1:
            raise ValueError(f"{self.name}: max_calls_per_run must be 1 or more")
        if timeout_seconds is not None and not timeout_seconds > 0:
            raise ValueError(f"{self.name}: timeout_seconds must be more than 0")
        self.target: Target = target
        self.parallel = parallel
        self.max_calls_per_run = max_calls_per_run
        self.timeout_seconds = timeout_seconds
        self.description = inspect.cleandoc(function.__doc__ or "")
        self._parameters = parameters
        self.definition()  # a signature that has no schema is refused where the tool is written

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def definition(self) -> ToolDef:
        """The tool as a model is told of it."""
        return ToolDef(name=self.name, description=self.description, parameters=self.schema)

    @cached_property
    def schema(self) -> JsonObject:
        """The JSON schema of the arguments: the one that was given, or the one of the type hints."""
        if self._parameters is not None:
            return self._parameters
        found: JsonObject = _untitled(self._model.model_json_schema(by_alias=True))
        found.pop("description", None)
        return found

    @cached_property
    def _model(self) -> Any:
        """A pydantic model with one field for each parameter.

        Fields have names of their own and parameters are aliases, so that a parameter may be called as anything in
        Python, also as a method of pydantic's.
        """
        from pydantic import ConfigDict, Field, create_model

        try:
            hints = get_type_hints(self.function, include_extras=True)
        except NameError as unknown:
            raise TypeError(f"{self.name}: a type hint cannot be resolved: {unknown}") from None
        wanted: dict[str, Any] = {}
        for number, parameter in enumerate(inspect.signature(self.function).parameters.values()):
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{self.name}: the parameter {parameter.name} cannot be given by name")
            if parameter.name not in hints:
                raise TypeError(f"{self.name}: the parameter {parameter.name} has no type hint")
            default = ... if parameter.default is parameter.empty else parameter.default
            wanted[f"p{number}"] = (hints[parameter.name], Field(default, alias=parameter.name))
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        return create_model(f"{self.name}_arguments", __config__=config, **wanted)

    def arguments(self, params: JsonObject) -> JsonObject:
        """The arguments as the function takes them. Refuses: BadArguments, in words for the model."""
        if self._parameters is not None:
            return dict(params)
        from pydantic import ValidationError

        try:
            made = self._model.model_validate(params)
        except ValidationError as wrong:
            said = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in wrong.errors())
            raise BadArguments(said) from None
        fields = type(made).model_fields
        return {fields[field].alias: getattr(made, field) for field in made.model_fields_set}

    async def execute(self, call: ToolCall, *, result_max: int) -> ToolResult:
        """Run a server tool's function. Whatever the function does, this returns what it came to.

        A plain function runs in a thread of its own, so that the loop goes on; after its timeout its thread is left
        alone and its result dropped. `result_max` bounds the payload, in bytes of UTF-8.
        """
        began = time.monotonic()
        try:
            arguments = self.arguments(call.params)
        except BadArguments as wrong:
            return failed(call, f"bad arguments: {wrong}", outcome="invalid")
        try:
            async with asyncio.timeout(self.timeout_seconds) as limit:
                if inspect.iscoroutinefunction(self.function):
                    value = await self.function(**arguments)
                else:
                    value = await in_thread(lambda: self.function(**arguments), f"dendrux-tool-{self.name}")
            payload = encoded(value)
            size = len(payload.encode())
        except TimeoutError as late:
            ours = limit.expired()
            said = f"timed out after {self.timeout_seconds:g} s" if ours else problem(late)
            return failed(call, said, outcome="timeout" if ours else "failed", since=began)
        except Exception as error:  # noqa: BLE001  a tool's failure is an observation of the model's
            return failed(call, problem(error), since=began)
        if size > result_max:
            return failed(call, f"the result has {size} bytes and at most {result_max} are allowed", since=began)
        return ToolResult(name=call.name, call_id=call.id, payload=payload, duration_ms=_ms(began))


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    target: Target = "server",
    parallel: bool = True,
    max_calls_per_run: int | None = None,
    timeout_seconds: float | None = 120.0,
    parameters: JsonObject | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, plain or async: `@tool` or `@tool(target="client", ...)`.

    The docstring is what the model reads, and the schema comes from the type hints. `target="client"` pauses the run
    until somebody submits the result, `"human"` until somebody answers; their functions are never called.
    `parallel=False` keeps a call from running beside others. `parameters` is a JSON schema in place of the type hints;
    then the arguments reach the function as the model gave them.
    """
    if function is not None:
        return Tool(function)
    return lambda function: Tool(function, **options)


def failed(call: ToolCall, error: str, *, outcome: str = "failed", since: float | None = None) -> ToolResult:
    """The result of a call that did not work."""
    said = storable(error)[:ERROR_MAX]
    return ToolResult(
        name=call.name,
        call_id=call.id,
        payload=encoded({"error": said}),
        success=False,
        error=said,
        outcome=outcome,
        duration_ms=0 if since is None else _ms(since),
    )


def encoded(value: Any) -> str:
    """A value as JSON text. pydantic models and what pydantic can serialise are taken as they are."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:
        from pydantic_core import to_jsonable_python

        return json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)


def storable(text: str) -> str:
    """Text of an error without what no database takes: half of a surrogate pair becomes a question mark."""
    return text.encode(errors="replace").decode()


def problem(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def in_thread(function: Callable[[], Any], name: str) -> Any:
    """Run a plain function in a thread that nobody waits for when the process ends.

    The default executor's threads are joined when a loop closes, so one that hangs would keep its process for ever.
    """
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if settled.done():
            return  # given up: its caller was cancelled, or ran out of time
        if error is None:
            settled.set_result(value)
        else:
            settled.set_exception(error)

    def work() -> None:
        value: Any = None
        error: Exception | None = None
        try:
            value = context.run(function)
        except StopIteration:  # no future takes one
            error = RuntimeError("the tool raised StopIteration")
        except BaseException as raised:  # noqa: BLE001  also SystemExit: a tool does not end a worker
            error = raised if isinstance(raised, Exception) else RuntimeError(problem(raised))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await settled


def _ms(since: float) -> int:
    return max(0, round((time.monotonic() - since) * 1000))


def _untitled(schema: Any) -> Any:
    """A schema without the titles that pydantic makes of names: they tell a model nothing."""
    if isinstance(schema, list):
        return [_untitled(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _untitled(part) for name, part in value.items()}
        if key in ("properties", "$defs")
        else _untitled(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
