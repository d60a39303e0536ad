"""`dendrux runs`: look at runs, follow them, and ask them to stop."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dendrux.cli.output import encoded, facts, moment, seen, shown, table, within
from dendrux.cli.stores import CODES, FOUND, Work, add_database, answer, run_on_store
from dendrux.runtime.plain import instant
from dendrux.vocabulary import LIMIT_MAX, STATUSES, TERMINAL_STATUSES, UNSCOPED, TenantScope

if TYPE_CHECKING:
    from dendrux.runtime.state import PendingWork, RunRecord, StateStore, ToolCallRecord
    from dendrux.store import StoredEvent

HELP = "list, show, follow and cancel runs"
SUMMARIES: Final = {
    "list": "list runs, newest first",
    "show": "show one run: what it is, what it waits for, what it called, what became of it",
    "events": "print a page of a run's log",
    "follow": "print events as they are stored, until every run has ended",
    "cancel": "ask a run to stop; one that waits ends at once",
}
INDEX_MAX: Final = 2**31 - 1
WIDTH: Final = 100
"""Characters of a stored text on a line for people; `--full` shows all of it."""
CALLS_SHOWN: Final = 20


def add_to(commands: Any) -> None:
    """The command, its five subcommands and their options."""
    raw = argparse.RawDescriptionHelpFormatter
    group = commands.add_parser(
        "runs", help=HELP, description=f"{HELP.capitalize()}.", epilog=CODES, formatter_class=raw
    )
    actions = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in SUMMARIES.items():
        description = f"{summary[0].upper()}{summary[1:]}."
        action = actions.add_parser(name, help=summary, description=description, epilog=CODES, formatter_class=raw)
        OPTIONS[name](action)
        add_database(action)
        action.set_defaults(run=partial(_run, ACTIONS[name]))


def _run(work: Work, given: argparse.Namespace) -> int:
    return run_on_store(given, work)


def add_tenant(action: argparse.ArgumentParser) -> None:
    """Which tenant's runs; left out, those of every tenant."""
    scope = action.add_mutually_exclusive_group()
    scope.add_argument("--tenant", metavar="TENANT", help="only runs of this tenant (default: of every tenant)")
    scope.add_argument("--no-tenant", action="store_true", help="only runs that belong to no tenant")


def scope_of(given: argparse.Namespace) -> TenantScope:
    """The tenant scope that the options name."""
    if given.no_tenant:
        return None
    return UNSCOPED if given.tenant is None else str(given.tenant)


def _list_options(action: argparse.ArgumentParser) -> None:
    statuses = sorted(STATUSES)
    action.add_argument("--status", action="append", choices=statuses, metavar="STATUS", help=", ".join(statuses))
    action.add_argument("--agent", metavar="NAME", help="only runs of the agent of this name")
    action.add_argument("--parent", metavar="RUN_ID", help="only the children of this run")
    action.add_argument("--since", type=moment, metavar="TIME", help="only runs that began then or later (ISO 8601)")
    action.add_argument("--before", type=moment, metavar="TIME", help="only runs that began before (ISO 8601)")
    action.add_argument("--limit", type=within(1, LIMIT_MAX), default=20, metavar="N", help="runs to show (20)")
    action.add_argument("--offset", type=within(0, INDEX_MAX), default=0, metavar="N", help="runs to leave out first")
    add_tenant(action)


def _show_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("run_id", metavar="RUN_ID")
    action.add_argument("--full", action="store_true", help="show texts whole instead of their beginning")
    add_tenant(action)


def _events_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("run_id", metavar="RUN_ID")
    action.add_argument("--after", type=within(-1, INDEX_MAX), metavar="INDEX", help="only events above this index")
    action.add_argument("--type", action="append", metavar="TYPE", help="only events of this type; may be repeated")
    action.add_argument(
        "--limit", type=within(1, LIMIT_MAX), default=100, metavar="N", help="events to print (default: 100)"
    )
    action.add_argument("--full", action="store_true", help="print data whole instead of its beginning")
    add_tenant(action)


def _follow_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("run_id", nargs="+", metavar="RUN_ID")
    action.add_argument(
        "--after", type=within(-1, INDEX_MAX), metavar="INDEX", help="only events above this index; for one run"
    )
    action.add_argument(
        "--idle", type=within(1, 86400), metavar="SECONDS", help="stop when nothing came for so long (default: never)"
    )
    action.add_argument("--full", action="store_true", help="print data whole instead of its beginning")
    add_tenant(action)


