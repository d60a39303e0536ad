"""How a store hands changed runs to its live updates: a hint never makes a write fail that is done."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger("dendrux.live")


def announcer(live_updates: Any, own: Any) -> Any:
    """The instance that hears of changed runs, or None. `own` is what True stands for: it gives an instance or raises.

    Refuses: TypeError for anything else than None, a bool or live updates.
    """
    if live_updates is None or live_updates is False:
        return None
    if live_updates is True:
        return own()
    lacking = [
        name for name in ("bind", "enqueue", "flush", "close") if not callable(getattr(live_updates, name, None))
    ]
    if isinstance(live_updates, type) or lacking:
        raise TypeError(
            "live_updates must be None, False, True or an instance with bind, enqueue, flush and close, "
            f"not {type(live_updates).__name__}"
        )
    return live_updates


def note(store: Any, run_ids: Iterable[str]) -> None:
    """These runs may have changed: COMMIT was issued."""
    try:
        store.live_updates.enqueue(sorted(run_ids))
    except Exception as error:  # noqa: BLE001  a hint may be lost, and COMMIT must be followed to its end
        logger.warning("live updates: enqueue failed, %s", type(error).__name__)


async def flush(store: Any) -> None:
    """Send what is pending. Only a cancellation passes through."""
    if store.live_updates is None:
        return
    try:
        await store.live_updates.flush()
    except Exception as error:  # noqa: BLE001  the write is done, whatever a transport of somebody's own raises
        logger.warning("live updates: flush failed, %s", type(error).__name__)
