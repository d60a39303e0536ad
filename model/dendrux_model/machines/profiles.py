"""Named sets of operations, so that a short run goes deep where it is pointed."""

from __future__ import annotations

from typing import Final

from dendrux_model.operations import OPERATIONS

LIFE: Final = ("CreateRun", "PauseWithEvent", "ClaimPausedRun", "FinalizeWithEvent")

LEASES: Final = (
    *LIFE,
    "SubmitAndClaim",
    "ReleaseRunClaim",
    "RequestCancel",
    "TouchProgress",
    "SaveRunEvent",
    "UpdateRunMeta",
    "MarkLeaseExpired",
    "GetLeaseExpired",
    "ReclaimRun",
    "SweepStaleRuns",
    "SweepAbandonedRuns",
    "GetRun",
)

PROFILES: Final[dict[str, tuple[str, ...]]] = {
    "all": tuple(OPERATIONS),
    "pauses": (
        *LIFE,
        "SubmitAndClaim",
        "ReleaseRunClaim",
        "RequestCancel",
        "RequestPause",
        "TryPauseRun",
        "PauseRun",
        "GetPauseState",
        "GetRunControl",
        "GetRun",
    ),
    "evidence": (
        *LIFE,
        "SaveRunEvent",
        "SaveTrace",
        "SaveToolCall",
        "SaveUsage",
        "SaveLLMInteraction",
        "UpdateRunMeta",
        "TouchProgress",
        "GetRunEvents",
        "GetEventsForRuns",
        "GetTraces",
        "GetToolCalls",
        "GetLLMInteractions",
    ),
    "tools": (
        *LIFE,
        "StartToolCall",
        "CompleteToolCall",
        "SaveToolCall",
        "SaveTrace",
        "SaveRunEvent",
        "GetToolCalls",
        "GetReplayedToolCalls",
        "GetTraces",
        "GetRunEvents",
        "GetPiiMapping",
    ),
    "notes": (*LIFE, "AddNote", "MarkNotesDelivered", "GetNotes", "GetRunControl"),
    "family": (
        *LIFE,
        "RequestCancel",
        "SaveLLMInteraction",
        "CancelSubtree",
        "GetDelegationInfo",
        "GetSubtree",
        "RunUsage",
        "SubtreeUsage",
        "ChildRunsPage",
        "ListRuns",
    ),
    "leases": LEASES,
    "time": (*LEASES, "PutBlob", "CollectGarbage"),
    "blobs": (
        *LIFE,
        "SubmitAndClaim",
        "SaveTrace",
        "SaveToolCall",
        "PutBlob",
        "ReadBlob",
        "BlobInfo",
        "BlobReferences",
        "PurgeBlob",
        "CollectGarbage",
    ),
    "checkpoints": (
        *LIFE,
        "CheckpointStep",
        "SubmitAndClaim",
        "ConsumeSubmission",
        "ReleaseRunClaim",
        "SaveTrace",
        "GetLoopState",
        "GetTraces",
        "GetTracesAfter",
        "ConversationTraces",
    ),
    "tenants": (
        "CreateRun",
        "ClaimPausedRun",
        "PauseWithEvent",
        "AddNote",
        "GetNotes",
        "GetRun",
        "ListRuns",
        "CountRuns",
    ),
}
"""A machine's profile by name."""
