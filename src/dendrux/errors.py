"""Every error of the public API, one line of meaning each.

An error's docstring is its default message. `code` is stable and is what the model, the kit and reports compare.
No error carries SQL, parameters, URLs, passwords or driver text, and none has a `__cause__` or `__context__` that does.
"""

from __future__ import annotations

from typing import ClassVar


class PersistenceError(Exception):
    """The store could not carry out the operation."""

    code: str = "persistence_error"
    retryable: bool = False

    def __init__(
        self,
        message: str | None = None,
        *,
        operation: str | None = None,
        run_id: str | None = None,
        kind: str | None = None,
        db_code: str | None = None,
        constraint: str | None = None,
        attempts: int = 1,
        error_id: str | None = None,
    ) -> None:
        text = message or (type(self).__doc__ or "").split("\n\n")[0]
        if operation is not None:
            text = f"{operation}: {text}"
        if error_id is not None:
            text = f"{text} [error {error_id}]"
        super().__init__(text)
        self.operation = operation
        """The StateStore method that was called."""
        self.run_id = run_id
        self.kind = kind
        """The DbErrorKind of the database's answer, when there was one."""
        self.db_code = db_code
        """SQLSTATE or errno, when the driver gives one."""
        self.constraint = constraint
        """Name of a violated constraint of our own schema."""
        self.attempts = attempts
        """How many transactions were tried."""
        self.error_id = error_id
        """The id under which the logger `dendrux.store` wrote the same facts."""


class StoreOutcomeUnknown(PersistenceError):
    """The connection failed during COMMIT and the store cannot prove whether the write happened.

    Never run claimed work on it and never retry a claim blindly: lease and reclaim recover the run.
    """

    code = "store_outcome_unknown"


class StoreUnavailableError(PersistenceError):
    """The database cannot be reached. Nothing was written; try again later."""

    code = "store_unavailable"
    retryable = True


class StoreBusyError(PersistenceError):
    """Locks held by others outlasted the store's retries. Nothing was written; try again later."""

    code = "store_busy"
    retryable = True


class StatementTooLargeError(PersistenceError):
    """The database refuses a statement of this size. Store less in one write, or raise the server's limit."""

    code = "statement_too_large"


class WriteConflictError(PersistenceError):
    """A row with this identity or at this position exists and holds something else."""

    code = "write_conflict"


class StaleClaimError(PersistenceError):
    """The caller does not hold this run under that epoch, or no longer does. Drop the work; do not retry the write."""

    code = "stale_claim"


class RunClosedError(PersistenceError):
    """The parent run has ended or is being cancelled, so it can have no new child."""

    code = "run_closed"


class ToolCallNotStartedError(PersistenceError):
    """No intent of this tool call was stored, so it has nothing to complete: start it first."""

    code = "tool_call_not_started"


class SchemaNotInitializedError(PersistenceError):
    """The database has no dendrux tables. Create them once with Base.metadata.create_all or `dendrux db migrate`."""

    code = "schema_not_initialized"


class SchemaOutOfDateError(PersistenceError):
    """The database's dendrux tables are of another release: of an older one, which `dendrux db migrate` helps, or of a
    later one, which needs that release. The message says which.
    """

    code = "schema_out_of_date"


class RunNotFoundError(LookupError):
    """The run does not exist, or is outside the given tenant scope."""

    code: ClassVar[str] = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} does not exist or is outside the given tenant scope")
        self.run_id = run_id


class BlobNotFoundError(LookupError):
    """The blob does not exist, was purged, is being deleted, or belongs to another tenant."""

    code: ClassVar[str] = "blob_not_found"

    def __init__(self, sha256: str) -> None:
        super().__init__(f"blob {sha256!r} does not exist, was purged, or is outside the given tenant scope")
        self.sha256 = sha256


class BlobIntegrityError(RuntimeError):
    """The stored bytes of a blob are not those that were put: they are missing, or length or sha256 differ."""

    code: ClassVar[str] = "blob_integrity"

    def __init__(self, sha256: str, check: str) -> None:
        super().__init__(f"the stored bytes of blob {sha256!r} fail the check of their {check}")
        self.sha256 = sha256
        self.check = check
        """What failed: `presence`, `length` or `sha256`."""


