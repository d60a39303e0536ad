"""How a transaction is tried: again when nothing was written, repeated or refused when that is unknown.

Each operation is of one class for the case that the acknowledgement of COMMIT is lost:

- `claim`: always StoreOutcomeUnknown. Whoever reads the new epoch later cannot know whose claim it was.
- `identity`: the operation runs again on a fresh connection. It finds its row and reports the first outcome, or finds
  none and applies. A plain read would prove nothing: the first transaction may still be committing, but it holds the
  row or the key that the repeat's first statement waits for.
- `natural`: running again is harmless; once.
- `unknown`: StoreOutcomeUnknown.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dendrux.db.types import StoredValueError
from dendrux.errors import (
    PersistenceError,
    StatementTooLargeError,
    StoreBusyError,
    StoreOutcomeUnknown,
    StoreUnavailableError,
)
from dendrux.store.announcing import note
from dendrux.store.connections import POOL_TIMEOUT, WAITED_FOR, close_connection, discard, open_connection, roll_back
from dendrux.store.engines import access
from dendrux.store.firstuse import first_use
from dendrux.store.hookvalues import DbError, DbErrorKind
from dendrux.store.remedies import remedy_of
from dendrux.store.tx import UNREADABLE, Failure, LostAck, Stopped, Tx, Unchanged

if TYPE_CHECKING:
    from dendrux.store.base import SQLStateStore

logger = logging.getLogger("dendrux.store")

ANSWERED: Final = frozenset(
    {DbErrorKind.DEADLOCK_OR_SERIALIZATION, DbErrorKind.LOCK_TIMEOUT, DbErrorKind.UNIQUE_VIOLATION}
)
"""When COMMIT is answered with one of these, nothing was written."""

RETRIED: Final = WAITED_FOR | {DbErrorKind.CONNECTION_LOST}
"""Before COMMIT was issued: the whole transaction again."""


WAIT_GRACE_S: Final = 0.1
"""How long a wait in which nothing was sent may go on after its caller was cancelled. A connection that is being made
is made by then; only a pool that has none to give takes longer."""


class CommitFailed(Exception):
    """COMMIT was issued and was not answered well."""

    def __init__(self, error: DbError) -> None:
        super().__init__(error.kind)
        self.error = error


@dataclass(slots=True)
class Attempts:
    """One call of a write: its transactions, and what is known of them so far."""

    store: SQLStateStore
    operation: str
    run_id: str | None
    body: Callable[[Tx], Awaitable[Any]]
    lost_ack: LostAck
    announces: bool
    reading: bool = False
    stopped: bool = False
    """The caller was cancelled."""
    tries: int = 0
    settling: bool = False
    doubt: int = 0
    """How often COMMIT was issued and its outcome is unknown."""
    current: Tx | None = field(default=None)
    waiting: asyncio.Task[Any] | None = field(default=None)
    """This call's task while it waits for its turn or for a connection."""

    def stop(self) -> None:
        """The caller is gone: end at the next boundary."""
        self.stopped = True
        if self.current is not None:
            self.current.stopped = True
        if self.waiting is not None:
            asyncio.get_running_loop().call_later(WAIT_GRACE_S, self._end_wait)

    def _end_wait(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()

    @contextmanager
    def unsent(self) -> Iterator[None]:
        """A wait before anything was sent: a cancelled caller ends it."""
        if self.stopped:
            raise Stopped
        self.waiting = asyncio.current_task()
        try:
            yield
        finally:
            self.waiting = None

    async def run(self) -> Any:
        """The operation's answer, after as many transactions as it takes. Stopped, it ends as a cancelled task does."""
        try:
            return await self._tried()
        except Stopped:
            pass
        raise asyncio.CancelledError

    async def _tried(self) -> Any:
        while True:
            self.tries += 1
            failure, committing = None, False
            try:
                return await self._once()
            except Failure as caught:
                failure = caught.error
            except StoredValueError:
                failure = UNREADABLE
            except CommitFailed as caught:
                failure, committing = caught.error, True
            await self._judge(failure, committing=committing)

    async def _once(self) -> Any:
        """One transaction. Ensures: whatever happens, nothing stays open and no connection stays checked out."""
        await first_use(self.store, self.unsent)
        tx = self.current = Tx(
            self.store,
            self.operation,
            self.run_id,
            settling=self.settling,
            in_doubt=self.doubt > 0,
            reading=self.reading,
        )
        tx.stopped, tx.stop = self.stopped, self.stop
        door = access(self.store._engine)
        tx.open_connection = lambda: open_connection(self.store, self.unsent, door.enter, door.leave)
        try:
            answer = await self.body(tx)
            tx.check_stop()
            if isinstance(answer, Unchanged):
                return answer.value
            if tx.connection is not None and not self.reading:
                await self._commit(tx)
            return answer
        except Failure as failure:
            # The driver need not have noticed, and a pool would hand out the same connection again.
            if failure.error.kind == DbErrorKind.CONNECTION_LOST and tx.connection is not None:
                await tx.undisturbed(discard(self.store, tx.connection))
            raise
        finally:
            self.current = None
            if tx.connection is not None:
                await tx.undisturbed(close_connection(tx.connection, door.leave))

    async def _commit(self, tx: Tx) -> None:
        """COMMIT, and hand over the changed runs unless the answer proves that nothing was written."""
        try:
            error = await self._issue_commit(tx)
        except asyncio.CancelledError:
            self._announce()  # COMMIT was issued: the write may have landed
            raise
        if error is None or error.kind not in ANSWERED:
            self._announce()
        if error is None:
            return
        assert tx.connection is not None
        await tx.undisturbed(roll_back(tx.connection))
        if error.kind not in ANSWERED:
            await discard(self.store, tx.connection)
        raise CommitFailed(error)

    async def _issue_commit(self, tx: Tx) -> DbError | None:
        """Send COMMIT. One that is answered busy leaves the transaction open where a lock is the whole database: then
        COMMIT alone is repeated within the bound, the work need not be done again.
        """
        connection = tx.connection
        assert connection is not None
        error = await self._answer(tx.undisturbed(connection.commit()))
        for _ in range(self.store.retry_limit):
            if error is None or error.kind != DbErrorKind.LOCK_TIMEOUT or self.store.supports_row_locks:
                return error
            if tx.stopped or connection.invalidated:
                return error
            await self._back_off(1)
            again = connection.run_sync(lambda sync: sync.dialect.do_commit(sync.connection))
            error = await self._answer(tx.undisturbed(again))
        return error

    async def _answer(self, step: Awaitable[Any]) -> DbError | None:
        try:
            await step
        except Exception as error:  # noqa: BLE001  whatever a driver raises at COMMIT is judged by its codes
            return self.store.classify_db_error(error)
        return None

    def _announce(self) -> None:
        if self.announces and self.run_id and self.store.live_updates is not None:
            note(self.store, (self.run_id,))

    async def _judge(self, error: DbError, *, committing: bool) -> None:
        """Decide after a failure: return to try again, or raise what the caller gets."""
        if committing and error.kind not in ANSWERED:
            self.doubt += 1
            again = self.lost_ack == "identity" or (self.lost_ack == "natural" and self.doubt == 1)
            if again and self.tries <= self.store.retry_limit:
                await self._back_off(self.tries)
                return
            raise self._error(error)
        if error.kind == DbErrorKind.UNIQUE_VIOLATION:
            # Another key than the one the insert absorbs: a fresh transaction says which row is in the way. It may
            # meet yet another rival at our own keys; a key that is not ours says nothing however often it is asked.
            if not self.settling or (error.constraint is not None and self.tries <= self.store.retry_limit):
                self.settling = True
                return
        elif error.kind in RETRIED and error.code != POOL_TIMEOUT and self.tries <= self.store.retry_limit:
            await self._back_off(self.tries)
            return
        raise self._error(error)

    async def _back_off(self, number: int) -> None:
        """Wait a little, with jitter, so that two that met do not meet again."""
        if self.stopped:
            raise Stopped
        await asyncio.sleep(self.store.retry_backoff_s * 2 ** min(number, 5) * (0.5 + random.random() / 2))  # noqa: S311
        if self.stopped:
            raise Stopped

    def _error(self, error: DbError) -> PersistenceError:
        """The error for the caller, and the same facts for the operator under the id that the error shows."""
        kind = StoreOutcomeUnknown if self.doubt else ERRORS.get(error.kind, PersistenceError)
        return report(kind, error, self.operation, self.run_id, self.tries)


ERRORS: Final[dict[str, type[PersistenceError]]] = {
    DbErrorKind.DEADLOCK_OR_SERIALIZATION: StoreBusyError,
    DbErrorKind.LOCK_TIMEOUT: StoreBusyError,
    DbErrorKind.CONNECTION_LOST: StoreUnavailableError,
    DbErrorKind.STATEMENT_TOO_LARGE: StatementTooLargeError,
}


UNREADABLE_MESSAGE: Final = "A stored value cannot be read: something other than a store wrote or changed it."


def report(
    kind: type[PersistenceError], error: DbError, operation: str, run_id: str | None, tries: int
) -> PersistenceError:
    """Log the facts of a failure and make the error that carries them."""
    error_id = secrets.token_hex(4)
    message = UNREADABLE_MESSAGE if error is UNREADABLE else None
    if kind is PersistenceError and message is None:
        message = remedy_of(error.code)
    logger.warning(
        "%s failed: %s, kind %s, code %s, constraint %s, run %s, %d transactions [error %s]",
        operation,
        kind.code,
        error.kind,
        error.code,
        error.constraint,
        run_id,
        tries,
        error_id,
    )
    return kind(
        message,
        operation=operation,
        run_id=run_id,
        kind=str(error.kind),
        db_code=error.code,
        constraint=error.constraint,
        attempts=tries,
        error_id=error_id,
    )
