"""Machines as contracts: programs that nobody wrote by hand, compared with the model step by step."""

from __future__ import annotations

from typing import Final

from dendrux.testing.store_kit.contract import Need, contract
from dendrux.testing.store_kit.machines import Machine
from dendrux_model.machines.starts import LEASE_STARTS

CUTS: Final = (
    ("after_commit", "error"),
    ("after_commit", "invalidated"),
    ("before_commit", "invalidated"),
    ("statement", "cancel"),
    ("after_commit", "cancel"),
)
"""COMMIT applied and its acknowledgement lost, twice; COMMIT not reached and the connection lost; the caller cancelled
before a statement, and while it waits for the acknowledgement."""

TOOL_STARTS: Final = ("running", "calling", "left_open", "handed_out_again", "completed", "finished")
"""Where calls of tools are open, or can be."""

SEQUENTIAL: Final[dict[str, tuple[str, int, tuple[str, ...]]]] = {
    "all": ("basic", 36, ()),
    "pauses": ("basic", 16, ()),
    "tenants": ("basic", 15, ("empty", "tenant", "keyed", "keyed_finished", "paused")),
    "notes": ("basic", 12, ("running", "noted", "paused", "finished")),
    "blobs": ("basic", 16, ("running", "stored", "referenced", "tenant")),
    "family": ("basic", 14, ("running", "family", "paused", "cancelling", "finished", "tenant")),
    "evidence": ("fenced_writes", 20, ("running", "claimed", "paused", "finished")),
    "checkpoints": ("checkpointing", 20, ("running", "submitted", "answered", "consumed", "claimed", "finished")),
}
"""Profile, the group its machine belongs to, its default number of examples and where they begin (): anywhere."""

for _profile, (_group, _examples, _starts) in SEQUENTIAL.items():
    contract(
        f"{_group}.stateful.sequential_{_profile}",
        f"Whatever order the {_profile} operations come in, the store answers what the model answers, and shows it.",
        group=_group,
        check=Machine(profile=_profile, examples=_examples, starts=_starts),
    )

contract(
    "retry_ids.stateful.reopened",
    "A program goes on over a restart of the store as if nothing had happened.",
    group="retry_ids",
    needs={"reopen"},
    check=Machine(profile="evidence", examples=8, reopens=True),
)

contract(
    "atomic_completion.stateful.sequential_tools",
    "Whoever starts, completes and replays calls, and whatever becomes of their run, no part of one shows alone.",
    group="atomic_completion",
    needs={"format_2"},
    check=Machine(profile="tools", examples=24, starts=TOOL_STARTS),
)
contract(
    "crash_recovery.stateful.faults_tools",
    "With transactions cut at COMMIT, intents and results of tool calls are stored whole and once.",
    group="crash_recovery",
    needs={"format_2", "fault_injector", "disconnect_form"},
    check=Machine(profile="tools", examples=12, faults=CUTS, starts=TOOL_STARTS),
    cause="A write was repeated without its identity after COMMIT was sent, or the result and its event came apart.",
)

contract(
    "crash_recovery.stateful.faults_checkpoints",
    "With transactions cut at COMMIT, steps and consumed submissions are stored whole and once.",
    group="crash_recovery",
    needs={"format_2", "fault_injector", "disconnect_form"},
    check=Machine(profile="checkpoints", examples=12, faults=CUTS),
    cause="A write was repeated without its identity after COMMIT was sent, or a step's rows and its state came apart.",
)

contract(
    "recovery.stateful.leases",
    "However long owners stay silent, and whoever sweeps, reclaims and restarts, a run has one owner and ends once.",
    group="recovery",
    needs={"clock", "reopen"},
    check=Machine(profile="time", examples=20, reopens=True, ticks=True, starts=(*LEASE_STARTS, "expired", "garbage")),
)
contract(
    "crash_recovery.stateful.faults_leases",
    "With transactions cut at COMMIT, reclaims answer that nobody knows, whoever sweeps meanwhile.",
    group="crash_recovery",
    needs={"fault_injector", "disconnect_form", "clock"},
    check=Machine(profile="leases", examples=12, faults=CUTS, ticks=True, starts=LEASE_STARTS),
    cause="A reclaim was repeated after COMMIT was sent, or a failed COMMIT of one run ended a sweep.",
)

for _profile, _examples in (("pauses", 12), ("evidence", 12), ("all", 20)):
    contract(
        f"crash_recovery.stateful.faults_{_profile}",
        f"With transactions cut at COMMIT, {_profile} operations answer what happened, or that nobody knows, "
        "and never happen twice.",
        group="crash_recovery",
        needs={"fault_injector", "disconnect_form"},
        check=Machine(profile=_profile, examples=_examples, faults=CUTS),
        cause="A write was repeated without its identity after COMMIT was sent, or a read was taken for proof.",
    )

CONCURRENT: Final[dict[str, tuple[int, frozenset[Need], tuple[str, ...]]]] = {
    "pauses": (8, frozenset(), ()),
    "evidence": (8, frozenset(), ("running", "claimed", "paused")),
    "notes": (5, frozenset(), ("running", "noted", "paused")),
    "tools": (6, frozenset({"format_2"}), TOOL_STARTS),
    "leases": (8, frozenset({"clock"}), LEASE_STARTS),
}
"""Profile, default number of examples, what it needs beyond a second instance, and where it begins."""

for _profile, (_examples, _needs, _starts) in CONCURRENT.items():
    contract(
        f"concurrency.stateful.concurrent_{_profile}",
        f"Whatever {_profile} operations two and three live instances run at once, and wherever one waits between its "
        "statements, some order of the calls explains every answer and what is stored afterwards.",
        group="concurrency",
        needs={"second_instance", "sql", *_needs},
        check=Machine(profile=_profile, examples=_examples, instances=3, ticks="clock" in _needs, starts=_starts),
        cause="What decides a write was read before it took the run's row, or an answer was made of two transactions.",
    )
