"""Which way through an operation's step a call took: what exploration covers and certificates count.

The table lists every way there is, as the exploration of the small worlds finds them; a test keeps the two equal.
"""

from __future__ import annotations

from typing import Final

from dendrux_model.operations import Operation
from dendrux_model.outcomes import Broken, Cancelled, Outcome, Refused, Returned
from dendrux_model.world import World

SWAPS: Final = frozenset(
    {"ClaimPausedRun", "ConsumeSubmission", "FinalizeWithEvent", "PauseWithEvent", "ReclaimRun", "SubmitAndClaim"}
)
"""Operations whose None says that the guard was lost; for the others None is all they ever say."""


def branch(before: World, operation: Operation, outcome: Outcome, after: World) -> str:
    """One word for the way this call took.

    A refusal is its code. A read is `shown` or `absent`. A write is `applied`, `lost` (its guard did not hold) or
    `unchanged` (a repeat, or nothing to do), unless the answer has a word of its own (`full`, `existing_active`). A
    call of a tool that is handed out again is `replayed`, one that is done already `completed`.
    """
    if isinstance(outcome, Refused):
        return outcome.code
    if isinstance(outcome, Cancelled | Broken):
        return type(outcome).__name__.lower()
    if not isinstance(outcome, Returned):
        return outcome.code
    value = outcome.value
    if operation.lost_ack == "read":
        empty = isinstance(value, dict) and value.get("calls") == [] and "status" not in value
        return "shown" if value and not empty else "absent"
    if after is not before:
        return "replayed" if isinstance(value, dict) and value.get("replayed") else "applied"
    if isinstance(value, dict) and value.get("completed"):
        return "completed"
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "outcome" in value:
        word = str(value["outcome"])
        return "created-again" if word == "created" else word
    if value is False or (value is None and type(operation).__name__ in SWAPS):
        return "lost"
    return "unchanged"


def way(before: World, operation: Operation, outcome: Outcome, after: World) -> tuple[str, str]:
    """The (operation, branch) pair of a call, from worlds in which time alone may have changed."""
    still = after.runs == before.runs and after.blobs == before.blobs
    return type(operation).__name__, branch(before, operation, outcome, before if still else after)


