"""How rows of a run are stored: one by identity, as plain writes do, or several with the change they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import insert, or_, select

from dendrux.store.statements import owner_of
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


IN_MAX: Final = 500
"""Values in one IN list."""


async def store_all(tx: Tx, entries: Sequence[Entry]) -> None:
    """Insert rows that belong to a change of their run, in one statement for each table.

    The change has the identity, so a row that exists already is in the way, whatever it holds. The keys find it; a
    fresh transaction then says so.

    Refuses: WriteConflictError when an id is known or a position is taken.
    """
    tables = {entry.table.name: entry.table for entry in entries}
    for name, table in tables.items():
        rows = [entry for entry in entries if entry.table.name == name]
        places = [entry.position[1] for entry in rows if entry.position is not None]
        if len({entry.id for entry in rows}) < len(rows) or len(set(places)) < len(places):
            raise tx.conflict()
        for start in range(0, len(rows) if tx.settling else 0, IN_MAX):
            if await _in_the_way(tx, rows[start : start + IN_MAX]):
                raise tx.conflict()
        await tx.result(insert(table), [entry.values for entry in rows])


async def _in_the_way(tx: Tx, rows: Sequence[Entry]) -> bool:
    """Whether a row holds an id or a position of these rows of one table."""
    table, owner = rows[0].table, owner_of(rows[0].table)
    ways = [table.c.id.in_([entry.id for entry in rows])]
    if rows[0].position is not None:
        taken = rows[0].position[0].in_([entry.position[1] for entry in rows if entry.position is not None])
        ways.append((owner == rows[0].values[owner.key]) & taken)
    return await tx.row(select(table.c.id).where(or_(*ways)).limit(1)) is not None
