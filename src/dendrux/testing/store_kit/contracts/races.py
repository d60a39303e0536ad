"""The pair matrix as contracts: one row per operation."""

from __future__ import annotations

from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.matrix import matrix_check
from dendrux_model.machines.cells import writes
from dendrux_model.operations import OPERATIONS

for _name in writes():
    _method = OPERATIONS[_name].method
    contract(
        f"concurrency.pair_matrix.{_method}",
        f"Wherever {_method} is interrupted by another write on a second instance, some order of the two explains "
        "both answers and what the store shows afterwards.",
        group="concurrency",
        needs={"second_instance", "sql"},
        check=matrix_check(_name),
        cause="What decides the write was read before it took the run's row, or the two are not one transaction.",
    )
