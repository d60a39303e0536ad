"""The summary of a pause document, read without the document where the database can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Text, cast, select

from dendrux.db.models import agent_runs
from dendrux.store.hooks import PAUSE_SUMMARY
from dendrux.store.statements import scoped
from dendrux.store.tx import Failure, Tx
from dendrux.vocabulary import TenantScope

runs = agent_runs.c
NUL: Final = "\\u0000"
"""How U+0000 stands in a document: where it occurs, a database's JSON functions may cut a string short."""
FACTS: Final = (runs.status, runs.paused_at)


class Unreadable(Exception):
    """The database could not convert what it stores."""


async def summary(tx: Tx, run_id: str, tenant_id: TenantScope) -> tuple[Any, dict[str, Any]] | None:
    """Status and pause time of a run, and the summary members of its document."""
    projected = tx.store.pause_projection(runs.pause_data)[: len(PAUSE_SUMMARY)]
    if not projected:
        return await _whole(tx, run_id, tenant_id)
    columns = [column.label(f"member_{number}") for number, column in enumerate(projected)]
    risky = cast(runs.pause_data, Text).contains(NUL, autoescape=True).label("risky")
    try:
        row = await _read(tx, scoped(select(*FACTS, risky, *columns).where(runs.id == run_id), tenant_id))
        if row is None:
            return None
        members = dict(zip(PAUSE_SUMMARY, row[len(FACTS) + 1 :], strict=True))
        if not row.risky and all(carried(value) for value in members.values()):
            return row, members
    except Unreadable:
        pass
    return await _whole(tx, run_id, tenant_id)


def carried(value: Any) -> bool:
    """Whether a projected value can be trusted: numbers that a database computes with may have changed."""
    return not isinstance(value, float) and not (isinstance(value, int) and not -(2**63) < value < 2**63)


async def _whole(tx: Tx, run_id: str, tenant_id: TenantScope) -> tuple[Any, dict[str, Any]] | None:
    """The same from the whole document, projected here."""
    row = await tx.row(scoped(select(*FACTS, runs.pause_data).where(runs.id == run_id), tenant_id))
    if row is None:
        return None
    document = row.pause_data if isinstance(row.pause_data, dict) else {}
    return row, {key: document.get(key) for key in PAUSE_SUMMARY}


async def _read(tx: Tx, statement: Any) -> Any:
    """One row; Unreadable when the database, or the type of a hook's column, cannot convert what is stored."""
    await tx.begin()
    assert tx.connection is not None
    tx.check_stop()
    unreadable, failure = False, None
    try:
        rows: Sequence[Any] = (await tx.undisturbed(tx.connection.execute(statement))).all()
        return rows[0] if rows else None
    except ValueError:
        unreadable = True
    except Exception as error:  # noqa: BLE001  the hook knows which of the driver's errors this is
        unreadable = tx.store.json_conversion_error(error)
        failure = Failure(tx.store.classify_db_error(error))
    if unreadable:
        await tx.guarded(tx.connection.rollback())
        raise Unreadable
    assert failure is not None
    raise failure
