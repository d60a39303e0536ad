"""Declarations that lie, and calls that do not end as they should."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from zoo.stores.base import BrokenStore


class NoDeployment(BrokenStore):
    breaks = "the store does not say how many processes may share its data"
    killed_by = "declaration.deployment"

    def __init__(self, engine: Any, *, live_updates: Any = None) -> None:
        super().__init__(engine, live_updates=live_updates)
        self.capabilities = replace(self.capabilities, deployment=None)


class FencesInName(BrokenStore):
    breaks = "fenced_writes is declared, and save_trace has no claim_epoch"
    killed_by = "declaration.methods"
    own_signatures = True

    async def save_trace(self, run_id: str, role: str, content: str, *, order_index: int, **given: Any) -> None:
        await super().save_trace(run_id, role, content, order_index=order_index, **given)


class SwallowsCancellation(BrokenStore):
    breaks = "a cancelled get_run answers that there is no run"
    killed_by = "basic.save_run_event.cancelled_calls"
    threaded = True

    async def get_run(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().get_run(run_id, **given)
        except asyncio.CancelledError:
            return None
