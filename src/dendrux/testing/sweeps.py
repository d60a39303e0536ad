"""Operations over every run of a database, called for one program: all their pages, and of these only its own runs.

Other programs share the database, so a page may hold none of this program's runs. What is answered is what the model
says of one call: the pages one after the other to the last, each asked for with the cursor of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

PAGES_MAX: Final = 10_000
"""Pages after which a sweep is taken to have no end."""

Shown = Callable[[str, Any], Any]
"""A field of a record as the model shows it."""


class Endless(Exception):
    """A cursor that leads back to its own page, or nowhere."""


class Pages:
    """What the pages of one call said of the runs of a namespace."""

    def __init__(self, namespace: str, shown: Shown) -> None:
        self.namespace = namespace
        self.shown = shown

    def own(self, row: Any) -> bool:
        """Whether a row is about a run of this namespace."""
        return str(getattr(row, "run_id", row)).startswith(self.namespace)

    async def follow(self, method: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
        """Every page, put together."""
        seen: dict[str, Any] = {}
        after: str | None = None
        for _ in range(PAGES_MAX):
            page = await method(**given, after=after)
            following = self.take(page, int(given["limit"]), seen)
            if following is None:
                return seen
            if following == after:
                break
            after = following
        raise Endless(f"page after {after!r}")

    def take(self, page: Any, limit: int, seen: dict[str, Any]) -> str | None:
        """Add a page to what was seen; the cursor of the next one."""
        if isinstance(page, list):  # leases: the last one of a full page says where the next begins
            seen.update({self.id_of(lease): self.fields(lease) for lease in page if self.own(lease)})
            return page[-1].cursor if len(page) == limit else None
        if hasattr(page, "marked"):
            seen.setdefault("marked", []).extend(self.shown("run_id", run) for run in page.marked if self.own(run))
        swept = "finalised" if hasattr(page, "finalised") else "swept"
        seen.setdefault(swept, {}).update(
            {self.id_of(run): self.fields(run) for run in getattr(page, swept) if self.own(run)}
        )
        failed = {self.id_of(run): run.code for run in page.failed if self.own(run)}
        seen.setdefault("failed", {}).update(failed)
        following: str | None = page.next_after
        return following

    def id_of(self, row: Any) -> str:
        """The id of the run a row is about, without the namespace."""
        return str(self.shown("run_id", row.run_id))

    def fields(self, row: Any) -> dict[str, Any]:
        """The other fields of a row."""
        names = [name for name in type(row).__dataclass_fields__ if name != "run_id"]
        return {name: self.shown(name, getattr(row, name)) for name in names}


def in_time(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Times as the store takes them, from whole seconds; what is no number of seconds goes on as it is."""
    taken = dict(given)
    for name in ("cutoff_s", "older_than_s"):
        if name in taken:
            seconds = taken.pop(name)
            age = timedelta(seconds=seconds) if type(seconds) is int else seconds
            cutoff = now - age if type(seconds) is int else seconds
            taken[name.removesuffix("_s")] = cutoff if name == "cutoff_s" else age
    return taken
