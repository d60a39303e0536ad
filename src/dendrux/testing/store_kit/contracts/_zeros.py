"""Zero and empty values of what a write sets: they are values, and only None leaves what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.runtime.values import UsageStats
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._samples import Sample, samples
from dendrux.testing.store_kit.contracts._states import paused
from dendrux_model.programs import Do

KNOWN: Final = paused(
    total_usage=UsageStats(input_tokens=5, output_tokens=4, cost_usd=0.5, reasoning_tokens=1),
    pii_mapping={"<0>": "Ada"},
    iteration_count=2,
)
"""A pause after which totals, mapping and count are there."""
ZEROS: Final[dict[str, Any]] = {"total_usage": UsageStats(), "pii_mapping": {}, "iteration_count": 0}


def zeros(sample: Sample) -> None:
    """The contract of one write that sets any of these."""
    given = {name: zero for name, zero in ZEROS.items() if sample.takes(name)}
    before = tuple(KNOWN if step == paused() else step for step in sample.before)
    if not given or KNOWN not in before:
        return
    if sample.method == "checkpoint_step":  # a step's count does not go back
        del given["iteration_count"]
    contract(
        f"basic.{sample.method}.zero_is_a_value",
        f"{sample.method} sets empty totals, an empty mapping and a count of zero: only None leaves what is there.",
        *before,
        Do(replace(sample.operation, **given)),
        needs=sample.needs,
        capability=sample.capability,
        cause="The value is tested for truth, so that zero or empty counts as left out: test it for None.",
    )


for writing in samples():
    if writing.operation.lost_ack != "read":
        zeros(writing)