BRANCHES: Final[dict[str, str]] = {
    "AddNote": "applied closed duplicate full run_not_found stale_claim write_conflict",
    "CancelSubtree": "applied invalid run_not_found unchanged",
    "CheckpointStep": "invalid run_not_found",
    "ChildRunsPage": "absent run_not_found shown",
    "BlobInfo": "absent shown",
    "BlobReferences": "absent shown",
    "CollectGarbage": "applied invalid unchanged",
    "PurgeBlob": "applied blob_not_found unchanged",
    "PutBlob": "applied blob_not_found",
    "ReadBlob": "blob_not_found shown",
    "ClaimPausedRun": "applied lost run_not_found",
    "ConsumeSubmission": "run_not_found",
    "ConversationTraces": "shown",
    "CompleteToolCall": "invalid run_not_found",
    "CountRuns": "absent shown",
    "CreateRun": "applied blob_not_found created-again existing_active existing_terminal idempotency_conflict "
    "invalid run_closed run_not_found stale_claim write_conflict",
    "FinalizeRun": "invalid run_not_found",
    "FinalizeRunIfStatusIn": "invalid run_not_found",
    "FinalizeWithEvent": "applied invalid lost run_not_found stale_claim unchanged write_conflict",
    "GetDelegationInfo": "absent shown",
    "GetEventsForRuns": "absent shown",
    "GetLLMInteractions": "absent shown",
    "GetLeaseExpired": "absent",
    "GetLoopState": "absent",
    "GetNotes": "absent run_not_found shown",
    "GetPauseState": "absent shown",
    "GetPending": "absent shown",
    "GetPiiMapping": "absent shown",
    "GetReplayedToolCalls": "absent run_not_found",
    "GetRun": "absent shown",
    "GetRunControl": "shown",
    "GetRunEvents": "absent shown",
    "GetRunStatuses": "absent shown",
    "GetSubtree": "absent shown",
    "GetToolCalls": "absent shown",
    "GetTraces": "absent shown",
    "GetTracesAfter": "absent shown",
    "ListRuns": "absent shown",
    "MarkLeaseExpired": "applied unchanged",
    "MarkNotesDelivered": "applied run_not_found stale_claim unchanged",
    "PauseRun": "invalid run_not_found",
    "PauseWithEvent": "applied invalid lost run_not_found stale_claim unchanged write_conflict",
    "ReclaimRun": "lost run_not_found",
    "ReleaseRunClaim": "applied lost run_not_found stale_claim",
    "RequestCancel": "applied lost run_not_found unchanged",
    "RequestPause": "applied lost run_not_found unchanged",
    "RunUsage": "shown",
    "SaveLLMInteraction": "applied run_not_found stale_claim unchanged write_conflict",
    "SaveRunEvent": "applied run_not_found stale_claim unchanged write_conflict",
    "SaveToolCall": "applied blob_not_found run_not_found stale_claim unchanged write_conflict",
    "SaveTrace": "applied blob_not_found run_not_found stale_claim unchanged write_conflict",
    "SaveUsage": "applied run_not_found stale_claim unchanged write_conflict",
    "SubmitAndClaim": "applied blob_not_found lost run_not_found store_outcome_unknown validate write_conflict",
    "StartToolCall": "invalid run_not_found",
    "SubtreeUsage": "shown",
    "SweepAbandonedRuns": "applied unchanged",
    "SweepStaleRuns": "applied unchanged",
    "TouchProgress": "applied lost run_not_found stale_claim",
    "TryPauseRun": "invalid run_not_found",
    "UpdateRunMeta": "applied run_not_found stale_claim unchanged",
}
"""The ways through each operation that there are on both storage formats."""

BRANCHES_OF_FORMAT: Final[dict[int, dict[str, str]]] = {
    1: {
        "ConsumeSubmission": "invalid",
        "FinalizeRun": "applied lost stale_claim",
        "FinalizeRunIfStatusIn": "applied lost stale_claim",
        "PauseRun": "applied run_terminal stale_claim write_conflict",
        "TryPauseRun": "applied lost stale_claim",
    },
    2: {
        "GetLeaseExpired": "shown",
        "ReclaimRun": "applied",
        "CheckpointStep": "applied run_terminal stale_claim unchanged write_conflict",
        "ConsumeSubmission": "applied lost run_terminal stale_claim unchanged write_conflict",
        "GetLoopState": "shown",
        "CompleteToolCall": "applied run_terminal stale_claim tool_call_not_started unchanged write_conflict",
        "GetReplayedToolCalls": "shown",
        "StartToolCall": "applied completed replayed run_terminal stale_claim unchanged write_conflict",
        "SaveRunEvent": "invalid run_terminal",
        "SaveToolCall": "run_terminal",
        "SaveTrace": "run_terminal",
    },
}
"""The ways that there are on one format only."""


TIMED: Final = frozenset(
    {
        ("CollectGarbage", "applied"),
        ("GetLeaseExpired", "shown"),
        ("MarkLeaseExpired", "applied"),
        ("ReclaimRun", "applied"),
        ("SweepAbandonedRuns", "applied"),
        ("SweepStaleRuns", "applied"),
    }
)
"""The pairs that no world reaches in which no time passes."""


def known_branches(storage_format: int) -> frozenset[tuple[str, str]]:
    """Every (operation, branch) pair that some world of this format reaches."""
    tables = (BRANCHES, BRANCHES_OF_FORMAT[storage_format])
    return frozenset((name, word) for table in tables for name, words in table.items() for word in words.split())


KNOWN_BRANCHES: Final = known_branches(1) | known_branches(2)
"""Every (operation, branch) pair."""
