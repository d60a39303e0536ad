"""Every operation of a store as a value, one module per noun.

`OPERATIONS` holds them by name; each class is named after the StateStore method it stands for.
"""

from dendrux_model.operations.base import OPERATIONS, Known, LostAck, Operation, Parts, Step
from dendrux_model.operations.blobs import (
    BlobInfo,
    BlobReferences,
    CollectGarbage,
    PurgeBlob,
    PutBlob,
    ReadBlob,
)
from dendrux_model.operations.claims import ClaimPausedRun, ConsumeSubmission, ReleaseRunClaim, SubmitAndClaim
from dendrux_model.operations.control import GetRunControl, RequestCancel, RequestPause
from dendrux_model.operations.delegation import (
    CancelSubtree,
    ChildRunsPage,
    GetDelegationInfo,
    GetSubtree,
    RunUsage,
    SubtreeUsage,
)
from dendrux_model.operations.events import GetEventsForRuns, GetRunEvents, SaveRunEvent
from dendrux_model.operations.finish import FinalizeRun, FinalizeRunIfStatusIn, FinalizeWithEvent
from dendrux_model.operations.leases import (
    GetLeaseExpired,
    MarkLeaseExpired,
    ReclaimRun,
    SweepAbandonedRuns,
    SweepStaleRuns,
    TouchProgress,
)
from dendrux_model.operations.listing import CountRuns, GetRunStatuses, ListRuns
from dendrux_model.operations.notes import AddNote, GetNotes, MarkNotesDelivered
from dendrux_model.operations.pauses import GetPauseState, GetPending, PauseRun, PauseWithEvent, TryPauseRun
from dendrux_model.operations.runs import CreateRun, GetPiiMapping, GetRun, UpdateRunMeta
from dendrux_model.operations.runs_checkpoint import CheckpointStep, GetLoopState
from dendrux_model.operations.tool_calls import (
    CompleteToolCall,
    GetReplayedToolCalls,
    GetToolCalls,
    SaveToolCall,
    StartToolCall,
)
from dendrux_model.operations.traces import ConversationTraces, GetTraces, GetTracesAfter, SaveTrace
from dendrux_model.operations.usage import GetLLMInteractions, SaveLLMInteraction, SaveUsage

__all__ = [
    "OPERATIONS",
    "AddNote",
    "BlobInfo",
    "BlobReferences",
    "CancelSubtree",
    "CheckpointStep",
    "ChildRunsPage",
    "ClaimPausedRun",
    "CollectGarbage",
    "CompleteToolCall",
    "ConsumeSubmission",
    "ConversationTraces",
    "CountRuns",
    "CreateRun",
    "FinalizeRun",
    "FinalizeRunIfStatusIn",
    "FinalizeWithEvent",
    "GetDelegationInfo",
    "GetEventsForRuns",
    "GetLLMInteractions",
    "GetLeaseExpired",
    "GetLoopState",
    "GetNotes",
    "GetPauseState",
    "GetPending",
    "GetPiiMapping",
    "GetReplayedToolCalls",
    "GetRun",
    "GetRunControl",
    "GetRunEvents",
    "GetRunStatuses",
    "GetSubtree",
    "GetToolCalls",
    "GetTraces",
    "GetTracesAfter",
    "Known",
    "ListRuns",
    "LostAck",
    "MarkLeaseExpired",
    "MarkNotesDelivered",
    "Operation",
    "Parts",
    "PauseRun",
    "PauseWithEvent",
    "PurgeBlob",
    "PutBlob",
    "ReadBlob",
    "ReclaimRun",
    "ReleaseRunClaim",
    "RequestCancel",
    "RequestPause",
    "RunUsage",
    "SaveLLMInteraction",
    "SaveRunEvent",
    "SaveToolCall",
    "SaveTrace",
    "SaveUsage",
    "StartToolCall",
    "Step",
    "SubmitAndClaim",
    "SubtreeUsage",
    "SweepAbandonedRuns",
    "SweepStaleRuns",
    "TouchProgress",
    "TryPauseRun",
    "UpdateRunMeta",
]
