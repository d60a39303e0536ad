"""The contracts, one module per noun, in the order in which the documentation introduces them.

What a noun's module says of its operations is what the generators after them need: `_tenants`, `_arguments`, `_fences`,
`_identities` and `_faults` make the same contracts for every operation of the model.
"""

# isort: off
from dendrux.testing.store_kit.contracts import (  # noqa: F401  # imported to enter what they hold into the catalogue
    runs,
    runs_checkpoint,
    claims,
    pauses,
    control,
    finish,
    leases,
    events,
    traces,
    tool_calls,
    tool_calls_completion,
    usage,
    notes,
    blobs,
    listing,
    delegation,
    _tenants,
    _arguments,
    _fences,
    _identities,
    _faults,
)