def _cancel_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("run_id", metavar="RUN_ID")
    action.add_argument("--cascade", action="store_true", help="the runs below it, too")
    add_tenant(action)


# -- list -------------------------------------------------------------------------------------------------------------


async def _list(store: StateStore, given: argparse.Namespace) -> int:
    filters: dict[str, Any] = {
        "status": given.status,
        "agent_name": given.agent,
        "parent_run_id": given.parent,
        "started_after": given.since,
        "started_before": given.before,
        "tenant_id": scope_of(given),
    }
    found = await store.list_runs(limit=given.limit, offset=given.offset, **filters)
    total = await store.count_runs(**filters)
    rows = [
        (
            shown(run.id),
            state_of(run),
            shown(run.agent_name, 40),
            shown(run.tenant_id, 24),
            str(run.iteration_count),
            str(run.total_input_tokens + run.total_output_tokens),
            cost(run),
            seen(run.created_at),
        )
        for run in found
    ]
    heads = ("RUN", "STATUS", "AGENT", "TENANT", "STEPS", "TOKENS", "COST", "BEGAN (UTC)")
    lines = table(heads, rows) if found else ["no runs"]
    if given.offset + len(found) < total:
        lines.append(f"{len(found)} of {total}; go on with --offset {given.offset + len(found)}")
    return answer(given, {"runs": found, "total": total, "limit": given.limit, "offset": given.offset}, lines)


def state_of(run: RunRecord) -> str:
    """The status with what was asked of the run meanwhile."""
    asked = [
        word
        for word, holds in (
            ("cancel requested", run.cancel_requested),
            ("pause requested", run.pause_requested),
            ("lease expired", run.lease_expired_at is not None),
        )
        if holds
    ]
    return f"{shown(run.status)} ({', '.join(asked)})" if asked else shown(run.status)


def cost(run: RunRecord) -> str:
    """The cost in US dollars, as far as it is known."""
    return shown(None) if run.total_cost_usd is None else f"${run.total_cost_usd:.4f}"


# -- show -------------------------------------------------------------------------------------------------------------


async def _show(store: StateStore, given: argparse.Namespace) -> int:
    run = await existing(store, given)
    pending = await store.get_pending(run.id)
    calls = await _every_call(store, run.id)
    replayed = await store.get_replayed_tool_calls(run.id)
    family = await store.get_delegation_info(run.id)
    summary = None if family is None else family.subtree_summary
    members = {
        "run": run,
        "pending": pending,
        "tool_calls": calls,
        "replayed_tool_calls": [call.tool_call_id for call in replayed.calls],
        "below": summary,
    }
    below = 0 if summary is None else summary.descendant_count
    width = None if given.full else WIDTH
    lines = [*facts(_about(run, below, width)), *_waiting(pending, width), *_called(calls, width, full=given.full)]
    return answer(given, members, lines)


async def _every_call(store: StateStore, run_id: str) -> list[ToolCallRecord]:
    calls: list[ToolCallRecord] = []
    while True:
        page = await store.get_tool_calls(run_id, limit=LIMIT_MAX, offset=len(calls))
        calls += page
        if len(page) < LIMIT_MAX:
            return calls


async def existing(store: StateStore, given: argparse.Namespace) -> RunRecord:
    """The run of the command line. Refuses: RunNotFoundError, also for a run outside the scope."""
    from dendrux.errors import RunNotFoundError

    run = await store.get_run(given.run_id, tenant_id=scope_of(given))
    if run is None:
        raise RunNotFoundError(given.run_id)
    return run


def _about(run: RunRecord, below: int, width: int | None) -> list[tuple[str, str]]:
    optional = (
        ("lease expired", run.lease_expired_at),
        ("paused", run.paused_at if run.status not in TERMINAL_STATUSES else None),
        ("failure", run.failure_reason),
        ("parent", run.parent_run_id),
        ("retry of", run.retry_of_run_id),
        ("below it", f"{below} runs" if below else None),
        ("input", run.input_data),
        ("answer", run.answer),
        ("error", run.error),
    )
    return [
        ("run", shown(run.id)),
        ("agent", shown(run.agent_name, width)),
        ("tenant", shown(run.tenant_id, width)),
        ("status", state_of(run)),
        ("began", seen(run.created_at)),
        ("changed", seen(run.updated_at)),
        ("progress", seen(run.last_progress_at)),
        ("steps", str(run.iteration_count)),
        ("tokens", f"{run.total_input_tokens} in, {run.total_output_tokens} out"),
        ("cost", cost(run)),
        ("model", shown(run.model, width)),
        ("claim", f"epoch {run.claim_epoch}, reclaimed {run.reclaim_count} times, storage format {run.format}"),
        *((name, shown(value, width)) for name, value in optional if value is not None),
    ]


