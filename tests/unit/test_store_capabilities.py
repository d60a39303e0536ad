"""Declarations: what validation refuses, which repair it names, and what a declaration does to new runs."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import replace

import pytest
from sqlalchemy import text

from dendrux.errors import StoreCapabilityError
from dendrux.runtime.state import StateStore as Protocol
from dendrux.store import SQLiteStateStore, SQLStateStore, StoreCapabilities, validate_capabilities
from dendrux.store.capabilities import REQUIRED
from dendrux.vocabulary import CAPABILITIES
from unit.store_support import Format1Store, built_in, plain_engine


class Fake:
    """A store of whatever shape."""

    def __init__(self, capabilities=None, **methods):
        if capabilities is not None:
            self.capabilities = capabilities
        for name, method in methods.items():
            setattr(self, name, method)


def retrying(**changed):
    async def method(run_id, *, trace_id=None, row_id=None, event_id=None, usage_id=None, interaction_id=None): ...

    return {**dict.fromkeys(REQUIRED["retry_ids"], method), **changed}


RETRY = StoreCapabilities(retry_ids=True, deployment="single_host")


@pytest.mark.parametrize(
    ("store", "capability", "repair"),
    [
        (Fake(object()), "version", "version=1"),
        (Fake(StoreCapabilities(version=2)), "version", "version=1"),
        (Fake(StoreCapabilities(deployment="cloud")), "deployment", 'deployment="single_host"'),
        (Fake(RETRY), "retry_ids", "retry_ids=False"),
        (Fake(RETRY, **retrying(save_trace=lambda run_id, **kwargs: None)), "retry_ids", "does not count"),
        (Fake(RETRY, **retrying(save_trace=lambda run_id, trace_id=None: None)), "retry_ids", "trace_id"),
    ],
)
def test_refusals_name_what_is_wrong_and_how_to_repair_it(store, capability, repair):
    with pytest.raises(StoreCapabilityError) as raised:
        validate_capabilities(store)
    assert raised.value.capability == capability
    assert f"capability {capability!r}" in str(raised.value)
    assert repair in str(raised.value)
    assert isinstance(raised.value, TypeError)


def test_a_named_keyword_only_parameter_satisfies():
    validate_capabilities(Fake(RETRY, **retrying()))


def test_a_store_without_a_declaration_is_a_legacy_store():
    validate_capabilities(Fake())


async def test_an_undeclared_deployment_warns(tmp_path):
    async with built_in(tmp_path) as store:
        store.capabilities = replace(store.capabilities, deployment=None)
        with pytest.warns(DeprecationWarning, match="deployment"):
            validate_capabilities(store)


async def test_the_built_in_store_keeps_what_it_declares(tmp_path):
    async with built_in(tmp_path) as store:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            validate_capabilities(store)
        assert {name for name in CAPABILITIES if getattr(store.capabilities, name)} == set(CAPABILITIES)
        assert SQLStateStore.capabilities.deployment is None


async def test_an_override_that_hides_its_parameters_is_found(tmp_path):
    class Hiding(SQLiteStateStore):
        async def save_trace(self, *args, **kwargs):
            return await super().save_trace(*args, **kwargs)

    class Forwarding(SQLiteStateStore):
        async def save_trace(
            self,
            run_id,
            role,
            content,
            *,
            order_index,
            meta=None,
            trace_id=None,
            trace_kind="message",
            claim_epoch=None,
        ):
            await super().save_trace(run_id, role, content + "!", order_index=order_index, trace_id=trace_id)

    async with built_in(tmp_path, Hiding) as store:
        with pytest.raises(StoreCapabilityError, match="save_trace lacks claim_epoch"):
            validate_capabilities(store)
    async with built_in(tmp_path, Forwarding) as store:
        validate_capabilities(store)
        await store.create_run("r", "agent")
        await store.save_trace("r", "user", "hi", order_index=0)
        assert [t.content for t in await store.get_traces("r")] == ["hi!"]


def operations():
    return [name for name, value in vars(Protocol).items() if inspect.isfunction(value) and not name.startswith("_")]


@pytest.mark.parametrize("name", operations())
def test_each_operation_shows_the_signature_of_the_protocol(name):
    shown = inspect.signature(getattr(SQLStateStore, name))
    declared = inspect.signature(getattr(Protocol, name))
    assert [(p.name, p.kind, p.default) for p in shown.parameters.values()] == [
        (p.name, p.kind, p.default) for p in declared.parameters.values()
    ]
    assert inspect.iscoroutinefunction(getattr(SQLStateStore, name))
    assert getattr(SQLStateStore, name).__doc__
    assert getattr(SQLStateStore, name).__qualname__ == f"SQLStateStore.{name}"


async def test_format_2_needs_the_four_declarations_and_the_setting(tmp_path):
    async with built_in(tmp_path, Format1Store) as narrow:
        wide = SQLiteStateStore(narrow._engine)
        assert (await narrow.create_run("a", "agent")).format == 1
        assert (await wide.create_run("b", "agent")).format == 2
        wide.capabilities = replace(wide.capabilities, checkpointing=False)
        assert (await wide.create_run("c", "agent")).format == 1
        assert [(r.id, r.format) for r in await narrow.list_runs()] == [("c", 1), ("b", 2), ("a", 1)]


@pytest.mark.parametrize("statement", ["DELETE FROM dendrux_settings", "UPDATE dendrux_settings SET value = '1'"])
async def test_a_database_that_is_not_activated_starts_format_1(tmp_path, statement):
    async with plain_engine(tmp_path) as engine:
        async with engine.begin() as connection:
            await connection.execute(text(statement))
        assert (await SQLiteStateStore(engine).create_run("r", "agent")).format == 1
