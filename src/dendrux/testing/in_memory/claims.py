"""A submission with a validation: the model knows that somebody judges, and asks nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dendrux.store.ops.claims import validated
from dendrux.testing.in_memory.answers import real
from dendrux.testing.in_memory.call import Call, Handler
from dendrux_model.outcomes import VALIDATION
from dendrux_model.values import object_text
from dendrux_model.world import find


def submit_and_claim(call: Call) -> Any:
    """Ask the caller's validation where the model would be refused by one, and only there. What it raises passes."""
    validate = call.given["validate"]
    operation = call.operation(validate=None)
    if validate is not None and replace(operation, validate="refuse").step(call.data.world)[1] == VALIDATION:
        run = find(call.data.world, operation.run_id)
        assert run is not None
        validated(validate, real(object_text(run.pause_document)))
    return call.answer(call.value(operation))


HANDLERS: Final[dict[str, Handler]] = {
    "submit_and_claim": submit_and_claim,
}
