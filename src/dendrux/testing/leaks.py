"""What an error must not carry: stored content, SQL, driver text, a password; and the run that it must name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dendrux.errors import IdempotencyConflictError, PersistenceError, RunAlreadyTerminalError, RunNotFoundError
from dendrux.lab.seam import engine_of

CANARY: Final = "canary-of-the-kit-7f3a"
"""Text that contracts put into content. No error may show it."""
FORBIDDEN: Final = re.compile(
    rf"{CANARY}|\[SQL:|\[parameters:|injected fault|\b(INSERT INTO|DELETE FROM|UPDATE \w+ SET|SELECT \S+ ?,? .*FROM)\b"
    r"|://[^/\s:@]*:[^/\s@]+@",
    re.DOTALL,
)
DEPTH_MAX: Final = 20


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything it says that it came from."""
    seen: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left and len(seen) < DEPTH_MAX:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen[id(one)] = one
        yield one
        left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def texts(error: BaseException) -> Iterator[tuple[str, str]]:
    """Every place of one error that may hold text."""
    yield "its message", str(error)
    yield "its args", repr(error.args)
    yield "its notes", repr(getattr(error, "__notes__", ()))
    for name, value in getattr(error, "__dict__", {}).items():
        yield f"its attribute {name}", repr(value)
    if isinstance(error, UnicodeError):
        yield "the text it is about", str(getattr(error, "object", ""))


def leak(error: BaseException, store: Any) -> str | None:
    """Where an error carries what it must not; None for a clean one."""
    engine = engine_of(store)
    password = None if engine is None else engine.url.password
    for one in chain(error):
        for place, text in texts(one):
            if FORBIDDEN.search(text) or (password and str(password) in text):
                whose = "" if one is error else f" of the {type(one).__name__} it came from"
                return f"{type(error).__name__} with content, SQL or driver text in {place}{whose}"
    return None


def misnamed(error: BaseException, given: Mapping[str, Any]) -> str | None:
    """Which name an error has wrong; None when it names what the call named."""
    ids = {given[name] for name in ("run_id", "parent_run_id", "retry_of_run_id") if given.get(name) is not None}
    named = getattr(error, "run_id", None)
    certain = isinstance(error, (RunNotFoundError, RunAlreadyTerminalError))
    if (certain or (isinstance(error, PersistenceError) and named is not None)) and ids and named not in ids:
        return f"{type(error).__name__} naming another run"
    if isinstance(error, IdempotencyConflictError) and error.idempotency_key != given.get("idempotency_key"):
        return f"{type(error).__name__} naming another key"
    return None
