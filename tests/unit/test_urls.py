"""URLs of databases that cannot be used: every place that takes one says so and repeats nothing of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from dendrux import Agent
from dendrux.db.migrate import read_state
from dendrux.db.session import get_engine
from dendrux.db.urls import file_of, read_url
from dendrux.live import PostgresUpdates
from dendrux.runtime.recovery import sweep
from dendrux.store import RunStore
from dendrux.testing.databases import Lacking, named

SECRET = "geheim"
UNREADABLE = (
    f"postgresql+asyncpg://u:{SECRET}/none",
    f"postgresql+asyncpg://u:1{SECRET}@host:abc/",
    f"postgresql+asyncpg://u:{SECRET}@[::1/d",
    f"mysql+asyncmy://u:{SECRET}@host:{SECRET}",
    SECRET,
    "",
)
UNUSABLE = (
    *UNREADABLE,
    f"{SECRET}://h/d",
    f"postgresql+{SECRET}://h/d",
    f"postgresql+asyncpg://u@h/d?port={SECRET}",
    f"postgresql+asyncpg://u@h/d?prepared_statement_cache_size={SECRET}",
    f"sqlite+aiosqlite:///a.db?timeout={SECRET}",
    f"sqlite+aiosqlite://u:{SECRET}@a.db",
    f"sqlite+aiosqlite:///a.db?plugin={SECRET}",
)


def refused(call: Callable[[], Any]) -> str:
    """What a ValueError says, which holds nothing of the URL, nor does anything that hangs on it."""
    with pytest.raises(ValueError, match=r".") as raised:
        call()
    error = raised.value
    assert type(error) is ValueError
    assert SECRET not in "".join(traceback.format_exception_only(error))
    assert error.__cause__ is None
    assert error.__context__ is None
    return str(error)


@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    assert refused(lambda: read_url(url, "it")).startswith("it is no SQLAlchemy URL; one looks like ")


@pytest.mark.parametrize("url", UNUSABLE)
def test_an_engine_says_what_is_wrong_and_not_with_what(url: str) -> None:
    assert refused(lambda: get_engine(url)).startswith("the database URL ")


@pytest.mark.parametrize(
    "call",
    [
        read_state,
        lambda url: Agent(name="a", prompt="p", database_url=url).store(),
        lambda url: sweep(database_url=url, stale_running=None),
    ],
)
async def test_every_call_that_takes_a_url_refuses_it(call: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match="is no SQLAlchemy URL") as raised:
        await call(UNREADABLE[0])
    assert SECRET not in str(raised.value)
    assert raised.value.__context__ is None


def test_a_reader_of_runs_refuses_it() -> None:
    assert "is no SQLAlchemy URL" in refused(lambda: RunStore.from_database_url(UNREADABLE[0]))


@pytest.mark.parametrize(
    "dsn", [*(url for url in UNREADABLE if url.startswith("postgresql+")), f"postgresql+asyncpg://h/d?port={SECRET}"]
)
def test_a_dsn_of_live_updates_is_not_repeated(dsn: str) -> None:
    pytest.importorskip("asyncpg")
    with pytest.raises(ValueError, match=r"^dsn ") as raised:
        PostgresUpdates(dsn)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("url", [*UNREADABLE[:3], f"{SECRET}://h/d", f"postgresql+asyncpg://h/d?port={SECRET}"])
def test_a_server_of_a_variable_is_not_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DENDRUX_TEST_POSTGRESQL_URL", url)
    with pytest.raises(Lacking, match="DENDRUX_TEST_POSTGRESQL_URL") as raised:
        named("postgresql")
    assert SECRET not in str(raised.value)


def test_what_is_no_text_is_named_by_its_type() -> None:
    with pytest.raises(TypeError, match=r"^the database URL must be a str or a SQLAlchemy URL, not int$"):
        get_engine(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite+aiosqlite:///a.db", "a.db"),
        ("sqlite+aiosqlite:////f/a.db", "/f/a.db"),
        ("sqlite+aiosqlite:///file:/f/a%2520b.db?mode=ro&uri=true", "/f/a b.db"),
        ("sqlite+aiosqlite:///file:a.db?uri=true", "a.db"),
    ],
)
def test_the_file_of_a_url(url: str, path: str) -> None:
    assert str(file_of(read_url(url))) == path
