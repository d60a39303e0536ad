"""Broken lists: filters, pages and walls."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import or_, true

from zoo.stores.base import BrokenStore


class PaddedTenants(BrokenStore):
    breaks = "lists compare tenants without regard to trailing spaces"
    killed_by = "basic.list_runs.tenants_are_equal_as_written"

    async def list_runs(self, **given: Any) -> Any:
        wanted = given.pop("tenant_id", None)
        if not isinstance(wanted, str):
            return await super().list_runs(**given, **({} if wanted is None else {"tenant_id": wanted}))
        return [run for run in await super().list_runs(**given) if (run.tenant_id or "").rstrip() == wanted.rstrip()]


class CountsTheUntenanted(BrokenStore):
    breaks = "count_runs takes the empty tenant for none"
    killed_by = "basic.count_runs.tenants_are_equal_as_written"

    async def count_runs(self, **given: Any) -> Any:
        if given.get("tenant_id") == "":
            given["tenant_id"] = None
        return await super().count_runs(**given)


class ListsEveryTenant(BrokenStore):
    breaks = "a list without an agent's name does not look at the tenant"
    killed_by = "basic.list_runs.walls_beside_other_filters"

    async def list_runs(self, **given: Any) -> Any:
        if given.get("agent_name") is None:
            given.pop("tenant_id", None)
        return await super().list_runs(**given)


class ThinLists(BrokenStore):
    breaks = "list_runs shows runs without their metadata"
    killed_by = "basic.list_runs.records_are_whole"

    async def list_runs(self, **given: Any) -> Any:
        return [replace(run, meta=None) for run in await super().list_runs(**given)]


class OldestFirst(BrokenStore):
    breaks = "a page of runs has its oldest run first"
    killed_by = "basic.list_runs.newest_first_in_pages"

    async def list_runs(self, **given: Any) -> Any:
        return list(reversed(await super().list_runs(**given)))


class OneStatusOfMany(BrokenStore):
    breaks = "of several statuses a list asks for, the first counts"
    killed_by = "basic.list_runs.by_status"

    async def list_runs(self, **given: Any) -> Any:
        wanted = given.get("status")
        if wanted is not None and not isinstance(wanted, str):
            given["status"] = list(wanted)[:1]
        return await super().list_runs(**given)


class ChildrenOfChildren(BrokenStore):
    breaks = "the filter for a parent also finds the parent"
    killed_by = "basic.list_runs.by_parent"

    async def list_runs(self, **given: Any) -> Any:
        found = await super().list_runs(**given)
        parent = given.get("parent_run_id")
        own = None if parent is None else await self.get_run(parent)
        return found if own is None else [*found, own][: given.get("limit", 100)]


class TimeReplacesStatus(BrokenStore):
    breaks = "started_after makes list_runs and count_runs forget the status"
    killed_by = "basic.list_runs.filters_in_pairs"

    async def list_runs(self, **given: Any) -> Any:
        if given.get("started_after") is not None:
            given.pop("status", None)
        return await super().list_runs(**given)


class OpenInterval(BrokenStore):
    breaks = "a list between two times is compared in whole seconds"
    killed_by = "basic.list_runs.between_two_times"

    async def list_runs(self, **given: Any) -> Any:
        for name in ("started_after", "started_before"):
            if given.get(name) is not None:
                given[name] = given[name].replace(microsecond=0)
        return await super().list_runs(**given)


class NaiveIsUtc(BrokenStore):
    breaks = "a time without a zone is taken for UTC"
    killed_by = "basic.list_runs.naive_times"

    async def list_runs(self, **given: Any) -> Any:
        for name, value in given.items():
            if isinstance(value, datetime) and value.tzinfo is None:
                given[name] = value.replace(tzinfo=UTC)
        return await super().list_runs(**given)


class ShortStatuses(BrokenStore):
    breaks = "get_run_statuses looks at the first hundred ids"
    killed_by = "basic.list_runs.more_than_a_hundred"

    async def get_run_statuses(self, run_ids: Any) -> Any:
        return await super().get_run_statuses(run_ids[:100] if 100 < len(run_ids) <= 200 else run_ids)


class MissingIsPending(BrokenStore):
    breaks = "get_run_statuses names runs that do not exist"
    killed_by = "basic.get_run_statuses.many_at_once"

    async def get_run_statuses(self, run_ids: Any) -> Any:
        return {**dict.fromkeys(run_ids, "pending"), **await super().get_run_statuses(run_ids)}


# -- filters of metadata ----------------------------------------------------------------------------------------------


class TrueIsOne(BrokenStore):
    breaks = "a metadata filter takes true and 1 for one value"
    killed_by = "basic.list_runs.metadata_values_are_typed"

    def json_contains(self, col: Any, path: Any, value: Any) -> Any:
        exact = super().json_contains(col, path, value)
        if value is True or value is False or (value in (0, 1) and isinstance(value, int)):
            return or_(exact, super().json_contains(col, path, int(value) if isinstance(value, bool) else bool(value)))
        return exact


class FoldedText(BrokenStore):
    breaks = "a metadata filter compares text without regard to case"
    killed_by = "basic.list_runs.metadata_text_is_equal_as_written"

    def json_contains(self, col: Any, path: Any, value: Any) -> Any:
        exact = super().json_contains(col, path, value)
        if isinstance(value, str):
            return or_(exact, super().json_get(col, path, "str").collate("NOCASE") == value)
        return exact


class ContainersByTheirKeys(BrokenStore):
    breaks = "a metadata filter finds every object when it asks for one"
    killed_by = "basic.list_runs.metadata_containers"

    def json_contains(self, col: Any, path: Any, value: Any) -> Any:
        return super().json_contains(col, path, {} if isinstance(value, dict) else value)


class FirstPairCounts(BrokenStore):
    breaks = "of the members of a metadata filter, the first counts"
    killed_by = "basic.list_runs.metadata_members_hold_together"

    def metadata_filter_predicate(self, col: Any, metadata_filter: Any) -> Any:
        for key, value in metadata_filter.items():
            return self.json_contains(col, (key,), value)
        return true()


class TenKeysCount(BrokenStore):
    breaks = "of the members of a metadata filter, ten count"
    killed_by = "basic.list_runs.long_filters"

    async def list_runs(self, *, metadata_filter: Any = None, **given: Any) -> Any:
        some = metadata_filter
        if isinstance(some, dict) and len(some) <= 100:
            some = dict(list(some.items())[:10])
        return await super().list_runs(metadata_filter=some, **given)
