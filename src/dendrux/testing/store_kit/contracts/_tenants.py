"""The wall between tenants, for every operation that takes a scope; and what calls on a missing run answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._nasty import TENANTS
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import WAITING, answer, born, expected, noted, paused, world_after
from dendrux.vocabulary import PAUSED_STATUSES
from dendrux_model.programs import Do, Look, Program
from dendrux_model.world import find

CAUSE: Final = (
    "Tenants are compared by a collation that folds case, ignores accents or trailing spaces, or an empty tenant is "
    "taken for none: compare tenants as bytes, and write IS NULL for None only."
)
MISSING: Final = "A write on no row is taken for success: look at the run first and refuse when it is not there."


def one_run_each(*, waiting: bool) -> Program:
    """A run per tenant, with a note in its inbox."""
    steps: list[Any] = []
    for i, tenant in enumerate(TENANTS):
        steps += [born(f"r{i}", tenant_id=tenant), noted(f"r{i}", f"n{i}", tenant_id=tenant)]
        steps += [paused(f"r{i}", WAITING)] if waiting else []
    return tuple(steps)


def wall(sample: Sample) -> None:
    """The contract of one operation: each run in each scope, the wrong scopes first."""
    call = sample.operation
    own = find(world_after(sample.before, 2), "r")
    start = one_run_each(waiting=own is not None and own.status in PAUSED_STATUSES)
    subject = "run_id" if sample.takes("run_id") else "root_run_id"
    if not sample.takes(subject):
        scopes = [Do(replace(call, tenant_id=tenant)) for tenant in TENANTS]
        # A second run without a tenant: else a count does not tell the empty tenant from none.
        start = (*start, born("other", tenant_id=None))
        steps = (*start, *(Do(one.operation, expect=expected(start, one.operation)) for one in scopes))
        contract(
            f"basic.{sample.method}.tenants_are_equal_as_written",
            f"{sample.method} finds the runs of exactly the tenant it was asked for.",
            *steps,
            cause=CAUSE,
            capability=sample.capability,
        )
        return
    notes = sample.takes("note_id")
    calls = [
        replace(call, tenant_id=scope, **{subject: f"r{i}"}, **({"note_id": f"m{i}"} if notes else {}))
        for within in (False, True)
        for i, tenant in enumerate(TENANTS)
        for scope in TENANTS
        if (scope == tenant and type(scope) is type(tenant)) is within
    ]
    wrong = len(TENANTS) * (len(TENANTS) - 1)
    outside = [Do(one, expect=expected(start, one)) for one in calls[:wrong]]
    inside = [Do(one) for one in calls[wrong:]]
    contract(
        f"basic.{sample.method}.tenants_are_equal_as_written",
        f"{sample.method} sees and changes a run only in the scope of exactly its tenant.",
        *start,
        *outside,
        Look(),
        *inside,
        cause=CAUSE,
        capability=sample.capability,
    )


def missing(sample: Sample) -> None:
    """The contract of one operation on a run that does not exist."""
    subject = "run_id" if sample.takes("run_id") else "root_run_id"
    call = replace(sample.operation, **{subject: "nowhere"})
    contract(
        f"basic.{sample.method}.missing_run",
        f"{sample.method} on a run that does not exist finds nothing and makes nothing.",
        *sample.before,
        Look(),
        Do(call, expect=answer(sample.before, call, 1)),
        cause=MISSING,
        capability=sample.capability,
    )


for scoped in samples():
    if scoped.takes("tenant_id") and scoped.method != "create_run":
        wall(scoped)
    if (scoped.takes("run_id") or scoped.takes("root_run_id")) and scoped.method != "create_run":
        missing(scoped)
