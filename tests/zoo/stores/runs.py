"""Broken creation, and broken metadata of runs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from dendrux.errors import IdempotencyConflictError, RunClosedError, RunNotFoundError, StaleClaimError
from zoo.stores.base import BrokenStore


class SortedDocuments(BrokenStore):
    breaks = "what a run is given comes back with its members sorted"
    killed_by = "basic.create_run.documents_come_back_exactly"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        for name in ("input_data", "meta"):
            if given.get(name) is not None:
                given[name] = json.loads(json.dumps(given[name], sort_keys=True))
        return await super().create_run(run_id, agent_name, **given)


class ShortNames(BrokenStore):
    breaks = "names are cut off where their bytes would fill an index"
    killed_by = "basic.create_run.longest_names_fit"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        return await super().create_run(run_id, agent_name.encode()[:767].decode(errors="ignore"), **given)


class EmptyTenantIsNone(BrokenStore):
    breaks = "an empty tenant is stored as none"
    killed_by = "basic.create_run.tenants_are_kept_as_written"

    async def create_run(self, run_id: str, agent_name: str, *, tenant_id: str | None = None, **given: Any) -> Any:
        return await super().create_run(run_id, agent_name, tenant_id=tenant_id or None, **given)


class PaddedIds(BrokenStore):
    breaks = "run ids are compared without regard to trailing spaces"
    killed_by = "basic.create_run.ids_are_equal_as_written"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        return await super().create_run(run_id.rstrip(" ") or run_id, agent_name, **given)


class KeysAcrossTenants(BrokenStore):
    breaks = "an idempotency key finds the run of another tenant"
    killed_by = "basic.create_run.key_belongs_to_its_tenant"

    async def create_run(
        self, run_id: str, agent_name: str, *, idempotency_key: str | None = None, **given: Any
    ) -> Any:
        row = await self.run_sql("SELECT id FROM agent_runs WHERE idempotency_key = :key", key=idempotency_key)
        made = await super().create_run(run_id, agent_name, idempotency_key=idempotency_key, **given)
        return made if row is None else replace(made, run_id=row[0])


class KeysWithoutFingerprint(BrokenStore):
    breaks = "a key stands for whatever request comes under it"
    killed_by = "basic.create_run.other_fingerprint_is_refused"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except IdempotencyConflictError:
            row = await self.run_sql(
                "SELECT idempotency_fingerprint FROM agent_runs WHERE idempotency_key = :key",
                key=given["idempotency_key"],
            )
            return await super().create_run(run_id, agent_name, **{**given, "idempotency_fingerprint": row[0] or None})


class KeyHandsOutTheRun(BrokenStore):
    breaks = "whoever finds a run by its key is told that it owns epoch 1"
    killed_by = "basic.create_run.key_finds_the_open_run"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        return replace(await super().create_run(run_id, agent_name, **given), claim_epoch=1)


class EndedRunsAreActive(BrokenStore):
    breaks = "a key whose run has ended finds it as if it were open"
    killed_by = "basic.create_run.key_finds_the_ended_run"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        made = await super().create_run(run_id, agent_name, **given)
        return replace(made, outcome="existing_active") if made.outcome == "existing_terminal" else made


class NamesTheNewRun(BrokenStore):
    breaks = "a key conflict names the run that could not be created"
    killed_by = "basic.create_run.key_conflict_names_the_run"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except IdempotencyConflictError as conflict:
            raise IdempotencyConflictError(run_id, conflict.idempotency_key) from None


class KeysChecked(BrokenStore):
    breaks = "two runs may have one key: it is looked up, then the run is created"
    killed_by = "concurrency.create_run.one_run_per_key"

    async def create_run(
        self, run_id: str, agent_name: str, *, idempotency_key: str | None = None, **given: Any
    ) -> Any:
        row = await self.run_sql("SELECT id FROM agent_runs WHERE idempotency_key = :key", key=idempotency_key)
        if row is not None or idempotency_key is None:
            return await super().create_run(run_id, agent_name, idempotency_key=idempotency_key, **given)
        made = await super().create_run(run_id, agent_name, idempotency_key=f"{idempotency_key} {run_id}", **given)
        await self.run_sql(
            "UPDATE OR IGNORE agent_runs SET idempotency_key = :key WHERE id = :run", key=idempotency_key, run=run_id
        )
        return made


# -- relatives --------------------------------------------------------------------------------------------------------


class ChildrenOfTheCancelled(BrokenStore):
    breaks = "a run that was asked to cancel still gets children"
    killed_by = "basic.create_run.no_child_of_a_parent_asked_to_cancel"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        parent = given.get("parent_run_id")
        try:
            return await super().create_run(run_id, agent_name, **given)
        except RunClosedError:
            run = await self.get_run(str(parent))
            if run is None or not run.cancel_requested:
                raise
            await self.run_sql("UPDATE agent_runs SET cancel_requested = 0 WHERE id = :run", run=parent)
            return await super().create_run(run_id, agent_name, **given)


class ChildrenOfTheEnded(BrokenStore):
    breaks = "a parent that has ended is reported as one that does not exist"
    killed_by = "basic.create_run.no_child_of_an_ended_parent"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except RunClosedError:
            raise RunNotFoundError(str(given.get("parent_run_id"))) from None


class AnyLevel(BrokenStore):
    breaks = "the level of a child is what its creator says"
    killed_by = "basic.create_run.level_must_fit_the_parent"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except ValueError:
            parent = await self.get_run(str(given.get("parent_run_id")))
            if parent is None:
                raise
            return await super().create_run(
                run_id, agent_name, **{**given, "delegation_level": parent.delegation_level + 1}
            )


class ForeignRelatives(BrokenStore):
    breaks = "a run may be the retry of another tenant's run"
    killed_by = "basic.create_run.relatives_must_exist_in_the_tenant"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except RunNotFoundError:
            retried = given.get("retry_of_run_id")
            if retried is None or await self.get_run(retried) is None:
                raise
            return await super().create_run(run_id, agent_name, **{**given, "retry_of_run_id": None})


class ChildBehindTheCancellation(BrokenStore):
    breaks = "whether a parent takes children is asked in an earlier transaction"
    killed_by = "concurrency.cancel_subtree.child_begun_meanwhile"

    async def create_run(self, run_id: str, agent_name: str, *, parent_run_id: str | None = None, **given: Any) -> Any:
        if parent_run_id is None:
            return await super().create_run(run_id, agent_name, **given)
        parent = await self.get_run(parent_run_id)
        if parent is None or parent.cancel_requested or parent.status != "running":
            return await super().create_run(run_id, agent_name, parent_run_id=parent_run_id, **given)
        made = await super().create_run(run_id, agent_name, **given)
        await self.run_sql(
            "UPDATE agent_runs SET parent_run_id = :parent WHERE id = :run", parent=parent_run_id, run=run_id
        )
        return made


class ParentsOfAnyEpoch(BrokenStore):
    breaks = "a former owner of the parent still begins children"
    killed_by = "fenced_writes.create_run.parent_held_under_its_epoch"

    async def create_run(self, run_id: str, agent_name: str, **given: Any) -> Any:
        try:
            return await super().create_run(run_id, agent_name, **given)
        except StaleClaimError:
            return await super().create_run(run_id, agent_name, **{**given, "parent_claim_epoch": None})


# -- metadata ---------------------------------------------------------------------------------------------------------


class LostMetaUpdates(BrokenStore):
    breaks = "update_run_meta writes back a whole document that it read before it took the row"
    killed_by = "concurrency.pair_matrix.update_run_meta"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        run = await self.get_run(run_id)
        await super().update_run_meta(run_id, patch, **given)
        if run is not None and patch:
            whole = json.dumps({**(run.meta or {}), **patch}, separators=(",", ":"), ensure_ascii=False)
            await self.run_sql("UPDATE agent_runs SET meta = :meta WHERE id = :run", meta=whole, run=run_id)


class NullDeletes(BrokenStore):
    breaks = "a member that is set to null is deleted from the metadata"
    killed_by = "basic.update_run_meta.merges_top_level_members"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        await super().update_run_meta(run_id, patch, **given)
        run = await self.get_run(run_id)
        if run is not None and run.meta and any(value is None for value in patch.values()):
            whole = json.dumps({key: value for key, value in run.meta.items() if value is not None})
            await self.run_sql("UPDATE agent_runs SET meta = :meta WHERE id = :run", meta=whole, run=run_id)


class MetaOfTheLiving(BrokenStore):
    breaks = "the metadata of a run that has ended cannot be changed any more"
    killed_by = "basic.update_run_meta.also_on_paused_and_ended_runs"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        run = await self.get_run(run_id)
        if run is not None and run.status in ("success", "error"):
            raise RunClosedError(operation="update_run_meta", run_id=run_id)
        await super().update_run_meta(run_id, patch, **given)


class RefusalRenewsLease(BrokenStore):
    breaks = "a refused update_run_meta renews the lease all the same"
    killed_by = "fenced_writes.update_run_meta.refuses_old_epoch"

    async def update_run_meta(self, run_id: str, patch: Any, **given: Any) -> None:
        try:
            await super().update_run_meta(run_id, patch, **given)
        except StaleClaimError:
            await self.run_sql(
                "UPDATE agent_runs SET last_progress_at = '2040-01-01 00:00:00.000000' WHERE id = :run", run=run_id
            )
            raise


class LocalTimes(BrokenStore):
    breaks = "local times are read as UTC, in bounds as in answers"
    killed_by = "basic.get_run.times_are_true"

    async def get_run(self, run_id: str, **given: Any) -> Any:
        run = await super().get_run(run_id, **given)
        return run and replace(run, created_at=run.created_at + timedelta(hours=5, minutes=30))


class TenantsFoldedInReads(BrokenStore):
    breaks = "get_run compares tenants without regard to case"
    killed_by = "basic.get_run.tenants_are_equal_as_written"

    async def get_run(self, run_id: str, **given: Any) -> Any:
        wanted = given.pop("tenant_id", ...)
        run = await super().get_run(run_id, **given)
        if run is None or wanted is ...:
            return run
        if isinstance(wanted, str) and run.tenant_id is not None and wanted.casefold() == run.tenant_id.casefold():
            return run
        return await super().get_run(run_id, tenant_id=wanted, **given)
