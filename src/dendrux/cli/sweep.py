"""`dendrux sweep` and `dendrux reclaim`: what becomes of runs whose owner is gone."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dendrux.cli.output import duration, shown, table, within
from dendrux.cli.problems import Problem
from dendrux.cli.runs import add_tenant, scope_of
from dendrux.cli.stores import CODES, FOUND, add_database, answer, run_on_store
from dendrux.vocabulary import LIMIT_MAX

if TYPE_CHECKING:
    from dendrux.runtime.recovery import PoisonRun, ReclaimedRun
    from dendrux.runtime.state import FailedRun, StateStore, SweptRun

COUNT_MAX: Final = 2**31 - 1
SWEEP_HELP: Final = "end or mark runs whose owner is gone, and end runs that nobody answers"
SWEEP_NOTES: Final = """\
Runs at work show it by writing. One that did not for --stale-running is ended with an error, or with
--on-stale mark its lease is marked expired: a worker, or `dendrux reclaim`, can take it over. A mark ends
stale runs that cannot be recovered. Runs that wait for longer than --abandoned-waiting are ended.

Safe at any time, several at once, and again after an interruption. A length of time is 90s, 30m, 2h, 7d or 1h30m.
"""
RECLAIM_HELP: Final = "take over runs with expired leases, for a dispatcher that hands them to workers"
RECLAIM_NOTES: Final = """\
Each run that is taken over is printed with its claim epoch. From then on its former owner can write nothing,
and whoever is handed run and epoch has to write within the lease, or the run expires again. --dry-run shows
the expired leases and changes nothing.
"""


def add_to(commands: Any) -> None:
    """Both commands and their options."""
    raw = argparse.RawDescriptionHelpFormatter
    sweep = commands.add_parser("sweep", help=SWEEP_HELP, description=SWEEP_NOTES, epilog=CODES, formatter_class=raw)
    sweep.add_argument("--stale-running", type=duration, metavar="TIME", help="how long a run at work may be silent")
    sweep.add_argument("--abandoned-waiting", type=duration, metavar="TIME", help="how long a run may wait")
    sweep.add_argument(
        "--on-stale", choices=("error", "mark"), default="error", help="what becomes of silent runs (default: error)"
    )
    sweep.add_argument("--limit", type=within(1, LIMIT_MAX), default=100, metavar="N", help="runs in a page (100)")
    sweep.add_argument(
        "--pages", type=within(1, COUNT_MAX), metavar="N", help="stop after so many pages (default: go to the end)"
    )
    sweep.add_argument("--after", metavar="CURSOR", help="go on where a sweep stopped, with the same options")
    add_database(sweep)
    sweep.set_defaults(run=partial(_run, _sweep))

    reclaim = commands.add_parser(
        "reclaim", help=RECLAIM_HELP, description=RECLAIM_NOTES, epilog=CODES, formatter_class=raw
    )
    reclaim.add_argument("--agent", action="append", metavar="NAME", help="only runs of this agent; may be repeated")
    reclaim.add_argument("--limit", type=within(1, LIMIT_MAX), default=10, metavar="N", help="runs to take over (10)")
    reclaim.add_argument("--after", metavar="CURSOR", help="go on where a reclaim stopped")
    reclaim.add_argument(
        "--max-reclaims",
        type=within(0, COUNT_MAX),
        default=3,
        metavar="N",
        help="set a run aside that was taken over so often (default: 3)",
    )
    reclaim.add_argument(
        "--on-poison",
        choices=("keep", "error"),
        default="keep",
        help="leave runs that are set aside as they are, or end them with an error (default: keep)",
    )
    reclaim.add_argument("--dry-run", action="store_true", help="list expired leases and change nothing")
    add_tenant(reclaim)
    add_database(reclaim)
    reclaim.set_defaults(run=partial(_run, _reclaim))


def _run(work: Any, given: argparse.Namespace) -> int:
    return run_on_store(given, work)


async def _sweep(store: StateStore, given: argparse.Namespace) -> int:
    from dendrux.runtime.recovery import sweep

    if given.stale_running is None and given.abandoned_waiting is None:
        raise Problem("nothing to sweep: give --stale-running or --abandoned-waiting")
    result = await sweep(
        state_store=store,
        stale_running=given.stale_running,
        abandoned_waiting=given.abandoned_waiting,
        on_stale=given.on_stale,
        limit=given.limit,
        max_pages=given.pages,
        after=given.after,
    )
    lines = [
        *ended([*result.stale_running, *result.abandoned_waiting]),
        *(f"{shown(run_id)}  lease marked expired" for run_id in result.marked),
        *failures(result.failed),
    ]
    lines.append(
        f"{len(result.stale_running)} silent and {len(result.abandoned_waiting)} waiting runs ended, "
        f"{len(result.marked)} marked, {len(result.failed)} failed"
    )
    if result.next_after is not None:
        lines.append(f"stopped; go on with --after '{result.next_after}'")
    return answer(given, {"result": result}, lines, FOUND if result.failed else 0)


async def _reclaim(store: StateStore, given: argparse.Namespace) -> int:
    from dendrux.runtime.recovery import reclaim

    if given.dry_run:
        return await _expired(store, given)
    result = await reclaim(
        store,
        limit=given.limit,
        after=given.after,
        agents=given.agent,
        max_reclaims=given.max_reclaims,
        on_poison=given.on_poison,
        tenant_id=scope_of(given),
    )
    lines = [
        *taken(result.reclaimed),
        *aside(result.set_aside),
        *(f"{shown(run_id)}  its owner or somebody else was faster" for run_id in result.lost),
        *failures(result.failed),
        f"{len(result.reclaimed)} taken over, {len(result.set_aside)} set aside, {len(result.failed)} failed",
    ]
    if result.next_after is not None:
        lines.append(f"there may be more; go on with --after '{result.next_after}'")
    return answer(given, {"result": result}, lines, FOUND if result.failed else 0)


async def _expired(store: StateStore, given: argparse.Namespace) -> int:
    from dendrux.runtime.recovery import require_recovery

    require_recovery(store, "reclaim")
    found = await store.get_lease_expired(limit=LIMIT_MAX, after=given.after, tenant_id=scope_of(given))
    rows = [(shown(x.run_id), str(x.claim_epoch), shown(x.expired_at), str(x.reclaim_count)) for x in found]
    lines = table(("RUN", "EPOCH", "EXPIRED (UTC)", "RECLAIMS"), rows) if rows else ["no expired leases"]
    return answer(given, {"expired": found}, lines)


def ended(runs: Iterable[SweptRun]) -> list[str]:
    """Runs that were ended, and why."""
    rows = [(shown(x.run_id), shown(x.agent_name, 40), x.previous_status, x.status, x.failure_reason) for x in runs]
    return table(("RUN", "AGENT", "WAS", "IS", "BECAUSE"), rows) if rows else []


def taken(runs: Iterable[ReclaimedRun]) -> list[str]:
    """Runs that were taken over, with what their next owner needs."""
    rows = [(shown(x.run_id), str(x.claim_epoch), shown(x.agent_name, 40), str(x.reclaim_count)) for x in runs]
    return table(("RUN", "EPOCH", "AGENT", "RECLAIMS"), rows) if rows else []


def aside(runs: Iterable[PoisonRun]) -> list[str]:
    """Runs that nobody is handed again."""
    return [
        f"{shown(x.run_id)}  {'ended' if x.ended else 'set aside'}: taken over {x.reclaim_count} times without an end"
        for x in runs
    ]


def failures(runs: Iterable[FailedRun]) -> list[str]:
    """Runs that could not be treated."""
    return [f"{shown(run.run_id)}  failed ({run.code}); the next one meets it again" for run in runs]
