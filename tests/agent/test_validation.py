"""What an Agent refuses when it is made, before any run: its store's declaration, its parameters, what fits a statement."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dendrux
from agent.flows import add, locate, store_at
from dendrux.errors import StoreCapabilityError
from dendrux.llm import ScriptedLLM
from dendrux.runtime.limits import Budget, Limits
from dendrux.store import SQLiteStateStore, StoreCapabilities


def agent_of(store: Any = None, **options: Any) -> dendrux.Agent:
    given: dict[str, Any] = {"prompt": "Help.", "provider": ScriptedLLM(["ok"]), "state_store": store}
    return dendrux.Agent(**{**given, **options})


class Starred(SQLiteStateStore):
    """An override that lost its named parameters."""

    async def save_trace(self, *args: Any, **kwargs: Any) -> None:
        await super().save_trace(*args, **kwargs)


async def test_a_declaration_that_its_methods_do_not_keep(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db", Starred) as store:
        with pytest.raises(StoreCapabilityError) as refused:
            agent_of(store)
        said = str(refused.value)
        assert isinstance(refused.value, TypeError)
        for word in ("Starred", "'fenced_writes'", "save_trace lacks claim_epoch", "replace(self.capabilities"):
            assert word in said
        assert await store.list_runs() == []


@pytest.mark.parametrize(
    ("declared", "capability"),
    [
        ("yes", "'version'"),
        (StoreCapabilities(version=2, deployment="single_host"), "'version'"),
        (StoreCapabilities(deployment="everywhere"), "'deployment'"),  # type: ignore[arg-type]
    ],
)
async def test_versions_and_deployments(tmp_path: Path, declared: Any, capability: str) -> None:
    async with store_at(tmp_path / "s.db") as store:
        store.capabilities = declared
        with pytest.raises(StoreCapabilityError, match=f"capability {capability}"):
            agent_of(store)


async def test_an_undeclared_deployment_is_told_and_accepted(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        store.capabilities = replace(store.capabilities, deployment=None)
        with pytest.warns(DeprecationWarning, match="deployment"):
            agent = agent_of(store)
        assert (await agent.run("go")).status == "success"


class Small(SQLiteStateStore):
    """A store whose server takes small statements."""

    async def statement_capacity(self) -> int | None:
        return 1_000_000


async def test_limits_that_no_statement_can_carry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with store_at(tmp_path / "s.db", Small) as store:
        agent = agent_of(store)
        with caplog.at_level(logging.ERROR, "dendrux.runtime"), pytest.raises(ValueError, match="statement") as refused:
            await agent.run("go")
        for number in (Limits().largest_statement, 1_000_000):
            assert str(number) in str(refused.value)
        assert caplog.records[0].getMessage().startswith("store_statement_limit")
        assert await store.list_runs() == []
        small = Limits(max_input_bytes=10_000, max_response_bytes=10_000, max_tool_result_bytes=10_000)
        assert (await agent_of(store, limits=replace(small, max_note_bytes=1000)).run("go")).status == "success"


async def test_the_capacity_is_looked_up_on_the_class(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:

        async def never() -> int:
            raise AssertionError("an attribute of an instance promises nothing")

        store.statement_capacity = never
        assert (await agent_of(store).run("go")).status == "success"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"name": "n" * 256}, "name"),
    ({"tools": [lambda: 1]}, "@tool"),
    ({"tools": [add, add]}, "two tools"),
    ({"require_approval": ["nothing"]}, "unknown tools: nothing"),
    ({"tools": [locate], "require_approval": ["locate"]}, "locate"),
    ({"require_approval": "add"}, "collection"),
    ({"max_iterations": 0}, "max_iterations"),
    ({"max_iterations": 201}, "max_iterations"),
    ({"max_iterations": True}, "max_iterations"),
    ({"max_delegation_depth": -1}, "max_delegation_depth"),
    ({"provider": "vendor:model"}, "provider"),
    ({"state_store": object(), "database_url": "sqlite+aiosqlite://"}, "not both"),
    ({"state_store": SQLiteStateStore}, "not the class"),
    ({"database_options": {"echo": True}}, "database_url"),
]


@pytest.mark.parametrize(("options", "word"), WRONG, ids=[word for _, word in WRONG])
def test_parameters(options: dict[str, Any], word: str) -> None:
    with pytest.raises((ValueError, TypeError), match=word):
        agent_of(**options)


def test_only_keywords() -> None:
    with pytest.raises(TypeError):
        dendrux.Agent("name", "prompt")  # type: ignore[misc]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limits(max_input_bytes=0),
        lambda: Limits(max_tool_calls_per_turn=True),
        Budget,
        lambda: Budget(max_tokens=0),
        lambda: Budget(max_cost_usd=-1),
        lambda: Budget(max_tokens=1, warn_at=(1.5,)),
        lambda: Budget(max_tokens=1, on_exceed="explode"),  # type: ignore[arg-type]
    ],
)
def test_limits_and_budgets(make: Any) -> None:
    with pytest.raises(ValueError, match=r"Limits|Budget"):
        make()


@pytest.mark.parametrize(
    ("name", "value"), [("state_store", 5), ("state_store", object()), ("limits", 5), ("budget", 5), ("limits", {})]
)
def test_what_is_no_store_no_limits_and_no_budget(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        dendrux.Agent(prompt="Help.", **{name: value})


@pytest.mark.parametrize(
    ("url", "error"), [("foo", ValueError), (5, TypeError), ("postgresql://u:secret/n", ValueError)]
)
def test_what_is_no_url(url: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="database_url") as raised:
        dendrux.Agent(prompt="Help.", database_url=url)
    assert "secret" not in str(raised.value)


def test_a_store_needs_an_engine() -> None:
    with pytest.raises(TypeError, match="engine must be an AsyncEngine, not NoneType"):
        SQLiteStateStore(None)  # type: ignore[arg-type]


async def test_an_age_is_a_timedelta(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        with pytest.raises(TypeError, match="stale_running must be a timedelta, not int"):
            await dendrux.sweep(state_store=store, stale_running=90)  # type: ignore[arg-type]


async def test_a_request_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    async with store_at(tmp_path / "s.db") as store:
        agent = agent_of(store)
        with pytest.raises(ValueError, match=r"dendrux\."):
            await agent.run("go", metadata={"dendrux.loop": "other"})
        with pytest.raises(ValueError, match="JSON"):
            await agent.run("go", option=object())
        with pytest.raises(ValueError, match="JSON"):
            await agent.run("\ud800")
        with pytest.raises(ValueError, match="no provider"):
            await dendrux.Agent(prompt="Help.", state_store=store).run("go")
        with pytest.raises(TypeError, match="user_input"):
            await agent.run(b"go")  # type: ignore[arg-type]
        for name, value in (("metadata", 5), ("metadata", ["k"]), ("history", 5), ("history", "x"), ("history", ["x"])):
            with pytest.raises(TypeError, match=name):
                await agent.run("go", **{name: value})
        assert await store.list_runs() == []
        done = await dendrux.run(
            dendrux.Agent(prompt="Help.", state_store=store), user_input="x", provider=ScriptedLLM(["y"])
        )
        assert done.answer == "y"


class Helper(dendrux.Agent):
    """An agent of an application, with its parts as class attributes."""

    prompt = "Help."
    tools = (add,)


async def test_class_attributes_and_a_store_of_its_own(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 's.db'}"
    async with Helper(provider=ScriptedLLM(["ok"]), database_url=url) as agent:
        done = await agent.run("go")
        assert (agent.name, done.status) == ("Helper", "success")
    async with Helper(provider=ScriptedLLM([]), database_url=url) as again:
        assert (await again.result(done.run_id)).answer == "ok"
    async with Helper(provider=ScriptedLLM(["gone with the process"])) as memory:
        assert (await memory.run("go")).status == "success"


def test_importing_dendrux_imports_no_agent() -> None:
    code = (
        "import sys, dendrux, dendrux.store; print([n for n in sys.modules if 'pydantic' in n or 'runtime.agent' in n])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
