"""The path that every plain write by identity takes: traces, tool calls, usage, interactions, events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dendrux.store.tx import Appended, Entry, Facts, Tx


async def store_once(
    tx: Tx,
    run_id: str,
    claim_epoch: int | None,
    entry: Callable[[Facts], Entry],
    *,
    final: bool = False,
    rule: Callable[[Facts], Any] | None = None,
) -> Appended:
    """Insert one row of a run under its fence, once per identity.

    `final` rows are refused on a format-2 run that has ended; `rule` refuses what the run's format does not have.

    Ensures: the lease is renewed when the write is fenced and stores something.
    Refuses: in this order a missing run, the format rule, another content under the identity, the fence, a closed run,
    another identity at the position.
    """
    run = None if claim_epoch is None else await tx.fence(run_id, claim_epoch)
    if run is not None:
        if rule is not None:
            rule(run)
        return await tx.append(entry(run))
    run = await tx.hold(run_id)
    if rule is not None:
        rule(run)
    row = entry(run)
    refusing = claim_epoch is not None or (final and tx.ended(run))
    if refusing:
        held = await tx.repeated(row)
        if held is not None:
            return held
        tx.stale(run, claim_epoch)
        if final:
            tx.closed(run)
        tx.stale(run, claim_epoch, running=True)
        if claim_epoch is not None:
            raise tx.again()  # the fence holds now: the run was changed between the two statements
    return await tx.append(row)
