"""How a transaction is cut: an error of the driver, a cancelled caller, and the forms in which a connection is lost."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Final, get_args

from sqlalchemy.util import await_only

from dendrux.lab.detour import Detour, target_of
from dendrux.lab.seam import Seam, seam_of
from dendrux.lab.sessions import WORDS, end_session, session_of
from dendrux_model.programs import Point

POINTS: Final[tuple[Point, ...]] = get_args(Point)

INVALIDATED: Final = "invalidated"
SESSION_ENDED: Final = "session_ended"
STREAM_CUT: Final = "stream_cut"
COMMIT_DELAYED: Final = "commit_delayed"
FORMS: Final = (INVALIDATED, SESSION_ENDED, STREAM_CUT, COMMIT_DELAYED)
"""In the order in which they need more of a database."""
KINDS: Final = ("error", "cancel", *FORMS)

LOOKED_S: Final = 0.15
"""A delayed COMMIT goes on when the store's last statement was sent so long ago: that one waits for it, or is done."""
DELAYED_S: Final = 5.0
"""A delayed COMMIT goes on after this long, whatever the store does."""
LANDS_S: Final = 20.0
"""A COMMIT that was passed on and is not answered by then is lost."""
TURNS: Final = 3
"""Turns of the loop after which a cancelled task, and one that waits for it, has been told."""


def forms_of(engine: Any) -> tuple[str, ...]:
    """The forms of a lost connection that the database of this engine has."""
    found = [INVALIDATED]
    if engine.dialect.name in WORDS:
        found.append(SESSION_ENDED)
        if target_of(engine) is not None:
            found += [STREAM_CUT, COMMIT_DELAYED]
    return tuple(found)


class Armed(ABC):
    """One place where a store's write transactions are cut."""

    kinds: tuple[str, ...]

    def __init__(self, engine: Any, point: Point, kind: str, after: int, sticky: bool) -> None:
        self.engine = engine
        self.watchers: list[Any] | None = None
        """Those of the seam that it is on, while it is armed."""
        self.point = point
        self.kind = kind
        self.left = after
        self.sticky = sticky
        self.reached = 0
        """How often the place was reached and a cut was tried."""

    @property
    def fired(self) -> int:
        """The cuts that really happened."""
        return self.reached

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None:
        if self.point == "statement" and self.here():
            self.cut(seam, connection)

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        if wrote and self.point == "before_commit" and self.here():
            self.cut(seam, connection)

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        if wrote and self.point == "after_commit" and self.here():
            self.cut(seam, connection)

    def on_error(self, seam: Seam, error: BaseException) -> None:
        """Nothing: whoever counts errors watches for himself."""
        return

    def here(self) -> bool:
        """Let the first matching points pass, then cut: once, or every time when sticky."""
        if self.reached and not self.sticky:
            return False
        if self.left > 0:
            self.left -= 1
            return False
        self.reached += 1
        return True

    @abstractmethod
    def cut(self, seam: Seam, connection: Any) -> None:
        """Fail as the kind says. Runs inside the call's greenlet."""

    def arm(self) -> None:
        """Begin to watch."""
        self.watchers = seam_of(self.engine).watchers
        self.watchers.append(self)

    def disarm(self) -> None:
        """Cut no more, and hold nothing back."""
        if self.watchers is not None:
            self.watchers.remove(self)
            self.watchers = None
            self.settle()

    def settle(self) -> None:
        """Undo what a cut has left, or would have needed."""
        return


class Raised(Armed):
    """The driver raises: an error of its own class, or that the connection is gone."""

    kinds = ("error", INVALIDATED)

    def cut(self, seam: Seam, connection: Any) -> None:
        raise seam.driver_error(disconnected=self.kind == INVALIDATED)


class Cancelled(Armed):
    """The task that armed the cut, and calls the store, is cancelled; the store decides what becomes of its work."""

    kinds = ("cancel",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        task = asyncio.current_task()
        if task is None:
            raise ValueError("a cancellation is armed in the task that calls the store")
        self.task = task

    def cut(self, seam: Seam, connection: Any) -> None:
        self.task.cancel()
        for _ in range(TURNS):
            await_only(asyncio.sleep(0))


class Ended(Armed):
    """The server ends the session from another connection; the driver finds out by itself."""

    kinds = (SESSION_ENDED,)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.ended = 0

    @property
    def fired(self) -> int:
        return self.ended

    def cut(self, seam: Seam, connection: Any) -> None:
        session = session_of(connection)
        if session is None:
            return
        await_only(end_session(self.engine, session))
        self.ended += 1
        if self.point == "after_commit":  # COMMIT was answered: the driver says what it says of the next statement
            connection.cursor().execute("SELECT 1")


class Cut(Armed):
    """The stream is cut by a proxy: where the request leaves, or where the answer to COMMIT returns."""

    kinds = (STREAM_CUT,)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cuts = 0
        self.detour = Detour(self.engine, self.count)

    @property
    def fired(self) -> int:
        return self.cuts

    def count(self) -> None:
        """A proxy has cut."""
        self.cuts += 1

    def before_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        if wrote and self.point != "statement" and self.here():
            self.cut(seam, connection)

    def after_commit(self, seam: Seam, connection: Any, wrote: bool) -> None:
        """Nothing: the proxy was told before COMMIT left."""

    def cut(self, seam: Seam, connection: Any) -> None:
        proxy = self.detour.proxy_of(connection)
        if proxy is not None:
            proxy.mode = "cut_answer" if self.point == "after_commit" else "cut_request"

    def settle(self) -> None:
        self.detour.leave()


class Delayed(Cut):
    """The client is cut off when its COMMIT leaves, and the COMMIT reaches the server later.

    Later is when the store has asked once: its statement waits for what the COMMIT holds, or was answered, or the call
    has ended. A store that concludes from a plain read that nothing was written has done so by then.
    """

    kinds = (COMMIT_DELAYED,)

    def __init__(self, engine: Any, point: Point, *given: Any) -> None:
        if point == "statement":
            raise ValueError(f"{COMMIT_DELAYED} is about COMMIT: arm it at before_commit or after_commit")
        super().__init__(engine, point, *given)
        self.timer: asyncio.TimerHandle | None = None

    def before_statement(self, seam: Seam, connection: Any, statement: str) -> None:
        if self.cuts:
            self.later(LOOKED_S)

    def cut(self, seam: Seam, connection: Any) -> None:
        proxy = self.detour.proxy_of(connection)
        if proxy is not None:
            proxy.hold()
            self.later(DELAYED_S)

    def later(self, seconds: float) -> None:
        """Let the COMMIT go on after this time, and no earlier."""
        self.stop()
        self.timer = asyncio.get_running_loop().call_later(seconds, self.go_on)

    def stop(self) -> None:
        """Wait for nothing more."""
        if self.timer is not None:
            self.timer.cancel()

    def go_on(self) -> None:
        """Let every COMMIT that is held go on to the server."""
        for proxy in self.detour.used:
            proxy.release()

    def settle(self) -> None:
        """The call has ended: let the COMMIT go on, and wait until the server has answered it."""
        self.stop()
        super().settle()
        for proxy in self.detour.used:
            if not proxy.settled.wait(LANDS_S):
                raise TimeoutError(f"the server did not answer a delayed COMMIT within {LANDS_S:.0f} s")


BY_KIND: Final = {kind: made for made in (Raised, Cancelled, Ended, Cut, Delayed) for kind in made.kinds}