def _waiting(pending: PendingWork | None, width: int | None) -> list[str]:
    if pending is None:
        return []
    because = "" if pending.reason is None else f" ({shown(pending.reason, width)})"
    rows = [(shown(c.id), shown(c.name, width), shown(c.target), shown(c.params, width)) for c in pending.calls]
    lines = ["", f"waits in {pending.status}{because}"]
    return [*lines, *table(("CALL", "TOOL", "TARGET", "PARAMETERS"), rows)] if rows else lines


def _called(calls: list[ToolCallRecord], width: int | None, *, full: bool) -> list[str]:
    if not calls:
        return []
    last = calls if full else calls[-CALLS_SHOWN:]
    rows = [
        (
            shown(call.iteration_index),
            shown(call.tool_name, 40),
            shown(call.tool_call_id),
            "open" if not call.completed else "well" if call.success else "failed",
            str(call.attempt),
            shown(None) if call.duration_ms is None else f"{call.duration_ms} ms",
            shown(call.result if call.error_message is None else call.error_message, width),
        )
        for call in last
    ]
    more = [] if len(last) == len(calls) else [f"the last {len(last)} of {len(calls)} tool calls"]
    return ["", *more, *table(("STEP", "TOOL", "CALL", "STATE", "STARTS", "TOOK", "RESULT"), rows)]


# -- events and follow ------------------------------------------------------------------------------------------------


async def _events(store: StateStore, given: argparse.Namespace) -> int:
    run = await existing(store, given)
    found = await store.get_run_events(
        run.id, after_sequence_index=given.after, limit=given.limit, event_types=given.type
    )
    width = None if given.full else WIDTH
    rows = [
        (
            str(event.sequence_index),
            seen(event.created_at),
            str(event.iteration_index),
            shown(event.event_type),
            shown(event.data, width),
        )
        for event in found
    ]
    lines = table(("INDEX", "TIME (UTC)", "STEP", "EVENT", "DATA"), rows) if rows else ["no events"]
    more = len(found) == given.limit
    if more:
        lines.append(f"there may be more; go on with --after {found[-1].sequence_index}")
    next_after = found[-1].sequence_index if found else given.after
    return answer(given, {"run_id": run.id, "events": found, "next_after": next_after}, lines)


async def _follow(store: StateStore, given: argparse.Namespace) -> int:
    from dendrux.store import RunStore

    several = len(given.run_id) > 1
    width = None if given.full else WIDTH
    async for event in RunStore(store).follow(
        given.run_id, after=given.after, idle_timeout_s=given.idle, tenant_id=scope_of(given)
    ):
        # Each line is on its way before the next event is waited for: the reader may be a program.
        print(encoded(event) if given.json else _line(event, event.run_id if several else None, width), flush=True)
    return 0


def _line(event: StoredEvent, run_id: str | None, width: int | None) -> str:
    parts = [instant(event.created_at), f"{event.sequence_index:>4}", shown(event.event_type).ljust(16)]
    if run_id is not None:
        parts.insert(1, shown(run_id))
    return "  ".join([*parts, shown(event.data, width)])


# -- cancel -----------------------------------------------------------------------------------------------------------


async def _cancel(store: StateStore, given: argparse.Namespace) -> int:
    from dendrux.runtime.cancelling import cancel, cancel_tree

    doing = cancel_tree if given.cascade else cancel
    done = await doing(store, given.run_id, tenant_id=scope_of(given))
    lines = [
        *(f"{shown(run_id)}  cancelled" for run_id in done.cancelled),
        *(f"{shown(run_id)}  asked to stop: its owner does so at its next step" for run_id in done.requested),
        *(f"{shown(run_id)}  has ended already" for run_id in done.already_terminal),
        *(f"{shown(run.run_id)}  failed ({run.code}); run the command again" for run in done.failed),
    ]
    return answer(given, {"outcome": done}, lines, FOUND if done.failed else 0)


OPTIONS: Final[dict[str, Callable[[argparse.ArgumentParser], None]]] = {
    "list": _list_options,
    "show": _show_options,
    "events": _events_options,
    "follow": _follow_options,
    "cancel": _cancel_options,
}
ACTIONS: Final[dict[str, Work]] = {
    "list": _list,
    "show": _show,
    "events": _events,
    "follow": _follow,
    "cancel": _cancel,
}
