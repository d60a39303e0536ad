"""Ways to break an operation from inside its transaction, in the words the store itself uses.

    reclaim_run = tampered("reclaim_run", without_assignment("claim_epoch"))

is the store's own `reclaim_run`, but the epoch is not among what its update assigns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sqlalchemy.sql.visitors import iterate

from dendrux.store import SQLStateStore
from dendrux.store.binding import Operation
from dendrux.store.tx import LostAck, Tx

Tampering = Callable[[Tx], None]
"""Changes the methods of one transaction."""


def tampered(name: str, *tamperings: Tampering, lost: LostAck | None = None) -> Operation[..., Any]:
    """The store's operation of this name, on transactions that were tampered with.

    Args:
        name: the operation.
        tamperings: what happens to each of its transactions.
        lost: what it does when the acknowledgement of COMMIT is lost, if not what it should.
    """
    whole: Operation[..., Any] = vars(SQLStateStore)[name]

    def spoilt(body: Callable[[Tx], Any]) -> Callable[[Tx], Any]:
        def run(tx: Tx) -> Any:
            for tamper in tamperings:
                tamper(tx)
            return body(tx)

        return run

    @functools.wraps(whole.body)
    async def body(inner: Any, *args: Any, **given: Any) -> Any:
        if whole.paged:
            begin = inner.begin
            inner.begin = lambda *, body, **facts: begin(body=spoilt(body), **facts)
        else:
            spoilt(lambda _: None)(inner)
        return await whole.body(inner, *args, **given)

    return Operation(body, lost=lost or whole.lost, announces=whole.announces, reading=whole.reading, paged=whole.paged)


def mentions(term: Any, names: tuple[str, ...]) -> bool:
    """Whether an expression has one of these columns."""
    return any(getattr(part, "key", None) in names for part in iterate(term))


def without_guard(*columns: str) -> Tampering:
    """Swaps do not ask what they should of these columns."""

    def tamper(tx: Tx) -> None:
        swap = tx.swap

        async def loose(run_id: str, guard: Any, assignments: Any, **given: Any) -> Any:
            return await swap(run_id, [term for term in guard if not mentions(term, columns)], assignments, **given)

        tx.swap = loose  # type: ignore[method-assign]

    return tamper


def without_assignment(*columns: str) -> Tampering:
    """Swaps leave these columns as they are."""

    def tamper(tx: Tx) -> None:
        swap = tx.swap

        async def loose(run_id: str, guard: Any, assignments: Any, **given: Any) -> Any:
            kept = [(column, value) for column, value in assignments if column.key not in columns]
            return await swap(run_id, guard, kept, **given)

        tx.swap = loose  # type: ignore[method-assign]

    return tamper


def with_assignment(column: Any, value: Any) -> Tampering:
    """Swaps also set this column."""

    def tamper(tx: Tx) -> None:
        swap = tx.swap

        async def more(run_id: str, guard: Any, assignments: Any, **given: Any) -> Any:
            rest = [(other, old) for other, old in assignments if other.key != column.key]
            return await swap(run_id, guard, [*rest, (column, value)], **given)

        tx.swap = more  # type: ignore[method-assign]

    return tamper


def commits_before(method: str, turn: int = 1) -> Tampering:
    """The transaction is committed before this step, and a second one begins."""

    def tamper(tx: Tx) -> None:
        step = getattr(tx, method)
        calls = 0

        async def apart(*args: Any, **given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == turn and tx.connection is not None:
                await tx.guarded(tx.connection.commit())
                await tx.guarded(tx.connection.begin())
                if not tx.store.supports_row_locks:
                    await tx.guarded(tx.store.reserve_parent_writer(tx.session, tx.run_id or ""))
            return await step(*args, **given)

        setattr(tx, method, apart)

    return tamper


def any_epoch(tx: Tx) -> None:
    """Whoever comes with an epoch is taken for the owner."""
    hold = tx.hold

    async def fence(run_id: str, claim_epoch: int, *tenant: Any) -> Any:
        run = await hold(run_id, *tenant)
        return None if run.status != "running" else run

    tx.fence = fence  # type: ignore[method-assign]


def answers(method: str, change: Callable[[Any], Any]) -> Tampering:
    """What this step answers is changed on its way to the operation."""

    def tamper(tx: Tx) -> None:
        step = getattr(tx, method)

        async def other(*args: Any, **given: Any) -> Any:
            return change(await step(*args, **given))

        setattr(tx, method, other)

    return tamper


def skips(method: str, answer: Any = None) -> Tampering:
    """This step does not happen."""

    def tamper(tx: Tx) -> None:
        async def nothing(*args: Any, **given: Any) -> Any:
            return answer

        setattr(tx, method, nothing)

    return tamper