class RunAlreadyTerminalError(RuntimeError):
    """The run has ended; its log, conversation and tool calls are final."""

    code: ClassVar[str] = "run_terminal"

    def __init__(self, run_id: str, current_status: str) -> None:
        super().__init__(f"run {run_id!r} has ended with status {current_status!r}; nothing can be added to it")
        self.run_id = run_id
        self.current_status = current_status


class IdempotencyConflictError(RuntimeError):
    """The idempotency key was used before with another fingerprint."""

    code: ClassVar[str] = "idempotency_conflict"

    def __init__(self, run_id: str, idempotency_key: str) -> None:
        super().__init__(f"idempotency key {idempotency_key!r} was used for run {run_id!r} with another fingerprint")
        self.run_id = run_id
        self.idempotency_key = idempotency_key


class RunNotPausedError(RuntimeError):
    """The run does not wait for anybody, so nothing can be submitted to it."""

    code: ClassVar[str] = "run_not_paused"

    def __init__(self, run_id: str, current_status: str) -> None:
        super().__init__(f"run {run_id!r} has status {current_status!r} and waits for nobody")
        self.run_id = run_id
        self.current_status = current_status


class PauseStatusMismatchError(RuntimeError):
    """The run waits for something else than what was submitted, or is at another pause by now."""

    code: ClassVar[str] = "pause_mismatch"

    def __init__(self, run_id: str, current_status: str, expected_status: str) -> None:
        super().__init__(f"run {run_id!r} waits as {current_status!r}, and this answers {expected_status!r}")
        self.run_id = run_id
        self.current_status = current_status
        self.expected_status = expected_status


class RunAlreadyClaimedError(RuntimeError):
    """Somebody else took the paused run first. What was submitted here is stored nowhere."""

    code: ClassVar[str] = "run_already_claimed"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} was taken by somebody else first; what was submitted here is stored nowhere")
        self.run_id = run_id


class RunAlreadyActiveError(RuntimeError):
    """A run with this idempotency key is under way; ask for its result later."""

    code: ClassVar[str] = "run_already_active"

    def __init__(self, run_id: str, current_status: str) -> None:
        super().__init__(f"run {run_id!r} with this idempotency key is under way with status {current_status!r}")
        self.run_id = run_id
        self.current_status = current_status


class InvalidToolResultError(ValueError):
    """What was submitted does not answer what the run waits for."""

    code: ClassVar[str] = "invalid_tool_result"

    def __init__(self, run_id: str, detail: str) -> None:
        super().__init__(f"run {run_id!r}: {detail}")
        self.run_id = run_id
        self.detail = detail


class InboxFullError(RuntimeError):
    """The run's inbox holds as many undelivered notes as it may. Submit the note again after its next turn."""

    code: ClassVar[str] = "inbox_full"

    def __init__(self, run_id: str, max_pending: int) -> None:
        super().__init__(f"run {run_id!r} has {max_pending} undelivered notes; submit again after its next turn")
        self.run_id = run_id
        self.max_pending = max_pending


class DelegationDepthExceededError(RuntimeError):
    """Agents delegate to agents deeper than allowed. Nothing was created."""

    code: ClassVar[str] = "delegation_depth"

    def __init__(self, level: int, max_depth: int) -> None:
        super().__init__(f"a run at delegation level {level} exceeds max_delegation_depth={max_depth}")
        self.level = level
        self.max_depth = max_depth


class ModelError(RuntimeError):
    """The model gave no answer that can be used: it is too large, cannot be stored, or did not come."""

    code: ClassVar[str] = "model_error"


class StoreCapabilityError(TypeError):
    """A store declares a capability that its methods do not keep. The message names the repair."""

    code: ClassVar[str] = "store_capability"

    def __init__(self, message: str, *, capability: str, store: str) -> None:
        super().__init__(message)
        self.capability = capability
        self.store = store


REFUSALS: tuple[type[Exception], ...] = (
    WriteConflictError,
    StaleClaimError,
    RunClosedError,
    RunNotFoundError,
    BlobNotFoundError,
    RunAlreadyTerminalError,
    ToolCallNotStartedError,
    IdempotencyConflictError,
)
"""Outcomes by which a store says no for a reason of state: observations like any value."""

UNAVAILABLE: tuple[type[PersistenceError], ...] = (StoreUnavailableError, StoreBusyError)
"""Outcomes that promise no effect."""
