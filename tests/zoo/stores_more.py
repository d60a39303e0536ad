"""More broken stores: what a store can get wrong beside the writes that one process can see.

`killed_by` names the contract that must go red, as in `stores`.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from zoo.stores import BrokenStore

# -- processes --------------------------------------------------------------------------------------------------------


class OneProcessClaims(BrokenStore):
    breaks = "claims are read and then written, under a lock that one process has"
    killed_by = "concurrency.claim_paused_run.two_processes"

    locks: ClassVar[dict[Any, asyncio.Lock]] = {}

    async def claim_paused_run(self, run_id: str, *, expected_status: str, **given: Any) -> int | None:
        lock = self.locks.setdefault((str(self._engine.url), id(asyncio.get_running_loop())), asyncio.Lock())
        async with lock:
            run = await self.get_run(run_id, **given)
            if run is None or run.status != expected_status or run.cancel_requested:
                return await super().claim_paused_run(run_id, expected_status=expected_status, **given)
            await self.run_sql(
                "UPDATE agent_runs SET status = 'running', claim_epoch = :epoch, claimed_epoch = :epoch WHERE id = :run",
                epoch=run.claim_epoch + 1,
                run=run_id,
            )
            return run.claim_epoch + 1
