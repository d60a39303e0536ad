"""Reference stores that are broken on purpose: stores that are no SQLStateStore are caught, too."""

from __future__ import annotations

from typing import Any

from dendrux.testing import ReferenceStore


class Unfenced(ReferenceStore):
    """Takes events under any epoch."""

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        return await super().save_run_event(run_id, **(given | {"claim_epoch": None}))


class Forgetful(ReferenceStore):
    """Stores an event again whose acknowledgement was lost."""

    async def save_run_event(self, run_id: str, **given: Any) -> int:
        return await super().save_run_event(run_id, **(given | {"event_id": None}))


for _broken in (Unfenced, Forgetful):  # a declaration is about signatures, which these keep
    _broken.save_run_event.__signature__ = vars(ReferenceStore)["save_run_event"].signature  # type: ignore[attr-defined]
