"""What a store promises, and whether its methods can keep it.

A declaration is a promise about transactions; what can be checked here is that the methods a promise needs exist and
take their named keyword parameters.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from dendrux.errors import StoreCapabilityError
from dendrux.vocabulary import CAPABILITIES, DEPLOYMENTS, Deployment


@dataclass(frozen=True)
class StoreCapabilities:
    """A store's promises. Narrow one flag with `dataclasses.replace`; method names alone promise nothing."""

    version: int = 1
    fenced_writes: bool = False
    """A claimed write refuses an old epoch."""
    retry_ids: bool = False
    """Retrying the same row id and content reuses the row; other content is refused."""
    checkpointing: bool = False
    """Durable execution state, and the conversation rebuilt by kind."""
    atomic_completion: bool = False
    """A tool's intent, its result, and a run's end publish all or nothing."""
    recovery: bool = False
    """Bounded lease marking and atomic reclaim."""
    deployment: Deployment | None = None
    """How many processes may share the data. Descriptive; a store without one cannot be certified."""


REQUIRED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "fenced_writes": {
        "save_trace": ("claim_epoch",),
        "save_tool_call": ("claim_epoch",),
        "save_usage": ("claim_epoch",),
        "save_llm_interaction": ("claim_epoch",),
        "save_run_event": ("claim_epoch",),
        "add_note": ("claim_epoch",),
        "mark_notes_delivered": ("claim_epoch",),
        "update_run_meta": ("claim_epoch",),
        "touch_progress": ("claim_epoch",),
    },
    "retry_ids": {
        "save_trace": ("trace_id",),
        "save_tool_call": ("row_id",),
        "save_run_event": ("event_id",),
        "save_usage": ("usage_id",),
        "save_llm_interaction": ("interaction_id",),
    },
    "checkpointing": {
        "create_run": ("seed_traces", "pii_mapping"),
        "save_trace": ("trace_kind",),
        "save_tool_call": ("outcome",),
        "complete_tool_call": ("pii_mapping",),
        "consume_submission": ("pii_mapping",),
        "checkpoint_step": (),
        "get_traces_after": (),
        "conversation_traces": (),
        "claim_paused_run": (),
        "submit_and_claim": (),
    },
    "atomic_completion": {
        "start_tool_call": (),
        "complete_tool_call": (),
        "finalize_with_event": ("trace",),
    },
    "recovery": {
        "mark_lease_expired": ("finalise_unrecoverable",),
        "get_lease_expired": (),
        "reclaim_run": (),
        "get_replayed_tool_calls": (),
    },
}
"""Each promise with the methods it needs and the keyword-only parameters they must name."""


def validate_capabilities(store: Any) -> None:
    """Check a store's declaration against its methods. A store without a declaration is a legacy store and passes.

    Refuses: StoreCapabilityError naming the capability, the method, the parameters it lacks, and the repair.
    Warns: DeprecationWarning when the deployment is undeclared.
    """
    declared = getattr(store, "capabilities", None)
    if declared is None:
        return
    name = type(store).__name__
    if not isinstance(declared, StoreCapabilities) or declared.version != 1:
        _refuse(
            name,
            "version",
            "capabilities must be a StoreCapabilities with version 1",
            "self.capabilities = replace(self.capabilities, version=1)",
        )
    if declared.deployment is not None and declared.deployment not in DEPLOYMENTS:
        _refuse(
            name,
            "deployment",
            f"deployment must be one of {', '.join(DEPLOYMENTS)}",
            f'self.capabilities = replace(self.capabilities, deployment="{DEPLOYMENTS[1]}")',
        )
    for capability, problem in problems(store, declared):
        _refuse(
            name,
            capability,
            problem,
            "copy the base method's signature with its explicit keyword-only parameters and forward them (*args, "
            "**kwargs does not count), or declare less: "
            f"self.capabilities = replace(self.capabilities, {capability}=False)",
        )
    if declared.deployment is None:
        warnings.warn(
            f"{name} declares capabilities without a deployment: set one of {', '.join(DEPLOYMENTS)}",
            DeprecationWarning,
            stacklevel=2,
        )


def problems(store: Any, declared: StoreCapabilities) -> Iterator[tuple[str, str]]:
    """Each declared capability with what a method of its lacks."""
    for capability in CAPABILITIES:
        if getattr(declared, capability):
            for method, parameters in REQUIRED[capability].items():
                problem = _problem(store, method, parameters)
                if problem is not None:
                    yield capability, problem


def _problem(store: Any, method: str, parameters: tuple[str, ...]) -> str | None:
    found = getattr(store, method, None)
    if not callable(found):
        return f"the method {method} is missing"
    try:
        known = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return f"the signature of {method} cannot be read"
    lacks = [name for name in parameters if name not in known or known[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    return f"{method} lacks {', '.join(lacks)}" if lacks else None


def _refuse(store: str, capability: str, problem: str, repair: str) -> NoReturn:
    raise StoreCapabilityError(
        f"{store}: capability {capability!r}: {problem}. To repair: {repair}", capability=capability, store=store
    )
